"""Values of the answer in the context's own words.

"1988-09-29" is what "September 29, 1988" says, yet shares one word with it. Where stage 3 holds
two values to be the same, the measures read the context's words in place of the answer's, so
that a value written otherwise lies in its row of words as the same value does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crp_integrations.dpe.records import Claim
from crp_integrations.dpe.verifier.agreement import same_value
from crp_integrations.dpe.verifier.features import Alignment
from crp_integrations.dpe.verifier.readings import Value, read
from crp_integrations.dpe.verifier.word_measures import Read, Source
from crp_integrations.dpe.verifier.wording import Ints, Words, words_of


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
    """The answer's words beside the context, values in the context's words.

    Args:
        words: of the answer.
        claims, alignments: of the answer, in order.
        source: the context.
    """
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
