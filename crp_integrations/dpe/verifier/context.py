"""Search index of a verifier over every sentence of every passage.

The index is built once, in time linear in the text. For a claim it returns the few sentences that
share its words, from passages of any number and length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from crp_integrations.dpe.verifier.values import (
    Value,
    ValueReading,
    is_form_of,
    name_words,
    read,
    same_value,
)
from crp_integrations.language.lexical_overlap import OverlapIndex
from crp_integrations.language.memo import remembered_of_sentences
from crp_integrations.language.text import plain, split_sentences
from crp_integrations.language.words import stem

# Longer sentences, as in tables or logs without full stops, are split into overlapping stretches.
LONGEST_UNIT = 700
UNIT_STEP = 500
# An address or code identifier is one word: its parts elsewhere are not evidence of it.
_ADDRESS = re.compile(r"://|www\.|\w@\w|\w_\w|^--\w")
# Gaps between words, except signs that change a figure, as in "-5" or "$5". The pattern starts with
# one character class, so that a text is scanned once.
_GAP_BUT_SIGNS = re.compile(
    r"[^\w\s$\u20ac\u00a3\u00a5\u20b9%\u00b0]"
    r"(?:(?<![.,:-])|(?<=[.,:])(?:(?<!\d.)|(?!\d))|(?<=-)(?:(?<=\w.)|(?!\d)))"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence, or a stretch of a very long one."""

    passage: int
    start: int
    end: int


def units_of(passage: int, text: str) -> list[Unit]:
    """The units that cover a passage, in order."""
    units: list[Unit] = []
    for span in split_sentences(text):
        if span.end - span.start <= LONGEST_UNIT:
            units.append(Unit(passage, span.start, span.end))
            continue
        start = span.start
        while start < span.end:
            end = _at_space(text, min(span.end, start + LONGEST_UNIT), span.end)
            units.append(Unit(passage, start, end))
            if end >= span.end:
                break
            start = max(start + 1, _at_space(text, start + UNIT_STEP, span.end))
    return units


def _at_space(text: str, place: int, end: int) -> int:
    """The next white space after a place, or the place itself if none is near."""
    for at in range(place, min(end, place + 60)):
        if text[at].isspace():
            return at
    return min(place, end)


@remembered_of_sentences
def _wording(text: str) -> str:
    """The words of a text and the signs of its figures, separated by single blanks."""
    return f" {' '.join(_GAP_BUT_SIGNS.sub(' ', plain(text)).split())} "


def _once(passages: Sequence[str]) -> Iterator[str]:
    """The passages, with repeated ones replaced by empty texts."""
    seen: set[str] = set()
    for text in passages:
        key = " ".join(text.split())
        yield "" if key in seen else text
        seen.add(key)


class PassageContext:
    """Passages, their sentences, and an index of their words and values.

    Attributes:
        unique: the passages, repeated ones empty, so that no sentence is counted twice.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        self.passages = tuple(passages)
        self.unique = tuple(_once(self.passages))
        self.units = [u for n, text in enumerate(self.unique) for u in units_of(n, text)]
        self._index = OverlapIndex([self.text(unit) for unit in self.units])

    @property
    def idf(self) -> dict[str, float]:
        """The rarity of each stem over the sentences."""
        return self._index.idf

    @property
    def rarest(self) -> float:
        """The rarity of a stem that occurs in no sentence."""
        return self._index.rarest

    def text(self, unit: Unit) -> str:
        """The text of a unit."""
        return self.passages[unit.passage][unit.start : unit.end]

    def nearest(self, claim: str, count: int) -> list[Unit]:
        """The units that share most words with a claim, best first."""
        return [self.units[place] for place in self._index.nearest(claim, count)]

    def holds(self, unit: Unit, text: str) -> bool:
        """Whether a unit contains a text verbatim."""
        return _wording(text) in _wording(self.text(unit))

    def span_around(self, unit: Unit, longest: int) -> tuple[int, int]:
        """The stretch of the passage with the unit and those neighbours that fit."""
        place = bisect_right(self._starts, (unit.passage, unit.start)) - 1
        start, end = unit.start, unit.end
        for at in (place - 1, place + 1):
            if 0 <= at < len(self.units) and self.units[at].passage == unit.passage:
                low, high = min(start, self.units[at].start), max(end, self.units[at].end)
                if high - low <= longest:
                    start, end = low, high
        return start, end

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        return [(unit.passage, unit.start) for unit in self.units]

    @cached_property
    def readings(self) -> list[ValueReading]:
        """The typed reading of every whole passage."""
        return [read(passage) for passage in self.unique]

    @cached_property
    def _wordings(self) -> list[str]:
        return [_wording(passage) for passage in self.unique]

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset(stem(word) for text in self._wordings for word in text.split())

    @cached_property
    def _names(self) -> list[str]:
        return [v.text for r in self.readings for v in r.values if v.family == "name"]

    def has_name(self, name: str) -> bool:
        """Whether a name occurs in the context, in this or a related form.

        Related forms: all of its words apart, its acronym, or a name whose acronym it is.
        """
        wording = _wording(name)
        if wording.isspace() or self.verbatim(name):
            return True
        if _ADDRESS.search(name) or any(character.isdigit() for character in name):
            return False
        words = name_words(name)
        if words and all(stem(word) in self._stems for word in words):
            return True
        return any(is_form_of(name, other) for other in self._names)

    def has_figure(self, value: Value) -> bool:
        """Whether a claim's date or quantity occurs in the context."""
        return any(
            other.family != "name" and same_value(value, other)
            for reading in self.readings
            for other in reading.values
        )

    def verbatim(self, text: str) -> bool:
        """Whether a passage contains a text verbatim, except for spaces and punctuation."""
        wording = _wording(text)
        return not wording.isspace() and any(wording in passage for passage in self._wordings)
