"""Cut a document into the passages that become its facts."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from crp_integrations.errors import IngestError
from crp_integrations.fabric.ingest.chunker import ChunkOrigin, DocumentChunk, cut_blocks
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

# First words of an assertion that depends on the one before.
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
    """Cut the blocks of one document into passages for facts, in order, as the blocks arrive.

    Spec: CRP-SPEC-009 §4.2, §4.3
    """
    chunks = cut_blocks(blocks, counter=counter, settings=settings)
    if settings.decompose == "never":
        yield from chunks
        return
    before = 0
    for whole in chunks:
        yield from decompose_chunk(whole, counter=counter, settings=settings, covered=before)
        before = whole.end


def decompose_chunk(
    whole: DocumentChunk, *, counter: TokenCounter, settings: ChunkingSettings, covered: int = 0
) -> list[DocumentChunk]:
    """Split a passage into pieces, or return the passage itself if it must stay whole.

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
        if _place(whole, start + len(content[start:end].rstrip()), at_end=True) > covered
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
    # If the new text is too short for a fact, join it with the text before it.
    for start in reversed(starts[: len(starts) - len(spans)]):
        if len(joined) > 1 or joined[0][2] >= settings.min_fact_tokens:
            break
        joined[0] = [start, joined[0][1], counter.count(_body(content, start, joined[0][1]))]
    if len(joined) == 1 and joined[0][0] == 0:
        return [whole]
    return [_piece(whole, start, end) for start, end, _ in joined]


def _starts(content: str, claims: Sequence[Segment]) -> list[int]:
    """Offsets where pieces begin: at the assertion, or at the list marker before it."""
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
    """A slice without outer empty lines; its first line keeps its indentation, as in code."""
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
        end=_place(whole, last, at_end=True),
        page=_origin(whole, start).page,
        last_page=_origin(whole, last - 1).page,
        origins=(),
    )


def _place(whole: DocumentChunk, offset: int, *, at_end: bool = False) -> int:
    """Convert an offset in a passage's content to an offset in the document."""
    origin = _origin(whole, offset - at_end)
    return origin.start + offset - origin.offset


def _origin(whole: DocumentChunk, offset: int) -> ChunkOrigin:
    place = bisect_right(whole.origins, offset, key=lambda origin: origin.offset)
    return whole.origins[max(0, place - 1)]


@dataclass(frozen=True, slots=True)
class DocumentPassage:
    """A piece of a document with the id and hash of the fact that it becomes."""

    place: int
    fact_id: str
    content_hash: str
    piece: DocumentChunk


class PassageReader:
    """A document with the ids and hashes of its passages, made in one pass over its blocks.

    Args:
        hold: maximum characters of passages kept in memory; the passages of a longer document are
            cut again on each use.

    Attributes:
        ids, hashes: fact ids and content hashes of the passages, in order.
        characters: total characters of all passages.
    """

    def __init__(
        self,
        document: Document | StreamedDocument,
        counter: TokenCounter,
        settings: ChunkingSettings,
        *,
        hold: int,
    ) -> None:
        self.document = document
        self.ids: list[str] = []
        self.hashes: list[str] = []
        self.characters = 0
        self._counter = counter
        self._settings = settings
        self._source_id = source_id(document.uri)
        self._held: list[DocumentPassage] | None = []
        for passage in self._cut():
            self.ids.append(passage.fact_id)
            self.hashes.append(passage.content_hash)
            self.characters += len(passage.piece.content)
            if self.characters > hold:
                self._held = None
            elif self._held is not None:
                self._held.append(passage)

    @property
    def held(self) -> bool:
        """Whether the passages are in memory."""
        return self._held is not None

    def empty(self) -> None:
        """Treat the document as one without passages."""
        self.ids, self.hashes = [], []
        self._held = []
        self.characters = 0

    def all(self) -> Iterator[DocumentPassage]:
        """Yield every passage in order."""
        if self._held is not None:
            yield from self._held
            return
        place = -1
        for place, passage in enumerate(self._cut()):
            seen = (passage.fact_id, passage.content_hash)
            if place >= len(self.ids) or seen != (self.ids[place], self.hashes[place]):
                raise self._changed()
            yield passage
        if place + 1 != len(self.ids):
            raise self._changed()

    def at(self, places: Sequence[int]) -> Iterator[DocumentPassage]:
        """Yield the passages at some places, which must be ascending."""
        if not places:
            return
        if self._held is not None:
            yield from (self._held[place] for place in places)
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
    """Yield the blocks; raise IngestError if one begins before the previous one ends."""
    end = 0
    for number, block in enumerate(blocks, 1):
        if block.start < end:
            raise IngestError(
                f"block {number} of {shown(uri)} begins at {block.start}, before the previous one "
                f"ends at {end}; give blocks in order, each with its own offset"
            )
        end = block.end
        yield block
