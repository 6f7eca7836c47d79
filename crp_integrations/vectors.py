"""Blocks of unit rows: embeddings as C-contiguous float32 arrays of shape (n, dimensions)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError

FloatRows = npt.NDArray[np.float32]


def unit_rows(rows: npt.ArrayLike, *, dimensions: int | None = None) -> FloatRows:
    """Normalise rows to length 1; a zero row stays zero."""
    block = np.ascontiguousarray(rows, dtype=np.float32)
    if block.ndim != 2 or (dimensions is not None and block.shape[1] != dimensions):
        raise EngineError(f"embeddings have shape {block.shape}, wanted (n, {dimensions or 'd'})")
    if not np.isfinite(block).all():
        raise EngineError("an embedding contains a value that is not finite")
    lengths = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
    lengths[lengths == 0.0] = 1.0
    return np.ascontiguousarray(block / lengths[:, None], dtype=np.float32)


def cosine(block: FloatRows, vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Cosine of each unit row with one unit vector."""
    if block.shape[0] == 0:
        return np.zeros(0, dtype=np.float32)
    # einsum sums each row in a fixed order, so a score does not depend on the other rows
    # of the block as it can with a BLAS product.
    scores: npt.NDArray[np.float32] = np.einsum("ij,j->i", block, vector, dtype=np.float32)
    return scores


def top(scores: npt.NDArray[np.float32], ids: Sequence[str], k: int) -> list[int]:
    """Positions of the k largest scores, ties by id."""
    count = min(k, len(ids))
    if count <= 0:
        return []
    cut = np.partition(scores, len(ids) - count)[len(ids) - count]
    near = np.flatnonzero(scores >= cut)
    return sorted(near.tolist(), key=lambda i: (-float(scores[i]), ids[i]))[:count]


def to_bytes(vector: npt.NDArray[np.float32]) -> bytes:
    """Little-endian float32 bytes of one vector."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def from_bytes(rows: Sequence[bytes], dimensions: int) -> FloatRows:
    """Build a block from stored rows."""
    for number, row in enumerate(rows):
        if len(row) != 4 * dimensions:
            wanted = 4 * dimensions
            raise EngineError(f"stored vector {number} has {len(row)} bytes, wanted {wanted}")
    # An array over a bytearray is writable, so little-endian machines need no second copy.
    block = np.frombuffer(bytearray().join(rows), dtype="<f4").reshape(len(rows), dimensions)
    return block.astype(np.float32, copy=False)
