"""From documents to stored facts: chunk, make facts, embed, insert; the batch succeeds or fails.

Everything slow happens before the one write transaction: reading, chunking and embedding.
The transaction then reads the stored state again, determines which passages are new, unchanged or
gone, and writes sources, facts, vectors and journal together.

If a batch needs more than one slice of the embedder, finished vectors are stored at once, by
content hash and invisible to searches, so that an interrupted ingestion embeds only the missing
ones when it is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import IngestError, StoreBusy
from crp_integrations.fabric.ingest.document_passages import PassageReader
from crp_integrations.fabric.ingest.fact_preparation import Row, weigh_importance
from crp_integrations.fabric.ingest.ingestion_plan import (
    AnyDocument,
    IngestionBatch,
    Insertion,
    SourceChange,
    WriteConflictError,
    compare_facts,
    distinct_documents,
    gather_batch,
    is_unchanged,
    of_another_ttl,
    source_entry,
    sources_with_stale,
)
from crp_integrations.fabric.namespace_writer import NamespaceWriter
from crp_integrations.fabric.ports import FactsFacet, Transaction
from crp_integrations.fabric.ports.engines import Progress, ProgressCount
from crp_integrations.fabric.records import Fact, IngestReport, Notice, Source, source_id
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING, note_new_facts
from crp_integrations.seals import iso
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import EventType, FactStatus, SourceKind

# Attempts of an ingestion if other writers change the same sources meanwhile.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Ingestion:
    """Writes documents, or facts without chunking, into one namespace."""

    writer: NamespaceWriter

    def documents(
        self,
        documents: Iterable[AnyDocument],
        *,
        kind: SourceKind | None,
        labels: tuple[str, ...],
        ttl: str | None,
        progress: Progress,
    ) -> IngestReport:
        """Ingest documents; those with too little text for a fact are reported as skipped.

        Spec: CRP-SPEC-009 §4.1
        """
        with self.writer.tracer.step("fabric.read"):
            distinct = distinct_documents(documents, progress)
        readers: dict[str, PassageReader] = {}
        for _ in range(_TRIES):
            try:
                return self._ingested(distinct, readers, kind, labels, ttl, progress)
            except WriteConflictError:
                continue
        raise self._conflict_error()

    def _ingested(
        self,
        documents: Sequence[AnyDocument],
        readers: dict[str, PassageReader],
        kind: SourceKind | None,
        labels: tuple[str, ...],
        ttl: str | None,
        progress: Progress,
    ) -> IngestReport:
        now = self.writer.clock.now()
        with self.writer.begin(False) as transaction:
            facts = transaction.facts
            self.writer.check(facts)
            stored = {document.uri: facts.source(source_id(document.uri)) for document in documents}
            entries = [
                (
                    document,
                    source_entry(document, stored[document.uri], kind=kind, labels=labels, now=now),
                )
                for document in documents
            ]
            same_as_stored = {own.uri for _, own in entries if is_unchanged(own, stored[own.uri])}
            same_as_stored -= of_another_ttl(facts, same_as_stored, ttl)
            aged = sources_with_stale(facts, map(source_id, same_as_stored), now)
            before = "" if len(same_as_stored) < len(entries) else self.writer.hash_in(facts)
        # To change labels, the subject must also be allowed to write under the old labels.
        both = {own.labels for _, own in entries}
        both |= {known.labels for known in stored.values() if known is not None}
        for label_set in sorted(both):
            self.writer.allow(label_set)
        same_as_stored -= self._reviving(
            [
                (document, own)
                for document, own in entries
                if own.source_id in aged and own.uri in same_as_stored
            ],
            stored,
            readers,
        )
        pairs = [(document, own) for document, own in entries if own.uri not in same_as_stored]
        changed_uris = {own.uri for _, own in pairs}
        same = tuple(uri for uri in stored if uri not in changed_uris)
        if not pairs:
            return IngestReport(unchanged=same, state_hash=before)

        with self.writer.tracer.step("fabric.chunk"):
            batch = gather_batch(
                pairs,
                stored,
                readers,
                ttl=ttl,
                counter=self.writer.counter,
                settings=self.writer.settings.chunking,
                progress=progress,
            )
        # A batch of a bulk load is not all that is given.
        loading = self.writer.region.loads[self.writer.namespace]
        if len(batch.refused) == len(documents) and not loading:
            many = len(batch.refused)
            more = f" (the first of {many} documents like it)" if many > 1 else ""
            raise IngestError(next(iter(batch.refused.values())) + more)
        with self.writer.tracer.step("fabric.facts"), self.writer.begin(False) as transaction:
            if not batch.readers:
                return IngestReport(
                    unchanged=same,
                    skipped=tuple(batch.refused),
                    state_hash=self.writer.hash_in(transaction.facts),
                )
            changes = batch.changes(transaction.facts)
        # Before the write transaction, since the key must exist before it seals anything.
        key = self.writer.key()
        with self.writer.tracer.step("fabric.embed"):
            rows = self._embedded(batch, changes, progress)
        with self.writer.tracer.step("fabric.insert"), self.writer.begin(True) as transaction:
            facts = transaction.facts
            for uri in changed_uris:
                if facts.source(source_id(uri)) != stored[uri]:
                    raise WriteConflictError(f"{uri} was changed by another writer")
            changes = batch.changes(facts)
            insertions = batch.insertions(changes, self.writer.namespace, self.writer.settings)
            after = self._write(transaction, insertions, rows, key, progress)
            if not rows:
                batch.clear_prepared(facts, changes, self.writer.embedder.identity)
        self._notify_changes(insertions, stored)
        return IngestReport(
            sources=tuple(change.source.source_id for change in changes),
            facts=tuple(id_ for insertion in insertions for id_ in insertion.ids),
            stale=tuple(id_ for change in changes for id_ in change.vanished),
            returned=tuple(id_ for change in changes for id_ in change.returned),
            unchanged=same,
            skipped=tuple(batch.refused),
            state_hash=after,
        )

    def _reviving(
        self,
        aged: Sequence[tuple[AnyDocument, Source]],
        stored: Mapping[str, Source | None],
        readers: dict[str, PassageReader],
    ) -> set[str]:
        """URIs of unchanged documents that contain the text of a STALE fact.

        Spec: CRP-SPEC-009 §2.2
        """
        if not aged:
            return set()
        with self.writer.tracer.step("fabric.chunk"):
            batch = gather_batch(
                aged,
                stored,
                readers,
                ttl=None,
                counter=self.writer.counter,
                settings=self.writer.settings.chunking,
            )
        with self.writer.begin(False) as transaction:
            changes = batch.changes(transaction.facts)
        return {change.source.uri for change in changes if change.returned}

    def facts(
        self, facts: Sequence[Fact | str], *, kind: SourceKind | None, progress: Progress
    ) -> IngestReport:
        """Add facts made by the caller; facts that are already retrievable stay unchanged."""
        prepared = self.writer.prepared(facts, kind)
        for _ in range(_TRIES):
            try:
                return self._added(prepared, progress)
            except WriteConflictError:
                continue
        raise self._conflict_error()

    def _added(self, facts: Sequence[Fact], progress: Progress) -> IngestReport:
        now = self.writer.clock.now()
        with self.writer.begin(False) as transaction:
            self.writer.check(transaction.facts)
            changes = compare_facts(transaction.facts, facts, now)
            after = self.writer.hash_in(transaction.facts)
        self.writer.check_shared([fact for _, made in changes for fact in made], ())
        if changes:
            texts = {
                fact.content_hash: fact.content
                for change, made in changes
                for fact in made
                if fact.content_hash not in change.known
            }
            with self.writer.tracer.step("fabric.embed"):
                rows = self.writer.embedding.vectors(texts, progress)
            key = self.writer.key()
            with self.writer.tracer.step("fabric.insert"), self.writer.begin(True) as transaction:
                changes = compare_facts(transaction.facts, facts, now)
                insertions = [
                    Insertion(change, [fact.fact_id for fact in made], partial(iter, made))
                    for change, made in changes
                ]
                after = self._write(transaction, insertions, rows, key, progress)
        new = {fact.fact_id for _, made in changes for fact in made}
        back = {id_ for change, _ in changes for id_ in (*change.returned, *change.restored)}
        changed_ids = new | back
        return IngestReport(
            sources=tuple(change.source.source_id for change, _ in changes),
            facts=tuple(fact.fact_id for fact in facts if fact.fact_id in new),
            returned=tuple(fact.fact_id for fact in facts if fact.fact_id in back),
            unchanged=tuple(fact.fact_id for fact in facts if fact.fact_id not in changed_ids),
            state_hash=after,
        )

    def _conflict_error(self) -> StoreBusy:
        return StoreBusy(
            f"other writers changed the sources of namespace {self.writer.namespace!r} during "
            f"{_TRIES} tries; nothing was written"
        )

    def _embedded(
        self, batch: IngestionBatch, changes: Sequence[SourceChange], progress: Progress
    ) -> dict[str, Row]:
        """Vectors of the new texts by content hash; empty if they were put into the store."""
        total = batch.waiting_count(changes)
        waiting = batch.waiting(changes)
        if total <= self.writer.settings.embed_slice:
            return self.writer.embedding.vectors(dict(waiting), progress)
        self.writer.embedding.prepare(waiting, ProgressCount("embed", progress, total))
        return {}

    # --- writing -----------------------------------------------------------------------

    def _write(
        self,
        transaction: Transaction,
        insertions: Sequence[Insertion],
        rows: Mapping[str, Row],
        key: bytes,
        progress: Progress,
    ) -> str:
        """Write the changes and their journal events; returns the new state hash."""
        facts = transaction.facts
        self.writer.check(facts)
        before = self.writer.hash_in(facts)
        progress_count = ProgressCount(
            "store", progress, sum(len(insertion.ids) for insertion in insertions) or 1
        )
        insert = InsertTransaction(
            writer=self.writer,
            transaction=transaction,
            rows=rows,
            now=self.writer.clock.now(),
            stored=progress_count.more,
        )
        insert.carry_out(insertions)
        after = self.writer.hash_in(facts)
        insert.write_events(insertions, before, after, key)
        progress_count.end()
        return after

    def _notify_changes(
        self,
        insertions: Sequence[Insertion],
        stored: Mapping[str, Source | None],
    ) -> None:
        """Send a notice for each existing source whose facts have changed.

        Spec: CRP-SPEC-009 §4.5
        """
        for insertion in insertions:
            change = insertion.change
            if stored[change.source.uri] is None:
                continue
            if insertion.ids or change.vanished or change.returned:
                self.writer.notify(
                    Notice(
                        kind="source-changed",
                        namespace=self.writer.namespace,
                        source_id=change.source.source_id,
                        facts=tuple(insertion.ids),
                        stale=change.vanished,
                        returned=change.returned,
                    )
                )


# Number of facts written or read at once.
_STEP = 512
# Maximum number of ids in one journal event.
_EVENT_IDS = 10_000


@dataclass(frozen=True, slots=True)
class InsertTransaction:
    """One write transaction of an ingestion.

    Attributes:
        rows: vectors by content hash; missing ones are prepared in the store.
        stored: callback that receives the number of further facts written.
    """

    writer: NamespaceWriter
    transaction: Transaction
    rows: Mapping[str, Row]
    now: datetime
    stored: Callable[[int], None]

    def carry_out(self, insertions: Sequence[Insertion]) -> None:
        """Write sources, facts, vectors and statuses."""
        facts = self.transaction.facts
        for insertion in insertions:
            change = insertion.change
            facts.add_source(change.source)
            if insertion.ids and facts.setting(EMBEDDER_SETTING) is None:
                facts.set_setting(EMBEDDER_SETTING, self.writer.embedder.identity)
            made = insertion.facts()
            while part := list(islice(made, _STEP)):
                self._add(facts, part, change)
                self.stored(len(part))
            for start in range(0, len(change.restored), _STEP):
                # As in `restore`: `modified_at` is set, or they would be archived again as unused.
                back = facts.get(change.restored[start : start + _STEP])
                facts.replace(
                    [fact.changed(archived_at=None, modified_at=self.now) for fact in back]
                )
            for status, ids in (
                (FactStatus.STALE, change.vanished),
                (FactStatus.ACTIVE, change.returned),
            ):
                for start in range(0, len(ids), _STEP):
                    facts.set_status(ids[start : start + _STEP], status, self.now)
            self._relabel(facts, change)
            note_new_facts(facts, len(insertion.ids))

    def _add(self, facts: FactsFacet, part: Sequence[Fact], change: SourceChange) -> None:
        rows = self._vectors(facts, part, change)
        deleted = [fact.fact_id for fact in part if fact.fact_id in change.revived]
        if deleted:
            # DELETED is final: the old row is removed and a new one added.
            facts.remove(deleted)
        facts.add(part, rows)

    def _vectors(self, facts: FactsFacet, part: Sequence[Fact], change: SourceChange) -> FloatRows:
        """The rows of some facts: from memory, from facts with equal text, or prepared ones."""
        hashes = dict.fromkeys(fact.content_hash for fact in part)
        copied = [
            content_hash
            for content_hash in hashes
            if content_hash not in self.rows and content_hash in change.known
        ]
        prepared = [
            content_hash
            for content_hash in hashes
            if content_hash not in self.rows and content_hash not in change.known
        ]
        rows: dict[str, Row] = {
            content_hash: self.rows[content_hash]
            for content_hash in hashes
            if content_hash in self.rows
        }
        if copied:
            block = facts.vectors([change.known[content_hash] for content_hash in copied])
            rows.update(zip(copied, block, strict=True))
        if prepared:
            rows.update(facts.prepared(self.writer.embedder.identity, prepared))
        missing = len(hashes) - len(rows)
        if missing:
            raise WriteConflictError(f"{missing} prepared vectors were used by another writer")
        return np.stack([rows[fact.content_hash] for fact in part])

    def _relabel(self, facts: FactsFacet, change: SourceChange) -> None:
        """Give a source's facts its new kind, labels, metadata and ttl; texts stay unchanged."""
        source, ids, settings = change.source, change.relabelled, self.writer.settings
        for start in range(0, len(ids), _STEP):
            old = facts.get(ids[start : start + _STEP])
            for labels in sorted({fact.labels for fact in old}):
                self.writer.allow(labels)
            before = change.metadata
            described = {
                fact.fact_id: {
                    **{
                        name: value
                        for name, value in fact.metadata.items()
                        if name not in before or before[name] != value
                    },
                    **source.metadata,
                }
                for fact in old
            }
            again = [
                fact.changed(
                    labels=source.labels,
                    kind=source.kind,
                    importance_weight=fact.importance_weight
                    if fact.kind is source.kind
                    else weigh_importance(source, fact.content, _heading_of(fact), settings),
                    metadata=described[fact.fact_id],
                    ttl=change.ttl or fact.ttl,
                    modified_at=self.now,
                )
                for fact in old
                if (fact.labels, fact.kind, fact.metadata, fact.ttl)
                != (
                    source.labels,
                    source.kind,
                    described[fact.fact_id],
                    change.ttl or fact.ttl,
                )
            ]
            if again:
                facts.replace(again)

    def write_events(
        self, insertions: Sequence[Insertion], before: str, after: str, key: bytes
    ) -> None:
        """Write the changes of every source into the journal: only ids, hashes and counts."""
        for insertion in insertions:
            # One by one, since each event may contain thousands of ids.
            for data in _events(insertion.change, insertion.ids):
                draft = EventDraft(EventType.FACT_INGESTED, data)
                append_events(self.transaction.journal, key, [draft], iso(self.now))
        if after != before:
            change = {"before": before, "after": after, "cause": "ingested"}
            draft = EventDraft(EventType.CKF_ETAG_CHANGED, change)
            append_events(self.transaction.journal, key, [draft], iso(self.now))


def _events(change: SourceChange, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Data of one source's journal events; a long list of ids continues in further events."""
    base = {
        "source": change.source.source_id,
        "document_hash": change.source.document_hash,
    }
    rest = {
        "active_again": tuple(sorted({*change.returned, *change.restored})),
        "stale": change.vanished,
        "relabelled": change.relabelled,
    }
    longest = max(len(ids), *(len(fact_ids) for fact_ids in rest.values()))
    for start in range(0, max(1, longest), _EVENT_IDS):
        part = slice(start, start + _EVENT_IDS)
        data: dict[str, Any] = {**base, "facts": list(ids[part])}
        for name, fact_ids in rest.items():
            # The first event always has the other two lists, so that a reader need not check.
            if fact_ids[part] or (start == 0 and name != "relabelled"):
                data[name] = list(fact_ids[part])
        yield data


def _heading_of(fact: Fact) -> str:
    """The headings in a fact's location, without pages and offsets."""
    parts = fact.source_location.split(" · ")[:-1]
    if parts and parts[0].startswith("p. "):
        del parts[0]
    return " · ".join(parts)
