"""What a sealed window writes: its session, the journal's events, and its signed receipt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from typing import Any

from crp_integrations.audit.drafts import draft_session_created
from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.trail import closing_data
from crp_integrations.audit.window_seals import parents_of
from crp_integrations.dpe.pipeline import Examination
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.continuation import is_summary
from crp_integrations.envelope.records import EarlierWindow, Envelope
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.policy.inheritance import combine_strictest
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.policy.records import Policy
from crp_integrations.policy.verdict import DELIVER, UNREACHABLE, WITHHOLD, needs_review
from crp_integrations.receipt.draft import draft
from crp_integrations.receipt.leaves import salt_key
from crp_integrations.receipt.ports import receipts_of
from crp_integrations.receipt.records import Draft, issue
from crp_integrations.receipt.redaction import erased
from crp_integrations.receipt.signed_statement import Chain, signing_key
from crp_integrations.receipt.window_values import Asked, Decided, InForce, WindowValues
from crp_integrations.relay.records import Request
from crp_integrations.relay.session_admission import Admission
from crp_integrations.relay.verdict import AnswerVerdict, Unreachable, Withhold
from crp_integrations.relay.window_envelope import WindowEnvelope
from crp_integrations.relay.window_outcome import DraftMaker, WindowEnd, usage_fields
from crp_integrations.relay.world import UnwrittenReceipt, World
from crp_integrations.seals import iso, sha256
from crp_integrations.session import budget as safety
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import REFUSED, Session, WindowNode, new_continuation
from crp_integrations.session.settings import SafetyBudgetSettings
from crp_integrations.vocabulary import AiActClass, EventType, Pattern, RiskLevel


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """What was committed for the session.

    Attributes:
        charged: what the window took from the safety budget.
        prior: what a continuation may know of the window; None when it was not delivered.
        kept: whether its report was handed to the store.
        stored: whether the store keeps the session and the window; else memory does.
        placed: whether the window is one of the session's graph. A question that was refused
            before it had come in is sealed behind the session that it named, and is none, unless
            the session begins with it.
    """

    session: Session
    node: WindowNode
    charged: float
    prior: EarlierWindow | None
    kept: bool = False
    stored: bool = False
    placed: bool = True


def update_session(
    transaction: Transaction,
    world: World,
    admission: Admission | None,
    end: WindowEnd,
    seal: WindowSeal,
    risk_level: RiskLevel,
    now: datetime,
    earlier: Sequence[WindowSeal],
    follows: Sequence[WindowSeal],
    *,
    said: str | None,
) -> SessionUpdate:
    """Charge the safety budget and keep the window, within the transaction that seals it.

    Spec: CRP-SPEC-005 §7.4, §19.3; related facts §5, §8

    The session is read again here, so that two windows that end at the same time are both
    charged. Under `no-store` nothing is written, and the caller holds the update in memory. Only an
    answer that is delivered is charged; an answer that is asked for again is not.
    """
    sessions = sessions_of(transaction)
    at = iso(now)
    stored = sessions.session(seal.session_id)
    known = stored or world.session_memories.of(seal.session_id).session
    session = known or Session(
        session_id=seal.session_id,
        created_at=at,
        modified_at=at,
        safety_budget=admission.safety_budget
        if admission
        else world.settings.sessions.budget.start,
    )
    before = session.safety_budget
    if admission is not None:
        before = safety.apply_ceiling(before, admission.safety_budget)
        if end.sibling:
            # Each window of a fan-out has the whole budget of the window that it fans out of, and
            # the smallest budget that is left goes on.
            before = admission.safety_budget
    left = before
    if end.outcome == "released":
        left = safety.charge(before, risk_level, world.settings.sessions.budget.costs)
    session = session.changed(
        modified_at=at,
        safety_budget=min(session.safety_budget, left),
        policy=_session_policy(session.policy, admission),
        ended=session.ended
        or safety.is_spent(min(session.safety_budget, left), world.settings.sessions.budget),
        tool_calls=session.tool_calls + end.tool_calls,
        **(end.born if _begins_session(known, admission, end, earlier) else {}),
    )
    placed = admission is not None or seal.outcome != REFUSED or not earlier
    node = WindowNode(
        window_id=seal.window_id,
        session_id=seal.session_id,
        window_number=seal.window_number,
        parents=tuple(parent.window_id for parent in follows),
        pattern=admission.pattern if admission else Pattern.LINEAR,
        strategy=end.strategy,
        continuation_id=new_continuation(world.ids, seal.window_number, world.settings.max_windows)
        if seal.outcome == "released"
        else "",
        etag=seal.etag,
        quality_tier=end.envelope.quality_tier if end.envelope else None,
        risk_level=risk_level,
        safety_budget=left,
        hmac=seal.hmac,
        timestamp=seal.timestamp,
        tokens=end.tokens,
        response_hash=seal.response_hash,
        outcome=seal.outcome,
        transfer=end.transfer.type if end.transfer else None,
        tokens_transferred=end.transfer.tokens if end.transfer else 0,
        summary_hash=end.transfer.summary_hash if end.transfer else "",
    )
    prior = _prior_window(end, seal)
    # A window that is not stored still charges and tightens the budget and policy of a stored
    # session: its numbers, ids and hashes are kept, but none of its text.
    if placed and (end.keep or stored is not None):
        # A session that has ended stays as it is; a window refused for that reason is sealed.
        if stored is None or not stored.ended:
            sessions.keep(session)
        sessions.add_window(
            node,
            prior=None if said is None else prior,
            report=said or "",
            facts=[fact.fact_id for fact in end.envelope.facts] if end.envelope else [],
            given=[window.window_id for window in admission.given] if admission else [],
        )
    return SessionUpdate(
        session,
        node,
        round(before - left, 4),
        prior,
        kept=placed and end.keep and said is not None,
        stored=end.keep or stored is not None,
        placed=placed,
    )


def _begins_session(
    kept: Session | None, admission: Admission | None, end: WindowEnd, earlier: Sequence[WindowSeal]
) -> bool:
    """Whether a window decides whose its session is: the first one that was not refused."""
    if admission is None and end.outcome == REFUSED:
        return False
    return kept is None or all(seal.outcome == REFUSED for seal in earlier)


def _session_policy(kept: str, admission: Admission | None) -> str:
    """The session's policy: no window that began before a stricter one was stated relaxes it."""
    if admission is None or not admission.stated:
        return kept
    return render_policy(
        combine_strictest(admission.policy, parse_policy(kept)) if kept else admission.policy
    )


def _prior_window(end: WindowEnd, seal: WindowSeal) -> EarlierWindow | None:
    if end.envelope is None or seal.outcome != "released":
        return None
    envelope = end.envelope.model_copy(update={"window_number": seal.window_number})
    prior = envelope.as_prior(hashes=end.hashes)
    # These are the engine's own values: dozens of facts are not validated twice.
    return prior.model_copy(update={"answer": end.text, "window_id": seal.window_id})


def window_events(
    seal: WindowSeal,
    end: WindowEnd,
    report: Report,
    update: SessionUpdate,
    settings: SafetyBudgetSettings,
    fallen: Mapping[str, object],
    pack: Mapping[str, Any] | None,
) -> list[tuple[EventType, dict[str, Any]]]:
    """The window's events; ids, hashes, counts and words of closed lists only.

    Spec: related facts §5

    Facts that a session holds in memory leave nothing on disk, so they are counted and not named:
    an id follows from what the fact says, and would confirm a guess at it.
    """
    events = [
        *_opening_events(seal, end, update, pack),
        *((event_type, dict(data)) for event_type, data in end.notes),
        *(
            _examination_events(seal, report, end, fallen)
            if seal.outcome in ("released", "halted")
            else [(EventType.DISPATCH_FAILED, {"outcome": seal.outcome, "error": end.error})]
        ),
        *_session_events(update, settings),
    ]
    # The seal's formula leaves some of its fields out; here the journal's chain covers them.
    events[-1][1].update(closing_data(seal))
    return events


def _opening_events(
    seal: WindowSeal, end: WindowEnd, update: SessionUpdate, pack: Mapping[str, Any] | None
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    if seal.window_number == 1:
        session = update.session
        created = draft_session_created(
            seal.session_id,
            seal.window_id,
            policy_hash=sha256(session.policy) if session.policy else "",
            parent_session=session.parent_session,
            loop_depth=session.loop_depth,
            agent=session.agent_id,
        )
        yield created.event_type, dict(created.data)
    else:
        fields: dict[str, Any] = {"parent_hmac": seal.parent_hmac}
        if end.outdated:
            fields["outdated"] = list(end.outdated)
        yield EventType.SESSION_CONTINUED, fields
    if pack is None:
        return
    yield EventType.FACT_RETRIEVED, dict(pack)
    began: dict[str, Any] = {"model": end.model, "etag": pack["etag"]}
    began |= {step.step.value: step.counts for step in end.steps}
    if end.invocation_hash:
        began["invocation_hash"] = end.invocation_hash
    yield EventType.DISPATCH_STARTED, began


def _examination_events(
    seal: WindowSeal, report: Report, end: WindowEnd, fallen: Mapping[str, object]
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    yield (
        EventType.DISPATCH_COMPLETED,
        {"response_hash": seal.response_hash, **usage_fields(end.usage)},
    )
    yield (
        EventType.DPE_COMPLETED,
        {"report_hash": seal.report_hash, "risk_level": report.risk_level.value, **fallen},
    )
    for event_type, count in (
        (EventType.FABRICATION_DETECTED, report.fabrication_count),
        (EventType.DISTORTION_DETECTED, report.distortion_count),
        (EventType.CONTRADICTION_DETECTED, report.contradiction_count),
        (EventType.REPETITION_DETECTED, len(report.quality.repetition.sentences)),
        (EventType.COMPLETENESS_GAP, len(report.uncovered_sub_queries)),
        (EventType.PII_DETECTED, len(report.personal.found)),
    ):
        if count:
            yield event_type, {"count": count}
    if report.eu_ai_act_class is not AiActClass.UNKNOWN:
        yield EventType.EU_AI_ACT_CLASSIFIED, {"class": report.eu_ai_act_class.value}
    if seal.outcome == "halted":
        yield EventType.SAFETY_HALT, {"reason": end.reason} if end.reason else {}


def _session_events(
    update: SessionUpdate, settings: SafetyBudgetSettings
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    if update.charged and safety.halts(update.session.safety_budget, settings):
        yield (EventType.SAFETY_BUDGET_DEPLETED, {"budget": f"{update.session.safety_budget:.4f}"})
    if update.node.pattern is Pattern.FAN_IN:
        yield EventType.FAN_IN_MERGED, {"parents": list(update.node.parents)}


def receipt_contents(
    request: Request,
    world: World,
    packing: WindowEnvelope,
    further: Sequence[ModelCall],
    *,
    envelope: Envelope | None,
    text: str,
    reply: Reply | None,
    report: Report,
    examined: tuple[Examination, int] | None,
    sources: Mapping[str, str],
    admission: Admission | None,
    verdict: AnswerVerdict | None,
) -> WindowValues:
    """The values that a window's receipt is made of.

    Spec: CRP-SPEC-005 §15.4
    """
    fitted = packing.last
    made = packing.made if fitted is not None and envelope is not None else None
    calls = () if fitted is None else (fitted.call, *further)
    return WindowValues(
        asked=asked_question(request, fitted.call if fitted else None),
        report=report,
        settings=settings_in_force(world),
        fit=made,
        envelope=fitted.envelope if fitted is not None and made is not None else None,
        calls=calls,
        text=text,
        answered_by=reply.model if reply else "",
        finish_reason=reply.finish_reason if reply else "",
        examined=examined[0] if examined else None,
        sources=sources,
        flags_before=examined[1] if examined else len(report.flags),
        decided=decision_of(request, envelope, admission, verdict, world),
        embedder=packing.namespace.embedder.identity,
        reranker=world.reranker.identity if world.reranker else "",
        state={"state_hash": made.candidates.state_hash} if made else {},
    )


def settings_in_force(world: World) -> InForce:
    """A world's settings as a receipt tells them."""
    return InForce(
        world.settings_digest,
        world.settings.envelope,
        world.settings.dpe,
        world.settings.receipt_weights,
    )


@cache
def _version() -> str:
    return version("crp-integrations")


def draft_maker(window: WindowValues) -> DraftMaker:
    """Makes the draft of a receipt once the window has its seal."""

    def drafted(seal: WindowSeal, report: Report) -> Draft:
        hashes = {"response_hash": seal.response_hash, "report_hash": seal.report_hash}
        return draft(window.sealed(report, **hashes), _version())

    return drafted


def asked_question(request: Request, call: ModelCall | None) -> Asked:
    """What was asked, as the model was sent it."""
    return Asked(
        query=request.query,
        system_prompt=request.system_prompt,
        history=request.history,
        results=request.results,
        instructions=request.instructions,
        tools=request.tools,
        grounding=request.grounding,
        strategy=request.strategy,
        oversight=request.oversight,
        max_tokens=request.max_tokens,
        temperature=call.temperature if call else request.temperature,
        seed=request.seed,
    )


def decision_of(
    request: Request,
    envelope: Envelope | None,
    admission: Admission | None,
    verdict: AnswerVerdict | None,
    world: World,
) -> Decided:
    """What the policies said, and what became of the answer."""
    policy = admission.policy if admission else Policy()
    left = admission.safety_budget if admission else 1.0
    if verdict is None:
        return Decided(policy, admission.report_only if admission else None, safety_budget=left)
    decision = DELIVER
    if isinstance(verdict.decision, Withhold):
        decision = WITHHOLD
    elif isinstance(verdict.decision, Unreachable):
        decision = UNREACHABLE
    return Decided(
        policy=verdict.policy,
        report_only=verdict.report_only,
        judgement=verdict.judgement,
        reported=verdict.reported,
        tier=envelope.quality_tier if envelope else None,
        decision=decision,
        reason=str(verdict.reason or ""),
        approved=verdict.approved,
        safety_budget=left,
        reviewed=needs_review(verdict.judgement, safety.round_budget(left), verdict.terms),
        terms=verdict.terms,
    )


def issue_receipt(
    transaction: Transaction,
    namespace: Namespace,
    world: World,
    end: WindowEnd,
    seal: WindowSeal,
    report: Report,
    update: SessionUpdate,
    stored: Set[str],
) -> UnwrittenReceipt | None:
    """Sign the receipt on a window, and keep it where its report is kept."""
    log = receipts_of(transaction)
    if end.draft is None or log is None:
        return None
    with world.tracer.step("receipt"):
        draft = end.draft(seal, report)
        of = {leaf.fact_id: leaf.source_id for leaf in draft.leaves if leaf.fact_id}
        written = update.kept and (
            of.keys() <= stored
            or all(id_ in stored or is_summary(source_id) for id_, source_id in of.items())
        )
        tenant = namespace.subject.tenant
        master = world.keyring.master()
        receipt = issue(
            draft,
            Chain.of(seal, parents_of(seal)),
            signing_key(master, tenant),
            salt_key(master, tenant),
        )
        if written:
            if sessions_of(transaction).report(seal.window_id) is None:
                # A source of it was withdrawn while the answer was under way.
                receipt = erased(receipt, of.keys(), answers=True)
            log.add(receipt, {id_: source_id for id_, source_id in of.items() if source_id})
    return UnwrittenReceipt(receipt, written)
