"""The response headers of a sealed window, with the token for the next one.

Spec: related facts §3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import CRPError, PolicyRelaxed, SafetyHalt, StoreDamaged
from crp_integrations.headers.codec import write_response
from crp_integrations.headers.records import CacheOutcome, ResponseHeaders, SetSessionValue
from crp_integrations.headers.response_headers import WindowContext, render_headers, retry_for
from crp_integrations.policy.policy_text import policy_hash
from crp_integrations.policy.policy_text import render_policy as written
from crp_integrations.relay.records import Request
from crp_integrations.relay.session_admission import Admission, new_nonce, token_scope
from crp_integrations.relay.single_window import AnswerPasses
from crp_integrations.relay.verdict import AnswerVerdict, halted_mode, oversight_of
from crp_integrations.relay.window_records import WindowCalls
from crp_integrations.relay.window_seal import ClosedWindow
from crp_integrations.relay.world import World
from crp_integrations.seals import sha256_hex
from crp_integrations.session import budget as safety
from crp_integrations.session import token
from crp_integrations.session.records import DELIVERED, WindowNode
from crp_integrations.session.token import SessionToken
from crp_integrations.session.window_graph import lineage, quality_tiers, root_of
from crp_integrations.vocabulary import AdviceWord, HaltReason, Strategy

INHERITANCE: Final = "inheritance"
# Maximum number of windows in the lineage header; a longer lineage is given by its root only.
MAX_LINEAGE: Final = 250
MAX_SEED: Final = 10**15


@dataclass(frozen=True, slots=True)
class WindowHeaders:
    """Input for the headers of a window."""

    envelope: Envelope
    closed: ClosedWindow
    admission: Admission | None
    request: Request
    calls: WindowCalls
    passes: AnswerPasses
    cache_status: CacheOutcome | None
    verdict: AnswerVerdict | None = None


def window_headers(parts: WindowHeaders, world: World) -> dict[str, str]:
    """The response headers of a window.

    Spec: CRP-SPEC-003 §15, CRP-SPEC-005 §20
    """
    closed = parts.closed
    number = closed.seal.window_number
    return render_headers(
        parts.envelope,
        closed.report,
        session_id=closed.seal.session_id,
        window_number=number,
        window_total=max(number, world.settings.max_windows),
        seal=closed.seal,
        window_hmac=closed.window_hmac,
        cache_status=parts.cache_status,
        continuation_id=_suggested(parts),
        passed=session_values(parts, world),
        settings=world.settings.headers,
    )


def session_values(parts: WindowHeaders, world: World) -> WindowContext:
    """Header values of a sealed window from its session, policy and agents."""
    closed, request, verdict = parts.closed, parts.request, parts.verdict
    session, node = closed.update.session, closed.update.node
    windows = (*(parts.admission.windows if parts.admission else ()), node)
    lineage_ids = _lineage(windows, node)
    judgement = verdict.judgement if verdict else None
    violations = judgement.violations if judgement and judgement.enforced else ()
    demands = [violation.directive for violation in violations]
    demands += [verdict.cause(closed.report)[0]] if verdict else []
    policy = parts.admission.policy if parts.admission else None
    uri_fields, settings = _uri_fields(closed), world.settings.headers
    seed = request.seed
    revised = request.strategy is Strategy.REFLEXIVE and parts.passes.done > 1
    return WindowContext(
        policy_applied=written(policy) if policy else "",
        violation=tuple(dict.fromkeys(demand.partition(" ")[0] for demand in demands if demand)),
        oversight_mode=oversight_of(request, parts.admission, world.settings),
        halt_reason=verdict.reason if verdict else None,
        seed=seed if seed is not None and 0 <= seed < MAX_SEED else None,
        nonce=new_nonce(parts.admission.stated, world)
        if parts.admission and parts.admission.stated
        else "",
        residency=request.residency,
        phase=request.phase,
        loop_depth=request.loop_depth,
        safety_budget=session.safety_budget,
        budget_warning=safety.warning_of(session.safety_budget, world.settings.sessions.budget),
        tool_calls=session.tool_calls or None,
        session_parent=session.parent_session,
        revision_round=parts.passes.round if revised else None,
        dag_root=lineage_ids[0] if lineage_ids else root_of(windows),
        lineage=lineage_ids if len(lineage_ids) <= MAX_LINEAGE else (),
        report_uri=settings.report_uri.format(**uri_fields) if closed.update.reported else "",
        trail_id=trail_id(closed.seal.session_id, request.residency),
        trail_uri=settings.trail_uri.format(**uri_fields),
        set_session=_set_session(parts, windows, world),
        flow_remedy=next(reversed(parts.calls.remedies), ""),
    )


def refusal_headers(
    error: CRPError, closed: ClosedWindow, world: World, residency: str = ""
) -> dict[str, str]:
    """The headers of a window that was refused before it had an envelope."""
    halted = isinstance(error, SafetyHalt)
    reason = HaltReason(error.reason) if isinstance(error, SafetyHalt) and error.reason else None
    violation = (INHERITANCE,) if isinstance(error, PolicyRelaxed) else None
    if isinstance(error, SafetyHalt):
        violation = (error.directive.partition(" ")[0],)
    left, budget = closed.update.session.safety_budget, world.settings.sessions.budget
    return write_response(
        ResponseHeaders(
            session_id=closed.seal.session_id,
            violation=violation,
            oversight_mode=halted_mode(reason),
            retry_after=retry_for(reason) if halted else None,
            safety_budget=left if halted else None,
            budget_warning=safety.warning_of(left, budget) if halted else None,
            trail_id=trail_id(closed.seal.session_id, residency),
            trail_uri=world.settings.headers.trail_uri.format(**_uri_fields(closed)) or None,
        )
    )


def barred_error(reason: HaltReason, left: float, session_id: str, residency: str) -> SafetyHalt:
    """The error of a window for which no model may be asked, with `left` of its safety budget."""
    spent = reason is HaltReason.BUDGET_DEPLETED
    return SafetyHalt(
        f"no model was asked: {reason}",
        trail=trail_id(session_id, residency),
        reason=reason,
        session_id=session_id,
        directive="sessions.budget.enforce" if spent else "require-oversight halt",
        value=f"a safety budget of {left:.4g}" if spent else "no approval",
    )


def trail_id(session_id: str, residency: str = "") -> str:
    """The name of a session's trail in a region."""
    return "crp_trail_" + sha256_hex("\u241f".join(("trail", session_id, residency)))[:24]


def _uri_fields(closed: ClosedWindow) -> dict[str, str]:
    seal = closed.seal
    return {"session_id": seal.session_id, "window_id": seal.window_id}


def _lineage(windows: tuple[WindowNode, ...], node: WindowNode) -> tuple[str, ...]:
    """Windows from the root to this one; empty if one of them was added during this window."""
    try:
        return lineage(windows, node.window_id)
    except StoreDamaged:
        return ()


def _set_session(
    parts: WindowHeaders, windows: tuple[WindowNode, ...], world: World
) -> SetSessionValue | None:
    """The token for the next window; None if the session has ended or was not admitted.

    Spec: CRP-SPEC-003 §14.3; related facts §5
    """
    closed, admission = parts.closed, parts.admission
    session, node = closed.update.session, closed.update.node
    if admission is None or session.ended or closed.seal.outcome not in DELIVERED:
        return None
    settings = world.settings.sessions.token
    now = int(world.clock.now().timestamp())
    history = quality_tiers(windows)
    signed = token.sign_token(
        SessionToken(
            session_id=session.session_id,
            window_number=node.window_number,
            tiers=history,
            safety_budget=session.safety_budget,
            chain_tip=node.hmac,
            continuation_id=node.continuation_id,
            pattern=node.pattern,
            strategy=node.strategy,
            policy_hash=policy_hash(admission.policy),
            state_hash=parts.envelope.state_hash,
            scope=token_scope(world),
            issued_at=now,
            expires_at=token.expiry_of(now, settings),
        ),
        token.signing_key(world.keyring, session.session_id),
        settings,
    )
    return SetSessionValue(
        token=signed,
        window=node.window_number,
        quality_history=history,
        max_age_seconds=settings.lifetime_seconds,
    )


def _suggested(parts: WindowHeaders) -> str | None:
    """The continuation id, if another window is suggested; else None.

    Spec: CRP-SPEC-003 §10.3, §14.1; CRP-SPEC-005 §10.3
    """
    wanted = parts.envelope.suggests(AdviceWord.CONTINUE)
    wanted = wanted or parts.closed.report.quality.completeness.recommendation == "continue"
    return parts.closed.update.node.continuation_id or None if wanted else None
