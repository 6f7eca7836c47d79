"""Scores as fixed-point integers, so that ranking and packing replay on any machine.

A score in [0, 1] is stored as an integer in [0, SCALE]. Everything after the seam
`Candidates` computes with these integers alone.
"""

from __future__ import annotations

import math

SCALE = 1_000_000


def to_fixed(score: float) -> int:
    """Round a score to fixed point, clamped to [0, SCALE]; NaN counts as 0.

    Args:
        score: any float; a cosine below 0 counts as 0 (decision E23).

    Returns:
        An integer in [0, SCALE].

    >>> to_fixed(0.5), to_fixed(-0.2), to_fixed(float("nan"))
    (500000, 0, 0)
    """
    if math.isnan(score):
        return 0
    # Clamped before it is rounded, since an infinity cannot be.
    return round(min(1.0, max(0.0, score)) * SCALE)


def from_fixed(value: int) -> float:
    """The float in [0, 1] that a fixed-point score stands for."""
    return value / SCALE
