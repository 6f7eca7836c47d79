"""From documents to stored facts: chunk, make facts, embed, insert. Whole batch or nothing.

Everything slow happens before the one writing transaction: reading, chunking and embedding.
The transaction then looks at the stored state once more, decides what is new, what is still
there and what has vanished, and writes sources, facts, vectors and journal together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from pydantic import ValidationError

from crp_integrations.audit.journal import EventDraft, append
from crp_integrations.errors import EngineError, FactRejected, IngestError, StoreBusy
from crp_integrations.fabric.changes import USER_SOURCE, Change, additions, compare, entry, event
from crp_integrations.fabric.chunking import Chunk, chunk
from crp_integrations.fabric.importance import importance
from crp_integrations.fabric.ports import FactsFacet, Transaction
from crp_integrations.fabric.records import (
    Document,
    Fact,
    IngestReport,
    Source,
    shown,
    source_id,
)
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.ports import Clock, Embedder, TokenCounter, Tracer
from crp_integrations.seals import iso
from crp_integrations.vectors import FloatRows, unit_rows
from crp_integrations.vocabulary import EventType, FactStatus, SourceKind

Progress = Callable[[str, int, int], None]
Allow = Callable[[tuple[str, ...]], None]

EMBEDDER_SETTING = "embedder"
# How often an ingestion begins anew when another writer was faster.
_TRIES = 3


def silent(step: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


class _OvertakenError(StoreBusy):
    """Another writer changed a source between the reading and the writing of an ingestion."""


@dataclass(frozen=True, slots=True)
class Ingestion:
    """Writes into one namespace, on behalf of one subject.

    Attributes:
        begin: opens a transaction of the namespace; true for a writing one.
        key: gives the journal's key, 32 bytes; asked for when there is something to write, since
            a key that is not there yet is made.
        allow: raises AccessDenied when things with these labels may not be written.
        check: raises ConfigError when the stored vectors are of another embedder.
    """

    namespace: str
    begin: Callable[[bool], AbstractContextManager[Transaction]]
    embedder: Embedder
    counter: TokenCounter
    clock: Clock
    key: Callable[[], bytes]
    settings: FabricSettings
    tracer: Tracer
    allow: Allow
    check: Callable[[FactsFacet], None]

    def documents(
        self,
        documents: Iterable[Document],
        *,
        kind: SourceKind | None,
        labels: tuple[str, ...],
        progress: Progress,
    ) -> IngestReport:
        """Ingest documents; those with too little text for a fact are skipped and named.

        Spec: CRP-SPEC-009 §4.1

        Raises:
            IngestError: a URI is given twice with different content, or nothing that is given
                has enough text for a fact.
        """
        with self.tracer.step("fabric.read"):
            given = _distinct(documents, progress)
        for _ in range(_TRIES):
            try:
                return self._ingested(given, kind, labels, progress)
            except _OvertakenError:
                continue
        raise StoreBusy(
            f"other writers changed the sources of namespace {self.namespace!r} during "
            f"{_TRIES} tries; nothing was written"
        )

    def _ingested(
        self,
        given: Sequence[Document],
        kind: SourceKind | None,
        labels: tuple[str, ...],
        progress: Progress,
    ) -> IngestReport:
        now = self.clock.now()
        with self.begin(False) as transaction:
            facts = transaction.facts
            self.check(facts)
            stored = {document.uri: facts.source(source_id(document.uri)) for document in given}
            entries = {
                document.uri: entry(
                    document, stored[document.uri], kind=kind, labels=labels, now=now
                )
                for document in given
            }
            waiting = [
                document
                for document in given
                if (known := stored[document.uri]) is None
                or known.document_hash != document.document_hash
            ]
            before = "" if waiting else state_hash(facts.state())
        for source in entries.values():
            self.allow(source.labels)
        told = {document.uri for document in waiting}
        unchanged = tuple(uri for uri in stored if uri not in told)
        if not waiting:
            return IngestReport(unchanged=unchanged, state_hash=before)

        with self.tracer.step("fabric.chunk"):
            chunks: list[list[Chunk]] = []
            refused: dict[str, str] = {}
            for number, document in enumerate(waiting):
                progress("chunk", number, len(waiting))
                cut, reason = self._chunks(document)
                chunks.append(cut)
                if reason:
                    refused[document.uri] = reason
            progress("chunk", len(waiting), len(waiting))
        if len(refused) == len(given):
            more = f" (the first of {len(refused)} documents like it)" if len(refused) > 1 else ""
            raise IngestError(next(iter(refused.values())) + more)
        with self.tracer.step("fabric.facts"):
            made = [
                (entries[document.uri], self._facts(document, entries[document.uri], cut))
                for document, cut in zip(waiting, chunks, strict=True)
                # One that is stored has changed: what its facts say is no longer in it.
                if cut or stored[document.uri] is not None
            ]
            with self.begin(False) as transaction:
                if not made:
                    return IngestReport(
                        unchanged=unchanged,
                        skipped=tuple(refused),
                        state_hash=state_hash(transaction.facts.state()),
                    )
                changes = [compare(transaction.facts, source, said) for source, said in made]
        with self.tracer.step("fabric.embed"):
            vectors = self._embed(changes, progress)
        # Before the transaction: a store's key is there before anything that is sealed with it.
        key = self.key()
        with self.tracer.step("fabric.insert"), self.begin(True) as transaction:
            progress("store", 0, 1)
            for document in waiting:
                if transaction.facts.source(source_id(document.uri)) != stored[document.uri]:
                    raise _OvertakenError(f"{document.uri} was changed by another writer")
            changes = [compare(transaction.facts, source, said) for source, said in made]
            after = self._write(transaction, changes, vectors, now, key)
        progress("store", 1, 1)
        return IngestReport(
            sources=tuple(change.source.source_id for change in changes),
            facts=tuple(fact.fact_id for change in changes for fact in change.new),
            unchanged=unchanged,
            skipped=tuple(refused),
            state_hash=after,
        )

    def facts(
        self, facts: Sequence[Fact | str], *, kind: SourceKind | None, progress: Progress
    ) -> IngestReport:
        """Add facts that the caller made; those that are there already are left alone."""
        now = self.clock.now()
        given = self._given(facts, kind, now)
        with self.begin(False) as transaction:
            self.check(transaction.facts)
            changes = additions(transaction.facts, given, now)
            after = state_hash(transaction.facts.state())
        if changes:
            with self.tracer.step("fabric.embed"):
                vectors = self._embed(changes, progress)
            key = self.key()
            with self.tracer.step("fabric.insert"), self.begin(True) as transaction:
                changes = additions(transaction.facts, given, now)
                after = self._write(transaction, changes, vectors, now, key)
        new = {fact.fact_id for change in changes for fact in change.new}
        return IngestReport(
            sources=tuple(change.source.source_id for change in changes),
            facts=tuple(fact.fact_id for fact in given if fact.fact_id in new),
            unchanged=tuple(fact.fact_id for fact in given if fact.fact_id not in new),
            state_hash=after,
        )

    # --- documents ---------------------------------------------------------------------

    def _chunks(self, document: Document) -> tuple[list[Chunk], str]:
        """A document's passages, or none and a sentence that says what is too little."""
        settings = self.settings.chunking
        chunks = chunk(document, counter=self.counter, settings=settings)
        if not chunks:
            return [], f"{shown(document.uri)} holds no text"
        tokens = self.counter.count(chunks[0].content) if len(chunks) == 1 else None
        if tokens is not None and tokens < settings.min_fact_tokens:
            return [], (
                f"{shown(document.uri)} holds {tokens} tokens, and a fact needs at least "
                f"{settings.min_fact_tokens} (setting fabric.chunking.min_fact_tokens)"
            )
        return chunks, ""

    def _facts(self, document: Document, source: Source, chunks: list[Chunk]) -> list[Fact]:
        """Each chunk, one coherent passage, becomes one fact.

        Spec: CRP-SPEC-009 §4.3
        """
        return [
            Fact(
                content=cut.content,
                namespace=self.namespace,
                source_id=source.source_id,
                source_location=cut.location,
                kind=source.kind,
                importance_weight=importance(
                    source.kind,
                    content=cut.content,
                    settings=self.settings.importance,
                    heading=cut.heading,
                    title=document.title,
                    uri=document.uri,
                    metadata=document.metadata,
                ),
                ingested_at=source.ingested_at,
                modified_at=source.ingested_at,
                labels=source.labels,
            )
            for cut in chunks
        ]

    # --- facts by hand -----------------------------------------------------------------

    def _given(
        self, facts: Sequence[Fact | str], kind: SourceKind | None, now: datetime
    ) -> list[Fact]:
        settings = self.settings.chunking
        made: dict[str, Fact] = {}
        for number, item in enumerate(facts, 1):
            fact = self._filled(item, number, kind, now)
            tokens = self.counter.count(fact.content)
            if not settings.min_fact_tokens <= tokens <= settings.max_fact_tokens:
                raise FactRejected(
                    f"fact {number} has {tokens} tokens, wanted {settings.min_fact_tokens} to "
                    f"{settings.max_fact_tokens}; longer text is ingested as a document"
                )
            self.allow(fact.labels)
            made.setdefault(fact.fact_id, fact)
        return list(made.values())

    def _filled(
        self, item: Fact | str, number: int, kind: SourceKind | None, now: datetime
    ) -> Fact:
        times: dict[str, Any] = {"namespace": self.namespace}
        if isinstance(item, str):
            own = kind or SourceKind.USER
            weight = importance(own, content=item, settings=self.settings.importance)
            times |= {"ingested_at": now, "modified_at": now}
            try:
                return Fact(
                    content=item, source_id=USER_SOURCE, kind=own, importance_weight=weight, **times
                )
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                raise FactRejected(f"fact {number} is not usable: {first['msg']}") from None
        if item.namespace not in ("", self.namespace):
            raise FactRejected(
                f"fact {item.fact_id} is of namespace {item.namespace!r}, not {self.namespace!r}"
            )
        if item.status is not FactStatus.ACTIVE:
            raise FactRejected(f"fact {item.fact_id} is {item.status}; a new fact is ACTIVE")
        if item.ingested_at is None:
            times["ingested_at"] = now
        if item.modified_at is None:
            times["modified_at"] = now
        if kind is not None:
            times["kind"] = kind
        return item.changed(**times)

    # --- embedding and writing ---------------------------------------------------------

    def _embed(self, changes: Sequence[Change], progress: Progress) -> dict[str, FloatRows]:
        """One vector for each distinct text; a text's vector depends on it alone."""
        texts = list(dict.fromkeys(fact.content for change in changes for fact in change.new))
        vectors: dict[str, FloatRows] = {}
        for start in range(0, len(texts), self.settings.embed_slice):
            progress("embed", start, len(texts))
            part = texts[start : start + self.settings.embed_slice]
            rows = self.embedder.embed_passages(part)
            block = unit_rows(rows, dimensions=self.embedder.dimensions)
            if len(block) != len(part):
                raise EngineError(
                    f"embedder {self.embedder.identity!r} gave {len(block)} vectors for "
                    f"{len(part)} texts",
                    engine=self.embedder.identity,
                )
            vectors.update(zip(part, block, strict=True))
        progress("embed", len(texts), len(texts))
        return vectors

    def _write(
        self,
        transaction: Transaction,
        changes: Sequence[Change],
        vectors: dict[str, FloatRows],
        now: datetime,
        key: bytes,
    ) -> str:
        """Carry changes out and tell the journal; returns the new state hash."""
        facts = transaction.facts
        self.check(facts)
        before = state_hash(facts.state())
        new = [fact for change in changes for fact in change.new]
        for change in changes:
            facts.add_source(change.source)
        if new:
            if facts.setting(EMBEDDER_SETTING) is None:
                facts.set_setting(EMBEDDER_SETTING, self.embedder.identity)
            facts.add(new, np.stack([vectors[fact.content] for fact in new]))
        for status, ids in (
            (FactStatus.STALE, [id_ for change in changes for id_ in change.vanished]),
            (FactStatus.ACTIVE, [id_ for change in changes for id_ in change.returned]),
        ):
            if ids:
                facts.set_status(ids, status, now)
        after = state_hash(facts.state())
        drafts = [EventDraft(EventType.FACT_INGESTED, event(change)) for change in changes]
        if after != before:
            told = {"before": before, "after": after}
            drafts.append(EventDraft(EventType.CKF_ETAG_CHANGED, told))
        if drafts:
            append(transaction.journal, key, drafts, iso(now))
        return after


def _distinct(documents: Iterable[Document], progress: Progress) -> list[Document]:
    """The documents by URI; a URI given twice with one content counts once."""
    by_uri: dict[str, Document] = {}
    for number, document in enumerate(documents, 1):
        progress("read", number, 0)
        earlier = by_uri.setdefault(document.uri, document)
        if earlier.document_hash != document.document_hash:
            raise IngestError(f"{document.uri} is given twice with different content")
    return list(by_uri.values())
