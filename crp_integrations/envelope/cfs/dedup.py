"""Chunks that say the same: equal texts, and texts that share most of their words."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.cfs.records import RetrievalResult
from crp_integrations.language.text import plain
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.seals import blake3_of

DEDUP = "cfs-dedup@1"

Places: TypeAlias = npt.NDArray[np.int64]

_WORD = re.compile(r"[^\W_]+")


def token_set(text: str) -> frozenset[str]:
    """The distinct words of a text, in lower case."""
    return frozenset(_WORD.findall(plain(text)))


def overlap(left: frozenset[str], right: frozenset[str]) -> float:
    """Shared tokens by the size of the smaller set, [0, 1]; 0 when one of them is empty.

    Spec: CFS-021 §10

    >>> overlap(frozenset("abcd"), frozenset("abx"))
    0.6666666666666666
    """
    smaller = min(len(left), len(right))
    return len(left & right) / smaller if smaller else 0.0


def deduplicate(
    results: Sequence[RetrievalResult], threshold: float
) -> tuple[list[RetrievalResult], list[tuple[RetrievalResult, str]]]:
    """Drop each result whose text an earlier one has, or overlaps above the threshold.

    Spec: CFS-021 §10 (decisions F3, E23)

    Args:
        results: in the total order; the earlier of two duplicates is kept.
        threshold: an overlap equal to it in fixed point is not above it.

    Returns:
        What is kept, and what is dropped with the chunk id that stands for it.
    """
    kept: list[RetrievalResult] = []
    dropped: list[tuple[RetrievalResult, str]] = []
    hashes: dict[str, str] = {}
    alike = _Alike([token_set(result.chunk.text) for result in results], to_fixed(threshold))
    for place, result in enumerate(results):
        text_hash = blake3_of(result.chunk.text)
        stands = hashes.get(text_hash)
        if stands is None:
            first = alike.first(place)
            stands = None if first is None else results[first].chunk.id
        if stands is not None:
            dropped.append((result, stands))
            continue
        hashes[text_hash] = result.chunk.id
        alike.keep(place)
        kept.append(result)
    return kept, dropped


class _Alike:
    """Finds the first kept set that overlaps with another one above a threshold.

    Of a set of m tokens, more than t·m are to be shared with a larger one, so at most `spare` =
    m - floor(t·m) - 1 are not. Its rarer half then shares all but `spare` of its tokens as well.
    Shared tokens are counted over the rarer halves alone, where two texts that only have common
    words in common never meet; what passes is compared exactly.
    """

    def __init__(self, sets: Sequence[frozenset[str]], least: int) -> None:
        self._sets = sets
        self._least = least
        seen = Counter(chain.from_iterable(sets))
        # Tokens by rarity, so that of sorted numbers the first are the rarest.
        ranks = {
            token: number
            for number, token in enumerate(sorted(seen, key=lambda token: (seen[token], token)))
        }
        self._numbers = [sorted(ranks[token] for token in tokens) for tokens in sets]
        self._rarer: list[list[int]] = []
        wanted: list[int] = []
        for numbers in self._numbers:
            spare = len(numbers) - least * len(numbers) // SCALE - 1
            size = max(spare + 1, (len(numbers) + 1) // 2)
            self._rarer.append(numbers[:size])
            wanted.append(size - spare)
        self._wanted = np.array(wanted, dtype=np.int64)
        self._kept = np.zeros(len(sets), dtype=np.bool_)
        # Most tokens stand in one set alone, and these are the first; nobody is met there.
        self._alone = sum(count == 1 for count in seen.values())
        self._by_rarer = _postings(self._rarer, self._alone, len(ranks))
        self._by_any = _postings(self._numbers, self._alone, len(ranks))

    def keep(self, place: int) -> None:
        """Sets from now on may be found to be like this one."""
        self._kept[place] = True

    def first(self, place: int) -> int | None:
        """The place of the first kept set that overlaps above the threshold."""
        tokens = self._sets[place]
        smaller = self._meetings(self._by_rarer, self._numbers[place]) >= self._wanted
        larger = self._meetings(self._by_any, self._rarer[place]) >= self._wanted[place]
        for other in np.flatnonzero((smaller | larger) & self._kept).tolist():
            held = self._sets[other]
            if len(held & tokens) * SCALE > self._least * min(len(held), len(tokens)):
                return int(other)
        return None

    def _meetings(self, postings: Sequence[Places], numbers: Sequence[int]) -> Places:
        """How many of the tokens that others have too each set has, shape (sets,)."""
        shared = numbers[bisect_left(numbers, self._alone) :]
        met = np.zeros(0, dtype=np.int64)
        if shared:
            met = np.concatenate([postings[number - self._alone] for number in shared])
        return np.bincount(met, minlength=len(self._sets))


def _postings(sets: Sequence[Sequence[int]], first: int, tokens: int) -> list[Places]:
    """For each token from the first on the places of the sets that have it, ascending."""
    found: list[list[int]] = [[] for _ in range(first, tokens)]
    for place, numbers in enumerate(sets):
        for number in numbers[bisect_left(numbers, first) :]:
            found[number - first].append(place)
    return [np.array(places, dtype=np.int64) for places in found]
