"""Pieces and spans of a text: where it is cut, what stays uncut, and how the rest is quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.language.blocks import blocks
from crp_integrations.language.dates import dates
from crp_integrations.language.identifiers import identifiers
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import Span, split_sentences

Spans = tuple[tuple[int, int], ...]

# A part of an item by its characters, half-open.
_PART = re.compile(r"(?P<id>.+)#(?P<start>\d+)-(?P<end>\d+)\Z", re.DOTALL)


def part_id(item_id: str, start: int, end: int) -> str:
    """The name of some characters of an item."""
    return f"{item_id}#{start}-{end}"


def read_part(name: str, ids: frozenset[str] | set[str]) -> tuple[str, tuple[int, int] | None]:
    """The item that a name in a drop report speaks of, and its characters; None for all of it."""
    if name in ids:
        return name, None
    found = _PART.match(name)
    if found is None:
        return name, None
    return found["id"], (int(found["start"]), int(found["end"]))


def merge_spans(spans: Sequence[tuple[int, int]], text: str) -> Spans:
    """Spans in order, those with nothing but white space between them as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and not text[found[-1][1] : start].strip():
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def subtract_spans(spans: Sequence[tuple[int, int]], gone: Sequence[tuple[int, int]]) -> Spans:
    """What of some spans does not lie in others; both sorted, neither overlapping itself."""
    left: list[tuple[int, int]] = []
    at = 0
    for begin, end in spans:
        start = begin
        while at < len(gone) and gone[at][1] <= start:
            at += 1
        place = at
        while place < len(gone) and gone[place][0] < end:
            if gone[place][0] > start:
                left.append((start, gone[place][0]))
            start = max(start, gone[place][1])
            place += 1
        if start < end:
            left.append((start, end))
    return tuple(left)


# Within one paragraph; a longer one is more likely a mark that was never closed.
QUOTATION = re.compile(
    r"(?<!\w)\"(?!\s)(?:[^\"\n]|\n(?!\s*\n)){1,300}(?<!\s)\"(?!\w)"
    r"|\u201c(?:[^\u201c\u201d\n]|\n(?!\s*\n)){1,300}\u201d"
    r"|\u00ab(?:[^\u00ab\u00bb\n]|\n(?!\s*\n)){1,300}\u00bb"
)
_INLINE = re.compile(r"(?<!`)`[^`\n]{1,200}`(?!`)")
FIGURE = re.compile(r"\d|[\"\u201c\u00ab`]")


def find_code(text: str) -> Iterator[Span]:
    """Fenced blocks with their fences, and code within a line."""
    if "```" in text or "~~~" in text:
        opened = -1
        for block in blocks(text):
            if block.kind == "fence":
                if opened < 0:
                    opened = block.start
                else:
                    yield Span(opened, block.end)
                    opened = -1
        if opened >= 0:
            # Never closed: the rest is code as a reader sees it.
            yield Span(opened, len(text.rstrip()))
    for match in _INLINE.finditer(text):
        yield Span(*match.span())


def find_protected(text: str) -> list[Span]:
    """The stretches of a text that are shown whole or not at all, by where they begin.

    They may overlap: a date in a quotation is protected with it.

    >>> text = 'He said "not before 3 May 2025" of order PX-0042.'
    >>> [span.of(text) for span in find_protected(text)]
    ['"not before 3 May 2025"', '3 May 2025', 'PX-0042']
    """
    found = [Span(one.start, one.end) for one in quantities(text)]
    found += [Span(one.start, one.end) for one in dates(text)]
    found += identifiers(text)
    found += find_code(text)
    found += [Span(*match.span()) for match in QUOTATION.finditer(text)]
    return sorted(found, key=lambda span: (span.start, span.end))


def join_across(pieces: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """Pieces of a text, in order, with those joined that a protected stretch runs across."""
    found: list[Span] = []
    ahead = sorted(spans, key=lambda span: span.start)
    place, reach = 0, -1
    for piece in pieces:
        # The furthest end of what begins before this piece does.
        while place < len(ahead) and ahead[place].start < piece.start:
            reach = max(reach, ahead[place].end)
            place += 1
        if found and reach > piece.start:
            found[-1] = Span(found[-1].start, piece.end)
        else:
            found.append(piece)
    return found


TextKind = Literal["prose", "log", "search", "data"]

# Characters: a shorter piece joins its neighbour; one that is longer is cut at white space.
_SHORT, _LONG = 25, 600
_FENCES = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A stretch that is shown as it stands or not at all.

    Attributes:
        weight: what its place or kind says for it, in [0, 1]; its words come on top.
        field: of which field or kind of line it is, told when it is left out.
    """

    start: int
    end: int
    weight: float = 0.0
    field: str = "text"


@dataclass(frozen=True, slots=True)
class ShortenedText:
    """What is left of a text.

    Attributes:
        text: as the model is shown it.
        spans: what of the text it is, in the text's characters, in order.
        kept: numbers of the pieces.
        fields: fields of which something was left out, each once.
    """

    text: str
    spans: Spans
    kept: tuple[int, ...]
    fields: tuple[str, ...] = ()


class TextReading(Protocol):
    """A text with its pieces, in order and not overlapping."""

    @property
    def kind(self) -> TextKind:
        """What the text is."""
        ...

    @property
    def text(self) -> str:
        """The whole text."""
        ...

    @property
    def pieces(self) -> Sequence[TextPiece]:
        """The stretches that can go."""
        ...

    def cut(self, kept: Sequence[int]) -> ShortenedText:
        """The text with some of its pieces alone; `kept` ascending."""
        ...


def lost_fields(pieces: Sequence[TextPiece], kept: Sequence[int]) -> tuple[str, ...]:
    """Fields of the pieces that are not kept, each once and in order."""
    stay = set(kept)
    return tuple(dict.fromkeys(p.field for n, p in enumerate(pieces) if n not in stay))


@dataclass(frozen=True)
class ProseText:
    """Running text by its sentences; what does not adjoin has an ellipsis between."""

    text: str
    kind: TextKind = "prose"

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
        """Sentences, joined where a quotation or code runs across them."""
        return [TextPiece(span.start, span.end) for span in split_pieces(self.text)]

    def cut(self, kept: Sequence[int]) -> ShortenedText:
        """The kept sentences with what stands between two that adjoin."""
        pieces = self.pieces
        if len(kept) == len(pieces):
            return keep_whole(self.text, len(pieces))
        spans = merge_spans([(pieces[n].start, pieces[n].end) for n in kept], self.text)
        text = quote_spans(self.text, spans)
        if kept and kept[0] > 0:
            text = _ellipsis_between("", text).lstrip() + text
        if kept and kept[-1] < len(pieces) - 1:
            text += _ellipsis_between(text, "").rstrip()
        return ShortenedText(text, spans, tuple(kept), lost_fields(pieces, kept))


def quote_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Stretches of a text with an ellipsis between, on a line of its own beside fenced code."""
    found = ""
    for start, end in spans:
        part = text[start:end]
        found += _ellipsis_between(found, part) + part if found else part
    return found


def _ellipsis_between(before: str, after: str) -> str:
    fenced = before.endswith(_FENCES) or after.startswith(_FENCES)
    return f"\n{ELLIPSIS.strip()}\n" if fenced else ELLIPSIS


def keep_whole(text: str, pieces: int) -> ShortenedText:
    """A text of which nothing is left out."""
    return ShortenedText(text, ((0, len(text)),), tuple(range(pieces)))


def split_pieces(text: str) -> list[Span]:
    """Pieces of running text that hold every character which is no white space."""
    found: list[Span] = []
    for sentence in split_sentences(text):
        for piece in _split_long(text, sentence):
            before = found[-1] if found else None
            if before is not None and piece.end - piece.start < _SHORT:
                gap = text[before.end : piece.start]
                if "\n\n" not in gap and piece.end - before.start < _LONG:
                    found[-1] = Span(before.start, piece.end)
                    continue
            found.append(piece)
    return join_across(found, find_protected(text)) if len(found) > 1 else found


_SPACE = re.compile(r"\s+")


def _split_long(text: str, span: Span) -> list[Span]:
    """A long stretch cut at line ends, or at white space where a line is long as well."""
    found: list[Span] = []
    start = span.start
    while span.end - start > _LONG:
        high = start + _LONG
        stop = text.rfind("\n", start + _LONG // 4, high)
        if stop < 0:
            stop = text.rfind(" ", start + _LONG // 4, high)
        if stop < 0:
            # No white space for long: a key, a hash, a picture. It stays in one.
            gap = _SPACE.search(text, high, span.end)
            if gap is None:
                break
            stop = gap.start()
        kept = text[start:stop].rstrip()
        found.append(Span(start, start + len(kept)))
        start = stop
        while start < span.end and text[start].isspace():
            start += 1
    if start < span.end:
        found.append(Span(start, span.end))
    return found


def has_words_outside(text: str, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether a text has words outside some spans, which may overlap; sorted."""
    apart: list[tuple[int, int]] = []
    for start, end in spans:
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    left = subtract_spans(((0, len(text)),), apart)
    return any(character.isalnum() for start, end in left for character in text[start:end])
