"""What is measured of each word of an answer, and how words of context and answer correspond."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crp_integrations.dpe.records import Claim
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import Alignment
from crp_integrations.dpe.verifier.source_records import Records
from crp_integrations.dpe.verifier.values import Value, read, same_value
from crp_integrations.language.memo import remembered_of_sentences
from crp_integrations.language.text import fold
from crp_integrations.language.words import STOP_WORDS, stem

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_WORD = re.compile(r"[^\W_]+(?:[.'][^\W_]+)*")
# Words on each side of a place that count as said together with it.
REACH: Final = 14
# A run of equal words is followed so far.
LONGEST_RUN: Final = 12
NOWHERE: Final = -1
# So few places are followed one by one, more of them together.
FEW: Final = 24


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one text in order.

    Attributes:
        lower: each word folded and in lower case.
        stems: its stem, the word itself for a function word.
        starts, ends: character offsets in the text.
        stop: whether it is a function word.
    """

    lower: tuple[str, ...]
    stems: tuple[str, ...]
    starts: Ints
    ends: Ints
    stop: Flags

    def __len__(self) -> int:
        return len(self.lower)


@remembered_of_sentences
def words_of(text: str) -> Words:
    """The words of a text; the result is shared."""
    folded = fold(text)
    body = folded.text
    places = [match.span() for match in _WORD.finditer(body)]
    lower = [body[start:end].casefold() for start, end in places]
    stop = [word in STOP_WORDS for word in lower]
    starts = [start for start, _ in places]
    ends = [end for _, end in places]
    if folded.offsets is not None:
        starts = [folded.start(place) for place in starts]
        ends = [folded.end(place) for place in ends]
    return Words(
        tuple(lower),
        tuple([word if plain else stem(word) for word, plain in zip(lower, stop, strict=True)]),
        _fixed(starts, np.int64),
        _fixed(ends, np.int64),
        _fixed(stop, np.bool_),
    )


def _fixed(values: list[Any], kind: Any) -> Any:
    found = np.array(values, dtype=kind)
    found.setflags(write=False)
    return found


class Wording:
    """The words of all passages in a row, and where each stands.

    Args:
        passages: texts of the context.
        units: passage, start and end of each sentence, in order of the text.
    """

    def __init__(self, passages: Sequence[str], units: Iterable[tuple[int, int, int]]) -> None:
        parts = [words_of(text) for text in passages]
        # A stem that was not seen before gets the next number.
        numbered: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        ids = [numbered[found] for part in parts for found in part.stems]
        self.numbers: dict[str, int] = dict(numbered)
        self._listed = ids
        self.ids = np.array(ids, dtype=np.int64)
        self.size = len(self.ids)
        sizes = [len(part) for part in parts]
        self.passage = np.repeat(np.arange(len(parts)), sizes)
        self._ends = np.cumsum(sizes)
        self.stop = (
            np.concatenate([part.stop for part in parts]) if parts else np.zeros(0, dtype=np.bool_)
        )
        self.unit = np.zeros(self.size, dtype=np.int64)
        self.units = 0
        self._number_units(parts, sizes, list(units))
        self.counts = np.bincount(self.ids, minlength=len(self.numbers))
        self._grouped = np.argsort(self.ids, kind="stable")
        self._firsts = np.concatenate([[0], np.cumsum(self.counts)])
        # Each word with each sentence that has it once, by word: `_held[_cuts[n] : _cuts[n + 1]]`.
        both = np.unique(self.ids * self.units + self.unit)
        self._held = both % self.units
        self._cuts = np.searchsorted(both // self.units, np.arange(len(self.numbers) + 1))
        self.idf = self._rarity()
        # Each two words in a row as one number, in order, and where they stand.
        self._many = max(1, len(self.numbers))
        together = np.flatnonzero(self.passage[:-1] == self.passage[1:])
        codes = self.ids[together] * self._many + self.ids[together + 1]
        order = np.argsort(codes, kind="stable")
        self._pairs, self._pair_places = codes[order], together[order]
        places = np.arange(self.size)
        self._low = np.maximum(places - REACH, 0)
        self._high = np.minimum(places + REACH + 1, self.size)

    def _number_units(
        self, parts: Sequence[Words], sizes: Sequence[int], units: list[tuple[int, int, int]]
    ) -> None:
        by_passage: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, (passage, start, _) in enumerate(units):
            by_passage[passage].append((start, number))
        self.units = max(1, len(units))
        first = 0
        for passage, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            known = sorted(by_passage.get(passage, ()))
            if known and size:
                begin = np.array([start for start, _ in known])
                name = np.array([number for _, number in known])
                at = np.searchsorted(begin, part.starts, side="right") - 1
                self.unit[first : first + size] = name[np.maximum(at, 0)]
            first += size

    def _rarity(self) -> Floats:
        """How rare each word is over the sentences, at least 1."""
        if not self.size:
            return np.zeros(0)
        rarity: Floats = 1.0 + np.log((1 + self.units) / (1 + np.diff(self._cuts)))
        return rarity

    @property
    def rarest(self) -> float:
        """The weight of a word that the context does not have."""
        return 1.0 + math.log(1 + self.units)

    def number(self, stems: Iterable[str]) -> Ints:
        """The number of each stem, `NOWHERE` for one that the context does not have."""
        known = self.numbers
        return np.array([known.get(found, NOWHERE) for found in stems], dtype=np.int64)

    def weights(self, ids: Ints) -> Floats:
        """How rare each word is."""
        if not len(self.idf):
            return np.full(len(ids), self.rarest)
        return np.where(ids >= 0, self.idf[np.maximum(ids, 0)], self.rarest)

    def places_of(self, number: int) -> Ints:
        """Where a word stands, ascending."""
        return self._grouped[self._firsts[number] : self._firsts[number + 1]]

    def first_places(self, unit: int) -> dict[int, int]:
        """Where each word of a sentence stands in it first."""
        found: dict[int, int] = {}
        for place in np.flatnonzero(self.unit == unit).tolist():
            found.setdefault(self._listed[place], place)
        return found

    def units_of(self, number: int) -> Ints:
        """The sentences that have a word, ascending."""
        return self._held[self._cuts[number] : self._cuts[number + 1]]

    def in_a_row(self, ids: Ints) -> Flags:
        """For each word of a text whether the context has it and the next one in a row."""
        found = np.zeros(len(ids), dtype=np.bool_)
        if len(ids) > 1 and len(self._pairs):
            codes = ids[:-1] * self._many + ids[1:]
            at = np.minimum(np.searchsorted(self._pairs, codes), len(self._pairs) - 1)
            found[:-1] = (self._pairs[at] == codes) & (ids[:-1] >= 0) & (ids[1:] >= 0)
        return found

    def runs(self, ids: Ints) -> Ints:
        """For each word of a text the length of the longest row of words around it that the
        context has as well, at most `LONGEST_RUN`.
        """
        count = len(ids)
        found = (ids >= 0).astype(np.int64)
        paired = np.flatnonzero(self.in_a_row(ids)).tolist()
        listed = ids.tolist()
        free = 0
        for at in paired:
            if at < free:
                continue
            code = listed[at] * self._many + listed[at + 1]
            low, high = np.searchsorted(self._pairs, (code, code + 1)).tolist()
            most = min(LONGEST_RUN, count - at)
            length = self._run(self._pair_places[low:high], listed[at : at + most])
            found[at : at + length] = np.maximum(found[at : at + length], length)
            free = at + length - 1
        return found

    def _run(self, places: Ints, row: list[int]) -> int:
        """The longest beginning of a row, of two words or more, that stands at a place."""
        ids, ends = self.ids, self._ends[self.passage[places]]
        length = 2
        while length < len(row) and len(places):
            if len(places) <= FEW:
                return max(
                    self._length(place, min(len(row), end - place), length, row)
                    for place, end in zip(places.tolist(), ends.tolist(), strict=True)
                )
            inside = places + length < ends
            places, ends = places[inside], ends[inside]
            same = ids[places + length] == row[length]
            places, ends = places[same], ends[same]
            if len(places):
                length += 1
        return length

    def _length(self, place: int, most: int, length: int, row: list[int]) -> int:
        listed = self._listed
        while length < most and listed[place + length] == row[length]:
            length += 1
        return length

    def together(self, wanted: Ints, weights: Floats) -> tuple[Floats, Floats]:
        """How much of a claim stands around every place of the context."""
        table = np.zeros(max(1, len(self.numbers)))
        table[wanted] = weights
        own = table[self.ids]
        sums = np.concatenate([[0.0], np.cumsum(own)])
        return sums[self._high] - sums[self._low], own

    def by_unit(self, wanted: Ints, weights: Floats) -> Floats:
        """The weight of a claim's words in each sentence, each counted once."""
        hits = [self.units_of(number) for number in wanted.tolist()]
        if not hits:
            return np.zeros(self.units)
        units = np.concatenate(hits)
        sizes = [len(having) for having in hits]
        found: Floats = np.bincount(
            units, weights=np.repeat(weights, sizes), minlength=self.units
        ).astype(np.float64)
        return found


PREFIX: Final = 5


@dataclass(frozen=True, slots=True)
class Read:
    """The answer's words beside the context.

    Attributes:
        ids: number of each word in the context.
        weights: how rare each is.
        runs: length of the row of words around it that the context has too.
        known: whether the context has it.
        pairs: 1 where the context has it and the next one in a row.
    """

    words: Words
    ids: Ints
    weights: Floats
    runs: Ints
    known: Flags
    pairs: Floats


class Source:
    """The context as measures read it; built once for an answer."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.wording = Wording(context.told, [(u.passage, u.start, u.end) for u in context.units])
        self.records = Records(context.told)
        self.prefixes = frozenset(
            word[:PREFIX] for word in self.wording.numbers if len(word) >= PREFIX
        )
        self._unit_sets: dict[int, frozenset[int]] = {}

    def units_of(self, number: int) -> frozenset[int]:
        """The sentences that have a word."""
        found = self._unit_sets.get(number)
        if found is None:
            found = frozenset(self.wording.units_of(number).tolist())
            self._unit_sets[number] = found
        return found


def word_columns(read: Read, asked: frozenset[str], source: Source) -> dict[str, Floats]:
    """One number a word for each column; those that need its claim are still 0."""
    words, ids, wording = read.words, read.ids, source.wording
    count = len(words)
    known = read.known.astype(float)
    listed = ids.tolist()
    pair = read.pairs
    content = ~words.stop
    near = _around(known * content, 4) / np.maximum(1.0, _around(content.astype(float), 4))
    first: dict[str, int] = {}
    repeated = np.array([first.setdefault(s, at) < at for at, s in enumerate(words.stems)], float)
    occurrences = np.array([wording.counts[i] if i >= 0 else 0 for i in listed], dtype=float)
    zeros = np.zeros(count)
    return {
        "w_known": known,
        "w_count": np.log1p(occurrences),
        "w_idf": read.weights / wording.rarest,
        "w_prefix": np.array(
            [
                k or (len(s) >= PREFIX and s[:PREFIX] in source.prefixes)
                for k, s in zip(read.known, words.stems, strict=True)
            ],
            dtype=float,
        ),
        "w_pair_next": pair,
        "w_pair_before": np.concatenate([[0.0], pair[:-1]]) if count else zeros,
        "w_run": read.runs.astype(float),
        "w_run_near": _around(read.runs.astype(float), 4) / 9.0,
        "w_known_near": near,
        "w_known_left": _shifted(known, content, -1),
        "w_known_right": _shifted(known, content, 1),
        "w_asked": np.array([s in asked for s in words.stems], dtype=float),
        "w_stop": words.stop.astype(float),
        "w_digit": np.array(
            [not w.isalpha() and any(map(str.isdigit, w)) for w in words.lower], dtype=float
        ),
        "w_length": np.minimum(words.ends - words.starts, 16).astype(float),
        "w_adverb": np.array([w.endswith("ly") for w in words.lower], dtype=float),
        "w_form": np.array([w.endswith(("ing", "ed")) for w in words.lower], dtype=float),
        "w_repeated": repeated,
        "w_place": np.arange(count) / max(1, count),
        "w_best": zeros.copy(),
        "w_top3": zeros.copy(),
        "w_top6": zeros.copy(),
        "w_near_best": zeros.copy(),
        "w_together": zeros.copy(),
        "w_in_claim": zeros.copy(),
        "w_untraced": zeros.copy(),
        "w_changed": zeros.copy(),
        "w_flipped": zeros.copy(),
        "w_record": zeros.copy(),
        "w_name": zeros.copy(),
    }


def _around(values: Floats, reach: int) -> Floats:
    """Sum over each place and `reach` places on either side."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    found: Floats = sums[np.minimum(at + reach + 1, len(values))] - sums[np.maximum(at - reach, 0)]
    return found


def _shifted(known: Floats, content: Flags, step: int) -> Floats:
    """Whether the nearest content word to one side is known; one half at the edge."""
    found = np.full(len(known), 0.5)
    order = range(len(known)) if step < 0 else range(len(known) - 1, -1, -1)
    last = 0.5
    for at in order:
        found[at] = last
        if content[at]:
            last = known[at]
    return found


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """Words of the answer from `first` up to `last`, and the context's words for them."""

    first: int
    last: int
    ids: tuple[int, ...]


def read_words(
    words: Words,
    claims: Sequence[Claim],
    alignments: Sequence[Alignment | None],
    source: Source,
) -> Read:
    """The answer's words beside the context, values in the context's words."""
    own = source.wording.number(words.stems)
    row: list[int] = []
    at = np.zeros(len(words), dtype=np.int64)
    done = 0
    listed = own.tolist()
    for rewrite in _rewrites(words, own, claims, alignments, source):
        if rewrite.first < done:
            continue
        at[done : rewrite.first] = np.arange(len(row), len(row) + rewrite.first - done)
        row += listed[done : rewrite.first]
        size, length = rewrite.last - rewrite.first, len(rewrite.ids)
        at[rewrite.first : rewrite.last] = len(row) + np.arange(size) * length // size
        row += rewrite.ids
        done = rewrite.last
    at[done:] = np.arange(len(row), len(row) + len(words) - done)
    row += listed[done:]
    wording = source.wording
    ids = np.array(row, dtype=np.int64)
    pairs = wording.in_a_row(ids).astype(np.float64)
    read_as = ids[at]
    return Read(
        words,
        read_as,
        wording.weights(read_as),
        wording.runs(ids)[at],
        read_as >= 0,
        pairs[at],
    )


def _rewrites(
    words: Words,
    ids: Ints,
    claims: Sequence[Claim],
    alignments: Sequence[Alignment | None],
    source: Source,
) -> Iterator[_Rewrite]:
    """Each value of a claim whose words the context does not have in a row, in order."""
    starts = words.starts.tolist()
    for claim, found in zip(claims, alignments, strict=True):
        if found is None or not found.units:
            continue
        shift = claim.start - (len(claim.reads_as) - (claim.end - claim.start))
        # What was changed or has no source is not said by the context in any form.
        own = {change.claim.start for change in found.changes}
        own |= {value.start for value in found.untraced}
        for value in read(claim.reads_as).values:
            start = shift + value.start
            if value.family == "name" or start < claim.start or value.start in own:
                continue
            first, last = bisect_left(starts, start), bisect_left(starts, shift + value.end)
            if first == last or _has(source, ids[first:last]):
                continue
            said = _said(value, found, source)
            if said:
                yield _Rewrite(first, last, said)


def _has(source: Source, ids: Ints) -> bool:
    """Whether the context has words in a row, as far as two of them tell."""
    return bool(ids.min() >= 0 and source.wording.in_a_row(ids)[:-1].all())


def _said(value: Value, found: Alignment, source: Source) -> tuple[int, ...]:
    """The words of the source's value that says the same, empty when there is none."""
    context = source.context
    for unit in found.units:
        for other in read(context.text(unit)).values:
            if other.family != "name" and same_value(value, other):
                return _numbered(other.text, source)
    places = context.places(value)
    return _numbered(places[0][1].text, source) if places else ()


def _numbered(text: str, source: Source) -> tuple[int, ...]:
    ids = source.wording.number(words_of(text).stems).tolist()
    return tuple(ids) if ids and min(ids) >= 0 else ()
