"""Pieces and spans of a text: where it is cut, what stays uncut, and how the rest is quoted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

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
    match = None if name in ids else _PART.match(name)
    return (
        (name, None) if match is None else (match["id"], (int(match["start"]), int(match["end"])))
    )


def merge_spans(spans: Sequence[tuple[int, int]], text: str) -> Spans:
    """Spans in order, those with nothing but white space between them as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and not text[merged[-1][1] : start].strip():
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


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


# --- what stays uncut --------------------------------------------------------------------

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
    spans = [Span(quantity.start, quantity.end) for quantity in quantities(text)]
    spans += [Span(date.start, date.end) for date in dates(text)]
    spans += [*identifiers(text), *find_code(text)]
    spans += [Span(*match.span()) for match in QUOTATION.finditer(text)]
    return sorted(spans, key=lambda span: (span.start, span.end))


def _join_across(pieces: Sequence[Span], protected: Sequence[Span]) -> list[Span]:
    """Pieces of a text, in order, with those joined that a protected stretch runs across."""
    joined: list[Span] = []
    place, reach = 0, -1
    for piece in pieces:
        # The furthest end of what begins before this piece does.
        while place < len(protected) and protected[place].start < piece.start:
            reach = max(reach, protected[place].end)
            place += 1
        if joined and reach > piece.start:
            joined[-1] = Span(joined[-1].start, piece.end)
        else:
            joined.append(piece)
    return joined


# --- readings ----------------------------------------------------------------------------

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
        spans: what of the text it is, in the text's characters, in order.
        fields: fields of which something was left out, each once.
    """

    text: str
    spans: Spans
    pieces: tuple[int, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProseText:
    """A text with its pieces, in order and not overlapping: running text by its sentences."""

    text: str
    # The question is looked for in overlapping stretches, not in each piece by itself.
    by_stretch: ClassVar[bool] = True

    @property
    def kind(self) -> TextKind:
        """What the text is."""
        return "prose"

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
        """Sentences, joined where a quotation or code runs across them."""
        return [TextPiece(span.start, span.end) for span in split_pieces(self.text)]

    @property
    def named(self) -> Mapping[int, tuple[int, ...]]:
        """For each piece those that name what it is of; only hits of a search have such."""
        return {}

    def cut(self, numbers: Sequence[int]) -> ShortenedText:
        """The text with some of its pieces alone, in order; a sign stands where others stood."""
        pieces = self.pieces
        if len(numbers) == len(pieces):
            return keep_whole(self.text, len(pieces))
        spans = merge_spans([(pieces[n].start, pieces[n].end) for n in numbers], self.text)
        text = self.quote(spans)
        if numbers and numbers[0] > 0:
            text = self._gap("", text).lstrip() + text
        if numbers and numbers[-1] < len(pieces) - 1:
            text += self._gap(text, "").rstrip()
        return ShortenedText(text, spans, tuple(numbers), self.lost_fields(numbers))

    def lost_fields(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Fields of the pieces that are not kept, each once and in order."""
        stay = set(numbers)
        return tuple(dict.fromkeys(p.field for n, p in enumerate(self.pieces) if n not in stay))

    def quote(self, spans: Spans) -> str:
        """Stretches of the text with a sign between those apart."""
        return quote_spans(self.text, spans, self._gap)

    def _gap(self, before: str, after: str) -> str:
        return _ellipsis_between(before, after)


_LINE = re.compile(r"[^\n]+")
_STAMP = re.compile(
    r"\s*[\[(]?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|\d{10,13}\b"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}\s\d\d:\d\d)"
)
_LEVEL = re.compile(
    r"(?<![\w.])(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|SEVERE|FATAL|CRITICAL|PANIC"
    r"|trace|debug|info|notice|warn(?:ing)?|error|severe|fatal|critical|panic)(?![\w-])"
)
_BAD = re.compile(
    r"(?<![\w])(?:Traceback|[A-Z]\w*(?:Error|Exception)|exception|failed|failure|refused|denied"
    r"|timed out|timeout|exit code)(?!\w)"
)
_WEIGHTS = {"warn": 0.5, "warning": 0.5}
_WEIGHTS |= dict.fromkeys(("error", "severe", "fatal", "critical", "panic"), 1.0)
_CALM = frozenset({"trace", "debug", "info", "notice"})
# What differs between two lines of one kind.
_VARIES = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+")
_FEWEST, _SHARE = 5, 0.6
_FIRST_OF_ITS_KIND, _EDGE, _FAULT = 0.2, 0.3, 0.8


def is_log(text: str) -> bool:
    """Whether most lines of a text begin with a moment or name a level."""
    lines = [match.group() for match in _LINE.finditer(text) if match.group().strip()]
    if len(lines) < _FEWEST:
        return False
    heads = [line for line in lines if not line[0].isspace()]
    marked = sum(1 for line in heads if _STAMP.match(line) or _LEVEL.search(line[:80]))
    return marked >= _SHARE * max(1, len(heads))


@dataclass(frozen=True)
class LogText(ProseText):
    """A log by its entries: a line with the indented ones below it."""

    by_stretch = False

    @property
    def kind(self) -> TextKind:
        """What the text is."""
        return "log"

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
        """Entries; faults, first ones of their kind, the first and the last weigh most."""
        text = self.text
        spans: list[Span] = []
        for match in _LINE.finditer(text):
            line = match.group()
            if not line.strip():
                continue
            end = match.start() + len(line.rstrip())
            stamped = _STAMP.match(line) or _LEVEL.search(line[:80])
            if spans and (line[0].isspace() or (not stamped and _BAD.match(line))):
                spans[-1] = Span(spans[-1].start, end)
            else:
                spans.append(Span(match.start(), end))
        spans = _join_across(spans, find_protected(text))
        kinds: set[str] = set()
        pieces = []
        for number, span in enumerate(spans):
            entry = span.of(text)
            level = _LEVEL.search(entry[:160])
            name = level["level"].lower() if level is not None else ""
            weight = _WEIGHTS.get(name, 0.0)
            if weight < _FAULT and name not in _CALM and _BAD.search(entry):
                weight = _FAULT
            kind = _VARIES.sub("0", entry)
            if kind not in kinds:
                kinds.add(kind)
                weight += _FIRST_OF_ITS_KIND
            if number in (0, len(spans) - 1):
                weight += _EDGE
            field = f"lines.{name or 'other'}"
            pieces.append(TextPiece(span.start, span.end, min(1.0, weight), field))
        return pieces

    def _gap(self, before: str, after: str) -> str:
        return "\n\u2026\n"


def _ellipsis_between(before: str, after: str) -> str:
    """An ellipsis, on a line of its own beside fenced code."""
    fenced = before.endswith(_FENCES) or after.startswith(_FENCES)
    return f"\n{ELLIPSIS.strip()}\n" if fenced else ELLIPSIS


def quote_spans(
    text: str, spans: Sequence[tuple[int, int]], gap: Callable[[str, str], str] = _ellipsis_between
) -> str:
    """Stretches of a text with a sign between."""
    quoted = ""
    for start, end in spans:
        part = text[start:end]
        quoted += gap(quoted, part) + part if quoted else part
    return quoted


def keep_whole(text: str, pieces: int) -> ShortenedText:
    """A text of which nothing is left out."""
    return ShortenedText(text, ((0, len(text)),), tuple(range(pieces)))


def split_pieces(text: str) -> list[Span]:
    """Pieces of running text that hold every character which is no white space."""
    pieces: list[Span] = []
    for sentence in split_sentences(text):
        for piece in _split_long(text, sentence):
            before = pieces[-1] if pieces else None
            if before is not None and piece.end - piece.start < _SHORT:
                gap = text[before.end : piece.start]
                if "\n\n" not in gap and piece.end - before.start < _LONG:
                    pieces[-1] = Span(before.start, piece.end)
                    continue
            pieces.append(piece)
    return _join_across(pieces, find_protected(text)) if len(pieces) > 1 else pieces


_SPACE = re.compile(r"\s+")


def _split_long(text: str, span: Span) -> Iterator[Span]:
    """A long stretch cut at line ends, or at white space where a line is long as well."""
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
        yield Span(start, start + len(text[start:stop].rstrip()))
        start = stop
        while start < span.end and text[start].isspace():
            start += 1
    if start < span.end:
        yield Span(start, span.end)
