"""Candidates as columns: what ranking and packing compare, each attribute read once.

An envelope looks at a handful of its thousands of candidates and compares the numbers of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.pairs import Places

if TYPE_CHECKING:
    from crp_integrations.envelope.records import Candidate

Integers = npt.NDArray[np.int64]


class Columns:
    """The attributes of candidates, each made when it is first asked for.

    Attributes:
        facts: the candidates; a place in a column is a position in them.
    """

    # Comprehensions throughout: an interpreter reads a slot faster so than through a getter.

    def __init__(self, facts: Sequence[Candidate]) -> None:
        self.facts = facts

    def __len__(self) -> int:
        return len(self.facts)

    @cached_property
    def ids(self) -> list[str]:
        """Fact ids."""
        return [fact.fact_id for fact in self.facts]

    @cached_property
    def relevance(self) -> Integers:
        """Cosines, fixed point."""
        return integers([fact.relevance for fact in self.facts])

    @cached_property
    def merit(self) -> Integers:
        """What each fact is ranked by, fixed point."""
        scores = [fact.score for fact in self.facts]
        if scores.count(None) == len(scores):
            return self.relevance
        # The property, written out: it is asked thousands of times.
        return integers(
            [fact.relevance if fact.score is None else fact.score for fact in self.facts]
        )

    @cached_property
    def importance(self) -> Integers:
        """Intrinsic weights, fixed point."""
        return integers([fact.importance for fact in self.facts])

    @cached_property
    def tokens(self) -> Integers:
        """Tokens of each fact with its marker."""
        return integers([fact.tokens for fact in self.facts])

    @cached_property
    def ingested_at(self) -> list[datetime | None]:
        """When each fact was stored."""
        return [fact.ingested_at for fact in self.facts]

    @cached_property
    def communities(self) -> list[str | None]:
        """Labels of the communities."""
        return [fact.community for fact in self.facts]

    @cached_property
    def stale(self) -> list[int]:
        """Positions of the stale facts."""
        flags = [fact.stale for fact in self.facts]
        return [at for at, stale in enumerate(flags) if stale] if True in flags else []

    @cached_property
    def decays(self) -> list[tuple[int, str]]:
        """Positions of the facts that carry a decay function, with it."""
        said = [fact.decay for fact in self.facts]
        if said.count(None) == len(said):
            return []
        return [(at, one) for at, one in enumerate(said) if one is not None]

    @cached_property
    def refused(self) -> list[int]:
        """Positions of the facts that may not be shown."""
        said = [fact.refused for fact in self.facts]
        if said.count(None) == len(said):
            return []
        return [at for at, one in enumerate(said) if one is not None]

    @cached_property
    def in_parts(self) -> npt.NDArray[np.bool_]:
        """Whether some of each fact can be shown without the rest."""
        return np.array([len(fact.stretches) > 1 for fact in self.facts], dtype=bool)

    @cached_property
    def by_id(self) -> Integers | None:
        """Positions by fact id; None where the facts stand so already, as they do by contract."""
        ids = self.ids
        # Far cheaper than a comparison of neighbours one by one: sorting finds one run.
        if ids == sorted(ids):
            return None
        return integers(sorted(range(len(ids)), key=ids.__getitem__))

    def position(self, fact_id: str) -> int | None:
        """Where a fact stands; None for one that is not among the candidates."""
        if self.by_id is not None:
            return self._positions.get(fact_id)
        at = bisect_left(self.ids, fact_id)
        return at if at < len(self.ids) and self.ids[at] == fact_id else None

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {fact_id: at for at, fact_id in enumerate(self.ids)}


def integers(values: Sequence[int]) -> Integers:
    """A column of integers."""
    return np.array(values, dtype=np.int64)


def in_id_order(values: Integers, by_id: Integers | None) -> Integers:
    """Positions, smallest value first, ties in the order of the ids."""
    if by_id is None:
        order: Places = np.argsort(values, kind="stable")
        return order
    found: Integers = by_id[np.argsort(values[by_id], kind="stable")]
    return found


def as_list(column: Any, at: Places) -> list[int]:
    """The values of a column, or of a plain sequence, at these positions."""
    if isinstance(column, np.ndarray):
        values: list[int] = column[at].tolist()
        return values
    return [column[place] for place in at.tolist()]
