"""The passages of one document, cut once and never held as a whole when they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload
from uuid import UUID

from crp_integrations.errors import IngestError
from crp_integrations.fabric.ingest.chunking import Chunk
from crp_integrations.fabric.ingest.decomposition import passages
from crp_integrations.fabric.ingest.laid import Laid, Laying
from crp_integrations.fabric.records import (
    Block,
    Document,
    StreamedDocument,
    fact_id,
    shown,
    source_id,
)
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256

_ID_BYTES, _HASH_BYTES = 16, 32
_ENTRY = _ID_BYTES + _HASH_BYTES
_HASH_PREFIX = "sha256:"


class Listing:
    """Fact ids and content hashes of passages in order, 48 bytes each."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    def __len__(self) -> int:
        return len(self._held) // _ENTRY

    def append(self, id_: str, content_hash: str) -> None:
        """Add a passage."""
        self._held += UUID(id_).bytes
        self._held += bytes.fromhex(content_hash.removeprefix(_HASH_PREFIX))

    def id(self, place: int) -> str:
        """The fact id of the passage at a place."""
        start = place * _ENTRY
        return str(UUID(bytes=bytes(self._held[start : start + _ID_BYTES])))

    def ids(self, places: Sequence[int]) -> Sequence[str]:
        """The fact ids of the passages at some places, each made when it is asked for."""
        return _Ids(self, places)

    def content_hash(self, place: int) -> str:
        """The content hash of the passage at a place."""
        end = (place + 1) * _ENTRY
        return _HASH_PREFIX + self._held[end - _HASH_BYTES : end].hex()


@dataclass(frozen=True, slots=True, eq=False)
class _Ids(Sequence[str]):
    """Some ids of a listing, in the order of their places."""

    listing: Listing
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return _Ids(self.listing, self.places[at])
        return self.listing.id(self.places[at])


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document with the id and hash of the fact that it becomes."""

    place: int
    fact_id: str
    content_hash: str
    piece: Chunk


class Listed:
    """A document with its listing, made by one pass over its blocks.

    Attributes:
        characters: of all passages together.
    """

    def __init__(
        self,
        document: Document | StreamedDocument,
        counter: TokenCounter,
        settings: ChunkingSettings,
        *,
        hold: int,
        laying: Laying,
    ) -> None:
        """Cut the document once.

        Args:
            hold: most characters of passages that are held in memory.
            laying: where they go when they are more; where it has no room, they are cut again each
                time they are wanted.

        Raises:
            IngestError: the document cannot be read.
        """
        self.document = document
        self.listing = Listing()
        self.characters = 0
        self._counter = counter
        self._settings = settings
        self._source_id = source_id(document.uri)
        self._held: list[Passage] | None = []
        self._laid: Laid | None = None
        for passage in self._cut():
            self.listing.append(passage.fact_id, passage.content_hash)
            self.characters += len(passage.piece.content)
            if self._held is not None:
                self._held.append(passage)
                if self.characters > hold:
                    self._laid = _put_down(laying.laid(), self._held)
                    self._held = None
            elif self._laid is not None:
                self._laid = _put_down(self._laid, [passage])

    @property
    def held(self) -> bool:
        """Whether the passages are in memory."""
        return self._held is not None

    def empty(self) -> None:
        """Take the document for one without passages."""
        self.listing = Listing()
        self._held = []
        self._laid = None
        self.characters = 0

    def all(self) -> Iterator[Passage]:
        """Every passage in order.

        Raises:
            IngestError: the document is no longer what it was at the first pass.
        """
        if self._held is not None or self._laid is not None:
            yield from self.at(range(len(self.listing)))
            return
        place = -1
        for place, passage in enumerate(self._cut()):
            if (
                place >= len(self.listing)
                or self.listing.id(place) != passage.fact_id
                or self.listing.content_hash(place) != passage.content_hash
            ):
                raise self._changed()
            yield passage
        if place + 1 != len(self.listing):
            raise self._changed()

    def at(self, places: Sequence[int]) -> Iterator[Passage]:
        """The passages at ascending places.

        Raises:
            IngestError: as `all`.
        """
        if not places:
            return
        if self._held is not None:
            for place in places:
                yield self._held[place]
            return
        if self._laid is not None:
            for place in places:
                id_, said = self.listing.id(place), self.listing.content_hash(place)
                yield Passage(place, id_, said, self._laid[place])
            return
        wanted = iter(places)
        following = next(wanted, None)
        for passage in self.all():
            if passage.place == following:
                yield passage
                following = next(wanted, None)

    def _cut(self) -> Iterator[Passage]:
        blocks = self._blocks()
        pieces = passages(blocks, counter=self._counter, settings=self._settings)
        for place, piece in enumerate(pieces):
            hashed = sha256(piece.content)
            yield Passage(place, fact_id(self._source_id, piece.location, hashed), hashed, piece)

    def _blocks(self) -> Iterator[Block]:
        own = self.document.blocks
        return _in_order(own if isinstance(own, tuple) else own(), self.document.uri)

    def _changed(self) -> IngestError:
        return IngestError(f"{shown(self.document.uri)} changed while it was read; ingest it again")


def _in_order(blocks: Iterable[Block], uri: str) -> Iterator[Block]:
    """The blocks, as long as each begins where the one before has ended.

    Raises:
        IngestError: one does not; their texts would be laid over each other.
    """
    end = 0
    for number, block in enumerate(blocks, 1):
        if block.start < end:
            raise IngestError(
                f"block {number} of {shown(uri)} begins at {block.start}, before the one ahead of "
                f"it ends at {end}; give blocks in order, each with its own offset"
            )
        end = block.end
        yield block


def _put_down(laid: Laid | None, passages: Sequence[Passage]) -> Laid | None:
    """The place with these passages too; None when there is no room."""
    if laid is None or not all(laid.add(one.piece) for one in passages):
        return None
    return laid
