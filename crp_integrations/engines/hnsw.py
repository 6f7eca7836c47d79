"""Nearest-neighbour graphs by hnswlib.

hnswlib does not check the content of a file. So the caller checks a file's hash, and `load`
compares its header with the expected values before hnswlib reads it.
"""

from __future__ import annotations

import struct
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.vectors import FloatRows

LIBRARY = "hnswlib"
# The header of a saved index: offset of layer 0, capacity, elements, bytes of an element, offsets
# of its label and vector, top layer, entry point; connections above and in layer 0, and as set.
_HEAD = struct.Struct("<QQQQQQiIQQQ")
_LABEL_BYTES = 8
# hnswlib's message when it found fewer rows than requested.
_TOO_FEW = "Cannot return the results"


class HnswGraph:
    """A built graph; searches may run in parallel."""

    def __init__(self, index: Any, version: str) -> None:
        self._index = index
        self._version = version

    def search(self, vector: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
        """Rows near a unit vector, at most k, nearest first; empty if the graph reaches fewer."""
        count = min(k, self._index.get_current_count())
        if count <= 0:
            return np.zeros(0, dtype=np.int64)
        try:
            # hnswlib considers `ef` candidates, or k if that is more.
            labels, _ = self._index.knn_query(vector, k=count, num_threads=1)
        except RuntimeError as error:
            if _TOO_FEW in str(error):
                return np.zeros(0, dtype=np.int64)
            raise _wrapped("could not search", error, self._version) from error
        rows: npt.NDArray[np.int64] = labels[0].astype(np.int64)
        return rows

    def save(self, path: str) -> None:
        """Write the graph to a file."""
        try:
            self._index.save_index(path)
            # hnswlib does not report a missing folder or a full disk.
            length, wanted = Path(path).stat().st_size, self._index.index_file_size()
        except (RuntimeError, OSError) as error:
            raise _wrapped("could not write a graph", error, self._version) from error
        if length != wanted:
            raise _graph_failed(
                f"{LIBRARY} wrote {length} bytes of a graph, wanted {wanted}", self._version
            )


class HnswEngine:
    """Builds and loads graphs with hnswlib.

    Spec: CRP-SPEC-009 §3.2
    """

    def __init__(self) -> None:
        try:
            import hnswlib
        except ImportError as error:
            raise MissingExtra("hnsw", "a nearest-neighbour graph") from error
        self._library = hnswlib
        self._version = version(LIBRARY)

    @property
    def name(self) -> str:
        """Library and version."""
        return f"{LIBRARY}/{self._version}"

    def build(self, block: FloatRows, settings: VectorGraphSettings) -> HnswGraph:
        """Build a graph over unit rows, shape (n, dimensions), in their order.

        One thread adds the rows in order, since several would build a different graph each time.
        """
        if block.ndim != 2 or not block.size:
            raise _graph_failed(
                f"rows have shape {block.shape}, wanted (n, dimensions) of at least one row",
                self._version,
            )
        # hnswlib accepts NaN, but then finds nothing near it.
        if not np.isfinite(block).all():
            raise _graph_failed("a row contains a value that is not finite", self._version)
        try:
            index = self._library.Index(space=settings.metric, dim=block.shape[1])
            index.init_index(
                max_elements=len(block),
                M=settings.m,
                ef_construction=settings.ef_construction,
                random_seed=settings.seed,
            )
            index.add_items(block, np.arange(len(block)), num_threads=1)
            index.set_ef(settings.ef_search)
        except RuntimeError as error:
            raise _wrapped("could not build a graph", error, self._version) from error
        return HnswGraph(index, self._version)

    def load(self, path: str, block: FloatRows, settings: VectorGraphSettings) -> HnswGraph:
        """Read a graph that was saved for exactly these rows; the caller has checked its hash."""
        self._check_head(path, block, settings)
        try:
            index = self._library.Index(space=settings.metric, dim=block.shape[1])
            index.load_index(path)
            index.set_ef(settings.ef_search)
        except RuntimeError as error:
            raise _wrapped("could not read a graph", error, self._version) from error
        return HnswGraph(index, self._version)

    def _check_head(self, path: str, block: FloatRows, settings: VectorGraphSettings) -> None:
        rows, dimensions = block.shape
        try:
            with Path(path).open("rb") as file:
                head = file.read(_HEAD.size)
                length = file.seek(0, 2)
        except OSError as error:
            raise _wrapped("could not read a graph", error, self._version) from error
        if len(head) < _HEAD.size:
            raise _graph_failed(
                f"a graph's file has {len(head)} bytes, wanted at least {_HEAD.size}", self._version
            )
        _, room, count, element, label, vector, _, entry, upper, lower, m = _HEAD.unpack(head)
        seen = (room, count, label - vector, m, upper, lower, element - label, entry < count)
        fits = (rows, rows, 4 * dimensions, settings.m, settings.m, 2 * settings.m)
        if seen != (*fits, _LABEL_BYTES, True) or length < rows * element:
            raise _graph_failed(
                f"a graph's file has {count} rows of {(label - vector) // 4} dimensions and "
                f"{m} connections, wanted {rows}, {dimensions} and {settings.m}",
                self._version,
            )


def available() -> HnswEngine | None:
    """The engine, or None where hnswlib is not installed."""
    try:
        return HnswEngine()
    except MissingExtra:
        return None


def _wrapped(what: str, error: Exception, version: str) -> EngineError:
    return _graph_failed(f"{LIBRARY} {what}: {error}", version)


def _graph_failed(what: str, version: str) -> EngineError:
    return EngineError(what, engine=LIBRARY, version=version)
