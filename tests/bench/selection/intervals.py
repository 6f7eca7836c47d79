"""Paired bootstrap: how sure a difference between two systems is on the questions asked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
SEED = 0
_BLOCK = 500

Floats = npt.NDArray[np.float64]


def resampled(differences: Floats, *, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """Means over questions drawn with replacement, the same draw for every column.

    Args:
        differences: one row a question, one column a comparison, shape (n, m), n at least 1.

    Returns:
        Shape (resamples, m).
    """
    draw = np.random.default_rng(seed)
    number = len(differences)
    chances = np.full(number, 1.0 / number)
    means = np.empty((resamples, differences.shape[1]))
    for first in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - first)
        # How often each question is drawn; rows of indices would be gathered one by one.
        counts = draw.multinomial(number, chances, size=size)
        means[first : first + size] = counts @ differences / number
    return means


def interval(means: Floats) -> tuple[list[float], list[float]]:
    """Lower and upper ends of the middle 95 % of each column."""
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    return low.tolist(), high.tolist()
