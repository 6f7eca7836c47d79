"""What every change of stored facts shares, and the erasure of sources.

A change reads and decides within its writing transaction, so nothing can change in between.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crp_integrations.audit.drafts import EventDraft, name_or_hash
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.records import Event
from crp_integrations.errors import RequestError, StoreBusy
from crp_integrations.fabric.ingest.ingestion import IngestionTarget
from crp_integrations.fabric.ingest.ingestion_plan import USER_SOURCE
from crp_integrations.fabric.life.lifecycle import ErasureReport
from crp_integrations.fabric.ports import Cache, FactsFacet, Transaction, window_records_of
from crp_integrations.fabric.records import Fact, Source, Where
from crp_integrations.fabric.state_hash import (
    COMMUNITIES_SETTING,
    EMBEDDER_SETTING,
    RECLUSTERED_SETTING,
    advance_epoch,
    stored_number,
)
from crp_integrations.guard.decisions import Action
from crp_integrations.seals import iso, sha256
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus

# Most ids in one event of the journal.
_EVENT_IDS = 10_000


@dataclass(frozen=True, slots=True)
class NamespaceScrub:
    """A namespace whose sessions may have been shown facts of another one.

    Attributes:
        begin: opens a writing transaction of it.
        scrub: takes the bytes of what was removed from it off the disk; False when a reader
            forbids it.
    """

    begin: Callable[[], AbstractContextManager[Transaction]]
    scrub: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class FactWriter(IngestionTarget):
    """One namespace, on behalf of one subject, for the verbs that change what is stored.

    Attributes:
        may_read: whether the subject may see things with exactly these labels.
        require: raises AccessDenied when the action on things with these labels is denied.
        cache: where derived files are kept; None for a store without files.
        scrub: takes the bytes of what was removed off the disk; False when a reader forbids it.
        forget_held: forgets what sessions hold in memory of a source.
        erase_elsewhere: erases what is kept outside of the store of some facts or sources.
        refuse_shared: raises AccessDenied for facts, or a source, of a shared namespace.
        readers: the namespaces that read this one; none but for a shared namespace.
    """

    may_read: Callable[[tuple[str, ...]], bool]
    require: Callable[[Action, tuple[str, ...]], object]
    cache: Callable[[], Cache | None]
    scrub: Callable[[], bool]
    forget_held: Callable[[str], object]
    erase_elsewhere: Callable[[Sequence[str]], object]
    refuse_shared: Callable[[Sequence[str], str], None]
    readers: Callable[[], Iterable[NamespaceScrub]]

    # --- what is there -----------------------------------------------------------------

    def found(self, facts: FactsFacet, ids: Sequence[str], action: Action) -> list[Fact]:
        """The facts of a batch by id, whatever their status, each once."""
        _check_ids(ids)
        wanted = sorted(set(ids))
        stored = {fact.fact_id: fact for fact in facts.get(wanted)}
        seen = {id_ for id_, fact in stored.items() if self.may_read(fact.labels)}
        unknown = [id_ for id_ in wanted if id_ not in seen]
        if unknown:
            self.refuse_shared(unknown, "")
            more = f" (the first of {len(unknown)} like it)" if len(unknown) > 1 else ""
            raise RequestError(
                f"fact {unknown[0]!r:.60} is not in namespace {self.namespace!r}{more}; "
                "nothing was changed"
            )
        chosen = [stored[id_] for id_ in wanted]
        self.require_each(action, (fact.labels for fact in chosen))
        return chosen

    def source(self, facts: FactsFacet, source_id: str, action: Action) -> Source:
        """A registry entry."""
        source = facts.source(source_id)
        if source is None or not self.may_read(source.labels):
            self.refuse_shared((), source_id)
            raise RequestError(
                f"source {source_id!r:.60} is not in namespace {self.namespace!r}; "
                "nothing was changed"
            )
        self.require(action, source.labels)
        return source

    def require_each(self, action: Action, labels: Iterable[tuple[str, ...]]) -> None:
        """Ask the guard once for each set of labels."""
        for one in sorted(set(labels)):
            self.require(action, one)

    # --- what is told ------------------------------------------------------------------

    def journal_changes(
        self,
        transaction: Transaction,
        drafts: Sequence[tuple[EventType, dict[str, Any]]],
        *,
        before: str,
        cause: str,
        now: datetime,
        key: bytes,
        facts: Sequence[str] = (),
    ) -> tuple[str, list[Event]]:
        """Put events into the journal, and the change of the state hash when it did change."""
        after = self.hash_in(transaction.facts)
        told = [EventDraft(kind, part) for kind, data in drafts for part in _parts(data)]
        if after != before:
            data: dict[str, Any] = {"before": before, "after": after, "cause": cause}
            if facts:
                data["count"] = len(facts)
                if len(facts) <= _EVENT_IDS:
                    data["facts"] = sorted(facts)
            told.append(EventDraft(EventType.CKF_ETAG_CHANGED, data))
        events = append_events(transaction.journal, key, told, iso(now)) if told else []
        return after, events


def _check_ids(ids: object) -> None:
    """Refuse what is not a list of ids."""
    if isinstance(ids, str) or not isinstance(ids, Collection):
        raise RequestError(
            f"the fact ids are given as {type(ids).__name__}, wanted a list of texts; put one id "
            "into a list"
        )
    for number, one in enumerate(ids, 1):
        if not isinstance(one, str):
            raise RequestError(
                f"fact id {number} is {one!r:.60} of type {type(one).__name__}, wanted text"
            )


def _parts(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of one event, or of several when it names very many facts."""
    ids = data["facts"]
    if len(ids) <= _EVENT_IDS:
        return [data]
    slices = [ids[start : start + _EVENT_IDS] for start in range(0, len(ids), _EVENT_IDS)]
    counted = "count" in data
    return [{**data, "facts": part, **({"count": len(part)} if counted else {})} for part in slices]


def by_source(facts: Iterable[Fact]) -> dict[str, list[str]]:
    """Ids of facts by their source, both ascending."""
    grouped: dict[str, list[str]] = {}
    for fact in sorted(facts, key=lambda fact: (fact.source_id, fact.fact_id)):
        grouped.setdefault(fact.source_id, []).append(fact.fact_id)
    return grouped


def recount_sources(facts: FactsFacet, gone: Iterable[Fact]) -> None:
    """Take deleted facts out of their sources' counts.

    Spec: CRP-SPEC-009 §4.5
    """
    taken: Counter[str] = Counter()
    for fact in gone:
        taken[fact.source_id] += fact.status is not FactStatus.STALE
    for source_id, count in sorted(taken.items()):
        source = facts.source(source_id)
        if source is not None:
            left = [one for one in facts.passages(source_id) if one[2] is not FactStatus.DELETED]
            count = min(max(0, source.fact_count - count), len(left))
            facts.add_source(with_own_hash(facts, source.changed(fact_count=count)))


def count_back(facts: FactsFacet, active: Iterable[Fact]) -> None:
    """Put facts that are ACTIVE again into their sources' counts.

    Spec: CRP-SPEC-009 §4.5
    """
    for source_id in sorted({fact.source_id for fact in active}):
        source = facts.source(source_id)
        if source is not None:
            held = sum(one[2] is FactStatus.ACTIVE for one in facts.passages(source_id))
            if held > source.fact_count:
                facts.add_source(source.changed(fact_count=held))


def with_own_hash(facts: FactsFacet, source: Source) -> Source:
    """The entry, with the hash of its facts' hashes when no document lies behind it."""
    if source.uri != f"{USER_SOURCE}:{source.source_id}":
        return source
    hashes = sorted(
        content_hash
        for _, content_hash, status in facts.passages(source.source_id)
        if status is not FactStatus.DELETED
    )
    return source.changed(document_hash=sha256("|".join(hashes)))


# How often bytes of what was said were left in the files since they were last taken off.
WINDOWS_SETTING = "scrub_windows"


def withdraw_windows(
    transaction: Transaction, ids: Sequence[str], now: datetime, *, source_id: str = ""
) -> bool:
    """Take what was said with some facts, within the transaction that withdraws them."""
    shown = window_records_of(transaction)
    if shown is None or not shown.withdraw(ids, now, source_id=source_id):
        return False
    _note(transaction.facts)
    return True


def withdraw_elsewhere(
    writer: FactWriter, ids: Sequence[str], now: datetime, *, source_id: str = ""
) -> bool:
    """Take what other namespaces said with facts of this one, each in a transaction of its own."""
    clean = True
    for reader in writer.readers():
        with reader.begin() as transaction:
            taken = withdraw_windows(transaction, ids, now, source_id=source_id)
        if taken:
            clean = _scrubbed(reader.begin, reader.scrub, WINDOWS_SETTING) and clean
    return clean


def forget_sessions(
    writer: FactWriter,
    choose: Callable[[Transaction], Sequence[str]],
    cause: str,
) -> list[str]:
    """Remove sessions with all that they said, and tell the journal."""
    now = writer.clock.now()
    key = writer.key()
    with writer.begin(True) as transaction:
        shown = window_records_of(transaction)
        if shown is None:
            return []
        gone = [id_ for id_ in choose(transaction) if shown.forget(id_)]
        if gone:
            kind = EventType.SESSION_TERMINATED
            # A name that looks like no id stands in no event of its windows either.
            drafts = [
                EventDraft(kind, {"cause": cause}, session_id=name_or_hash(id_)) for id_ in gone
            ]
            append_events(transaction.journal, key, drafts, iso(now))
            _note(transaction.facts)
    if gone:
        writer.erase_elsewhere(gone)
    return gone


def windows_due(facts: FactsFacet) -> bool:
    """Whether bytes of what was said may be in the files."""
    return facts.setting(WINDOWS_SETTING) is not None


def windows_scrubbed(writer: FactWriter) -> bool:
    """Take the bytes of what was said off the disk; the index's files hold none of them."""
    with writer.begin(False) as transaction:
        if not windows_due(transaction.facts):
            return True
    return _scrubbed(lambda: writer.begin(True), writer.scrub, WINDOWS_SETTING)


def _scrubbed(
    begin: Callable[[], AbstractContextManager[Transaction]],
    scrub: Callable[[], bool],
    setting: str,
) -> bool:
    """Take removed bytes off the disk, and remove the setting that notes them."""
    try:
        with begin() as transaction:
            pending = transaction.facts.setting(setting)
        clean = scrub()
        if clean and pending is not None:
            with begin() as transaction:
                # Another removal may have come after the scrubbing; it then stays noted.
                if transaction.facts.setting(setting) == pending:
                    transaction.facts.remove_setting(setting)
    except StoreBusy:
        return False
    return clean


def _note(facts: FactsFacet) -> None:
    facts.set_setting(WINDOWS_SETTING, str(stored_number(facts, WINDOWS_SETTING) + 1))


# Names the last event whose removals may still be in the files.
SCRUB_SETTING = "scrub"
# Characters of a label that was certainly not cut.
_WHOLE_LABEL = 50
_PART = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class SourceErasure:
    """Erases sources of one namespace, on behalf of one subject."""

    writer: FactWriter

    def erase(self, source_id: str) -> ErasureReport:
        """Remove a source's facts, whatever their status, and leave a tombstone.

        Spec: CRP-SPEC-009 §8.3
        """
        writer, now = self.writer, self.writer.clock.now()
        with writer.begin(False) as transaction:
            source, chosen = self._choose(transaction.facts, source_id)
            before = writer.hash_in(transaction.facts)
        # What a session holds is in no transaction: it goes first, and once more at the end.
        writer.forget_held(source_id)
        # So does what is kept outside of the store: an erasure that was killed is made again.
        writer.erase_elsewhere([source_id, *(fact.fact_id for fact in chosen)])
        said = withdraw_elsewhere(
            writer, [fact.fact_id for fact in chosen], now, source_id=source_id
        )
        if not chosen and source == _tombstone(source):
            return ErasureReport(
                source_id=source_id,
                state_before=before,
                state_after=before,
                erased_at=now,
                scrubbed=scrubbed(writer) and said,
            )
        key = writer.key()
        with writer.tracer.step("fabric.erase"), writer.begin(True) as transaction:
            facts = transaction.facts
            source, chosen = self._choose(facts, source_id)
            before = writer.hash_in(facts)
            ids = [fact.fact_id for fact in chosen]
            _dissolve(facts, chosen)
            withdraw_windows(transaction, ids, now, source_id=source_id)
            facts.remove(ids)
            # Those of texts that an interrupted ingestion never stored; nobody knows their source.
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
            # While the lock is held nobody publishes a file, so none outlives the commit.
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
            scrubbed=scrubbed(writer) and said,
        )

    def _choose(self, facts: FactsFacet, source_id: str) -> tuple[Source, list[Fact]]:
        """The source and all its facts, also those that the subject does not see."""
        source = self.writer.source(facts, source_id, "erase")
        chosen = facts.of_source(source_id)
        self.writer.require_each("erase", (fact.labels for fact in chosen))
        return source, chosen


def _tombstone(source: Source) -> Source:
    """What stays of an erased source: its id, and the labels that the guard looks at."""
    return source.changed(
        title="",
        uri="",
        document_hash=sha256(""),
        fact_count=0,
        status=SourceStatus.REMOVED,
        metadata={},
    )


def _dissolve(facts: FactsFacet, gone: Sequence[Fact]) -> None:
    """Take away every community label that may have words of the erased facts in it."""
    own = {fact.community_label for fact in gone if fact.community_label is not None}
    if not own and facts.setting(COMMUNITIES_SETTING) is None:
        return
    named = {fact.fact_id: fact.community for fact in facts.outline() if fact.community}
    said = {part for fact in gone for part in _label_parts(fact.content)}
    telling = own | {
        label
        for label in set(named.values())
        # A long one may end within a word.
        if len(label) > _WHOLE_LABEL or not said.isdisjoint(_label_parts(label))
    }
    taken = [id_ for id_, label in named.items() if label in telling]
    hidden = [
        *facts.find(Where(statuses=(FactStatus.DELETED, FactStatus.QUARANTINED))),
        *facts.find(Where(statuses=(FactStatus.ACTIVE, FactStatus.STALE), archived=True)),
    ]
    facts.set_communities(dict.fromkeys([*taken, *hidden]))
    if taken:
        # What is left of the communities is shown to others than before.
        advance_epoch(facts)
        facts.remove_setting(RECLUSTERED_SETTING)


def _label_parts(text: str) -> list[str]:
    return _PART.findall(text.casefold())


def drop_cache(writer: FactWriter) -> None:
    """Remove the namespace's derived files."""
    cache = writer.cache()
    if cache is not None:
        cache.drop()


def scrubbed(writer: FactWriter) -> bool:
    """Take what was removed off the disk, if anything is left there."""
    with writer.begin(False) as transaction:
        pending = transaction.facts.setting(SCRUB_SETTING)
    if pending is None:
        return windows_scrubbed(writer)
    drop_cache(writer)
    clean = _scrubbed(lambda: writer.begin(True), writer.scrub, SCRUB_SETTING)
    return clean and windows_scrubbed(writer)
