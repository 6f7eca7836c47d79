"""The decisions of an ingestion: what documents and facts change in the store.

Functions here read from one transaction and return values; `ingestion` carries them out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import JsonValue

from crp_integrations.errors import FactRejected, IngestError, StoreBusy
from crp_integrations.fabric.ingest.document_passages import PassageReader
from crp_integrations.fabric.ingest.fact_preparation import weigh_importance
from crp_integrations.fabric.lifecycle import has_outlived
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.ports.engines import Progress, ignore_progress
from crp_integrations.fabric.records import (
    USER_SOURCE,
    Document,
    Fact,
    Source,
    StreamedDocument,
    Where,
    shown,
    source_id,
)
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus, SourceKind, SourceStatus

# Metadata key that marks a source without a document, whose facts were put one by one.
COLLECTED = "collected"
_STEP = 512


@dataclass(frozen=True, slots=True)
class SourceChange:
    """The changes of one source by a document, or by facts made by hand.

    Attributes:
        source: the new registry entry.
        new: ascending places of the passages for which the source has no stored fact.
        revived: ids of new facts that are in the store as deleted rows, which are replaced.
        known: ids of stored facts of the source by content hash; new facts with equal text reuse
            their vectors.
        returned: ids of stale facts whose text is present again.
        vanished: ids of active facts whose text was removed.
        relabelled: ids of facts that receive the source's new kind, labels or metadata.
        metadata: stored metadata of the source, which its facts received earlier.
        restored: ids of archived facts that were added again by hand.
        ttl: ttl of new and relabelled facts; None leaves the ttl of the latter unchanged.
    """

    source: Source
    new: Sequence[int]
    revived: frozenset[str] = frozenset()
    known: Mapping[str, str] = field(default_factory=dict)
    returned: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    relabelled: tuple[str, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    restored: tuple[str, ...] = ()
    ttl: str | None = None


def source_entry(
    document: Document | StreamedDocument,
    stored: Source | None,
    *,
    kind: SourceKind | None,
    labels: tuple[str, ...],
    now: datetime,
) -> Source:
    """Return the registry entry that the document will have.

    Spec: CRP-SPEC-009 §4.5
    """
    own_kind = kind or document.kind
    own_labels = tuple(sorted({*labels, *document.labels}))
    status = SourceStatus.ACTIVE
    if stored is not None and stored.status is not SourceStatus.REMOVED:
        same = stored.document_hash == document.document_hash
        status = stored.status if same else SourceStatus.UPDATED
    return Source(
        source_id=source_id(document.uri),
        title=document.title,
        uri=document.uri,
        document_hash=document.document_hash,
        kind=own_kind or (stored.kind if stored else SourceKind.USER),
        ingested_at=now,
        status=status,
        labels=own_labels or (stored.labels if stored else ()),
        metadata=dict(document.metadata),
    )


def is_unchanged(source: Source, stored: Source | None) -> bool:
    """Whether a document changes nothing in the store, except perhaps its STALE facts."""
    return (
        stored is not None
        and stored.status is not SourceStatus.REMOVED
        and stored.document_hash == source.document_hash
        and (stored.kind, stored.labels, stored.metadata)
        == (source.kind, source.labels, source.metadata)
    )


def sources_with_stale(facts: FactsFacet, ids: Iterable[str], now: datetime) -> set[str]:
    """Return the sources with STALE facts whose ttl has not ended."""
    sources = tuple(sorted(ids))
    if not sources:
        return set()
    stale = facts.find(Where(statuses=(FactStatus.STALE,), sources=sources))
    return {
        fact.source_id
        for start in range(0, len(stale), _STEP)
        for fact in facts.get(stale[start : start + _STEP])
        if not has_outlived(fact, now)
    }


def of_another_ttl(facts: FactsFacet, uris: Iterable[str], ttl: str | None) -> set[str]:
    """Return the URIs with stored facts of another ttl; none if `ttl` is None."""
    return {
        uri
        for uri in sorted(uris)
        if ttl is not None
        and any(
            fact.ttl != ttl and fact.status is not FactStatus.DELETED
            for fact in facts.of_source(source_id(uri))
        )
    }


def compare_document(
    facts: FactsFacet,
    source: Source,
    reader: PassageReader,
    stored: Source | None,
    ttl: str | None,
) -> SourceChange:
    """Compare a document's passages with its stored facts by id and hash; no texts are read.

    Spec: CRP-SPEC-009 §4.5
    """
    passages = facts.passages(source.source_id)
    if not passages:
        return SourceChange(
            source.changed(fact_count=len(reader.ids)), range(len(reader.ids)), ttl=ttl
        )
    # A removed source may exist again through facts made by hand; then it has no document.
    removed = (
        stored is None
        or stored.status is SourceStatus.REMOVED
        or stored.metadata.get(COLLECTED) is True
    )
    known = {content_hash: id_ for id_, content_hash, _ in passages}
    deleted = {i for i, _, status in passages if removed and status is FactStatus.DELETED}
    states = {id_: status for id_, _, status in passages if id_ not in deleted}
    kept_ids, new = _matched(reader, [p for p in passages if p[0] not in deleted])
    old = (stored.kind, stored.labels, stored.metadata) if stored else None
    new_ids = {reader.ids[place] for place in new} if deleted else set()
    return SourceChange(
        source.changed(
            fact_count=len(new) + sum(states[i] is not FactStatus.DELETED for i in kept_ids)
        ),
        new,
        frozenset(deleted & new_ids),
        known,
        _alive(facts, [i for i in sorted(kept_ids) if states[i] is FactStatus.STALE], source, ttl),
        tuple(i for i in sorted(states) if i not in kept_ids and states[i] is FactStatus.ACTIVE),
        ()
        if ttl is None and old == (source.kind, source.labels, source.metadata)
        else tuple(i for i in sorted(states) if states[i] is not FactStatus.DELETED),
        stored.metadata if stored else {},
        ttl=ttl,
    )


def _matched(
    reader: PassageReader, passages: Sequence[tuple[str, str, FactStatus]]
) -> tuple[set[str], list[int]]:
    """Return ids of stored passages still in the document, and places of its new passages."""
    ids = {id_ for id_, _, _ in passages}
    kept_ids = ids.intersection(reader.ids)
    by_text: dict[str, list[str]] = defaultdict(list)
    for id_, content_hash, _ in reversed(passages):
        if id_ not in kept_ids:
            by_text[content_hash].append(id_)
    new: list[int] = []
    for place, id_ in enumerate(reader.ids):
        if id_ in ids:
            continue
        same = by_text.get(reader.hashes[place])
        if same:
            kept_ids.add(same.pop())
        else:
            new.append(place)
    return kept_ids, new


def _alive(
    facts: FactsFacet, ids: Sequence[str], source: Source, ttl: str | None
) -> tuple[str, ...]:
    """Return the facts whose ttl (or the given one, if any) has not ended."""
    again: dict[str, object] = {} if ttl is None else {"ttl": ttl}
    alive: list[str] = []
    for start in range(0, len(ids), _STEP):
        held = facts.get(ids[start : start + _STEP])
        alive += [
            fact.fact_id
            for fact in held
            if not has_outlived(fact.changed(**again), source.ingested_at)
        ]
    return tuple(alive)


def compare_facts(
    facts: FactsFacet, wanted: Sequence[Fact], now: datetime
) -> list[tuple[SourceChange, list[Fact]]]:
    """Return the changes by facts made by hand; facts already retrievable cause none."""
    stored = {fact.fact_id: fact for fact in facts.get([fact.fact_id for fact in wanted])}
    fresh: dict[str, list[Fact]] = defaultdict(list)
    back: dict[str, list[Fact]] = defaultdict(list)
    for fact in wanted:
        known = stored.get(fact.fact_id)
        if known is None or known.status is FactStatus.DELETED:
            fresh[fact.source_id].append(fact)
        else:
            check_same_labels(known, fact)
            if known.content_hash != fact.content_hash:
                raise FactRejected(
                    f"fact {fact.fact_id} is stored with another content since it was updated; "
                    "update it again, or give a source_location to add the text as another fact"
                )
            if known.status in RETRIEVABLE:
                back[known.source_id].append(known)
    changes: list[tuple[SourceChange, list[Fact]]] = []
    for name in dict.fromkeys([*fresh, *back]):
        made, known_here = fresh[name], back[name]
        returned = tuple(
            fact.fact_id
            for fact in known_here
            if fact.status is FactStatus.STALE and not has_outlived(fact, now)
        )
        restored = tuple(fact.fact_id for fact in known_here if fact.archived_at is not None)
        source = facts.source(name)
        if not made:
            if source is not None and (returned or restored):
                changes.append(
                    (SourceChange(source, range(0), returned=returned, restored=restored), [])
                )
            continue
        if source is None or source.status is SourceStatus.REMOVED:
            source = Source(
                source_id=name,
                title=source.title if source and source.title else name,
                uri=source.uri if source and source.uri else f"{USER_SOURCE}:{name}",
                document_hash=sha256(""),
                kind=made[0].kind,
                ingested_at=now,
                labels=source.labels if source else made[0].labels,
                metadata={COLLECTED: True} if source else {},
            )
        if source.uri == f"{USER_SOURCE}:{name}":
            # Without a document, the source's hash is that of its facts' hashes.
            hashes = [
                content_hash
                for _, content_hash, status in facts.passages(name)
                if status != "DELETED"
            ]
            hashes += [fact.content_hash for fact in made]
            source = source.changed(
                document_hash=sha256("|".join(sorted(hashes))),
                labels=tuple(
                    sorted(set(source.labels).intersection(*(fact.labels for fact in made)))
                ),
            )
        source = source.changed(fact_count=source.fact_count + len(made))
        revived = frozenset(fact.fact_id for fact in made if fact.fact_id in stored)
        known_texts = {stored[id_].content_hash: id_ for id_ in revived}
        change = SourceChange(
            source, range(len(made)), revived, known_texts, returned=returned, restored=restored
        )
        changes.append((change, made))
    return changes


def check_same_labels(stored: Fact, fact: Fact) -> None:
    """Refuse a stored fact that is added again with other labels."""
    if stored.labels != fact.labels:
        raise FactRejected(
            f"fact {fact.fact_id} is stored with other labels than {list(fact.labels)}"
        )


class WriteConflictError(StoreBusy):
    """Another writer changed data that an ingestion had read or prepared."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """A change of a source with its new facts.

    Attributes:
        ids: ids of the new facts, in order.
        facts: makes the new facts in that order, again at every call.
    """

    change: SourceChange
    ids: Sequence[str]
    facts: Callable[[], Iterator[Fact]]


AnyDocument = Document | StreamedDocument

# Characters of passages that a batch keeps in memory; further documents are cut again when needed,
# which takes little time compared with embedding.
_HELD_CHARACTERS = 32_000_000
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class IngestionBatch:
    """The documents to ingest, with their new and their stored registry entries.

    Attributes:
        readers, sources: the documents and their new registry entries, in the same order.
        stored: registry entries by URI as read before.
        refused: reason by URI for each document with too little text for a fact.
        ttl: ISO 8601 duration for all of their facts; None keeps the stored ones.
    """

    readers: Sequence[PassageReader]
    sources: Sequence[Source]
    stored: Mapping[str, Source | None]
    refused: Mapping[str, str]
    ttl: str | None = None

    def changes(self, facts: FactsFacet) -> list[SourceChange]:
        """Return each document's changes to the state that a transaction sees."""
        return [
            compare_document(facts, source, reader, self.stored[source.uri], self.ttl)
            for reader, source in zip(self.readers, self.sources, strict=True)
        ]

    def waiting(self, changes: Sequence[SourceChange]) -> Iterator[tuple[str, str]]:
        """Yield hash and text of each new passage whose text its source does not have yet."""
        for reader, change in zip(self.readers, changes, strict=True):
            for passage in reader.at(change.new):
                if passage.content_hash not in change.known:
                    yield passage.content_hash, passage.piece.content

    def waiting_count(self, changes: Sequence[SourceChange]) -> int:
        """Number of items that `waiting` yields; no document is read."""
        return sum(
            reader.hashes[place] not in change.known
            for reader, change in zip(self.readers, changes, strict=True)
            for place in change.new
        )

    def insertions(
        self, changes: Sequence[SourceChange], namespace: str, settings: FabricSettings
    ) -> list[Insertion]:
        """Return the changes with the facts that they add."""
        return [
            _insertion(reader, change, namespace, settings)
            for reader, change in zip(self.readers, changes, strict=True)
        ]

    def clear_prepared(
        self, facts: FactsFacet, changes: Sequence[SourceChange], embedder: str
    ) -> None:
        """Remove the vectors that were prepared for these documents."""
        for reader, change in zip(self.readers, changes, strict=True):
            for start in range(0, len(change.new), _STEP):
                places = change.new[start : start + _STEP]
                hashes = [reader.hashes[place] for place in places]
                facts.clear_prepared(embedder, hashes)


def gather_batch(
    pairs: Sequence[tuple[AnyDocument, Source]],
    stored: Mapping[str, Source | None],
    readers: dict[str, PassageReader],
    *,
    ttl: str | None,
    counter: TokenCounter,
    settings: ChunkingSettings,
    progress: Progress = ignore_progress,
) -> IngestionBatch:
    """Cut every document once, and refuse those with too little text for a fact."""
    refused: dict[str, str] = {}
    accepted: list[tuple[PassageReader, Source]] = []
    room = _HELD_CHARACTERS - sum(reader.characters for reader in readers.values() if reader.held)
    for number, (document, source) in enumerate(pairs):
        progress("chunk", number, len(pairs))
        reader = readers.get(source.uri)
        if reader is None:
            reader = PassageReader(document, counter, settings, hold=max(0, room))
            readers[source.uri] = reader
            room -= reader.characters if reader.held else 0
        reason = _too_little(reader, source, counter, settings.min_fact_tokens)
        if reason:
            refused[source.uri] = reason
        # A stored document is here because it changed, so its old facts have to become stale.
        if not reason or stored[source.uri] is not None:
            accepted.append((reader, source))
    progress("chunk", len(pairs), len(pairs))
    return IngestionBatch(
        [reader for reader, _ in accepted], [own for _, own in accepted], stored, refused, ttl
    )


def _too_little(reader: PassageReader, source: Source, counter: TokenCounter, least: int) -> str:
    """Return why a document has too little text; empty if it has enough."""
    if len(reader.ids) == 0:
        return f"{shown(source.uri)} contains no text"
    if len(reader.ids) > 1:
        return ""
    (only,) = reader.all()
    tokens = counter.count(only.piece.content)
    if tokens >= least:
        return ""
    reader.empty()
    return (
        f"{shown(source.uri)} has {tokens} tokens, and a fact needs at least "
        f"{least} (setting fabric.chunking.min_fact_tokens)"
    )


def _insertion(
    reader: PassageReader, change: SourceChange, namespace: str, settings: FabricSettings
) -> Insertion:
    """Return a document's new facts: each passage, or piece of one, becomes a fact.

    Spec: CRP-SPEC-009 §4.3
    """
    source = change.source

    def made() -> Iterator[Fact]:
        for passage in reader.at(change.new):
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

    return Insertion(change, [reader.ids[place] for place in change.new], made)


def distinct_documents(documents: Iterable[AnyDocument], progress: Progress) -> list[AnyDocument]:
    """Check documents and drop duplicates: an equal URI with equal content counts once."""
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
            # If two texts had one hash, the second would be mistaken for the first.
            raise IngestError(
                f"{shown(uri)} has the document_hash {document.document_hash!r:.40}, wanted "
                "sha256: and 64 hexadecimal digits, those of its content"
            )
        earlier = by_uri.setdefault(uri, document)
        if earlier.document_hash != document.document_hash:
            raise IngestError(f"{uri} is given twice with different content")
    return list(by_uri.values())
