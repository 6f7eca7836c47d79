"""The documents of one ingestion: what each says now, and what of it the store lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crp_integrations.errors import IngestError
from crp_integrations.fabric.ingest.changes import Change, compare
from crp_integrations.fabric.ingest.inserting import Insertion, weighed
from crp_integrations.fabric.ingest.laid import Laying
from crp_integrations.fabric.ingest.listing import Listed
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.progress import Progress
from crp_integrations.fabric.records import Document, Fact, Source, StreamedDocument, shown
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.ports import TokenCounter

AnyDocument = Document | StreamedDocument

# Characters of passages that a batch holds in memory; what is beyond is put down in a scratch.
_HELD_CHARACTERS = 4_000_000
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
# Content hashes cleared at once.
_STEP = 512


@dataclass(frozen=True, slots=True)
class Batch:
    """The documents that are waiting, with what they are to be and what was stored of them.

    Attributes:
        listed, sources: in the same order.
        stored: registry entries by URI as they were read before.
        refused: by URI, why a document has too little text for a fact.
        ttl: ISO 8601 duration for all of their facts; None leaves what is stored.
    """

    listed: Sequence[Listed]
    sources: Sequence[Source]
    stored: Mapping[str, Source | None]
    refused: Mapping[str, str]
    ttl: str | None = None

    def changes(self, facts: FactsFacet) -> list[Change]:
        """What each document does to what a transaction sees."""
        return [
            compare(facts, source, one.listing, self.stored[source.uri], ttl=self.ttl)
            for one, source in zip(self.listed, self.sources, strict=True)
        ]

    def waiting(self, changes: Sequence[Change]) -> Iterator[tuple[str, str]]:
        """Content hash and text of each new passage that no stored fact of its source says."""
        for one, change in zip(self.listed, changes, strict=True):
            for passage in one.at(change.new):
                if passage.content_hash not in change.known:
                    yield passage.content_hash, passage.piece.content

    def waiting_count(self, changes: Sequence[Change]) -> int:
        """How many `waiting` gives; no document is read."""
        return sum(
            one.listing.content_hash(place) not in change.known
            for one, change in zip(self.listed, changes, strict=True)
            for place in change.new
        )

    def insertions(
        self, changes: Sequence[Change], namespace: str, settings: FabricSettings
    ) -> list[Insertion]:
        """The changes with the facts that they add."""
        return [
            _insertion(one, change, namespace, settings)
            for one, change in zip(self.listed, changes, strict=True)
        ]

    def clear_prepared(self, facts: FactsFacet, changes: Sequence[Change], embedder: str) -> None:
        """Forget the vectors that were prepared for these documents."""
        for one, change in zip(self.listed, changes, strict=True):
            for start in range(0, len(change.new), _STEP):
                places = change.new[start : start + _STEP]
                hashes = [one.listing.content_hash(place) for place in places]
                facts.clear_prepared(embedder, hashes)


def gather(
    pairs: Sequence[tuple[AnyDocument, Source]],
    stored: Mapping[str, Source | None],
    listed: dict[str, Listed],
    laying: Laying,
    *,
    ttl: str | None,
    counter: TokenCounter,
    settings: ChunkingSettings,
    progress: Progress,
) -> Batch:
    """Cut every document once, and sort out those with too little text for a fact.

    Args:
        pairs: documents with the entries that they are to have.
        stored: the entries that they have, by URI.
        listed: what was cut already by URI; grows.
        laying: where passages go that are too many to be held.
        ttl: as in `Batch`.
    """
    refused: dict[str, str] = {}
    kept: list[tuple[Listed, Source]] = []
    room = _HELD_CHARACTERS - sum(one.characters for one in listed.values() if one.held)
    for number, (document, source) in enumerate(pairs):
        progress("chunk", number, len(pairs))
        one = listed.get(source.uri)
        if one is None:
            one = Listed(document, counter, settings, hold=max(0, room), laying=laying)
            listed[source.uri] = one
            room -= one.characters if one.held else 0
        reason = _too_little(one, source, counter, settings.min_fact_tokens)
        if reason:
            refused[source.uri] = reason
        # One that is stored has changed: what its facts say is no longer in it.
        if not reason or stored[source.uri] is not None:
            kept.append((one, source))
    progress("chunk", len(pairs), len(pairs))
    return Batch([one for one, _ in kept], [own for _, own in kept], stored, refused, ttl)


def by_hand(change: Change, made: Sequence[Fact]) -> Insertion:
    """A change with the facts that a caller made."""
    return Insertion(change, [fact.fact_id for fact in made], lambda: iter(made))


def _too_little(one: Listed, source: Source, counter: TokenCounter, least: int) -> str:
    """A sentence that says what is too little in a document; empty when it is enough."""
    if len(one.listing) == 0:
        return f"{shown(source.uri)} holds no text"
    if len(one.listing) > 1:
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


def _insertion(one: Listed, change: Change, namespace: str, settings: FabricSettings) -> Insertion:
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
                importance_weight=weighed(source, piece.content, piece.heading, settings),
                ingested_at=source.ingested_at,
                modified_at=source.ingested_at,
                ttl=change.ttl,
                labels=source.labels,
                metadata=source.metadata,
            )

    return Insertion(change, one.listing.ids(change.new), made)


def distinct(documents: Iterable[AnyDocument], progress: Progress) -> list[AnyDocument]:
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
