"""From documents to stored facts: chunk, make facts, embed, insert. Whole batch or nothing.

Everything slow happens before the one writing transaction: reading, chunking and embedding.
The transaction then looks at the stored state once more, decides what is new, what is still
there and what has vanished, and writes sources, facts, vectors and journal together.

What is above one slice of the embedder keeps its vectors in the store as they come, by content
hash and outside every search, so an ingestion that was killed embeds only what is missing when it
is run again. Passages of long documents are not held for these steps but put down in a scratch.

What facts are brought into: one namespace, on behalf of one subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

from crp_integrations.errors import IngestError, StoreBusy
from crp_integrations.fabric.ingest.document_passages import ChunkSpill, PassageReader
from crp_integrations.fabric.ingest.fact_preparation import TextEmbedding, prepare_facts
from crp_integrations.fabric.ingest.ingestion_batch import (
    AnyDocument,
    IngestionBatch,
    Insertion,
    InsertTransaction,
    OvertakenError,
    Row,
    distinct_documents,
    gather_batch,
    insertion_of_facts,
)
from crp_integrations.fabric.ingest.ingestion_plan import (
    SourceChange,
    compare_facts,
    is_unchanged,
    of_another_ttl,
    source_entry,
    sources_with_stale,
)
from crp_integrations.fabric.ports import FactsFacet, Notify, Transaction
from crp_integrations.fabric.ports.engines import Progress, ProgressCount, ignore_progress
from crp_integrations.fabric.ports.store import Scratch
from crp_integrations.fabric.records import Fact, FactIds, IngestReport, Notice, Source, source_id
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.ports import Clock, Embedder, TokenCounter, Tracer
from crp_integrations.vocabulary import SourceKind


@dataclass(frozen=True, slots=True)
class IngestionTarget:
    """Where facts go to and what that needs, in whichever way they come.

    Attributes:
        begin: opens a transaction of the namespace; true for a writing one.
        key: gives the journal's key, 32 bytes; asked for when there is something to write, since
            a key that is not there yet is made.
        allow: raises AccessDenied when things with these labels may not be written.
        check: raises ConfigError when the stored vectors are of another embedder.
        hash_in: the state hash as a transaction sees it.
        notify: is told which facts of a source that was stored before have changed or came back.
        check_shared: raises AccessDenied for facts, given and stored, that say something else than
            a shared fact of their id.
        scratch: gives a place for passages of long documents; None for a store without one.
    """

    namespace: str
    begin: Callable[[bool], AbstractContextManager[Transaction]]
    embedder: Embedder
    counter: TokenCounter
    clock: Clock
    key: Callable[[], bytes]
    settings: FabricSettings
    tracer: Tracer
    allow: Callable[[tuple[str, ...]], None]
    check: Callable[[FactsFacet], None]
    hash_in: Callable[[FactsFacet], str]
    notify: Notify
    check_shared: Callable[[Iterable[Fact], Iterable[Fact]], None]
    scratch: Callable[[], Scratch | None]

    @property
    def embedding(self) -> TextEmbedding:
        """What embeds texts for the namespace."""
        return TextEmbedding(self.begin, self.check, self.embedder, self.clock, self.settings)


# How often an ingestion begins anew when another writer was faster.
_TRIES = 3


class Ingestion(IngestionTarget):
    """Writes documents and facts as they are into one namespace."""

    __slots__ = ()

    def documents(
        self,
        documents: Iterable[AnyDocument],
        *,
        kind: SourceKind | None,
        labels: tuple[str, ...],
        ttl: str | None,
        progress: Progress,
    ) -> IngestReport:
        """Ingest documents; those with too little text for a fact are skipped and named.

        Spec: CRP-SPEC-009 §4.1
        """
        with self.tracer.step("fabric.read"):
            distinct = distinct_documents(documents, progress)
        readers: dict[str, PassageReader] = {}
        with closing(ChunkSpill(self.scratch)) as spill:
            for _ in range(_TRIES):
                try:
                    return self._ingested(distinct, readers, spill, kind, labels, ttl, progress)
                except OvertakenError:
                    continue
        raise self._overtaken()

    def _ingested(
        self,
        given: Sequence[AnyDocument],
        readers: dict[str, PassageReader],
        spill: ChunkSpill,
        kind: SourceKind | None,
        labels: tuple[str, ...],
        ttl: str | None,
        progress: Progress,
    ) -> IngestReport:
        now = self.clock.now()
        with self.begin(False) as transaction:
            facts = transaction.facts
            self.check(facts)
            stored = {document.uri: facts.source(source_id(document.uri)) for document in given}
            entries = [
                (
                    document,
                    source_entry(document, stored[document.uri], kind=kind, labels=labels, now=now),
                )
                for document in given
            ]
            same_as_stored = {own.uri for _, own in entries if is_unchanged(own, stored[own.uri])}
            same_as_stored -= of_another_ttl(facts, same_as_stored, ttl)
            aged = sources_with_stale(facts, map(source_id, same_as_stored), now)
            before = "" if len(same_as_stored) < len(entries) else self.hash_in(facts)
        # Whoever changes labels must be allowed to write under the old labels as well.
        both = {own.labels for _, own in entries}
        both |= {known.labels for known in stored.values() if known is not None}
        for label_set in sorted(both):
            self.allow(label_set)
        same_as_stored -= self._reviving(
            [
                (document, own)
                for document, own in entries
                if own.source_id in aged and own.uri in same_as_stored
            ],
            stored,
            readers,
            spill,
        )
        pairs = [(document, own) for document, own in entries if own.uri not in same_as_stored]
        changed_uris = {own.uri for _, own in pairs}
        same = tuple(uri for uri in stored if uri not in changed_uris)
        if not pairs:
            return IngestReport(unchanged=same, state_hash=before)

        with self.tracer.step("fabric.chunk"):
            batch = gather_batch(
                pairs,
                stored,
                readers,
                spill,
                ttl=ttl,
                counter=self.counter,
                settings=self.settings.chunking,
                progress=progress,
            )
        if len(batch.refused) == len(given):
            many = len(batch.refused)
            more = f" (the first of {many} documents like it)" if many > 1 else ""
            raise IngestError(next(iter(batch.refused.values())) + more)
        with self.tracer.step("fabric.facts"), self.begin(False) as transaction:
            if not batch.readers:
                return IngestReport(
                    unchanged=same,
                    skipped=tuple(batch.refused),
                    state_hash=self.hash_in(transaction.facts),
                )
            changes = batch.changes(transaction.facts)
        # Before anything is written: the store's key must exist before anything is sealed with it.
        key = self.key()
        with self.tracer.step("fabric.embed"):
            rows = self._embedded(batch, changes, progress)
        with self.tracer.step("fabric.insert"), self.begin(True) as transaction:
            facts = transaction.facts
            for uri in changed_uris:
                if facts.source(source_id(uri)) != stored[uri]:
                    raise OvertakenError(f"{uri} was changed by another writer")
            changes = batch.changes(facts)
            insertions = batch.insertions(changes, self.namespace, self.settings)
            after = self._write(transaction, insertions, rows, key, progress)
            if not rows:
                batch.clear_prepared(facts, changes, self.embedder.identity)
        self._tell(insertions, stored)
        return IngestReport(
            sources=tuple(change.source.source_id for change in changes),
            facts=FactIds(id_ for insertion in insertions for id_ in insertion.ids),
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
        spill: ChunkSpill,
    ) -> set[str]:
        """URIs of those documents, equal to what is stored, that say the text of a STALE fact.

        Spec: CRP-SPEC-009 §2.2
        """
        if not aged:
            return set()
        with self.tracer.step("fabric.chunk"):
            batch = gather_batch(
                aged,
                stored,
                readers,
                spill,
                ttl=None,
                counter=self.counter,
                settings=self.settings.chunking,
                progress=ignore_progress,
            )
        with self.begin(False) as transaction:
            changes = batch.changes(transaction.facts)
        return {change.source.uri for change in changes if change.returned}

    def facts(
        self, facts: Sequence[Fact | str], *, kind: SourceKind | None, progress: Progress
    ) -> IngestReport:
        """Add facts that the caller made; those that can be found already are left alone."""
        prepared = self._given(facts, kind)
        for _ in range(_TRIES):
            try:
                return self._added(prepared, progress)
            except OvertakenError:
                continue
        raise self._overtaken()

    def _added(self, given: Sequence[Fact], progress: Progress) -> IngestReport:
        now = self.clock.now()
        with self.begin(False) as transaction:
            self.check(transaction.facts)
            changes = compare_facts(transaction.facts, given, now)
            after = self.hash_in(transaction.facts)
        self.check_shared([fact for _, made in changes for fact in made], ())
        if changes:
            texts = {
                fact.content_hash: fact.content
                for change, made in changes
                for fact in made
                if fact.content_hash not in change.known
            }
            with self.tracer.step("fabric.embed"):
                rows = self.embedding.vectors(texts, progress)
            key = self.key()
            with self.tracer.step("fabric.insert"), self.begin(True) as transaction:
                changes = compare_facts(transaction.facts, given, now)
                insertions = [insertion_of_facts(change, made) for change, made in changes]
                after = self._write(transaction, insertions, rows, key, progress)
        new = {fact.fact_id for _, made in changes for fact in made}
        back = {id_ for change, _ in changes for id_ in (*change.returned, *change.restored)}
        changed_ids = new | back
        return IngestReport(
            sources=tuple(change.source.source_id for change, _ in changes),
            facts=FactIds(fact.fact_id for fact in given if fact.fact_id in new),
            returned=tuple(fact.fact_id for fact in given if fact.fact_id in back),
            unchanged=tuple(fact.fact_id for fact in given if fact.fact_id not in changed_ids),
            state_hash=after,
        )

    def _overtaken(self) -> StoreBusy:
        return StoreBusy(
            f"other writers changed the sources of namespace {self.namespace!r} during "
            f"{_TRIES} tries; nothing was written"
        )

    def _given(self, facts: Sequence[Fact | str], kind: SourceKind | None) -> list[Fact]:
        return prepare_facts(
            facts,
            namespace=self.namespace,
            kind=kind,
            now=self.clock.now(),
            counter=self.counter,
            settings=self.settings,
            allow=self.allow,
        )

    def _embedded(
        self, batch: IngestionBatch, changes: Sequence[SourceChange], progress: Progress
    ) -> dict[str, Row]:
        """Vectors of the new texts by content hash; none when they are kept in the store."""
        total = batch.waiting_count(changes)
        waiting = batch.waiting(changes)
        if total <= self.settings.embed_slice:
            return self.embedding.vectors(dict(waiting), progress)
        self.embedding.prepare(waiting, ProgressCount("embed", progress, total))
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
        """Carry changes out and tell the journal; returns the new state hash."""
        facts = transaction.facts
        self.check(facts)
        before = self.hash_in(facts)
        progress_count = ProgressCount(
            "store", progress, sum(len(insertion.ids) for insertion in insertions) or 1
        )
        insert = InsertTransaction(
            transaction=transaction,
            embedder=self.embedder.identity,
            rows=rows,
            settings=self.settings,
            allow=self.allow,
            now=self.clock.now(),
            stored=progress_count.more,
        )
        insert.carry_out(insertions)
        after = self.hash_in(facts)
        insert.tell(insertions, before, after, key)
        progress_count.end()
        return after

    def _tell(
        self,
        insertions: Sequence[Insertion],
        stored: Mapping[str, Source | None],
    ) -> None:
        """Tell of the sources that were there before and have other facts now.

        Spec: CRP-SPEC-009 §4.5
        """
        for insertion in insertions:
            change = insertion.change
            if stored[change.source.uri] is None:
                continue
            if insertion.ids or change.vanished or change.returned:
                self.notify(
                    Notice(
                        kind="source-changed",
                        namespace=self.namespace,
                        source_id=change.source.source_id,
                        facts=tuple(insertion.ids),
                        stale=change.vanished,
                        returned=change.returned,
                    )
                )
