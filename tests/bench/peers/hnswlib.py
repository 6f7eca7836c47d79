"""hnswlib by itself: a graph that gives ids and scores, and its filter written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

import hnswlib
import numpy as np

from crp_integrations.vectors import FloatRows

# The values that the issue of the fabric and CRP-SPEC-009 §3.2 name.
M, EF_CONSTRUCTION, EF_SEARCH = 16, 200, 100


class RawHnswlib:
    """One thread, cosine, no texts, nothing on disk, no scores of other precision."""

    name = f"hnswlib {version('hnswlib')}"

    def __init__(self, ids: Sequence[str], rows: FloatRows, seed: int = 0) -> None:
        self._ids = tuple(ids)
        self._index = hnswlib.Index(space="cosine", dim=rows.shape[1])
        self._index.init_index(
            max_elements=len(ids), M=M, ef_construction=EF_CONSTRUCTION, random_seed=seed
        )
        self._index.set_num_threads(1)
        self._index.add_items(rows, np.arange(len(ids)), num_threads=1)
        self._index.set_ef(EF_SEARCH)

    def search(
        self, vector: FloatRows, k: int, passes: Callable[[int], bool] | None = None
    ) -> list[tuple[str, float]]:
        """Ids and cosines of about the k nearest.

        Args:
            passes: whether a row may be found; None for every one.
        """
        places, distances = self._index.knn_query(
            vector[None, :], k=k, num_threads=1, filter=passes
        )
        return [
            (self._ids[place], 1.0 - distance)
            for place, distance in zip(places[0].tolist(), distances[0].tolist(), strict=True)
        ]
