"""The index of a namespace whose store searches its vectors itself.

It has the query methods of `VectorIndex`, reads within one transaction, and keeps nothing after it.
The store's index proposes rows; the deterministic cosine of `vectors.py` over these rows decides,
so that scores are the same as in any other store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError, StoreError
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.ports.facts import Labels, VectorSearch, vector_search_of
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.vectors import FloatRows, cosine


@dataclass(frozen=True)
class StoreIndex:
    """The retrievable facts in the state that a read transaction sees."""

    facts: FactsFacet
    searching: VectorSearch

    def __len__(self) -> int:
        return self._size

    @cached_property
    def _size(self) -> int:
        return self.searching.size()

    @cached_property
    def label_sets(self) -> tuple[Labels, ...]:
        """The distinct label sets of the facts."""
        return tuple(self.searching.label_sets())

    def count(self, allowed: Sequence[bool]) -> int:
        """Number of facts that may be read, given `allowed` for each label set."""
        if all(allowed):
            return len(self)
        return self.searching.count(self._allowed(allowed))

    def places(self, ids: Sequence[str], allowed: Sequence[bool] | None = None) -> list[int | None]:
        """A position for each fact that is retrievable and allowed; None for the others."""
        seen = None if allowed is None or all(allowed) else {*self._allowed(allowed)}
        labels_by_id = dict(self.facts.retrievable(ids))
        return [
            number if id_ in labels_by_id and (seen is None or labels_by_id[id_] in seen) else None
            for number, id_ in enumerate(ids)
        ]

    def seen(self, ids: Sequence[str], allowed: Sequence[bool]) -> set[str]:
        """The ids of the facts that may be read, out of some retrievable ones."""
        if all(allowed) or not ids:
            return {*ids}
        places = self.places(ids, allowed)
        return {id_ for id_, place in zip(ids, places, strict=True) if place is not None}

    def rows(self, ids: Sequence[str], *, allowed: Sequence[bool] | None = None) -> FloatRows:
        """Unit rows in the order of the ids, shape (len(ids), dimensions)."""
        places = self.places(ids, allowed)
        if None in places:
            fact = ids[places.index(None)]
            raise StoreError(f"fact {fact} cannot be retrieved")
        return self.facts.vectors(ids)

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        allowed: Sequence[bool],
        meant: Sequence[str] | None = None,
    ) -> list[Hit]:
        """The k facts of highest cosine among those that the store's index finds, ties by id.

        Spec: CRP-SPEC-009 §3.1

        Args:
            meant: restricts the search to these facts, each of them compared; None for all.
        """
        if k <= 0:
            return []
        wanted = np.ascontiguousarray(vector, dtype=np.float32)
        if wanted.ndim != 1 or not np.isfinite(wanted).all():
            raise EngineError(f"query vector has shape {wanted.shape}, wanted one row and finite")
        among, sets = None, None
        if meant is not None:
            places = self.places(meant, allowed)
            among = [id_ for id_, at in zip(meant, places, strict=True) if at is not None]
        elif not all(allowed):
            sets = self._allowed(allowed)
        ids, rows = self.searching.nearest(wanted, k, label_sets=sets, among=among)
        if not ids:
            return []
        if rows.shape[1] != len(wanted):
            raise EngineError(
                f"query vector has shape {wanted.shape}, wanted ({rows.shape[1]},) and finite"
            )
        ranked = sorted(zip((-cosine(rows, wanted)).tolist(), ids, strict=True))
        return [Hit(id_, -score) for score, id_ in ranked[:k]]

    def _allowed(self, allowed: Sequence[bool]) -> list[Labels]:
        return [labels for labels, may in zip(self.label_sets, allowed, strict=True) if may]


def store_index(
    facts: FactsFacet, more_than: int, check: Callable[[FactsFacet], None]
) -> StoreIndex | None:
    """The store's own index, if it has one and the namespace has more than `more_than` facts."""
    searching = vector_search_of(facts)
    if searching is None:
        return None
    index = StoreIndex(facts, searching)
    if len(index) <= more_than:
        return None
    check(facts)
    return index
