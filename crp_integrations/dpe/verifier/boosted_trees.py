"""Boosted trees as arrays: a fitted file in, one number a row out, in numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError

Floats = npt.NDArray[np.float64]
# Sums of small floats differ in their last bits between processors; these decimals do not.
DECIMALS = 9


@dataclass(frozen=True, slots=True)
class Trees:
    """A sum of decision trees, the nodes of each in the order of a walk that goes left first.

    A file names the node to the right of each, 0 for a leaf; the one to the left is the next.

    Attributes:
        columns: names of the columns that are read, in the order of the numbers in `feature`.
        roots: node at which each tree starts.
        feature: column of each node; leaves have 0.
        threshold: a row with at most this goes left.
        left, right: the next node; a leaf points to itself.
        ways: the same in one row, of each node the right one and then the left one.
        value: what a leaf adds, 0 for other nodes.
        depth: most steps from a root to a leaf.
    """

    columns: tuple[str, ...]
    roots: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: Floats
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    ways: npt.NDArray[np.int64]
    value: Floats
    depth: int

    def __call__(self, rows: Floats) -> Floats:
        """The sum over all trees for each row."""
        count = len(rows)
        if not count:
            return np.zeros(0)
        flat = np.ascontiguousarray(rows, dtype=np.float64).ravel()
        node = np.tile(self.roots, (count, 1))
        first = (np.arange(count) * rows.shape[1])[:, None]
        for _ in range(self.depth):
            left = flat.take(self.feature.take(node) + first) <= self.threshold.take(node)
            node = self.ways.take(2 * node + left)
        total: Floats = np.round(self.value.take(node).sum(axis=1), DECIMALS)
        return total

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Trees:
        """The trees of a fitted file."""
        try:
            roots, feature, right = (
                np.array(given[name], dtype=np.int64) for name in ("roots", "feature", "right")
            )
            threshold, value = (
                np.array(given[name], dtype=np.float64) for name in ("threshold", "value")
            )
            place = np.arange(len(right), dtype=np.int64)
            leaf = right == 0
            left, right = np.where(leaf, place, place + 1), np.where(leaf, place, right)
            found = cls(
                tuple(given["columns"]), roots, feature, threshold, left, right,
                np.stack([right, left], axis=1).ravel(), value, int(given["depth"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError("a fitted file holds no trees", engine="features") from error
        size = len(feature)
        pointers = (roots, left, right)
        whole = all(len(a) == size for a in (threshold, left, right, value))
        if not whole or any(len(p) and (p.min() < 0 or p.max() >= size) for p in pointers):
            raise EngineError("the trees of a fitted file point outside", engine="features")
        if size and (feature.min() < 0 or feature.max() >= len(found.columns)):
            raise EngineError("the trees of a fitted file name no column", engine="features")
        return found


def table(columns: Mapping[str, Floats], names: Sequence[str], count: int) -> Floats:
    """Columns side by side, rounded so that float dust decides no branch."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise EngineError(f"the column {missing[0]!r} was not measured", engine="features")
    if not names:
        return np.zeros((count, 0))
    side: Floats = np.column_stack([columns[name] for name in names]).astype(np.float64)
    rounded: Floats = np.round(side, 6)
    return rounded


def probability(log_odds: Floats) -> Floats:
    """Log odds as probabilities."""
    odds: Floats = np.clip(log_odds, -30.0, 30.0)
    found: Floats = 1.0 / (1.0 + np.exp(-odds))
    return found
