"""Exact vector search over one state of a namespace.

An `Index` is an immutable picture of one generation: ids, labels and a block of unit rows.
The rule of the search: a fast product finds every row that could be among the best, then the
deterministic cosine of `vectors.py` decides, so a score depends on its own row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError, StoreError
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.vectors import FloatRows, cosine, top

# A float32 dot product of unit vectors, summed in any order, is off by at most d × 2^-24;
# two of them are compared, and the rest is slack for rounding of the bound itself.
_ERROR_PER_DIMENSION = 4 * 2.0**-24


@dataclass(frozen=True, slots=True)
class Hit:
    """A fact that a search found.

    Attributes:
        score: cosine in [-1, 1] or BM25 above 0, as the search says; higher is better.
    """

    fact_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Index:
    """The retrievable facts of one generation, by id.

    Attributes:
        ids: ascending.
        place: position of each id.
        label_sets: the distinct label tuples.
        codes: for each fact the position of its labels in `label_sets`, shape (n,).
        block: unit rows, shape (n, dimensions).
    """

    generation: int
    ids: tuple[str, ...]
    place: dict[str, int]
    label_sets: tuple[tuple[str, ...], ...]
    codes: npt.NDArray[np.int32]
    block: FloatRows

    @classmethod
    def read(cls, facts: FactsFacet) -> Index:
        """Take the picture of what a transaction sees."""
        listed = facts.retrievable()
        ids = tuple(fact for fact, _ in listed)
        label_sets = tuple(sorted({labels for _, labels in listed}))
        code = {labels: number for number, labels in enumerate(label_sets)}
        return cls(
            generation=facts.generation(),
            ids=ids,
            place={fact: number for number, fact in enumerate(ids)},
            label_sets=label_sets,
            codes=np.array([code[labels] for _, labels in listed], dtype=np.int32),
            block=facts.vectors(ids) if ids else np.zeros((0, 0), dtype=np.float32),
        )

    def rows(self, ids: Sequence[str], *, allowed: Sequence[bool]) -> FloatRows:
        """Unit rows in the order asked for, shape (len(ids), dimensions).

        Args:
            ids: facts.
            allowed: for each of `label_sets` whether its facts may be seen.

        Raises:
            StoreError: an id is unknown, or its fact may not be seen.
        """
        places = []
        for fact in ids:
            place = self.place.get(fact)
            if place is None or not allowed[self.codes[place]]:
                raise StoreError(f"fact {fact} is not one that can be retrieved")
            places.append(place)
        return np.ascontiguousarray(self.block[np.array(places, dtype=np.intp)])

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        allowed: Sequence[bool] | None = None,
        scan_rows: int = 65_536,
    ) -> list[Hit]:
        """The k facts of highest cosine, ties by id.

        Spec: CRP-SPEC-009 §3.1

        Args:
            vector: unit vector, shape (dimensions,).
            k: how many; fewer come when there are fewer.
            allowed: for each of `label_sets` whether its facts may be seen; None for all.
            scan_rows: rows of one product.

        Raises:
            EngineError: the vector has another length than the rows, or is not finite.
        """
        if not self.ids or k <= 0:
            return []
        wanted = np.ascontiguousarray(vector, dtype=np.float32)
        if wanted.shape != (self.block.shape[1],) or not np.isfinite(wanted).all():
            raise EngineError(
                f"query vector has shape {wanted.shape}, wanted ({self.block.shape[1]},) and finite"
            )
        rough = np.concatenate(
            [
                self.block[start : start + scan_rows] @ wanted
                for start in range(0, len(self.ids), scan_rows)
            ]
        )
        places = np.arange(len(self.ids))
        if allowed is not None and not all(allowed):
            places = np.flatnonzero(np.array(allowed, dtype=np.bool_)[self.codes])
            rough = rough[places]
        if places.size == 0:
            return []
        if places.size > k:
            cut = np.partition(rough, places.size - k)[places.size - k]
            margin = np.float32(_ERROR_PER_DIMENSION * self.block.shape[1])
            places = places[rough >= cut - margin]
        scores = cosine(np.ascontiguousarray(self.block[places]), wanted)
        ids = [self.ids[place] for place in places.tolist()]
        return [Hit(ids[best], float(scores[best])) for best in top(scores, ids, k)]
