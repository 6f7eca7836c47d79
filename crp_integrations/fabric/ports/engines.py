"""Interfaces for graph and community libraries, and for notices and progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.records import Notice
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.vectors import FloatRows


class GraphIndex(Protocol):
    """A built nearest-neighbour graph over the rows 0 to n - 1 of one block."""

    def search(self, vector: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
        """Rows near a unit vector, at most k, nearest first; approximate, so some may be missed."""
        ...

    def save(self, path: str) -> None:
        """Write the graph to a file."""
        ...


class GraphEngine(Protocol):
    """Builds and loads nearest-neighbour graphs; equal rows and settings give equal graphs.

    Attributes:
        name: library and version; a cached file must have been made by the same.
    """

    @property
    def name(self) -> str: ...

    def build(self, block: FloatRows, settings: VectorGraphSettings) -> GraphIndex:
        """Build a graph over unit rows, shape (n, dimensions), in their order.

        Raises:
            EngineError: the library failed.
        """
        ...

    def load(self, path: str, block: FloatRows, settings: VectorGraphSettings) -> GraphIndex:
        """Read a graph that was saved for exactly these rows.

        Raises:
            EngineError: the file does not contain a graph of this many rows and dimensions.
        """
        ...


class CommunityEngine(Protocol):
    """Partitions a weighted graph by the Leiden algorithm.

    Attributes:
        name: library and version.
    """

    @property
    def name(self) -> str: ...

    def partition(
        self,
        nodes: int,
        sources: npt.NDArray[np.int64],
        targets: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float64],
        *,
        resolution: float,
        iterations: int,
        seed: int,
        initial: npt.NDArray[np.int64] | None = None,
    ) -> npt.NDArray[np.int64]:
        """The community of each node.

        Spec: CRP-SPEC-009 §5.3

        Args:
            nodes: number of nodes; nodes without an edge are communities of their own.
            sources, targets, weights: each undirected edge once, shape (edges,), weights above 0.
            initial: a membership to start from, shape (nodes,); None to start from single nodes.

        Returns:
            Community numbers, shape (nodes,), from 0 without gaps.

        Raises:
            EngineError: the library failed.
        """
        ...


class Notify(Protocol):
    """Sends a notice to the operator or another stage; must not raise or block for long."""

    def __call__(self, notice: Notice) -> None: ...


Progress = Callable[[str, int, int], None]


def ignore_progress(step: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


class ProgressCount:
    """Counts and reports the progress of a step; never backwards, never beyond the total."""

    def __init__(self, step: str, progress: Progress, total: int) -> None:
        """Report that nothing is done yet.

        Args:
            total: number of items in the step.
        """
        self._progress = progress
        self._step = step
        self._total = total
        self._done = 0
        progress(step, 0, total)

    def more(self, count: int) -> None:
        """Report that `count` more items are done."""
        count = min(count, self._total - self._done)
        if count:
            self._done += count
            self._progress(self._step, self._done, self._total)

    def end(self) -> None:
        """Report that everything is done."""
        self.more(self._total)
