"""The transaction that seals a window: number, report, seal, session, journal and receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic_core import to_json

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.report import finished
from crp_integrations.envelope.candidates import is_summary
from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.session_memory import FactUse
from crp_integrations.governance.window_trace import PackTrace
from crp_integrations.policy.inheritance import combine_strictest
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.relay.receipts import issue_receipt
from crp_integrations.relay.safeguards import EXAMINED, count_findings, count_shared, quarantine
from crp_integrations.relay.session_admission import Admission
from crp_integrations.relay.window_records import (
    Note,
    Sealing,
    SessionUpdate,
    WindowEnd,
    observe,
    pack_columns,
    trace_of,
    window_events,
)
from crp_integrations.relay.world import World
from crp_integrations.seals import iso, sha256, sha256_hex, window_hmac
from crp_integrations.session import budget as safety
from crp_integrations.session import token
from crp_integrations.session import window_graph as graph
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import (
    DELIVERED,
    REFUSED,
    Session,
    WindowNode,
    new_continuation,
)
from crp_integrations.session.window_graph import find_degradation
from crp_integrations.vocabulary import ChainIntegrity, EventType, Pattern

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
    """The seals of the windows that a new one follows: named ones, else the session's last one.

    A refused window is not followed, unless there is no other, so refused questions do not count
    towards the maximum number of windows.
    """
    if admission is not None and admission.named:
        named = {parent.window_id for parent in admission.parents}
        return [seal for seal in earlier if seal.window_id in named]
    asked = [seal for seal in earlier if seal.outcome != REFUSED]
    return (asked or list(earlier[:1]))[-1:]


def new_window_id(
    earlier: Sequence[WindowSeal], session_id: str, number: int, residency: str, sibling: int
) -> str:
    """The id of a new window; in a fan-out it depends on the window's number among its siblings."""
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
    """Refuse an answer if a concurrent answer has taken its place in the session.

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
        graph.check_limits(
            windows, [node.window_id for node in admission.parents], world.settings.sessions.graph
        )


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A sealed window.

    Attributes:
        report: the report with ids, hash, HMAC and chain integrity filled in.
        window_hmac: HMAC of the window alone, without its parents.
    """

    seal: WindowSeal
    report: Report
    window_hmac: str
    update: SessionUpdate
    receipt_id: str = ""


def close(
    namespace: Namespace, world: World, session_id: str, admission: Admission | None, end: WindowEnd
) -> ClosedWindow:
    """Seal a window, commit all its records, and pass its trace to the observer.

    Spec: CRP-SPEC-005 §15.1, §15.4
    """
    with world.tracer.step("close"):
        closed, trace = _commit(namespace, world, session_id, admission, end)
    observe(world, end, closed.seal, closed.report, trace, closed.receipt_id, closed.update)
    return closed


def _commit(
    namespace: Namespace, world: World, session_id: str, admission: Admission | None, end: WindowEnd
) -> tuple[ClosedWindow, Callable[[], PackTrace] | None]:
    """Commit a window with all its records in one transaction.

    The window's number is taken inside the transaction, so two turns that end at the same time get
    different numbers and one unbroken chain. `chain_integrity` covers only the HMACs of the
    session's earlier seals; `Relay.verify` checks the whole trail.
    """
    envelope, lifecycle = end.envelope, world.settings.fabric.lifecycle
    shown = {fact.fact_id: fact.source_id for fact in envelope.facts} if envelope else {}
    # Shown facts are candidates too; duplicates are removed.
    named = [*dict.fromkeys([*shown, *end.candidates])]
    # Read before the transaction begins: a nested one could wait for a connection forever.
    elsewhere = namespace.stored_elsewhere(named)
    # Made before the namespace is: beside a namespace, a missing key file is a lost one.
    key = session_key(world.keyring, session_id)
    with ExitStack() as stack:
        in_memory = stack.enter_context(world.memory.sessions.one_by_one(wanted=not end.keep))
        transaction = stack.enter_context(namespace.begin(write=True))
        stored = elsewhere | namespace.stored_here(named, transaction)
        require_place(transaction, world, session_id, admission, end.outcome)
        sealing, stored_report, integrity = _seal(
            transaction, namespace, world, session_id, admission, end, stored, key
        )
        on_disk = (
            end.keep
            and not end.memory_only
            and all(id_ in stored or is_summary(source_id) for id_, source_id in shown.items())
        )
        sealed = {"hmac": sealing.seal.hmac, "chain_integrity": integrity}
        update = update_session(
            sealing, stored_report=to_json(stored_report | sealed).decode() if on_disk else None
        )
        pack = pack_columns(end, envelope, stored) if envelope else None
        notes = window_events(sealing, update, _tier_warning(admission, end, world), pack)
        written = append_events(
            transaction.journal,
            journal_key(world.keyring, namespace.subject.tenant),
            _drafts(sealing.seal, notes),
            sealing.seal.timestamp,
        )
        if update.placed and not update.stored:
            in_memory.append((update.session, update.node))
        receipt = issue_receipt(sealing, update)
        used = _count_uses(sealing)
        faulty = count_findings(transaction, end, sealing.report, lifecycle)
    if used and envelope:
        namespace.note_shared_use(used, sealing.now)
        namespace.shelve(
            session_id, (FactUse(f.fact_id, f.source_id, f.community) for f in envelope.facts)
        )
    quarantine(namespace, faulty if lifecycle.quarantine else [])
    count_shared(namespace, end, sealing.report, lifecycle)
    if update.prior is not None and not on_disk:
        world.memory.sessions.keep_prior(session_id, update.prior)
    trace = None
    if envelope and pack:
        hmacs = (event.hmac for event in written if event.event_type is EventType.FACT_RETRIEVED)
        trace = partial(trace_of, sealing.seal, end, pack, next(hmacs, ""))
    closed = ClosedWindow(
        sealing.seal,
        # Skips validation: these are the engine's own values.
        sealing.report.model_copy(update=sealed),
        _own_hmac(sealing.seal, key),
        update,
        world.memory.receipts.add(receipt, namespace.residency),
    )
    return closed, trace


def _seal(
    transaction: Transaction,
    namespace: Namespace,
    world: World,
    session_id: str,
    admission: Admission | None,
    end: WindowEnd,
    stored: Set[str],
    key: bytes,
) -> tuple[Sealing, dict[str, Any], ChainIntegrity]:
    """Number and seal a window; also its report as it is stored, and the state of its chain."""
    earlier = transaction.journal.seals(session_id)
    follows = followed_windows(earlier, admission)
    number = 1 + max((parent.window_number for parent in follows), default=0)
    identity = new_window_id(earlier, session_id, number, namespace.residency, end.sibling)
    now = world.clock.now()
    report, stored_report = finished(
        end.report,
        session_id=session_id,
        window_id=identity,
        window_number=number,
        timestamp=iso(now),
        settings_digest=world.settings_digest,
    )
    seal = window_seals.seal_window(
        transaction.journal,
        key,
        session_id=session_id,
        window_id=identity,
        window_number=number,
        timestamp=iso(now),
        response_hash=sha256(end.text),
        report_hash=report.report_hash,
        outcome=end.outcome,
        etag=end.envelope.etag if end.envelope else "",
        risk_level=report.risk_level.value,
        parents=[parent.hmac for parent in follows],
        earlier=earlier,
    )
    integrity = window_seals.verify_seals(earlier, key) if earlier else ChainIntegrity.UNVERIFIED
    sealing = Sealing(
        transaction, namespace, world, admission, end, seal, report, now, earlier, follows, stored
    )
    return sealing, stored_report, integrity


def _own_hmac(seal: WindowSeal, key: bytes) -> str:
    """A window's HMAC without its parents."""
    return window_hmac(
        key,
        session_id=seal.session_id,
        window_number=seal.window_number,
        timestamp=seal.timestamp,
        response_hash=seal.response_hash,
        report_hash=seal.report_hash,
        parent_hmac="",
    )


def _drafts(seal: WindowSeal, notes: Sequence[Note]) -> list[EventDraft]:
    return [
        EventDraft(event_type, data, session_id=seal.session_id, window_id=seal.window_id)
        for event_type, data in notes
    ]


def journal_events(
    namespace: Namespace, world: World, seal: WindowSeal, notes: Sequence[Note]
) -> None:
    """Add events about a sealed window, such as a bridge to the next one."""
    world.journal(namespace, _drafts(seal, notes))


def _tier_warning(
    admission: Admission | None, end: WindowEnd, world: World
) -> Mapping[str, object]:
    """Journal fields of a warning if the tiers of a continued answer fall; else empty.

    Spec: CRP-SPEC-003 §14.3
    """
    if admission is None or end.envelope is None:
        return {}
    before = sorted(admission.prior, key=lambda window: window.window_number)
    history = [*(window.quality_tier for window in before), end.envelope.quality_tier]
    return find_degradation(history, world.settings.envelope)


def _count_uses(sealing: Sealing) -> list[str]:
    end = sealing.end
    if end.envelope is None or end.outcome not in EXAMINED or not end.keep:
        return []
    used = [fact.fact_id for fact in end.envelope.facts]
    if used:
        sealing.transaction.facts.touch(used, sealing.now)
    return used


def update_session(sealing: Sealing, *, stored_report: str | None) -> SessionUpdate:
    """Charge the safety budget and store the window, within the transaction that seals it.

    Spec: CRP-SPEC-005 §7.4, §19.3; related facts §5, §8

    The session is read again here, so that concurrent windows are both charged. Under `no-store`
    nothing is written if the session is not stored; the caller keeps the update in memory. Only
    delivered answers are charged, not earlier attempts.

    Args:
        stored_report: the report as JSON; with None none of the window's text is stored.
    """
    end, admission, seal, world = sealing.end, sealing.admission, sealing.seal, sealing.world
    budget = world.settings.sessions.budget
    sessions = sessions_of(sealing.transaction)
    stored = sessions.session(seal.session_id)
    known = stored or world.memory.sessions.of(seal.session_id).session
    session = known or Session(
        session_id=seal.session_id,
        created_at=seal.timestamp,
        modified_at=seal.timestamp,
        safety_budget=admission.safety_budget if admission else budget.start,
    )
    before = session.safety_budget
    if admission is not None:
        before = safety.apply_ceiling(before, admission.safety_budget)
        if end.sibling:
            # Each window of a fan-out starts with the whole budget of its parent; the session
            # continues with the smallest remaining budget.
            before = admission.safety_budget
    left = before
    if end.outcome == "released":
        left = safety.charge(before, sealing.report.risk_level, budget.costs)
    least = min(session.safety_budget, left)
    session = session.changed(
        modified_at=seal.timestamp,
        safety_budget=least,
        policy=_session_policy(session.policy, admission),
        ended=session.ended or safety.is_spent(least, budget),
        tool_calls=session.tool_calls + end.tool_calls,
        **(end.new_session_fields if _begins_session(known, sealing) else {}),
    )
    placed = admission is not None or seal.outcome != REFUSED or not sealing.earlier
    node, prior = _window_node(sealing, left), _prior_window(end, seal)
    # In a stored session, a `no-store` window still charges the budget and tightens the policy:
    # its numbers, ids and hashes are stored, but none of its text.
    if placed and (end.keep or stored is not None):
        # An ended session is not changed, but a window that was refused for it is added.
        if stored is None or not stored.ended:
            sessions.keep(session)
        sessions.add_window(
            node,
            prior=None if stored_report is None else prior,
            report=stored_report or "",
            facts=[fact.fact_id for fact in end.envelope.facts] if end.envelope else [],
            shown_windows=[window.window_id for window in admission.sources] if admission else [],
        )
    return SessionUpdate(
        session,
        node,
        round(before - left, 4),
        prior,
        reported=placed and end.keep and stored_report is not None,
        stored=end.keep or stored is not None,
        placed=placed,
    )


def _window_node(sealing: Sealing, left: float) -> WindowNode:
    end, admission, seal, world = sealing.end, sealing.admission, sealing.seal, sealing.world
    return WindowNode(
        window_id=seal.window_id,
        session_id=seal.session_id,
        window_number=seal.window_number,
        parents=tuple(parent.window_id for parent in sealing.follows),
        pattern=admission.pattern if admission else Pattern.LINEAR,
        strategy=end.strategy,
        continuation_id=new_continuation(world.ids, seal.window_number, world.settings.max_windows)
        if seal.outcome == "released"
        else "",
        etag=seal.etag,
        quality_tier=end.envelope.quality_tier if end.envelope else None,
        risk_level=sealing.report.risk_level,
        safety_budget=left,
        hmac=seal.hmac,
        timestamp=seal.timestamp,
        tokens=end.usage.total_tokens,
        response_hash=seal.response_hash,
        outcome=seal.outcome,
        transfer=end.transfer.type if end.transfer else None,
        tokens_transferred=end.transfer.tokens if end.transfer else 0,
        summary_hash=end.transfer.summary_hash if end.transfer else "",
    )


def _begins_session(known: Session | None, sealing: Sealing) -> bool:
    """Whether a window sets the session's agent fields: only the first one not refused does."""
    if sealing.admission is None and sealing.end.outcome == REFUSED:
        return False
    return known is None or all(seal.outcome == REFUSED for seal in sealing.earlier)


def _session_policy(policy: str, admission: Admission | None) -> str:
    """The stricter of the session's policy and the window's, which may have begun earlier."""
    own = admission.stated if admission else None
    if own is None:
        return policy
    return render_policy(combine_strictest(own, parse_policy(policy)) if policy else own)


def _prior_window(end: WindowEnd, seal: WindowSeal) -> EarlierWindow | None:
    if end.envelope is None or seal.outcome != "released":
        return None
    envelope = end.envelope.model_copy(update={"window_number": seal.window_number})
    prior = envelope.as_prior(hashes=end.hashes)
    # Skips validation: these are the engine's own values, and there may be dozens of facts.
    return prior.model_copy(update={"answer": end.text, "window_id": seal.window_id})
