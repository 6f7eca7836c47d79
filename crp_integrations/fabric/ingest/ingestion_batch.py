"""The documents of one ingestion, and the transaction that inserts what the store lacks of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import IngestError, StoreBusy
from crp_integrations.fabric.ingest.document_passages import ChunkSpill, PassageReader
from crp_integrations.fabric.ingest.fact_preparation import fact_importance
from crp_integrations.fabric.ingest.ingestion_plan import SourceChange, compare_document
from crp_integrations.fabric.ports import FactsFacet, Transaction
from crp_integrations.fabric.ports.engines import Progress
from crp_integrations.fabric.records import Document, Fact, Source, StreamedDocument, shown
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING, note_new_facts
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import iso
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import EventType, FactStatus

Row = npt.NDArray[np.float32]
# Facts written, or read, at once; and the most ids in one event of the journal.
_EVENT_IDS = 10_000


class OvertakenError(StoreBusy):
    """Another writer changed what an ingestion had read or prepared."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """A change and what it adds.

    Attributes:
        ids: of the new facts, in order.
        facts: makes the new facts in that order, anew at every call.
    """

    change: SourceChange
    ids: Sequence[str]
    facts: Callable[[], Iterator[Fact]]


@dataclass(frozen=True, slots=True)
class InsertTransaction:
    """One writing transaction of an ingestion.

    Attributes:
        embedder: identity of the embedder.
        rows: vectors by content hash; where one is missing it lies prepared in the store.
        allow: raises AccessDenied when things with these labels may not be written.
        stored: is told how many more facts were written.
    """

    transaction: Transaction
    embedder: str
    rows: Mapping[str, Row]
    settings: FabricSettings
    allow: Callable[[tuple[str, ...]], None]
    now: datetime
    stored: Callable[[int], None]

    def carry_out(self, insertions: Sequence[Insertion]) -> None:
        """Write sources, facts, vectors and statuses."""
        facts = self.transaction.facts
        for insertion in insertions:
            change = insertion.change
            facts.add_source(change.source)
            if insertion.ids and facts.setting(EMBEDDER_SETTING) is None:
                facts.set_setting(EMBEDDER_SETTING, self.embedder)
            made = insertion.facts()
            while part := list(islice(made, _STEP)):
                self._add(facts, part, change)
                self.stored(len(part))
            for start in range(0, len(change.restored), _STEP):
                # As `restore`: the moment of return is kept, or disuse would archive them again.
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
        buried = [fact.fact_id for fact in part if fact.fact_id in change.revived]
        if buried:
            # There is no way out of DELETED: the row goes and another one comes.
            facts.remove(buried)
        facts.add(part, rows)

    def _vectors(self, facts: FactsFacet, part: Sequence[Fact], change: SourceChange) -> FloatRows:
        """The rows of some facts: from memory, from facts of equal text, or prepared ones."""
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
            rows.update(facts.prepared(self.embedder, prepared))
        missing = len(hashes) - len(rows)
        if missing:
            raise OvertakenError(f"{missing} prepared vectors were used up by another writer")
        return np.stack([rows[fact.content_hash] for fact in part])

    def _relabel(self, facts: FactsFacet, change: SourceChange) -> None:
        """Give the facts of a source its new kind, labels, metadata, ttl; texts stay."""
        source, ids = change.source, change.relabelled
        for start in range(0, len(ids), _STEP):
            old = facts.get(ids[start : start + _STEP])
            for labels in sorted({fact.labels for fact in old}):
                self.allow(labels)
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
                    else weigh_importance(source, fact.content, heading_of(fact), self.settings),
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

    def tell(self, insertions: Sequence[Insertion], before: str, after: str, key: bytes) -> None:
        """Write into the journal what every source brought: only ids, hashes and counts."""
        for insertion in insertions:
            # One by one, since each may hold thousands of ids.
            for data in _events(insertion.change, insertion.ids):
                draft = EventDraft(EventType.FACT_INGESTED, data)
                append_events(self.transaction.journal, key, [draft], iso(self.now))
        if after != before:
            change = {"before": before, "after": after, "cause": "ingested"}
            draft = EventDraft(EventType.CKF_ETAG_CHANGED, change)
            append_events(self.transaction.journal, key, [draft], iso(self.now))


def weigh_importance(source: Source, content: str, heading: str, settings: FabricSettings) -> float:
    """The importance weight of a passage of a source.

    Spec: CRP-SPEC-009 §4.4
    """
    return fact_importance(
        source.kind,
        content=content,
        settings=settings.importance,
        heading=heading,
        title=source.title,
        uri=source.uri,
        metadata=source.metadata,
    )


def heading_of(fact: Fact) -> str:
    """The headings in a location as chunking writes it, pages and offsets left out."""
    parts = fact.source_location.split(" · ")[:-1]
    if parts and parts[0].startswith("p. "):
        del parts[0]
    return " · ".join(parts)


def _events(change: SourceChange, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The journal's events of one source; a long list of ids continues in further events."""
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
            # The two older lists are always there, so that a reader need not ask.
            if fact_ids[part] or (start == 0 and name != "relabelled"):
                data[name] = list(fact_ids[part])
        yield data


AnyDocument = Document | StreamedDocument

# Characters of passages that a batch holds in memory; what is beyond is put down in a scratch.
_HELD_CHARACTERS = 4_000_000
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
# Content hashes cleared at once.
_STEP = 512


@dataclass(frozen=True, slots=True)
class IngestionBatch:
    """The documents that are waiting, with what they are to be and what was stored of them.

    Attributes:
        listed, sources: in the same order.
        stored: registry entries by URI as they were read before.
        refused: by URI, why a document has too little text for a fact.
        ttl: ISO 8601 duration for all of their facts; None leaves what is stored.
    """

    readers: Sequence[PassageReader]
    sources: Sequence[Source]
    stored: Mapping[str, Source | None]
    refused: Mapping[str, str]
    ttl: str | None = None

    def changes(self, facts: FactsFacet) -> list[SourceChange]:
        """What each document does to what a transaction sees."""
        return [
            compare_document(
                facts, source, reader.passage_ids, self.stored[source.uri], ttl=self.ttl
            )
            for reader, source in zip(self.readers, self.sources, strict=True)
        ]

    def waiting(self, changes: Sequence[SourceChange]) -> Iterator[tuple[str, str]]:
        """Content hash and text of each new passage that no stored fact of its source says."""
        for reader, change in zip(self.readers, changes, strict=True):
            for passage in reader.at(change.new):
                if passage.content_hash not in change.known:
                    yield passage.content_hash, passage.piece.content

    def waiting_count(self, changes: Sequence[SourceChange]) -> int:
        """How many `waiting` gives; no document is read."""
        return sum(
            reader.passage_ids.content_hash(place) not in change.known
            for reader, change in zip(self.readers, changes, strict=True)
            for place in change.new
        )

    def insertions(
        self, changes: Sequence[SourceChange], namespace: str, settings: FabricSettings
    ) -> list[Insertion]:
        """The changes with the facts that they add."""
        return [
            _insertion(reader, change, namespace, settings)
            for reader, change in zip(self.readers, changes, strict=True)
        ]

    def clear_prepared(
        self, facts: FactsFacet, changes: Sequence[SourceChange], embedder: str
    ) -> None:
        """Forget the vectors that were prepared for these documents."""
        for reader, change in zip(self.readers, changes, strict=True):
            for start in range(0, len(change.new), _STEP):
                places = change.new[start : start + _STEP]
                hashes = [reader.passage_ids.content_hash(place) for place in places]
                facts.clear_prepared(embedder, hashes)


def gather_batch(
    pairs: Sequence[tuple[AnyDocument, Source]],
    stored: Mapping[str, Source | None],
    readers: dict[str, PassageReader],
    spill: ChunkSpill,
    *,
    ttl: str | None,
    counter: TokenCounter,
    settings: ChunkingSettings,
    progress: Progress,
) -> IngestionBatch:
    """Cut every document once, and set aside those with too little text for a fact."""
    refused: dict[str, str] = {}
    accepted: list[tuple[PassageReader, Source]] = []
    room = _HELD_CHARACTERS - sum(reader.characters for reader in readers.values() if reader.held)
    for number, (document, source) in enumerate(pairs):
        progress("chunk", number, len(pairs))
        reader = readers.get(source.uri)
        if reader is None:
            reader = PassageReader(document, counter, settings, hold=max(0, room), spill=spill)
            readers[source.uri] = reader
            room -= reader.characters if reader.held else 0
        reason = _too_little(reader, source, counter, settings.min_fact_tokens)
        if reason:
            refused[source.uri] = reason
        # A stored document is here because it changed, so its old facts have to go stale.
        if not reason or stored[source.uri] is not None:
            accepted.append((reader, source))
    progress("chunk", len(pairs), len(pairs))
    return IngestionBatch(
        [reader for reader, _ in accepted], [own for _, own in accepted], stored, refused, ttl
    )


def insertion_of_facts(change: SourceChange, made: Sequence[Fact]) -> Insertion:
    """A change with the facts that a caller made."""
    return Insertion(change, [fact.fact_id for fact in made], lambda: iter(made))


def _too_little(one: PassageReader, source: Source, counter: TokenCounter, least: int) -> str:
    """A sentence that says what a document has too little of; empty when it has enough."""
    if len(one.passage_ids) == 0:
        return f"{shown(source.uri)} holds no text"
    if len(one.passage_ids) > 1:
        return ""
    (only,) = one.all()
    tokens = counter.count(only.piece.content)
    if tokens >= least:
        return ""
    one.empty()
    return (
        f"{shown(source.uri)} holds {tokens} tokens, and a fact needs at least "
        f"{least} (setting fabric.chunking.min_fact_tokens)"
    )


def _insertion(
    one: PassageReader, change: SourceChange, namespace: str, settings: FabricSettings
) -> Insertion:
    """A document's new facts: each passage, or piece of one, becomes a fact.

    Spec: CRP-SPEC-009 §4.3
    """
    source = change.source

    def made() -> Iterator[Fact]:
        for passage in one.at(change.new):
            piece = passage.piece
            yield Fact(
                content=piece.content,
                namespace=namespace,
                source_id=source.source_id,
                source_location=piece.location,
                kind=source.kind,
                importance_weight=weigh_importance(source, piece.content, piece.heading, settings),
                ingested_at=source.ingested_at,
                modified_at=source.ingested_at,
                ttl=change.ttl,
                labels=source.labels,
                metadata=source.metadata,
            )

    return Insertion(change, one.passage_ids.ids(change.new), made)


def distinct_documents(documents: Iterable[AnyDocument], progress: Progress) -> list[AnyDocument]:
    """The documents by URI; a URI given twice with one content counts once."""
    if isinstance(documents, AnyDocument) or not isinstance(documents, Iterable):
        raise IngestError(
            f"documents is of type {type(documents).__name__}, wanted a list of documents"
        )
    by_uri: dict[str, AnyDocument] = {}
    for number, document in enumerate(documents, 1):
        if not isinstance(document, AnyDocument):
            raise IngestError(
                f"document {number} is of type {type(document).__name__}, wanted a Document; "
                "a file is read by the relay's ingest"
            )
        progress("read", number, 0)
        uri = document.uri
        if not _HASH.fullmatch(document.document_hash):
            # With one hash for two texts, the second would be taken for the first.
            raise IngestError(
                f"{shown(uri)} has the document_hash {document.document_hash!r:.40}, wanted "
                "sha256: and 64 hexadecimal digits, those of its content"
            )
        earlier = by_uri.setdefault(uri, document)
        if earlier.document_hash != document.document_hash:
            raise IngestError(f"{uri} is given twice with different content")
    return list(by_uri.values())
