"""What is measured of each word of an answer before its claim is looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from crp_integrations.dpe.records import Claim
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import Alignment
from crp_integrations.dpe.verifier.source_records import Records
from crp_integrations.dpe.verifier.values import Value, read, same_value
from crp_integrations.dpe.verifier.wording import Flags, Floats, Ints, Wording, Words, words_of

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
