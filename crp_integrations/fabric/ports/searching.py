"""A store that searches vectors itself, so that no process holds those of a large namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.ports.facts import FactsFacet
from crp_integrations.vectors import FloatRows

Labels = tuple[str, ...]


class Searching(Protocol):
    """Vector search over what a transaction sees, by an index of the store's own."""

    def size(self) -> int:
        """How many facts are retrievable; 0 while the store has no index of their vectors."""
        ...

    def label_sets(self) -> list[Labels]:
        """The different sets of labels that retrievable facts carry, ascending as JSON."""
        ...

    def count(self, label_sets: Sequence[Labels]) -> int:
        """How many retrievable facts carry one of these sets of labels."""
        ...

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        label_sets: Sequence[Labels] | None = None,
        among: Sequence[str] | None = None,
    ) -> tuple[list[str], FloatRows]:
        """At least the k retrievable facts that the index finds nearest, with their unit rows.

        Args:
            label_sets: only facts that carry one of these; None for all.
            among: only these facts, compared one by one; None for all.
        """
        ...

    def foresee(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        terms: Sequence[str],
        k_words: int,
        *,
        label_sets: Sequence[Labels] | None = None,
    ) -> None:
        """Search for a vector and for words at once, since both are going to be asked for.

        `nearest`, and `search_text` of the same transaction, give the same with it as without.

        Args:
            terms, k_words: as `search_text` is going to be asked.
        """
        ...


class _SearchingEach(Protocol):
    def search_each(self, terms: Sequence[str], k: int) -> list[list[tuple[str, float]]]: ...


class _Lasting(Protocol):
    def last(self) -> None: ...


def nothing_else(searching: Searching) -> None:
    """Tell a store that nothing is read of the transaction after the `nearest` that comes next.

    A store that has `last` then ends the transaction with the search itself.
    """
    if hasattr(searching, "last"):
        cast("_Lasting", searching).last()


def search_each(facts: FactsFacet, terms: Sequence[str], k: int) -> list[list[tuple[str, float]]]:
    """What `search_text` finds for each of some different terms alone.

    A store that answers by statements has `search_each`, which asks one for all of them.
    """
    if hasattr(facts, "search_each"):
        return cast("_SearchingEach", facts).search_each(terms, k)
    return [facts.search_text([term], k) for term in terms]


def searching_in(facts: FactsFacet) -> Searching | None:
    """The vector search of an open transaction's store; None for a store that has none."""
    return cast("Searching | None", getattr(facts, "searching", None))
