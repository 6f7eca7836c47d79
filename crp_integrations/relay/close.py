"""The end of a window: number, report, seal, session, journal and headers, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from pydantic_core import to_json

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.report import finished
from crp_integrations.envelope.continuation import is_summary
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import CRPError, PolicyRelaxed, SafetyHalt, StoreDamaged
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.session_memory import FactUse
from crp_integrations.governance.window_trace import PackTrace
from crp_integrations.headers.codec import write_response
from crp_integrations.headers.records import CacheOutcome, ResponseHeaders, SetSessionValue
from crp_integrations.headers.response_headers import WindowContext, render_headers, retry_for
from crp_integrations.policy.policy_text import policy_hash
from crp_integrations.policy.policy_text import render_policy as written
from crp_integrations.relay.close_records import (
    SessionUpdate,
    issue_receipt,
    update_session,
    window_events,
)
from crp_integrations.relay.records import Request
from crp_integrations.relay.safeguards import EXAMINED, count_findings, count_shared, quarantine
from crp_integrations.relay.session_admission import Admission, new_nonce, token_scope
from crp_integrations.relay.single_window import AnswerPasses
from crp_integrations.relay.verdict import AnswerVerdict, halted_mode, oversight_of
from crp_integrations.relay.window_outcome import (
    Note,
    WindowCalls,
    WindowEnd,
    observe,
    pack_columns,
    trace_of,
)
from crp_integrations.relay.world import World
from crp_integrations.seals import iso, sha256, sha256_hex, window_hmac
from crp_integrations.session import budget as safety
from crp_integrations.session import token
from crp_integrations.session import window_graph as graph
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import DELIVERED, REFUSED, WindowNode
from crp_integrations.session.token import SessionToken
from crp_integrations.session.window_graph import find_degradation, lineage, quality_tiers, root_of
from crp_integrations.vocabulary import AdviceWord, ChainIntegrity, EventType, HaltReason, Strategy

WINDOW_ID_LENGTH = 16


def window_id(session_id: str, number: int, residency: str = "", turn: int = 0) -> str:
    """The id of a session's n-th window in a region; equal sessions replay to equal ids.

    Each region has its own chain of a session's windows, so the region is part of the id.
    """
    fields = [session_id, str(number), *((residency,) if residency else ())]
    if turn:
        fields.append(f"turn-{turn}")
    return "crp_win_" + sha256_hex("\u241f".join(fields))[:WINDOW_ID_LENGTH]


def followed_windows(
    earlier: Sequence[WindowSeal], admission: Admission | None
) -> list[WindowSeal]:
    """The windows that one follows: those that it names, else the session's last one.

    Nothing follows a refused window, unless there is no other: so a question that was refused uses
    up none of the windows that a session may have in a row.
    """
    if admission is not None and admission.named:
        named = {parent.window_id for parent in admission.parents}
        return [seal for seal in earlier if seal.window_id in named]
    asked = [seal for seal in earlier if seal.outcome != REFUSED]
    return (asked or list(earlier[:1]))[-1:]


def new_window_id(
    earlier: Sequence[WindowSeal], session_id: str, number: int, residency: str, sibling: int
) -> str:
    """The id of a new window; windows of one fan-out have theirs by their place in it."""
    taken = {seal.window_id for seal in earlier if seal.window_number == number}
    turn = sibling
    while (made := window_id(session_id, number, residency, turn)) in taken:
        turn += len(taken) + 1
    return made


def require_place(
    transaction: Transaction,
    world: World,
    session_id: str,
    admission: Admission | None,
    outcome: str,
) -> None:
    """Refuse an answer whose place was taken by another answer asked for at the same time.

    Spec: related facts §5
    """
    if admission is None or outcome not in DELIVERED or not (admission.token or admission.named):
        return
    held = world.memory.sessions.of(session_id).nodes
    windows = sorted(
        (*sessions_of(transaction).windows(session_id), *held), key=lambda node: node.window_number
    )
    if admission.token is not None:
        token.window_of_token(admission.token, windows)
    if admission.continues:
        graph.check_room(
            windows, [node.window_id for node in admission.parents], world.settings.sessions.graph
        )


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A sealed window.

    Attributes:
        report: with identity, hash, HMAC and chain integrity filled in.
        window_hmac: the window's HMAC on its own, without its parent.
        update: the session and the window's node as they were committed.
        receipt_id: of the receipt on it; empty for none.
    """

    seal: WindowSeal
    report: Report
    window_hmac: str
    update: SessionUpdate
    receipt_id: str = ""


def close(
    namespace: Namespace, world: World, session_id: str, admission: Admission | None, end: WindowEnd
) -> ClosedWindow:
    """Seal a window, commit everything that it leaves behind, and tell whoever observes.

    Spec: CRP-SPEC-005 §15.1, §15.4
    """
    with world.tracer.step("close"):
        closed, trace = _commit(namespace, world, session_id, admission, end)
    parent = closed.update.session.parent_session
    observe(world, end, closed.seal, closed.report, trace, closed.receipt_id, parent)
    return closed


def _commit(
    namespace: Namespace, world: World, session_id: str, admission: Admission | None, end: WindowEnd
) -> tuple[ClosedWindow, Callable[[], PackTrace] | None]:
    """Commit a window and everything that it leaves behind, together or not at all.

    The window's number is taken inside the transaction, so two turns that end at the same time get
    different numbers and one unbroken chain. `chain_integrity` covers only the HMACs of the
    session's earlier seals; `Relay.verify` checks the whole trail.
    """
    envelope = end.envelope
    key = session_key(world.keyring, session_id)
    shown = [(fact.fact_id, fact.source_id) for fact in envelope.facts] if envelope else []
    # Facts that were shown were candidates too.
    named = [*dict.fromkeys([*dict(shown), *end.candidates])]
    # Read before the transaction begins: one within another could wait for a connection for ever.
    elsewhere = namespace.stored_elsewhere(named)
    with (
        world.memory.sessions.one_by_one(wanted=not end.keep) as held,
        namespace.begin(write=True) as transaction,
    ):
        stored = elsewhere | namespace.stored_here(named, transaction)
        on_disk = (
            end.keep
            and not end.fleeting
            and all(id_ in stored or is_summary(source_id) for id_, source_id in shown)
        )
        earlier = transaction.journal.seals(session_id)
        require_place(transaction, world, session_id, admission, end.outcome)
        follows = followed_windows(earlier, admission)
        number = 1 + max((parent.window_number for parent in follows), default=0)
        identity = new_window_id(earlier, session_id, number, namespace.residency, end.sibling)
        now = world.clock.now()
        timestamp = iso(now)
        report, stored_report = finished(
            end.report,
            session_id=session_id,
            window_id=identity,
            window_number=number,
            timestamp=timestamp,
            settings_digest=world.settings_digest,
        )
        seal = window_seals.seal_window(
            transaction.journal,
            key,
            session_id=session_id,
            window_id=identity,
            window_number=number,
            timestamp=timestamp,
            response_hash=sha256(end.text),
            report_hash=report.report_hash,
            outcome=end.outcome,
            etag=envelope.etag if envelope else "",
            risk_level=report.risk_level.value,
            parents=[parent.hmac for parent in follows],
            earlier=earlier,
        )
        integrity = (
            window_seals.verify_seals(earlier, key) if earlier else ChainIntegrity.UNVERIFIED
        )
        update = update_session(
            transaction,
            world,
            admission,
            end,
            seal,
            report.risk_level,
            now,
            earlier,
            follows,
            said=to_json(stored_report).decode() if on_disk else None,
        )
        pack = pack_columns(end, envelope, stored) if envelope else None
        drafts = [
            EventDraft(event_type, data, session_id=session_id, window_id=identity)
            for event_type, data in window_events(
                seal,
                end,
                report,
                update,
                world.settings.sessions.budget,
                _tier_warning(admission, end, world),
                pack,
            )
        ]
        written = append_events(
            transaction.journal,
            journal_key(world.keyring, namespace.subject.tenant),
            drafts,
            timestamp,
        )
        if update.placed and not update.stored:
            held.append((update.session, update.node))
        receipt = issue_receipt(transaction, namespace, world, end, seal, report, update, stored)
        used = _count_uses(transaction, end, now)
        bad = count_findings(transaction, end, report, world.settings.fabric.lifecycle)
        if not world.settings.fabric.lifecycle.quarantine:
            bad = []
    if used and envelope:
        namespace.note_shared_use(used, now)
        namespace.shelve(
            session_id, (FactUse(f.fact_id, f.source_id, f.community) for f in envelope.facts)
        )
    quarantine(namespace, bad)
    count_shared(namespace, end, report, world.settings.fabric.lifecycle)
    if update.prior is not None and not on_disk:
        world.memory.sessions.keep_prior(session_id, update.prior)
    receipt_id = world.memory.receipts.add(receipt, namespace.residency)
    trace = None
    if envelope and pack:
        hmacs = (event.hmac for event in written if event.event_type is EventType.FACT_RETRIEVED)
        trace = partial(trace_of, seal, end, pack, next(hmacs, ""))
    alone = window_hmac(
        key,
        session_id=session_id,
        window_number=number,
        timestamp=timestamp,
        response_hash=seal.response_hash,
        report_hash=seal.report_hash,
        parent_hmac="",
    )
    # These are the engine's own values, so nothing is validated again.
    sealed = report.model_copy(update={"hmac": seal.hmac, "chain_integrity": integrity})
    return ClosedWindow(seal, sealed, alone, update, receipt_id), trace


def journal_events(
    namespace: Namespace, world: World, seal: WindowSeal, notes: Sequence[Note]
) -> None:
    """Add events about a window that is sealed already, such as a bridge to the next one."""
    drafts = [
        EventDraft(event_type, data, session_id=seal.session_id, window_id=seal.window_id)
        for event_type, data in notes
    ]
    world.journal(namespace, drafts)


def _tier_warning(
    admission: Admission | None, end: WindowEnd, world: World
) -> Mapping[str, object]:
    """What the trail is warned of when the tiers of a continued answer fall.

    Spec: CRP-SPEC-003 §14.3
    """
    if admission is None or end.envelope is None:
        return {}
    before = sorted(admission.prior, key=lambda window: window.window_number)
    history = [*(window.quality_tier for window in before), end.envelope.quality_tier]
    degradation = find_degradation(history, world.settings.envelope)
    return degradation.data if degradation else {}


def _count_uses(transaction: Transaction, end: WindowEnd, now: datetime) -> list[str]:
    if end.envelope is None or end.outcome not in EXAMINED or not end.keep:
        return []
    used = [fact.fact_id for fact in end.envelope.facts]
    if used:
        transaction.facts.touch(used, now)
    return used


INHERITANCE: Final = "inheritance"
# Windows from the root that a header has room for; a longer line has the root alone.
LONGEST_LINEAGE: Final = 250
LARGEST_SEED: Final = 10**15


@dataclass(frozen=True, slots=True)
class WindowHeaders:
    """Everything that the headers of a window are made of."""

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
    """What session, policy and agents say of a sealed window.

    Spec: related facts §3
    """
    closed, request, verdict = parts.closed, parts.request, parts.verdict
    session, node = closed.update.session, closed.update.node
    windows = (*(parts.admission.windows if parts.admission else ()), node)
    lineage_ids = _lineage(windows, node)
    judged = verdict.judgement if verdict else None
    violations = judged.violations if judged and judged.enforced else ()
    policy = parts.admission.policy if parts.admission else None
    names, settings = _places(closed), world.settings.headers
    seed = request.seed
    revised = request.strategy is Strategy.REFLEXIVE and parts.passes.done > 1
    return WindowContext(
        policy_applied=written(policy) if policy else "",
        violation=tuple(
            dict.fromkeys(violation.directive.partition(" ")[0] for violation in violations)
        ),
        oversight_mode=oversight_of(request, parts.admission, world.settings),
        halt_reason=verdict.reason if verdict else None,
        seed=seed if seed is not None and 0 <= seed < LARGEST_SEED else None,
        nonce=new_nonce(policy, world)
        if policy and parts.admission and parts.admission.stated
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
        lineage=lineage_ids if len(lineage_ids) <= LONGEST_LINEAGE else (),
        report_uri=settings.report_uri.format(**names) if closed.update.kept else "",
        trail_id=trail_id(closed.seal.session_id, request.residency),
        trail_uri=settings.trail_uri.format(**names),
        set_session=_set_session(parts, windows, world),
        flow_remedy=next(reversed(parts.calls.remedies), ""),
    )


def refusal_headers(
    error: CRPError, closed: ClosedWindow, world: World, residency: str = ""
) -> dict[str, str]:
    """The headers of a window that was refused before there was an envelope.

    Spec: related facts §3
    """
    halted = isinstance(error, SafetyHalt)
    reason = HaltReason(error.reason) if isinstance(error, SafetyHalt) and error.reason else None
    relaxed = isinstance(error, PolicyRelaxed)
    left, budget = closed.update.session.safety_budget, world.settings.sessions.budget
    return write_response(
        ResponseHeaders(
            session_id=closed.seal.session_id,
            violation=(INHERITANCE,) if relaxed else None,
            oversight_mode=halted_mode(reason),
            retry_after=retry_for(reason) if halted else None,
            safety_budget=left if halted else None,
            budget_warning=safety.warning_of(left, budget) if halted else None,
            trail_id=trail_id(closed.seal.session_id, residency),
            trail_uri=world.settings.headers.trail_uri.format(**_places(closed)) or None,
        )
    )


def trail_id(session_id: str, residency: str = "") -> str:
    """The name of a session's trail in a region.

    Spec: related facts §3
    """
    return "crp_trail_" + sha256_hex("\u241f".join(("trail", session_id, residency)))[:24]


def _places(closed: ClosedWindow) -> dict[str, str]:
    seal = closed.seal
    return {"session_id": seal.session_id, "window_id": seal.window_id}


def _lineage(windows: tuple[WindowNode, ...], node: WindowNode) -> tuple[str, ...]:
    """Windows from the root to this one; empty where one of them came while it was under way."""
    try:
        return lineage(windows, node.window_id)
    except StoreDamaged:
        return ()


def _set_session(
    parts: WindowHeaders, windows: tuple[WindowNode, ...], world: World
) -> SetSessionValue | None:
    """The token for the next window; none where the session has ended or was not admitted.

    Spec: CRP-SPEC-003 §14.3; related facts §5
    """
    closed, admission = parts.closed, parts.admission
    session, node = closed.update.session, closed.update.node
    if admission is None or session.ended or closed.seal.outcome not in DELIVERED:
        return None
    settings = world.settings.sessions.token
    now = int(world.clock.now().timestamp())
    # Of a session longer than its graph may be, the tiers of the last windows.
    history = quality_tiers(windows)[-world.settings.sessions.graph.nodes :]
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
    """The continuation id, where another window is suggested.

    Spec: CRP-SPEC-003 §10.3, §14.1; CRP-SPEC-005 §10.3
    """
    wanted = parts.envelope.suggests(AdviceWord.CONTINUE)
    wanted = wanted or parts.closed.report.quality.completeness.recommendation == "continue"
    return parts.closed.update.node.continuation_id or None if wanted else None
