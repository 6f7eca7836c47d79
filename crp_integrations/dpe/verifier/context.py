"""The context as a verifier searches it: every sentence of every passage, none left out.

The index is built once over all sentences, in time linear in the text. A claim is led to the
few sentences that share its words, whichever passage they stand in and however long it is.
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

# A sentence without an end, as in a table or a log, is read in stretches with an overlap.
LONGEST_UNIT = 700
UNIT_STEP = 500
# Addresses and names of code are one word each: their parts elsewhere are no trace.
_ADDRESS = re.compile(r"://|www\.|\w@\w|\w_\w|^--\w")
# What makes "-5" another number than "5", and "$5" another sum than "€5", is no gap. One set of
# characters leads to every place, so that a text is walked through once.
_GAP_BUT_SIGNS = re.compile(
    r"[^\w\s$\u20ac\u00a3\u00a5\u20b9%\u00b0]"
    r"(?:(?<![.,:-])|(?<=[.,:])(?:(?<!\d.)|(?!\d))|(?<=-)(?:(?<=\w.)|(?!\d)))"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence, or a stretch of one without an end."""

    passage: int
    start: int
    end: int


def units_of(passage: int, text: str) -> list[Unit]:
    """The units that cover a passage in order."""
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
    """The next white space from a place, at most a word away."""
    for at in range(place, min(end, place + 60)):
        if text[at].isspace():
            return at
    return min(place, end)


@remembered_of_sentences
def _wording(text: str) -> str:
    """The words of a text in a row with the signs of its figures, between blanks."""
    return f" {' '.join(_GAP_BUT_SIGNS.sub(' ', plain(text)).split())} "


def _once(passages: Sequence[str]) -> Iterator[str]:
    """The passages, each that says what an earlier one says as an empty text."""
    seen: set[str] = set()
    for text in passages:
        key = " ".join(text.split())
        yield "" if key in seen else text
        seen.add(key)


class PassageContext:
    """Passages, their sentences, and where their words and values stand.

    Attributes:
        unique: the passages, each text once: what stands there twice is no surer and no rarer.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        self.passages = tuple(passages)
        self.unique = tuple(_once(self.passages))
        self.units = [u for n, text in enumerate(self.unique) for u in units_of(n, text)]
        self._index = OverlapIndex([self.text(unit) for unit in self.units])

    @property
    def idf(self) -> dict[str, float]:
        """How rare each stem is over the sentences."""
        return self._index.idf

    @property
    def rarest(self) -> float:
        """The rarity of a stem that no sentence has."""
        return self._index.rarest

    def text(self, unit: Unit) -> str:
        """The text of a unit."""
        return self.passages[unit.passage][unit.start : unit.end]

    def nearest(self, claim: str, count: int) -> list[Unit]:
        """The units that share most with a claim, best first."""
        return [self.units[place] for place in self._index.nearest(claim, count)]

    def holds(self, unit: Unit, text: str) -> bool:
        """Whether a unit has a text as it is."""
        return _wording(text) in _wording(self.text(unit))

    def span_around(self, unit: Unit, longest: int) -> tuple[int, int]:
        """The stretch of the passage with the unit and its neighbours, where they fit."""
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
        """Whether a name stands anywhere in the context, in this or a related form.

        Its words in a row, all of its words, an acronym of it, or a name it is the acronym of.
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
        """Whether a claim's date or quantity stands anywhere in the context."""
        return any(
            other.family != "name" and same_value(value, other)
            for reading in self.readings
            for other in reading.values
        )

    def verbatim(self, text: str) -> bool:
        """Whether a text stands in some passage as it is, but for spaces and punctuation."""
        wording = _wording(text)
        return not wording.isspace() and any(wording in passage for passage in self._wordings)
