"""How a text is read for shortening: the pieces that can go, and how what is left is written.

A piece is shown as it stands or not at all. Prose goes by sentences, a log by entries, data by
members; what is left of data is still data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.governance.compaction.protected import joined, protected
from crp_integrations.governance.compaction.spans import Spans, merged
from crp_integrations.language.sentences import split_sentences
from crp_integrations.language.text import Span

Kind = Literal["prose", "log", "search", "data"]

# Characters: a shorter piece joins its neighbour; one that is longer is cut at white space.
_SHORT, _LONG = 25, 600
_FENCES = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Piece:
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
class Cut:
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


class Reading(Protocol):
    """A text with its pieces, in order and not overlapping."""

    @property
    def kind(self) -> Kind:
        """What the text is."""
        ...

    @property
    def text(self) -> str:
        """The whole text."""
        ...

    @property
    def pieces(self) -> Sequence[Piece]:
        """The stretches that can go."""
        ...

    def cut(self, kept: Sequence[int]) -> Cut:
        """The text with some of its pieces alone; `kept` ascending."""
        ...


def lost_fields(pieces: Sequence[Piece], kept: Sequence[int]) -> tuple[str, ...]:
    """Fields of the pieces that are not kept, each once and in order."""
    stay = set(kept)
    return tuple(dict.fromkeys(p.field for n, p in enumerate(pieces) if n not in stay))


@dataclass(frozen=True)
class Prose:
    """Running text by its sentences; what does not adjoin has an ellipsis between."""

    text: str
    kind: Kind = "prose"

    @cached_property
    def pieces(self) -> Sequence[Piece]:
        """Sentences, joined where a quotation or code runs across them."""
        return [Piece(span.start, span.end) for span in sentences(self.text)]

    def cut(self, kept: Sequence[int]) -> Cut:
        """The kept sentences with what stands between two that adjoin."""
        pieces = self.pieces
        if len(kept) == len(pieces):
            return whole(self.text, len(pieces))
        spans = merged([(pieces[n].start, pieces[n].end) for n in kept], self.text)
        text = quoted(self.text, spans)
        if kept and kept[0] > 0:
            text = _between("", text).lstrip() + text
        if kept and kept[-1] < len(pieces) - 1:
            text += _between(text, "").rstrip()
        return Cut(text, spans, tuple(kept), lost_fields(pieces, kept))


def quoted(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Stretches of a text with an ellipsis between, on a line of its own beside fenced code."""
    found = ""
    for start, end in spans:
        part = text[start:end]
        found += _between(found, part) + part if found else part
    return found


def _between(before: str, after: str) -> str:
    fenced = before.endswith(_FENCES) or after.startswith(_FENCES)
    return f"\n{ELLIPSIS.strip()}\n" if fenced else ELLIPSIS


def whole(text: str, pieces: int) -> Cut:
    """A text of which nothing is left out."""
    return Cut(text, ((0, len(text)),), tuple(range(pieces)))


def sentences(text: str) -> list[Span]:
    """Pieces of running text that hold every character which is no white space."""
    found: list[Span] = []
    for sentence in split_sentences(text):
        for piece in _shorter(text, sentence):
            before = found[-1] if found else None
            if before is not None and piece.end - piece.start < _SHORT:
                gap = text[before.end : piece.start]
                if "\n\n" not in gap and piece.end - before.start < _LONG:
                    found[-1] = Span(before.start, piece.end)
                    continue
            found.append(piece)
    return joined(found, protected(text)) if len(found) > 1 else found


_SPACE = re.compile(r"\s+")


def _shorter(text: str, span: Span) -> list[Span]:
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
