"""Scores as fixed-point integers, so that ranking and packing give equal results anywhere.

A score in [0, 1] is stored as an integer in [0, SCALE]. All steps after `Candidates` compute
with these integers alone.
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
    # Clamp before rounding, since an infinity cannot be rounded.
    return round(min(1.0, max(0.0, score)) * SCALE)


def from_fixed(value: int) -> float:
    """Convert a fixed-point score to a float in [0, 1]."""
    return value / SCALE
