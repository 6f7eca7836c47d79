"""Pieces and spans of a text: where it may be cut, what is kept together, how it is quoted."""

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

# The name of a part of an item: its id and the characters, half-open.
_PART = re.compile(r"(?P<id>.+)#(?P<start>\d+)-(?P<end>\d+)\Z", re.DOTALL)


def part_id(item_id: str, start: int, end: int) -> str:
    """The name of a range of characters of an item."""
    return f"{item_id}#{start}-{end}"


def read_part(name: str, ids: frozenset[str] | set[str]) -> tuple[str, tuple[int, int] | None]:
    """The item and character range that a name in a drop report means; None for all of it."""
    match = None if name in ids else _PART.match(name)
    return (
        (name, None) if match is None else (match["id"], (int(match["start"]), int(match["end"])))
    )


def merge_spans(spans: Sequence[tuple[int, int]], text: str) -> Spans:
    """Sorted spans, joined if there is only white space between them."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and not text[merged[-1][1] : start].strip():
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def subtract_spans(spans: Sequence[tuple[int, int]], gone: Sequence[tuple[int, int]]) -> Spans:
    """The spans without the `gone` ones; both must be sorted and without overlaps."""
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
    """Whether a text has words outside of the given spans, which are sorted and may overlap."""
    apart: list[tuple[int, int]] = []
    for start, end in spans:
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    left = subtract_spans(((0, len(text)),), apart)
    return any(character.isalnum() for start, end in left for character in text[start:end])


# --- what must not be cut ----------------------------------------------------------------

# Within one paragraph: a longer match is more likely a quotation mark that was never closed.
QUOTATION = re.compile(
    r"(?<!\w)\"(?!\s)(?:[^\"\n]|\n(?!\s*\n)){1,300}(?<!\s)\"(?!\w)"
    r"|\u201c(?:[^\u201c\u201d\n]|\n(?!\s*\n)){1,300}\u201d"
    r"|\u00ab(?:[^\u00ab\u00bb\n]|\n(?!\s*\n)){1,300}\u00bb"
)
_INLINE = re.compile(r"(?<!`)`[^`\n]{1,200}`(?!`)")
FIGURE = re.compile(r"\d|[\"\u201c\u00ab`]")


def find_code(text: str) -> Iterator[Span]:
    """Fenced blocks with their fences, and inline code."""
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
            # Never closed: a reader sees the rest as code.
            yield Span(opened, len(text.rstrip()))
    for match in _INLINE.finditer(text):
        yield Span(*match.span())


def find_protected(text: str) -> list[Span]:
    """The stretches of a text that are shown completely or not at all, by their start.

    They may overlap: a date in a quotation is listed in addition to the quotation.

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
    """The pieces in order; those that a protected stretch crosses are joined."""
    joined: list[Span] = []
    place, reach = 0, -1
    for piece in pieces:
        # The furthest end of the protected stretches that start before this piece.
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

# Characters: a shorter piece is joined to its neighbour, a longer one is cut at white space.
_MIN_CHARS, _MAX_CHARS = 25, 600
_FENCES = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A stretch that is shown unchanged or not at all.

    Attributes:
        weight: weight of its position or kind, in [0, 1]; the score of its words is added.
        field: its field or kind of line, which is named if it is left out.
    """

    start: int
    end: int
    weight: float = 0.0
    field: str = "text"


@dataclass(frozen=True, slots=True)
class ShortenedText:
    """A shortened text.

    Attributes:
        spans: the parts of the original that it shows, in order.
        fields: fields that are incomplete, each once.
    """

    text: str
    spans: Spans
    pieces: tuple[int, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProseText:
    """A text with its pieces, in order and without overlaps: here the sentences of prose."""

    text: str
    # True: the question is searched in overlapping stretches, not in each piece separately.
    by_stretch: ClassVar[bool] = True

    @property
    def kind(self) -> TextKind:
        """How the text is read."""
        return "prose"

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
        """Sentences, joined if a quotation or code crosses them."""
        return [TextPiece(span.start, span.end) for span in split_pieces(self.text)]

    @property
    def named(self) -> Mapping[int, tuple[int, ...]]:
        """For each piece, the pieces that identify its hit; empty except for search results."""
        return {}

    def cut(self, numbers: Sequence[int]) -> ShortenedText:
        """The text with only some of its pieces, in order; markers show where others were."""
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
        """Stretches of the text, with a marker between those that were not adjacent."""
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
_FAULT_WORDS = re.compile(
    r"(?<![\w])(?:Traceback|[A-Z]\w*(?:Error|Exception)|exception|failed|failure|refused|denied"
    r"|timed out|timeout|exit code)(?!\w)"
)
_WEIGHTS = {"warn": 0.5, "warning": 0.5}
_WEIGHTS |= dict.fromkeys(("error", "severe", "fatal", "critical", "panic"), 1.0)
_CALM_LEVELS = frozenset({"trace", "debug", "info", "notice"})
# Parts in which two lines of the same kind differ.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+")
_MIN_LINES, _MIN_MARKED = 5, 0.6
_FIRST_OF_ITS_KIND, _EDGE, _FAULT = 0.2, 0.3, 0.8


def is_log(text: str) -> bool:
    """Whether most lines of a text begin with a time stamp or name a log level."""
    lines = [match.group() for match in _LINE.finditer(text) if match.group().strip()]
    if len(lines) < _MIN_LINES:
        return False
    heads = [line for line in lines if not line[0].isspace()]
    marked = sum(1 for line in heads if _STAMP.match(line) or _LEVEL.search(line[:80]))
    return marked >= _MIN_MARKED * max(1, len(heads))


@dataclass(frozen=True)
class LogText(ProseText):
    """A log, divided into entries: a line with the indented lines below it."""

    by_stretch = False

    @property
    def kind(self) -> TextKind:
        """How the text is read."""
        return "log"

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
        """Entries; faults, the first entry of each kind, and the first and last weigh most."""
        text = self.text
        spans: list[Span] = []
        for match in _LINE.finditer(text):
            line = match.group()
            if not line.strip():
                continue
            end = match.start() + len(line.rstrip())
            stamped = _STAMP.match(line) or _LEVEL.search(line[:80])
            if spans and (line[0].isspace() or (not stamped and _FAULT_WORDS.match(line))):
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
            if weight < _FAULT and name not in _CALM_LEVELS and _FAULT_WORDS.search(entry):
                weight = _FAULT
            kind = _VARYING.sub("0", entry)
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
    """An ellipsis, on its own line next to fenced code."""
    fenced = before.endswith(_FENCES) or after.startswith(_FENCES)
    return f"\n{ELLIPSIS.strip()}\n" if fenced else ELLIPSIS


def quote_spans(
    text: str, spans: Sequence[tuple[int, int]], gap: Callable[[str, str], str] = _ellipsis_between
) -> str:
    """Stretches of a text with a marker between them."""
    quoted = ""
    for start, end in spans:
        part = text[start:end]
        quoted += gap(quoted, part) + part if quoted else part
    return quoted


def keep_whole(text: str, pieces: int) -> ShortenedText:
    """A text from which nothing is left out."""
    return ShortenedText(text, ((0, len(text)),), tuple(range(pieces)))


def split_pieces(text: str) -> list[Span]:
    """Pieces of running text that together contain every character except white space."""
    pieces: list[Span] = []
    for sentence in split_sentences(text):
        for piece in _split_long(text, sentence):
            before = pieces[-1] if pieces else None
            if before is not None and piece.end - piece.start < _MIN_CHARS:
                gap = text[before.end : piece.start]
                if "\n\n" not in gap and piece.end - before.start < _MAX_CHARS:
                    pieces[-1] = Span(before.start, piece.end)
                    continue
            pieces.append(piece)
    return _join_across(pieces, find_protected(text)) if len(pieces) > 1 else pieces


_SPACE = re.compile(r"\s+")


def _split_long(text: str, span: Span) -> Iterator[Span]:
    """A long stretch cut at line ends, or at white space if a line is too long as well."""
    start = span.start
    while span.end - start > _MAX_CHARS:
        high = start + _MAX_CHARS
        stop = text.rfind("\n", start + _MAX_CHARS // 4, high)
        if stop < 0:
            stop = text.rfind(" ", start + _MAX_CHARS // 4, high)
        if stop < 0:
            # No white space, as in a key, a hash or an image: it stays in one piece.
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
