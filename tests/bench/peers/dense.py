"""Exact search over unit vectors in one numpy product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crp_integrations.vectors import FloatRows


class Dense:
    """Cosines to every row; ties by place."""

    def __init__(self, rows: FloatRows) -> None:
        self._rows = rows

    def search(self, vector: FloatRows, k: int) -> list[int]:
        """Places of the k nearest, best first."""
        scores = self._rows @ vector
        return np.argsort(-scores, kind="stable")[:k].tolist()  # type: ignore[no-any-return]


def fused(rankings: Sequence[Sequence[int]], *, constant: int = 60) -> list[int]:
    """Reciprocal rank fusion: places by the sum of 1 / (constant + rank), ties by place.

    >>> fused([[4, 7], [7, 9]])
    [7, 4, 9]
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, place in enumerate(ranking, 1):
            scores[place] = scores.get(place, 0.0) + 1.0 / (constant + rank)
    return sorted(scores, key=lambda place: (-scores[place], place))
