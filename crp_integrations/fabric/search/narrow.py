"""A shorter form of a block of unit rows, which tells what cannot be among the nearest.

The rows are turned to their principal axes, and the first of these are kept. What the others could
still add to a product is at most the product of the two lengths that are left (Cauchy-Schwarz). So
a search reads less than half of the bytes, and scores exactly the few rows that may be among the
nearest: what it finds is what reading every row finds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.vectors import FloatRows

# Below so many rows the block itself is near the processor, and reading it costs next to nothing.
_FEWEST = 4_096
# Searches after which the short form is made: it costs about as much as they did until then.
_AFTER = 32
# Rows, spread over the block, that the axes are found from.
_SAMPLE = 2_048
# The axes kept hold this share of the squared lengths, and are no more than so many of all: with
# less the bound lets too much through, with more too little is saved. Of MiniLM's 384 they are 176,
# and the bound lets 292 of 10,000 passages through for the 50 nearest, the median.
_ENERGY = 0.90
_MOST_AXES = 0.6
_STEP = 16
# A float32 product of unit vectors, summed in any order, is off by at most d × 2^-24. Two of them
# are compared; the rest is slack for the axes, and for rounding of the bounds themselves.
_ERROR_PER_DIMENSION = 8 * 2.0**-24
# What rounding may take from a squared length that is left.
_LEFT_ERROR = 1e-5


@dataclass(frozen=True, slots=True)
class Narrow:
    """The short form of a block.

    Attributes:
        axes: shape (dimensions, kept).
        rows: the block along them, shape (n, kept).
        left: at least the length of what the axes do not hold, shape (n,).
    """

    axes: FloatRows
    rows: FloatRows
    left: npt.NDArray[np.float32]

    @classmethod
    def of(cls, block: FloatRows) -> Narrow | None:
        """Of unit rows, shape (n, dimensions); None where a few axes hold too little of them."""
        rows, dimensions = block.shape
        sample = block[:: max(1, rows // _SAMPLE)]
        energy, axes = np.linalg.eigh((sample.T @ sample).astype(np.float64))
        held = np.cumsum(energy[::-1])
        if held[-1] <= 0:
            return None
        kept = int(np.searchsorted(held, _ENERGY * held[-1])) + 1
        kept = -(-kept // _STEP) * _STEP
        if kept > _MOST_AXES * dimensions:
            return None
        first = np.ascontiguousarray(axes[:, ::-1][:, :kept], dtype=np.float32)
        short = block @ first
        return cls(first, short, _left(block, short))

    def most(self, wanted: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What the exact product of each row with a vector is at most, shape (n,)."""
        short = wanted @ self.axes
        bound = self.rows @ short
        bound += self.left * _left(wanted[None], short[None])[0]
        bound += slack(len(wanted))
        return bound


class Narrowing:
    """Makes the short form of one block when it was searched often; safe between threads."""

    __slots__ = ("_lock", "_made", "_searches")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches = 0
        self._made: Narrow | None = None

    def of(self, block: FloatRows) -> Narrow | None:
        """The short form of the block that is being searched, None while it does not pay.

        Args:
            block: the same one each time.
        """
        made = self._made
        if made is not None or len(block) < _FEWEST or self._searches > _AFTER:
            return made
        with self._lock:
            self._searches += 1
            if self._searches == _AFTER:
                self._made = Narrow.of(block)
            return self._made


def slack(dimensions: int) -> np.float32:
    """More than what a float32 product of unit vectors is off by, however it is summed."""
    return np.float32(_ERROR_PER_DIMENSION * dimensions)


def _left(block: FloatRows, short: FloatRows) -> npt.NDArray[np.float32]:
    """At least the length of what each row has beside its short form."""
    whole = np.einsum("ij,ij->i", block, block, dtype=np.float64)
    held = np.einsum("ij,ij->i", short, short, dtype=np.float64)
    left: npt.NDArray[np.float32] = np.sqrt(np.maximum(whole - held, 0.0) + _LEFT_ERROR)
    return left.astype(np.float32)
