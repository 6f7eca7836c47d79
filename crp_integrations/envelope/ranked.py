"""Ranked facts as columns: thousands are ranked for one envelope, and few are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol, overload

import numpy as np

from crp_integrations.envelope.columns import Columns, Integers, as_list, integers
from crp_integrations.envelope.pairs import Places
from crp_integrations.envelope.records import Candidate, RankedFact

_MADE = partial(tuple.__new__, RankedFact)


class Column(Protocol):
    """A number for each position: an array, or one that is worked out when it is asked for."""

    def __getitem__(self, index: int, /) -> int: ...


def candidates_of(ranked: Sequence[RankedFact]) -> Sequence[Candidate]:
    """The candidates of ranked facts, in their order."""
    return RankedFacts.of(ranked).candidates


def ids_of(ranked: Sequence[RankedFact]) -> list[str]:
    """The ids of ranked facts, in their order."""
    return RankedFacts.of(ranked).ids


class RankedFacts(Sequence[RankedFact]):
    """Ranked facts in their order; each is made when it is asked for.

    Attributes:
        columns: what was ranked, in another order.
        at: positions in the columns, best first.
    """

    __slots__ = ("_composites", "_diversity", "_freshness", "at", "columns")

    def __init__(
        self,
        columns: Columns,
        at: Places,
        composites: Integers,
        freshness: Column,
        diversity: Column,
    ) -> None:
        """Take the scores by position, whatever their order."""
        self.columns = columns
        self.at = at
        self._composites = composites
        self._freshness = freshness
        self._diversity = diversity

    @classmethod
    def of(cls, ranked: Sequence[RankedFact]) -> RankedFacts:
        """Columns of ranked facts; columns stay as they are."""
        if isinstance(ranked, RankedFacts):
            return ranked
        facts, *scores = list(zip(*ranked, strict=True)) or [(), (), (), ()]
        composites, freshness, diversity = map(integers, scores)
        return cls(
            Columns(facts),
            np.arange(len(facts), dtype=np.intp),
            composites,
            freshness,
            diversity,
        )

    @property
    def candidates(self) -> list[Candidate]:
        """The facts, best first."""
        facts = self.columns.facts
        return [facts[at] for at in self.at.tolist()]

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        ids = self.columns.ids
        return [ids[at] for at in self.at.tolist()]

    @property
    def tokens(self) -> Integers:
        """Their tokens."""
        return self.columns.tokens[self.at]

    @property
    def relevance(self) -> Integers:
        """Their relevance, fixed point."""
        return self.columns.relevance[self.at]

    @property
    def importance(self) -> Integers:
        """Their importance, fixed point."""
        return self.columns.importance[self.at]

    def composite(self, place: int) -> int:
        """The composite score at a place, fixed point."""
        return int(self._composites[self.at[place]])

    def where(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> RankedFacts:
        """Those at the places that are true."""
        return self._at(self.at[chosen])

    def those(self, places: Sequence[int]) -> RankedFacts:
        """Those at these places, in the order of the places."""
        return self._at(self.at[np.array(places, dtype=np.intp)])

    def without(self, taken: Sequence[int], start: int, end: int) -> RankedFacts:
        """The facts from `start` up to `end` apart from those at these places."""
        left = np.zeros(len(self.at), dtype=bool)
        left[start:end] = True
        left[list(taken)] = False
        return self.where(left)

    def _at(self, at: Places) -> RankedFacts:
        return RankedFacts(self.columns, at, self._composites, self._freshness, self._diversity)

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[RankedFact]:
        scores = (self._composites, self._freshness, self._diversity)
        columns = (as_list(column, self.at) for column in scores)
        return map(_MADE, zip(self.candidates, *columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> RankedFact: ...

    @overload
    def __getitem__(self, index: slice) -> RankedFacts: ...

    def __getitem__(self, index: int | slice) -> RankedFact | RankedFacts:
        if isinstance(index, slice):
            return self._at(self.at[index])
        at = int(self.at[index])
        return RankedFact(
            self.columns.facts[at],
            int(self._composites[at]),
            int(self._freshness[at]),
            int(self._diversity[at]),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
