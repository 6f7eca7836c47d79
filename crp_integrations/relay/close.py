"""The end of a window: number, report, seal, session and journal, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pydantic_core import to_json

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.keys import journal_key, session_key
from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.report import finished
from crp_integrations.envelope.continuation import SUMMARY_SOURCE
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.session_memory import FactUse
from crp_integrations.relay.close_records import (
    SessionUpdate,
    issue_receipt,
    update_session,
    window_events,
)
from crp_integrations.relay.safeguards import EXAMINED, count_findings, count_shared, quarantine
from crp_integrations.relay.session_admission import Admission
from crp_integrations.relay.window_end import Note, WindowEnd, observe, pack_columns, trace_of
from crp_integrations.relay.world import World
from crp_integrations.seals import iso, sha256, sha256_hex, window_hmac
from crp_integrations.session import token
from crp_integrations.session import window_graph as graph
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import DELIVERED, REFUSED
from crp_integrations.session.window_graph import find_degradation
from crp_integrations.vocabulary import ChainIntegrity, EventType

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
    taken = {one.window_id for one in earlier if one.window_number == number}
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
    """Refuse an answer whose place was taken by another one that was asked at the same time.

    Spec: related facts §5
    """
    if admission is None or outcome not in DELIVERED or not (admission.token or admission.named):
        return
    held = world.session_memories.of(session_id).nodes
    windows = sorted(
        (*sessions_of(transaction).windows(session_id), *held), key=lambda one: one.window_number
    )
    if admission.token is not None:
        token.window_of_token(admission.token, windows)
    if admission.continues:
        graph.check_room(
            windows, [one.window_id for one in admission.parents], world.settings.sessions.graph
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
    """Seal a window and commit everything that it leaves behind, together or not at all.

    Spec: CRP-SPEC-005 §15.1, §15.4

    The window's number is taken inside the transaction, so two turns of one session that end
    at the same time get different numbers and one unbroken chain. The report's
    `chain_integrity` speaks of the HMACs of the session's earlier seals only; `Relay.verify`
    checks the whole trail.
    """
    envelope = end.envelope
    key = session_key(world.keyring, session_id)
    shown = [(fact.fact_id, fact.source_id) for fact in envelope.facts] if envelope else []
    # What was shown was a candidate as well.
    named = [*dict.fromkeys([*dict(shown), *end.candidates])]
    # Before it begins: a transaction within another could wait for a connection for ever.
    elsewhere = namespace.stored_elsewhere(named)
    with (
        world.session_memories.one_by_one(wanted=not end.keep) as held,
        namespace.begin(write=True) as transaction,
    ):
        stored = elsewhere | namespace.stored_here(named, transaction)
        on_disk = end.keep and all(
            id_ in stored or source_id.startswith(SUMMARY_SOURCE) for id_, source_id in shown
        )
        earlier = transaction.journal.seals(session_id)
        require_place(transaction, world, session_id, admission, end.outcome)
        follows = followed_windows(earlier, admission)
        number = 1 + max((one.window_number for one in follows), default=0)
        identity = new_window_id(earlier, session_id, number, namespace.residency, end.sibling)
        now = world.clock.now()
        timestamp = iso(now)
        report, said = finished(
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
            parents=[one.hmac for one in follows],
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
            said=to_json(said).decode() if on_disk else None,
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
    if used and envelope:
        namespace.note_shared_use(used, now)
        namespace.shelve(
            session_id, (FactUse(f.fact_id, f.source_id, f.community) for f in envelope.facts)
        )
    quarantine(namespace, bad)
    count_shared(namespace, end, report, world.settings.fabric.lifecycle)
    if update.prior is not None and not on_disk:
        world.session_memories.keep_prior(session_id, update.prior)
    receipt_id = world.unwritten.add(receipt, namespace.residency)
    if world.observer is not None:
        hmac = _hmac_of_pack(written)
        trace = None
        if envelope and pack:
            trace = partial(trace_of, seal, end, envelope, pack, hmac)
        observe(world, end, seal, report, trace, receipt_id)
    alone = window_hmac(
        key,
        session_id=session_id,
        window_number=number,
        timestamp=timestamp,
        response_hash=seal.response_hash,
        report_hash=seal.report_hash,
        parent_hmac="",
    )
    # Values of our own: nothing is validated again.
    sealed = report.model_copy(update={"hmac": seal.hmac, "chain_integrity": integrity})
    return ClosedWindow(seal, sealed, alone, update, receipt_id)


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
    found = find_degradation(history, world.settings.envelope)
    return found.data if found else {}


def _hmac_of_pack(written: Sequence[Event]) -> str:
    """The HMAC under which the journal has the window's pack; empty where it had none."""
    events = (one.hmac for one in written if one.event_type is EventType.FACT_RETRIEVED)
    return next(events, "")


def _count_uses(transaction: Transaction, end: WindowEnd, now: datetime) -> list[str]:
    if end.envelope is None or end.outcome not in EXAMINED or not end.keep:
        return []
    used = [fact.fact_id for fact in end.envelope.facts]
    if used:
        transaction.facts.touch(used, now)
    return used
