"""Which earlier claims of an answer are about the same thing as a later one, without every pair.

Two claims that contradict each other have nearly the same words. An index of words gives how many
each earlier claim shares with a new one; of many alike, as in a table, those are taken that share
most values, since a contradiction is one value that differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crp_integrations.dpe.verifier.readings import Reading
from crp_integrations.dpe.verifier.slots import canonical

Counts = NDArray[np.intp]

# Share of all their words that two claims must have in common to be about one thing.
ALIKE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Near:
    """The earlier claims that are about the same thing as one.

    Attributes:
        places: of those to compare it with, in their order.
        left: how many more there are.
    """

    places: tuple[int, ...]
    left: int


def alike(readings: Sequence[Reading], settled: Sequence[bool], most: int | None) -> Iterator[Near]:
    """For each claim the earlier ones with nearly the same words.

    Spec: CRP-SPEC-005 §5.4 (decision D15)

    Args:
        settled: whether a claim needs no comparison with others that are settled.
        most: earlier claims for one, those that differ least in their values; None for all.
    """
    words, values = _Index(len(readings)), _Index(len(readings))
    done = np.asarray(settled, dtype=np.bool_)
    for place, reading in enumerate(readings):
        own = frozenset(word.stem for word in reading.words)
        said = frozenset(map(canonical, reading.values))
        shared = words.shared(own, place)
        every = words.sizes(place) + len(own) - shared
        near = np.flatnonzero((shared >= ALIKE * every) & (shared > 0))
        if done[place]:
            near = near[~done[near]]
        left = 0 if most is None else max(0, len(near) - most)
        if left:
            apart = values.sizes(place) + len(said) - 2 * values.shared(said, place)
            near = np.sort(near[np.lexsort((near, apart[near]))[:most]])
        yield Near(tuple(near.tolist()), left)
        words.add(own, place)
        values.add(said, place)


class _Index:
    """Where each key was said, and how many keys each place has."""

    def __init__(self, places: int) -> None:
        self._at: defaultdict[str, list[int]] = defaultdict(list)
        self._sizes = np.zeros(places, dtype=np.intp)

    def add(self, keys: frozenset[str], place: int) -> None:
        for key in keys:
            self._at[key].append(place)
        self._sizes[place] = len(keys)

    def sizes(self, before: int) -> Counts:
        return self._sizes[:before]

    def shared(self, keys: frozenset[str], before: int) -> Counts:
        """How many of the keys each earlier place has."""
        found = [place for key in keys if key in self._at for place in self._at[key]]
        return np.bincount(np.asarray(found, dtype=np.intp), minlength=before)
