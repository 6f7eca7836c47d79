"""Erasure of sources, and deletion of stored answers that used their facts.

The store changes in one transaction, after session memory, outside copies and answers in other
namespaces are erased. It records that files must be scrubbed, so that the next call can finish it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import chain

from crp_integrations.audit.drafts import EventDraft, check_draft, name_or_hash
from crp_integrations.audit.journal import append_events, chain_events
from crp_integrations.audit.records import Event
from crp_integrations.errors import RequestError, StoreBusy
from crp_integrations.fabric.lifecycle import ErasureReport
from crp_integrations.fabric.namespace_writer import NamespaceWriter
from crp_integrations.fabric.ports import FactsFacet, Transaction, window_records_of
from crp_integrations.fabric.ports.store import namespace_drop
from crp_integrations.fabric.records import Fact, Source, Where
from crp_integrations.fabric.region import PREFIX
from crp_integrations.fabric.state_hash import (
    COMMUNITIES_SETTING,
    EMBEDDER_SETTING,
    RECLUSTERED_SETTING,
    advance_epoch,
    state_hash,
    stored_number,
)
from crp_integrations.guard.decisions import NAMESPACE
from crp_integrations.language import memo
from crp_integrations.seals import iso, sha256
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus

# Number of deletions of answers since the last scrub whose bytes may still be in the files.
WINDOWS_SETTING = "scrub_windows"


def withdraw_windows(
    transaction: Transaction, ids: Sequence[str], now: datetime, *, source_id: str = ""
) -> bool:
    """Delete stored answers that used these facts, in the transaction that withdraws them."""
    shown = window_records_of(transaction)
    if shown is None or not shown.withdraw(ids, now, source_id=source_id):
        return False
    _note(transaction.facts)
    return True


def withdraw_elsewhere(
    writer: NamespaceWriter, ids: Sequence[str], now: datetime, *, source_id: str = ""
) -> bool:
    """Delete answers in other namespaces that used these facts, one transaction per namespace."""
    clean = True
    for reader in writer.readers():
        with reader.begin() as transaction:
            taken = withdraw_windows(transaction, ids, now, source_id=source_id)
        if taken:
            clean = _scrubbed(reader.begin, reader.scrub, WINDOWS_SETTING) and clean
    return clean


def forget_sessions(
    writer: NamespaceWriter,
    choose: Callable[[Transaction], Sequence[str]],
    cause: str,
) -> list[str]:
    """Remove sessions with all their answers, and record this in the journal."""
    now = writer.clock.now()
    key = writer.key()
    with writer.begin(True) as transaction:
        shown = window_records_of(transaction)
        if shown is None:
            return []
        gone = [id_ for id_ in choose(transaction) if shown.forget(id_)]
        if gone:
            kind = EventType.SESSION_TERMINATED
            # Session names that are not ids are hashed, as in all events of their windows.
            drafts = [
                EventDraft(kind, {"cause": cause}, session_id=name_or_hash(id_)) for id_ in gone
            ]
            append_events(transaction.journal, key, drafts, iso(now))
            _note(transaction.facts)
    if gone:
        memo.forget()
        writer.erase_elsewhere(gone)
    return gone


def windows_due(facts: FactsFacet) -> bool:
    """Whether bytes of deleted answers may still be in the files."""
    return facts.setting(WINDOWS_SETTING) is not None


def windows_scrubbed(writer: NamespaceWriter) -> bool:
    """Scrub bytes of deleted answers from disk, if any; the index files never contain them."""
    with writer.begin(False) as transaction:
        if not windows_due(transaction.facts):
            return True
    return _scrubbed(lambda: writer.begin(True), writer.scrub, WINDOWS_SETTING)


def _scrubbed(
    begin: Callable[[], AbstractContextManager[Transaction]],
    scrub: Callable[[], bool],
    setting: str,
) -> bool:
    """Scrub removed bytes from disk, then remove the setting that records them as pending."""
    try:
        with begin() as transaction:
            pending = transaction.facts.setting(setting)
        clean = scrub()
        if clean and pending is not None:
            with begin() as transaction:
                # A removal after the scrub changes the setting, which then stays.
                if transaction.facts.setting(setting) == pending:
                    transaction.facts.remove_setting(setting)
    except StoreBusy:
        return False
    return clean


def _note(facts: FactsFacet) -> None:
    facts.set_setting(WINDOWS_SETTING, str(stored_number(facts, WINDOWS_SETTING) + 1))


# Sequence number of the last event whose removed bytes may still be in the files.
SCRUB_SETTING = "scrub"
# Labels of up to this many characters were certainly not truncated.
_WHOLE_LABEL = 50
_PART = re.compile(r"[^\W_]+")


def erase_source(writer: NamespaceWriter, source_id: str) -> ErasureReport:
    """Remove a source's facts, whatever their status, and leave a tombstone.

    Spec: CRP-SPEC-009 §8.3
    """
    now = writer.clock.now()
    with writer.begin(False) as transaction:
        source, chosen = _choose(writer, transaction.facts, source_id)
        before = writer.hash_in(transaction.facts)
    # Session memory is not transactional: it is erased first, and again at the end.
    writer.forget_held(source_id)
    # Copies outside of the store likewise: an interrupted erasure is simply run again.
    writer.erase_elsewhere([source_id, *(fact.fact_id for fact in chosen)])
    clean = withdraw_elsewhere(writer, [fact.fact_id for fact in chosen], now, source_id=source_id)
    if not chosen and source == _tombstone(source):
        return ErasureReport(
            source_id=source_id,
            state_before=before,
            state_after=before,
            erased_at=now,
            scrubbed=scrubbed(writer) and clean,
        )
    key = writer.key()
    with writer.tracer.step("fabric.erase"), writer.begin(True) as transaction:
        facts = transaction.facts
        source, chosen = _choose(writer, facts, source_id)
        before = writer.hash_in(facts)
        ids = [fact.fact_id for fact in chosen]
        _dissolve(facts, chosen)
        withdraw_windows(transaction, ids, now, source_id=source_id)
        facts.remove(ids)
        # An interrupted ingestion may have left vectors of unknown source; clear them all.
        embedder = facts.setting(EMBEDDER_SETTING)
        if embedder is not None:
            facts.clear_prepared(embedder)
        facts.add_source(_tombstone(source))
        data = {"source": source_id, "facts": ids, "count": len(ids), "cause": "erasure"}
        after, events = writer.journal_changes(
            transaction,
            [(EventType.FACT_DELETED, data)],
            before=before,
            cause="erasure",
            now=now,
            key=key,
        )
        facts.set_setting(SCRUB_SETTING, str(events[-1].seq))
        # No process publishes a file while the write lock is held, so none survives the commit.
        drop_cache(writer)
    writer.forget_held(source_id)
    writer.erase_elsewhere([source_id, *ids])
    return ErasureReport(
        source_id=source_id,
        facts=tuple(ids),
        state_before=before,
        state_after=after,
        erased_at=now,
        event_seq=events[0].seq,
        event_hmac=events[0].hmac,
        scrubbed=scrubbed(writer) and clean,
    )


def erase_namespace(writer: NamespaceWriter, keep: Callable[[Iterable[Event]], None]) -> int:
    """Erase a tenant with everything of it, and return the number of its facts.

    The trail goes as well, so `keep` stores it first: every event, and two more that end it and
    state the erasure. They contain ids and hashes, and verify as any export of a trail. They show
    what was to be erased and that it was asked for; that the store has no more of it, only the
    store shows. What others write between the last check of the trail and the removal is erased
    without an event.

    Raises:
        RequestError: the namespace is shared.
        StoreBusy: the trail grew after `keep` had it; nothing was erased.
        StoreError: the store cannot erase a whole namespace; `keep` was not called.
    """
    writer.require("erase", NAMESPACE)
    region, name = writer.region, writer.namespace
    if name.startswith(PREFIX):
        raise RequestError("tenants may have used a shared namespace; erase its sources instead")
    drop = namespace_drop(region.store)
    key, now = writer.key(), iso(writer.clock.now())
    with writer.begin(False) as transaction:
        facts, tip = transaction.facts, transaction.journal.tip()
        count, before = sum(facts.tally().values()), writer.hash_in(facts)
        erased = {"count": count, "cause": "erasure"}
        drafts = [
            EventDraft(EventType.FACT_DELETED, erased),
            EventDraft(
                EventType.CKF_ETAG_CHANGED, {**erased, "before": before, "after": state_hash([])}
            ),
        ]
        last = chain_events(tip, key, [check_draft(draft) for draft in drafts], now)
        keep(chain(transaction.journal.events(), last))
    with writer.begin(False) as transaction:
        if transaction.journal.tip() != tip:
            raise StoreBusy(
                f"tenant {name!r:.60} was written while its trail was copied; nothing was erased; "
                "stop what writes to it, and try again"
            )
    if region.elsewhere is not None:
        region.elsewhere.erase_all(name)
    drop(name)
    region.session_memory.forget_tenant(name)
    region.forget(name)
    memo.forget()
    return count


def _choose(
    writer: NamespaceWriter, facts: FactsFacet, source_id: str
) -> tuple[Source, list[Fact]]:
    """Return the source and all its facts, including those hidden from the subject."""
    source = writer.source(facts, source_id, "erase")
    chosen = facts.of_source(source_id)
    writer.require_each("erase", (fact.labels for fact in chosen))
    return source, chosen


def _tombstone(source: Source) -> Source:
    """Return what remains of an erased source: its id and access labels."""
    return source.changed(
        title="",
        uri="",
        document_hash=sha256(""),
        fact_count=0,
        status=SourceStatus.REMOVED,
        metadata={},
    )


def _dissolve(facts: FactsFacet, gone: Sequence[Fact]) -> None:
    """Remove every community label that may contain words of the erased facts."""
    own = {fact.community_label for fact in gone if fact.community_label is not None}
    if not own and facts.setting(COMMUNITIES_SETTING) is None:
        return
    named = {fact.fact_id: fact.community for fact in facts.outline() if fact.community}
    erased_parts = {part for fact in gone for part in _label_parts(fact.content)}
    telling = own | {
        label
        for label in set(named.values())
        # A long label may have been truncated within a word.
        if len(label) > _WHOLE_LABEL or not erased_parts.isdisjoint(_label_parts(label))
    }
    taken = [id_ for id_, label in named.items() if label in telling]
    hidden = [
        *facts.find(Where(statuses=(FactStatus.DELETED, FactStatus.QUARANTINED))),
        *facts.find(Where(statuses=(FactStatus.ACTIVE, FactStatus.STALE), archived=True)),
    ]
    facts.set_communities(dict.fromkeys([*taken, *hidden]))
    if taken:
        # Facts have lost their community, so envelopes and ETags made before are out of date.
        advance_epoch(facts)
        facts.remove_setting(RECLUSTERED_SETTING)


def _label_parts(text: str) -> list[str]:
    return _PART.findall(text.casefold())


def drop_cache(writer: NamespaceWriter) -> None:
    """Remove the namespace's derived files."""
    cache = writer.cache()
    if cache is not None:
        cache.drop()


def scrubbed(writer: NamespaceWriter) -> bool:
    """Scrub all removed bytes from disk, if any are pending; return whether none is left."""
    with writer.begin(False) as transaction:
        pending = transaction.facts.setting(SCRUB_SETTING)
    if pending is None:
        return windows_scrubbed(writer)
    drop_cache(writer)
    clean = _scrubbed(lambda: writer.begin(True), writer.scrub, SCRUB_SETTING)
    return clean and windows_scrubbed(writer)
