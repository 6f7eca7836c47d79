"""Ranked facts as columns: thousands are ranked for one envelope, and few are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.records import Candidate, RankedFact

_MADE = partial(tuple.__new__, RankedFact)


def merits(facts: Sequence[Candidate]) -> npt.NDArray[np.int64]:
    """What each fact is ranked by, fixed point."""
    # The property, written out: it is asked thousands of times.
    found = [fact.relevance if fact.score is None else fact.score for fact in facts]
    return np.array(found, dtype=np.int64)


def candidates_of(ranked: Sequence[RankedFact]) -> Sequence[Candidate]:
    """The candidates of ranked facts, in their order."""
    return RankedFacts.of(ranked).candidates


class RankedFacts(Sequence[RankedFact]):
    """Ranked facts in their order; each is made when it is asked for.

    Attributes:
        candidates: the facts, best first.
        composites: their composite scores, fixed point.
    """

    __slots__ = ("_diversity", "_freshness", "candidates", "composites")

    def __init__(
        self,
        candidates: Sequence[Candidate],
        composites: Sequence[int],
        freshness: Sequence[int],
        diversity: Sequence[int],
    ) -> None:
        self.candidates = candidates
        self.composites = composites
        self._freshness = freshness
        self._diversity = diversity

    @classmethod
    def of(cls, ranked: Sequence[RankedFact]) -> RankedFacts:
        """Columns of ranked facts; columns stay as they are."""
        if isinstance(ranked, RankedFacts):
            return ranked
        rows = list(zip(*ranked, strict=True)) or [(), (), (), ()]
        return cls(*rows)

    def without(self, taken: Sequence[int], start: int, end: int) -> RankedFacts:
        """The facts from `start` up to `end` apart from those at these places, which ascend."""
        bounds = [place for place in taken if start <= place < end]
        pairs = zip([start, *(place + 1 for place in bounds)], [*bounds, end], strict=True)
        pieces = [slice(first, last) for first, last in pairs]

        def left(column: Sequence[Any]) -> list[Any]:
            return list(chain.from_iterable(column[piece] for piece in pieces))

        return RankedFacts(*map(left, self._columns))

    @property
    def _columns(self) -> tuple[Sequence[Candidate], Sequence[int], Sequence[int], Sequence[int]]:
        return self.candidates, self.composites, self._freshness, self._diversity

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[RankedFact]:
        return map(_MADE, zip(*self._columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> RankedFact: ...

    @overload
    def __getitem__(self, index: slice) -> RankedFacts: ...

    def __getitem__(self, index: int | slice) -> RankedFact | RankedFacts:
        facts, composites, freshness, diversity = self._columns
        if isinstance(index, slice):
            return RankedFacts(facts[index], composites[index], freshness[index], diversity[index])
        return RankedFact(facts[index], composites[index], freshness[index], diversity[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
