"""Near-duplicate pairs among candidates, found in blocks and decided in fixed point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crp_integrations.language.differences import differ
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vectors import FloatRows

_BLOCK = 512
# A product of whole blocks may round differently from a product of two rows.
_SLACK = 1e-4

Pairs = tuple[tuple[int, int], ...]


def near_pairs(vectors: FloatRows, threshold: float) -> Pairs:
    """Pairs of rows whose cosine is above a threshold.

    Spec: CRP-SPEC-003 §6.6

    Args:
        vectors: unit rows, shape (n, d).
        threshold: cosine in [0, 1]; a cosine equal to it in fixed point is not above it.

    Returns:
        Positions (i < j), sorted.
    """
    least = to_fixed(threshold)
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        rows, columns = np.nonzero(block @ vectors[start:].T > threshold - _SLACK)
        upper = columns > rows
        left, right = rows[upper] + start, columns[upper] + start
        for at in range(0, len(left), 65_536):
            i, j = left[at : at + 65_536], right[at : at + 65_536]
            exact = np.einsum("ij,ij->i", vectors[i], vectors[j], dtype=np.float64)
            above = np.rint(exact * SCALE) > least
            pairs.extend(zip(i[above].tolist(), j[above].tolist(), strict=True))
    return tuple(sorted(pairs))


def duplicates_and_conflicts(
    contents: Sequence[str], vectors: FloatRows, threshold: float
) -> tuple[Pairs, Pairs]:
    """Near-identical pairs, split into those that say the same and those that do not.

    Spec: CRP-SPEC-003 §6.6 (decision E11)

    Args:
        contents: n texts.
        vectors: their unit rows, shape (n, d).
        threshold: cosine above which two facts are near-identical.

    Returns:
        Pairs of positions (i < j): duplicates, and conflicts whose numbers, dates or
        negation differ.
    """
    duplicates: list[tuple[int, int]] = []
    conflicts: list[tuple[int, int]] = []
    for pair in near_pairs(vectors, threshold):
        left, right = contents[pair[0]], contents[pair[1]]
        same = left == right or not differ(left, right)
        (duplicates if same else conflicts).append(pair)
    return tuple(duplicates), tuple(conflicts)
