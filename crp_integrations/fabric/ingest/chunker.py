"""Cutting a document into passages that become facts.

The rule, in order:

1. A paragraph is a passage. A list, a table and a block of code count as one paragraph each.
2. A paragraph that makes no sense alone joins its neighbour: a heading and a line that announces
   a list join the following paragraph; a paragraph below the minimum length joins the next of its
   section, else the one before.
3. Neighbouring paragraphs of one section are joined up to a length at which a passage makes sense
   by itself; the literal specification joins none.
4. A paragraph above the limit is split at sentences into passages of about equal length.
5. Passages of one split paragraph overlap by a tenth of their tokens: by whole sentences if these
   have between one and two tenths of the tokens, else from the start of a word.

A passage's content is a slice of each block that it touches, joined by an empty line; nothing
is rewritten. Its location records page, headings and offsets.

A passage is emitted as soon as later blocks cannot change it, so no document is kept in memory.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice

from crp_integrations.fabric.records import Block, Document
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.language.text import split_sentences
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256

_UNDERLINE = re.compile(r"\s*(?:=+|-+)\s*\Z")
_LISTING = re.compile(r"\s{0,3}(?:[-*+•|>]|\d{1,3}[.)]|```|~~~|<(?:ul|ol|table|pre))")
# Maximum blocks, and about the maximum characters, whose tokens are counted in one call.
_COUNTED_BLOCKS = 256
_COUNTED_CHARACTERS = 1_000_000
# Hexadecimal digits of a text's hash that decide whether a paragraph is an anchor.
_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class ParagraphGroup:
    """Paragraphs that stay together, with the token count of each."""

    blocks: tuple[Block, ...]
    counts: tuple[int, ...]
    tokens: int
    heading: str


def _counted(blocks: Iterator[Block], counter: TokenCounter) -> Iterator[ParagraphGroup]:
    """Yield each block as a group of its own; tokens are counted in batches."""
    while batch := list(islice(_within(blocks), _COUNTED_BLOCKS)):
        for block, count in zip(
            batch, counter.count_many([block.text for block in batch]), strict=True
        ):
            yield ParagraphGroup((block,), (count,), count, block.heading)


def paragraph_groups(
    blocks: Iterator[Block], counter: TokenCounter, settings: ChunkingSettings
) -> Iterator[ParagraphGroup]:
    """Join paragraphs that make no sense alone with a neighbour, in one pass."""
    least = settings.min_fact_tokens
    most_carried = max(least, settings.split_above_tokens // 2)
    # The last complete group; one more short paragraph may still join it.
    done: ParagraphGroup | None = None
    carried: ParagraphGroup | None = None
    ahead: Iterator[ParagraphGroup | None] = chain(_counted(blocks, counter), [None])
    own = next(ahead)
    while own is not None:
        following = next(ahead)
        block, group = own.blocks[0], own
        if carried is not None:
            if carried.tokens > most_carried:
                if done is not None:
                    yield done
                done = carried
            else:
                group = _joined(carried, own, own.heading)
            carried = None
        if following is not None and (
            _is_heading(block) or _announces(own, following, settings.split_above_tokens)
        ):
            carried = group
        elif group.tokens >= least:
            if done is not None:
                yield done
            done = group
        elif following is not None and following.heading == block.heading:
            carried = group
        elif done is not None and done.heading == block.heading:
            done = _joined(done, group, done.heading)
        elif following is not None:
            carried = group
        else:
            done = group if done is None else _joined(done, group, done.heading)
        own = following
    if done is not None:
        yield done


def fill_groups(
    ahead: Iterator[ParagraphGroup], settings: ChunkingSettings
) -> Iterator[ParagraphGroup]:
    """Join neighbours of one section as long as they stay within `join_up_to_tokens`."""
    held: ParagraphGroup | None = None
    for group in ahead:
        if (
            held is not None
            and held.heading == group.heading
            and held.tokens + group.tokens <= settings.join_up_to_tokens
            and not _is_anchor(group, settings.anchor_every)
        ):
            held = _joined(held, group, held.heading)
            continue
        if held is not None:
            yield held
        held = group
    if held is not None:
        yield held


def _is_anchor(group: ParagraphGroup, every: int) -> bool:
    return every > 0 and int(sha256(group.blocks[0].text)[-_HASH_DIGITS:], 16) % every == 0


def _announces(own: ParagraphGroup, following: ParagraphGroup, limit: int) -> bool:
    """Whether a paragraph ends in a colon and a list, table or code comes next."""
    return (
        own.blocks[0].text.rstrip("*_ \n").endswith(":")
        and own.tokens + following.tokens <= limit
        and _LISTING.match(following.blocks[0].text) is not None
    )


def _within(blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield blocks up to and including the one that reaches the maximum characters of a batch."""
    characters = 0
    for block in blocks:
        yield block
        characters += len(block.text)
        if characters >= _COUNTED_CHARACTERS:
            return


def _joined(left: ParagraphGroup, right: ParagraphGroup, heading: str) -> ParagraphGroup:
    return ParagraphGroup(
        (*left.blocks, *right.blocks),
        (*left.counts, *right.counts),
        left.tokens + right.tokens,
        heading,
    )


def _is_heading(block: Block) -> bool:
    """Whether a block is itself the last heading in its `heading` path."""
    if not block.heading:
        return False
    first, *rest = block.text.split("\n")
    words = first.strip("# \t")
    return (
        bool(words)
        and (block.heading == words or block.heading.endswith(" > " + words))
        and (not rest or (len(rest) == 1 and _UNDERLINE.match(rest[0]) is not None))
    )


JOINT = "\n\n"
_WORD_START = re.compile(r"(?<!\S)\S")
# A sentence longer than this multiple of the limit is cut at white space; others stay whole.
_LONGEST_SENTENCE = 2
# Overlap by whole sentences may be up to this multiple of the wanted share.
_OVERLAP_SLACK = 2


@dataclass(frozen=True, slots=True)
class ChunkOrigin:
    """The origin of one stretch of a passage's content.

    Attributes:
        offset: offset of the stretch in the content.
        start: offset of the stretch in the document's text as loaded.
        page: page of the stretch, None without pages.
    """

    offset: int
    start: int
    page: int | None


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """A passage of a document.

    Attributes:
        start, end: character offsets in the document's text as loaded.
        page, last_page: pages from 1 of the first and last character, None without pages.
        heading: the headings above the passage joined with ` > `.
        origins: origin of each block's stretch of the content, in order.
    """

    content: str
    start: int
    end: int
    page: int | None = None
    last_page: int | None = None
    heading: str = ""
    origins: tuple[ChunkOrigin, ...] = ()

    @property
    def location(self) -> str:
        """Location in the document, such as `p. 3 · Intro > Scope · 120-560`.

        Spec: CRP-SPEC-009 §4.2
        """
        pages = ""
        if self.page is not None:
            pages = f"p. {self.page}"
            if self.last_page is not None and self.last_page != self.page:
                pages += f"-{self.last_page}"
        return " · ".join(filter(None, (pages, self.heading, f"{self.start}-{self.end}")))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A span that is not split further: a whole block, a sentence, or a piece of a long one."""

    start: int
    end: int
    tokens: int


def chunk_document(
    document: Document, *, counter: TokenCounter, settings: ChunkingSettings
) -> list[DocumentChunk]:
    """Cut a document into passages, in order, by the rules of this module.

    Spec: CRP-SPEC-009 §4.2
    """
    return list(cut_blocks(document.blocks, counter=counter, settings=settings))


def cut_blocks(
    blocks: Iterable[Block], *, counter: TokenCounter, settings: ChunkingSettings
) -> Iterator[DocumentChunk]:
    """Cut the blocks of one document into passages, in order, as the blocks arrive.

    Spec: CRP-SPEC-009 §4.2
    """
    return _Cutter(counter, settings).cut(block for block in blocks if block.text.strip())


class _Cutter:
    def __init__(self, counter: TokenCounter, settings: ChunkingSettings) -> None:
        self.counter = counter
        self.settings = settings

    def cut(self, blocks: Iterator[Block]) -> Iterator[DocumentChunk]:
        before: tuple[DocumentChunk, tuple[Block, ...]] | None = None
        for group in fill_groups(
            paragraph_groups(blocks, self.counter, self.settings), self.settings
        ):
            whole = max(group.counts)
            if (
                whole <= self.settings.split_above_tokens
                and group.tokens <= self.settings.max_fact_tokens
            ):
                first, last = group.blocks[0], group.blocks[-1]
                made = iter([self._chunk(group.blocks, first.start, last.end, group.heading)])
            else:
                made = self._split(group)
            if self.settings.overlap_between != "all" or not self.settings.overlap_share:
                yield from made
                continue
            for piece in made:
                yield piece if before is None else self._overlapped(before, piece, group.blocks)
                before = (piece, group.blocks)

    # --- paragraphs above the limit ----------------------------------------------------

    def _split(self, group: ParagraphGroup) -> Iterator[DocumentChunk]:
        limit, least, blocks = (
            self.settings.split_above_tokens,
            self.settings.min_fact_tokens,
            group.blocks,
        )
        units = [
            unit
            for block, count in zip(blocks, group.counts, strict=True)
            for unit in self._units(block, count)
        ]
        sums = [0, *accumulate(unit.tokens for unit in units)]
        fresh = limit * (1.0 - self.settings.overlap_share)
        aim = sums[-1] / max(1, -(-sums[-1] // fresh))
        number, start = 0, units[0].start
        while number < len(units):
            # Tokens before the first new unit are the overlap with the previous chunk.
            filled = self._count(blocks, start, units[number].start) - sums[number]
            last = number
            while last + 1 < len(units) and (
                filled + sums[last + 1] < least
                or (sums[last + 1] - sums[number] < aim and filled + sums[last + 2] <= limit)
            ):
                last += 1
            last = self._corrected(blocks, units, start, number, last)
            if self._is_short_rest(blocks, units, sums[-1] - sums[last + 1], last):
                last = len(units) - 1
            end = units[last].end
            if self._count(blocks, start, end) > self.settings.max_fact_tokens:
                start = units[number].start
            yield self._chunk(blocks, start, end, group.heading)
            if last + 1 < len(units):
                starts = [unit.start for unit in units[number : last + 1]]
                start = self._overlap_start(blocks, start, end, starts)
                if start == end:
                    start = units[last + 1].start
            number = last + 1

    def _is_short_rest(
        self, blocks: Sequence[Block], units: list[_Unit], about: int, last: int
    ) -> bool:
        """Whether the text after a unit is too short for a chunk."""
        least = self.settings.min_fact_tokens
        return (
            last + 1 < len(units)
            and about < 2 * least
            and self._count(blocks, units[last].end, units[-1].end) < least
        )

    def _corrected(
        self, blocks: Sequence[Block], units: list[_Unit], start: int, first: int, last: int
    ) -> int:
        """Correct the last unit of a chunk by counting the whole text: parts may not add up."""
        limit, least = self.settings.split_above_tokens, self.settings.min_fact_tokens
        while (
            last > first
            and self._count(blocks, start, units[last].end) > limit
            and self._count(blocks, start, units[last - 1].end) >= least
        ):
            last -= 1
        while last + 1 < len(units) and self._count(blocks, start, units[last].end) < least:
            last += 1
        return last

    def _units(self, block: Block, tokens: int) -> list[_Unit]:
        limit = self.settings.split_above_tokens
        # Leave space for a neighbour below the minimum length on either side.
        longest = self.settings.max_fact_tokens - 2 * self.settings.min_fact_tokens
        if tokens <= limit:
            return [_Unit(block.start, block.end, tokens)]
        spans = split_sentences(block.text)
        # White space after a sentence is counted with it, so that the sum is close to the whole.
        stops = [*(span.start for span in spans[1:]), len(block.text)]
        counts = self.counter.count_many(
            [block.text[span.start : stop] for span, stop in zip(spans, stops, strict=True)]
        )
        units: list[_Unit] = []
        for span, count in zip(spans, counts, strict=True):
            if count <= min(_LONGEST_SENTENCE * limit, longest):
                units.append(_Unit(block.start + span.start, block.start + span.end, count))
                continue
            for start, end in self._cut_words(block.text, span.start, span.end):
                count = self.counter.count(block.text[start:end])
                units.append(_Unit(block.start + start, block.start + end, count))
        return units

    def _cut_words(self, text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Cut text without sentence ends into pieces within the limit, at line ends or spaces."""
        limit = self.settings.split_above_tokens
        while start < end:
            # Grow until the limit is exceeded, so that no count reads far beyond a piece.
            size = 4 * limit
            while start + size < end and self.counter.count(text[start : start + size]) <= limit:
                size *= 2
            low, high = start + 1, min(end, start + size)
            while low < high:
                middle = (low + high + 1) // 2
                if self.counter.count(text[start:middle]) <= limit:
                    low = middle
                else:
                    high = middle - 1
            stop = low
            if stop < end:
                # A line end is a better cut than a space, unless the piece becomes small.
                line = text.rfind("\n", start + (stop - start) // 2, stop + 1)
                space = line if line > start else text.rfind(" ", start, stop + 1)
                stop = space if space > start else stop
            yield start, stop
            start = stop
            while start < end and text[start].isspace():
                start += 1

    # --- overlap -----------------------------------------------------------------------

    def _overlap_start(
        self, blocks: Sequence[Block], start: int, end: int, sentences: Sequence[int]
    ) -> int:
        """Return where the next chunk begins to repeat the wanted share of chunk [start, end)."""
        wanted = round(self.settings.overlap_share * self._count(blocks, start, end))
        if wanted < 1:
            return end
        for sentence in reversed([place for place in sentences if start < place < end]):
            repeated = self._count(blocks, sentence, end)
            if repeated >= wanted:
                if repeated <= _OVERLAP_SLACK * wanted:
                    return sentence
                break
        words = [
            block.start + match.start()
            for block in blocks
            if block.end > start and block.start < end
            for match in _WORD_START.finditer(
                block.text, max(0, start + 1 - block.start), max(0, end - block.start)
            )
        ]
        low = bisect_left(words, True, key=lambda word: self._count(blocks, word, end) < wanted)
        return words[low - 1] if low else (words[0] if words else end)

    def _overlapped(
        self,
        previous: tuple[DocumentChunk, tuple[Block, ...]],
        piece: DocumentChunk,
        own: tuple[Block, ...],
    ) -> DocumentChunk:
        """Extend a chunk to begin with the end of the previous one, unless it already does."""
        before, theirs = previous
        if piece.start < before.end:
            return piece
        known = own if theirs is own else (*theirs, *own)
        blocks = [b for b in known if b.end > before.start and b.start < piece.end]
        sentences = [
            block.start + span.start for block in blocks for span in split_sentences(block.text)
        ]
        start = self._overlap_start(blocks, before.start, before.end, sentences)
        if start == before.end or (
            self._count(blocks, start, piece.end) > self.settings.max_fact_tokens
        ):
            return piece
        return self._chunk(blocks, start, piece.end, piece.heading)

    # --- slices ------------------------------------------------------------------------

    def _count(self, blocks: Sequence[Block], start: int, end: int) -> int:
        return self.counter.count(_content(blocks, start, end)) if start < end else 0

    def _chunk(self, blocks: Sequence[Block], start: int, end: int, heading: str) -> DocumentChunk:
        touched = [block for block in blocks if block.start < end and block.end > start]
        return DocumentChunk(
            _content(touched, start, end),
            start,
            end,
            touched[0].page,
            touched[-1].page,
            heading,
            tuple(_origins(touched, start, end)),
        )


def _content(blocks: Sequence[Block], start: int, end: int) -> str:
    pieces = (
        block.text[max(0, start - block.start) : max(0, end - block.start)] for block in blocks
    )
    # The indentation of a first line is kept, since it may belong to code.
    return JOINT.join(piece.rstrip().lstrip("\n") for piece in pieces if piece.strip())


def _origins(blocks: Sequence[Block], start: int, end: int) -> Iterator[ChunkOrigin]:
    """Yield the origins of the stretches that `_content` joins."""
    offset = 0
    for block in blocks:
        first = max(0, start - block.start)
        piece = block.text[first : max(0, end - block.start)]
        if piece.strip():
            body = piece.rstrip()
            moved = len(body) - len(body.lstrip("\n"))
            yield ChunkOrigin(offset, block.start + first + moved, block.page)
            offset += len(body) - moved + len(JOINT)
