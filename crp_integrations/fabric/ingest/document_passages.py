"""The passages of a document, cut once, spilled when they are many, and decomposed into facts."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import overload
from uuid import UUID

from crp_integrations.errors import IngestError
from crp_integrations.fabric.ingest.chunker import ChunkOrigin, DocumentChunk, cut_blocks
from crp_integrations.fabric.ports.store import Scratch
from crp_integrations.fabric.records import (
    Block,
    Document,
    StreamedDocument,
    fact_id,
    shown,
    source_id,
)
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.language.blocks import blocks as text_blocks
from crp_integrations.language.claims import Segment, segment
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import ClaimType


class SpilledChunks:
    """Pieces of one document in a scratch, in order; 8 bytes of each are in memory."""

    __slots__ = ("_ends", "_scratch")

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        # Where the first begins, and then where each ends.
        self._ends = array("Q")

    def __len__(self) -> int:
        return max(0, len(self._ends) - 1)

    def add(self, piece: DocumentChunk) -> bool:
        """Put a piece down behind the others; whether there was room for it."""
        fields = [piece.content, piece.start, piece.end, piece.page, piece.last_page, piece.heading]
        data = json.dumps(fields, ensure_ascii=False).encode()
        start = self._scratch.put(data)
        if start is None:
            return False
        if not self._ends:
            self._ends.append(start)
        self._ends.append(start + len(data))
        return True

    def __getitem__(self, place: int) -> DocumentChunk:
        start, end = self._ends[place], self._ends[place + 1]
        return DocumentChunk(*json.loads(self._scratch.get(start, end - start)))


class ChunkSpill:
    """Gives each long document its place; the scratch is made when the first one needs it."""

    def __init__(self, make: Callable[[], Scratch | None]) -> None:
        self._make = make
        self._scratch: Scratch | None = None
        self._made = False

    def new_chunks(self) -> SpilledChunks | None:
        """A place for the pieces of one document, to be filled before the next one is asked for."""
        if not self._made:
            self._scratch, self._made = self._make(), True
        return None if self._scratch is None else SpilledChunks(self._scratch)

    def close(self) -> None:
        """Forget all of it."""
        if self._scratch is not None:
            self._scratch.close()


# What an assertion that leans on the one before begins with.
_LEANING = re.compile(
    r"[\"'(\[\u201c\u2018*_]*(?:it|its|he|his|him|she|hers?|they|their|theirs|them|this|that|these"
    r"|those|such|here|there|then|thus|hence|so|therefore|however|moreover|furthermore|also"
    r"|additionally|besides|instead|nevertheless|nonetheless|otherwise|meanwhile|similarly"
    r"|likewise|conversely|consequently|accordingly|subsequently|afterwards?|later|earlier"
    r"|finally|and|but|or|nor|yet|because|since|although|though|while|whereas|which|who|whose"
    r"|where|both|neither|either|one|some|others?|another|each|most|many|all|none|as a result"
    r"|in addition|in contrast|for example|for instance|the (?:former|latter|same|other|first"
    r"|second|third|last|two|three|following|above))\b",
    re.IGNORECASE,
)
_PROSE = frozenset({"paragraph", "heading"})


def decompose_document(
    blocks: Iterable[Block], *, counter: TokenCounter, settings: ChunkingSettings
) -> Iterator[DocumentChunk]:
    """Cut the blocks of one document into what becomes its facts, in order, as the blocks come.

    Spec: CRP-SPEC-009 §4.2, §4.3
    """
    chunks = cut_blocks(blocks, counter=counter, settings=settings)
    if settings.decompose == "never":
        yield from chunks
        return
    before = 0
    for whole in chunks:
        yield from decompose_chunk(whole, counter=counter, settings=settings, told=before)
        before = whole.end


def decompose_chunk(
    whole: DocumentChunk, *, counter: TokenCounter, settings: ChunkingSettings, told: int = 0
) -> list[DocumentChunk]:
    """The pieces of a passage, or the passage itself when it is to stay whole.

    Spec: CRP-SPEC-009 §4.3
    """
    content = whole.content
    claims = [claim for claim in segment(content) if claim.claim_type is ClaimType.FACTUAL]
    if len(claims) < 2:
        return [whole]
    starts = _starts(content, claims)
    if settings.decompose == "standalone" and not _all_stand_alone(
        content, claims, starts, counter, settings.min_fact_tokens
    ):
        return [whole]
    ends = [*starts[1:], len(content)]
    spans = [
        (start, end)
        for start, end in zip(starts, ends, strict=True)
        if _place(whole, start + len(content[start:end].rstrip()), behind=True) > told
    ]
    if not spans:
        return [whole]
    counts = counter.count_many([_body(content, start, end) for start, end in spans])
    joined: list[list[int]] = []
    for (start, end), count in zip(spans, counts, strict=True):
        if joined and joined[-1][2] < settings.min_fact_tokens:
            joined[-1][1:] = [end, counter.count(_body(content, joined[-1][0], end))]
        else:
            joined.append([start, end, count])
    if len(joined) > 1 and joined[-1][2] < settings.min_fact_tokens:
        joined[-2:] = [[joined[-2][0], joined[-1][1], 0]]
    # Where the new text is too little for a fact, it is joined with what comes before it.
    for start in reversed(starts[: len(starts) - len(spans)]):
        if len(joined) > 1 or joined[0][2] >= settings.min_fact_tokens:
            break
        joined[0] = [start, joined[0][1], counter.count(_body(content, start, joined[0][1]))]
    if len(joined) == 1 and joined[0][0] == 0:
        return [whole]
    return [_piece(whole, start, end) for start, end, _ in joined]


def _starts(content: str, claims: Sequence[Segment]) -> list[int]:
    """Where each piece begins: at its assertion, or at the list marker in front of it."""
    starts = [0]
    for before, claim in pairwise(claims):
        line = content.rfind("\n", before.end, claim.start)
        starts.append(claim.start if line < 0 else line + 1)
    return starts


def _all_stand_alone(
    content: str,
    claims: Sequence[Segment],
    starts: Sequence[int],
    counter: TokenCounter,
    least: int,
) -> bool:
    """Whether each assertion can be understood without the ones around it."""
    if any(len(claim.parts) > 1 for claim in claims):
        return False
    if any(_LEANING.match(content, claim.start) for claim in claims):
        return False
    if any(block.kind not in _PROSE for block in text_blocks(content)):
        return False
    ends = [*starts[1:], len(content)]
    counts = counter.count_many(
        [_body(content, start, end) for start, end in zip(starts, ends, strict=True)]
    )
    return min(counts) >= least


def _body(content: str, start: int, end: int) -> str:
    """A slice without outer empty lines; the indentation of its first line belongs to code."""
    return content[start:end].rstrip().lstrip("\n")


def _piece(whole: DocumentChunk, start: int, end: int) -> DocumentChunk:
    body = whole.content[start:end]
    start += len(body) - len(body.lstrip("\n"))
    content = _body(whole.content, start, end)
    last = start + len(content)
    return replace(
        whole,
        content=content,
        start=_place(whole, start),
        end=_place(whole, last, behind=True),
        page=_origin(whole, start).page,
        last_page=_origin(whole, last - 1).page,
        origins=(),
    )


def _place(whole: DocumentChunk, offset: int, *, behind: bool = False) -> int:
    """The offset in the document of an offset in a passage's content."""
    origin = _origin(whole, offset - behind)
    return origin.start + offset - origin.offset


def _origin(whole: DocumentChunk, offset: int) -> ChunkOrigin:
    place = bisect_right(whole.origins, offset, key=lambda origin: origin.offset)
    return whole.origins[max(0, place - 1)]


_ID_BYTES, _HASH_BYTES = 16, 32
_ENTRY = _ID_BYTES + _HASH_BYTES
_HASH_PREFIX = "sha256:"


class PassageIds:
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
        return _ChosenIds(self, places)

    def content_hash(self, place: int) -> str:
        """The content hash of the passage at a place."""
        end = (place + 1) * _ENTRY
        return _HASH_PREFIX + self._held[end - _HASH_BYTES : end].hex()


@dataclass(frozen=True, slots=True, eq=False)
class _ChosenIds(Sequence[str]):
    """Some ids of a listing, in the order of their places."""

    passage_ids: PassageIds
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return _ChosenIds(self.passage_ids, self.places[at])
        return self.passage_ids.id(self.places[at])


@dataclass(frozen=True, slots=True)
class DocumentPassage:
    """A piece of a document with the id and hash of the fact that it becomes."""

    place: int
    fact_id: str
    content_hash: str
    piece: DocumentChunk


class PassageReader:
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
        spill: ChunkSpill,
    ) -> None:
        """Cut the document once."""
        self.document = document
        self.passage_ids = PassageIds()
        self.characters = 0
        self._counter = counter
        self._settings = settings
        self._source_id = source_id(document.uri)
        self._held: list[DocumentPassage] | None = []
        self._spilled: SpilledChunks | None = None
        for passage in self._cut():
            self.passage_ids.append(passage.fact_id, passage.content_hash)
            self.characters += len(passage.piece.content)
            if self._held is not None:
                self._held.append(passage)
                if self.characters > hold:
                    self._spilled = _spill_passages(spill.new_chunks(), self._held)
                    self._held = None
            elif self._spilled is not None:
                self._spilled = _spill_passages(self._spilled, [passage])

    @property
    def held(self) -> bool:
        """Whether the passages are in memory."""
        return self._held is not None

    def empty(self) -> None:
        """Take the document for one without passages."""
        self.passage_ids = PassageIds()
        self._held = []
        self._spilled = None
        self.characters = 0

    def all(self) -> Iterator[DocumentPassage]:
        """Every passage in order."""
        if self._held is not None or self._spilled is not None:
            yield from self.at(range(len(self.passage_ids)))
            return
        place = -1
        for place, passage in enumerate(self._cut()):
            if (
                place >= len(self.passage_ids)
                or self.passage_ids.id(place) != passage.fact_id
                or self.passage_ids.content_hash(place) != passage.content_hash
            ):
                raise self._changed()
            yield passage
        if place + 1 != len(self.passage_ids):
            raise self._changed()

    def at(self, places: Sequence[int]) -> Iterator[DocumentPassage]:
        """The passages at ascending places."""
        if not places:
            return
        if self._held is not None:
            for place in places:
                yield self._held[place]
            return
        if self._spilled is not None:
            for place in places:
                id_, content_hash = self.passage_ids.id(place), self.passage_ids.content_hash(place)
                yield DocumentPassage(place, id_, content_hash, self._spilled[place])
            return
        wanted = iter(places)
        following = next(wanted, None)
        for passage in self.all():
            if passage.place == following:
                yield passage
                following = next(wanted, None)

    def _cut(self) -> Iterator[DocumentPassage]:
        blocks = self._blocks()
        pieces = decompose_document(blocks, counter=self._counter, settings=self._settings)
        for place, piece in enumerate(pieces):
            hashed = sha256(piece.content)
            yield DocumentPassage(
                place, fact_id(self._source_id, piece.location, hashed), hashed, piece
            )

    def _blocks(self) -> Iterator[Block]:
        own = self.document.blocks
        return _in_order(own if isinstance(own, tuple) else own(), self.document.uri)

    def _changed(self) -> IngestError:
        return IngestError(f"{shown(self.document.uri)} changed while it was read; ingest it again")


def _in_order(blocks: Iterable[Block], uri: str) -> Iterator[Block]:
    """The blocks, as long as each begins where the one before has ended."""
    end = 0
    for number, block in enumerate(blocks, 1):
        if block.start < end:
            raise IngestError(
                f"block {number} of {shown(uri)} begins at {block.start}, before the one ahead of "
                f"it ends at {end}; give blocks in order, each with its own offset"
            )
        end = block.end
        yield block


def _spill_passages(
    spilled: SpilledChunks | None, passages: Sequence[DocumentPassage]
) -> SpilledChunks | None:
    """The spill with these passages added; None when there is no room."""
    if spilled is None or not all(spilled.add(passage.piece) for passage in passages):
        return None
    return spilled
