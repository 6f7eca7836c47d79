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
from crp_integrations.relay.entering import Entered
from crp_integrations.relay.faulting import EXAMINED, count_shared, due, quarantine
from crp_integrations.relay.sealing.ending import Ending, Note
from crp_integrations.relay.sealing.leaving import Left, leave
from crp_integrations.relay.sealing.placing import followed, still_fits, unused
from crp_integrations.relay.sealing.receipting import record
from crp_integrations.relay.sealing.telling import told
from crp_integrations.relay.sealing.tracing import observe, packed, trace_of
from crp_integrations.relay.world import World
from crp_integrations.seals import iso, sha256, window_hmac
from crp_integrations.session.window_graph import find_degradation
from crp_integrations.vocabulary import ChainIntegrity, EventType


@dataclass(frozen=True, slots=True)
class Closed:
    """A sealed window.

    Attributes:
        report: with identity, hash, HMAC and chain integrity filled in.
        window_hmac: the window's HMAC on its own, without its parent.
        left: the session and the window's node as they were committed.
        receipt_id: of the receipt on it; empty for none.
    """

    seal: WindowSeal
    report: Report
    window_hmac: str
    left: Left
    receipt_id: str = ""


def close(
    namespace: Namespace, world: World, session_id: str, entered: Entered | None, ending: Ending
) -> Closed:
    """Seal a window and commit everything that it leaves behind, together or not at all.

    Spec: CRP-SPEC-005 §15.1, §15.4

    The window's number is taken inside the transaction, so two turns of one session that end
    at the same time get different numbers and one unbroken chain. The report's
    `chain_integrity` speaks of the HMACs of the session's earlier seals only; `Relay.verify`
    checks the whole trail.

    Args:
        entered: the window's place as it was found when it began; None when it never was.

    Raises:
        StaleTip, LimitReached: another answer took the window's place meanwhile.
        StoreError: nothing was committed.
    """
    envelope = ending.envelope
    key = session_key(world.keyring, session_id)
    shown = [(fact.fact_id, fact.source_id) for fact in envelope.facts] if envelope else []
    # What was shown was a candidate as well.
    named = [*dict.fromkeys([*dict(shown), *ending.candidates])]
    # Before it begins: a transaction within another could wait for a connection for ever.
    elsewhere = namespace.stored_elsewhere(named)
    with (
        world.remembered.one_by_one(wanted=not ending.keep) as held,
        namespace.begin(write=True) as transaction,
    ):
        stored = elsewhere | namespace.stored_here(named, transaction)
        on_disk = ending.keep and all(
            id_ in stored or source_id.startswith(SUMMARY_SOURCE) for id_, source_id in shown
        )
        earlier = transaction.journal.seals(session_id)
        still_fits(transaction, world, session_id, entered, ending.outcome)
        follows = followed(earlier, entered)
        number = 1 + max((one.window_number for one in follows), default=0)
        identity = unused(earlier, session_id, number, namespace.residency, ending.sibling)
        now = world.clock.now()
        timestamp = iso(now)
        report, said = finished(
            ending.report,
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
            response_hash=sha256(ending.text),
            report_hash=report.report_hash,
            outcome=ending.outcome,
            etag=envelope.etag if envelope else "",
            risk_level=report.risk_level.value,
            parents=[one.hmac for one in follows],
            earlier=earlier,
        )
        integrity = (
            window_seals.verify_seals(earlier, key) if earlier else ChainIntegrity.UNVERIFIED
        )
        left = leave(
            transaction,
            world,
            entered,
            ending,
            seal,
            report.risk_level,
            now,
            earlier,
            follows,
            said=to_json(said).decode() if on_disk else None,
        )
        pack = packed(ending, envelope, stored) if envelope else None
        drafts = [
            EventDraft(event_type, data, session_id=session_id, window_id=identity)
            for event_type, data in told(
                seal,
                ending,
                report,
                left,
                world.settings.sessions.budget,
                _fallen(entered, ending, world),
                pack,
            )
        ]
        written = append_events(
            transaction.journal,
            journal_key(world.keyring, namespace.subject.tenant),
            drafts,
            timestamp,
        )
        if left.placed and not left.stored:
            held.append((left.session, left.node))
        receipt = record(transaction, namespace, world, ending, seal, report, left, stored)
        used = _used(transaction, ending, now)
        bad = due(transaction, ending, report, world.settings.fabric.lifecycle)
    if used and envelope:
        namespace.note_shared_use(used, now)
        namespace.shelve(
            session_id, (FactUse(f.fact_id, f.source_id, f.community) for f in envelope.facts)
        )
    quarantine(namespace, bad)
    count_shared(namespace, ending, report, world.settings.fabric.lifecycle)
    if left.prior is not None and not on_disk:
        world.remembered.say(session_id, left.prior)
    receipt_id = world.unwritten.noted(receipt, namespace.residency)
    if world.observer is not None:
        hmac = _hmac_of_pack(written)
        trace = None
        if envelope and pack:
            trace = partial(trace_of, seal, ending, envelope, pack, hmac)
        observe(world, ending, seal, report, trace, receipt_id)
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
    return Closed(seal, sealed, alone, left, receipt_id)


def journalled(namespace: Namespace, world: World, seal: WindowSeal, notes: Sequence[Note]) -> None:
    """Add events about a window that is sealed already, such as a bridge to the next one.

    Raises:
        StoreError: nothing was committed.
    """
    drafts = [
        EventDraft(event_type, data, session_id=seal.session_id, window_id=seal.window_id)
        for event_type, data in notes
    ]
    key = journal_key(world.keyring, namespace.subject.tenant)
    with namespace.begin(write=True) as transaction:
        append_events(transaction.journal, key, drafts, iso(world.clock.now()))


def _fallen(entered: Entered | None, ending: Ending, world: World) -> Mapping[str, object]:
    """What the trail is warned of when the tiers of a continued answer fall.

    Spec: CRP-SPEC-003 §14.3
    """
    if entered is None or ending.envelope is None:
        return {}
    before = sorted(entered.prior, key=lambda window: window.window_number)
    history = [*(window.quality_tier for window in before), ending.envelope.quality_tier]
    found = find_degradation(history, world.settings.envelope)
    return found.data if found else {}


def _hmac_of_pack(written: Sequence[Event]) -> str:
    """The HMAC under which the journal has the window's pack; empty where it had none."""
    events = (one.hmac for one in written if one.event_type is EventType.FACT_RETRIEVED)
    return next(events, "")


def _used(transaction: Transaction, ending: Ending, now: datetime) -> list[str]:
    if ending.envelope is None or ending.outcome not in EXAMINED or not ending.keep:
        return []
    used = [fact.fact_id for fact in ending.envelope.facts]
    if used:
        transaction.facts.touch(used, now)
    return used
