"""What the Leiden engines share: a graph in one canonical form, and numbers without gaps.

Nodes without an edge never reach a library: they are communities of their own whatever the
library does with them, and one of the libraries cannot be told of them at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Network:
    """A graph in which every node has an edge.

    Attributes:
        nodes: how many, at least 2.
        sources, targets: each undirected edge once, sources below targets, sorted, shape (edges,).
        weights: above 0, shape (edges,).
        initial: a membership to start from with numbers from 0 without gaps, or None.
    """

    nodes: int
    sources: Integers
    targets: Integers
    weights: Floats
    initial: Integers | None


class LeidenEngine(ABC):
    """Puts a graph into its one form, asks a library, and numbers what it says.

    Attributes:
        name: library and version.
    """

    def __init__(
        self,
        library: str,
        version: str,
        failures: tuple[type[Exception], ...],
        *,
        name: str = "",
    ) -> None:
        """Name the library, and what it raises when it fails."""
        self.name = name or f"{library} {version}"
        self._library = library
        self._version = version
        own: tuple[type[Exception], ...] = (OverflowError, TypeError, ValueError)
        self._failures = failures + own

    @abstractmethod
    def _solve(
        self, network: Network, *, resolution: float, iterations: int, seed: int
    ) -> Sequence[int]:
        """The library's community of each node."""

    def partition(
        self,
        nodes: int,
        sources: Integers,
        targets: Integers,
        weights: Floats,
        *,
        resolution: float,
        iterations: int,
        seed: int,
        initial: Integers | None = None,
    ) -> Integers:
        """The community of each node, numbered in the order of each community's first node.

        Spec: CRP-SPEC-009 §5.3

        Args:
            nodes, sources, targets, weights, initial: as `CommunityEngine.partition` takes them;
                the order and direction of the edges have no influence.

        Returns:
            Shape (nodes,), numbers from 0 without gaps.

        Raises:
            EngineError: the arrays are no graph, or the library failed.
        """
        low, high = np.minimum(sources, targets), np.maximum(sources, targets)
        _check(nodes, low, high, weights, initial)
        found = np.arange(nodes, dtype=np.int64)
        if not len(low):
            return found
        keys = low * nodes + high
        if np.any(np.diff(keys) <= 0):
            order = np.argsort(keys, kind="stable")
            low, high, weights = low[order], high[order], weights[order]
            if np.any(np.diff(keys[order]) == 0):
                raise EngineError("an edge of the graph is given twice, wanted each once")
        seen = np.zeros(nodes, dtype=np.bool_)
        seen[low] = seen[high] = True
        linked, place = np.flatnonzero(seen), np.cumsum(seen) - 1
        network = Network(
            nodes=len(linked),
            sources=place[low],
            targets=place[high],
            weights=np.ascontiguousarray(weights, dtype=np.float64),
            initial=None if initial is None else numbered(initial[linked]),
        )
        try:
            told = self._solve(network, resolution=resolution, iterations=iterations, seed=seed)
        except self._failures as error:
            raise EngineError(
                f"{self.name} could not partition {network.nodes} nodes: {error}",
                engine=self._library,
                version=self._version,
            ) from error
        answer = np.asarray(told, dtype=np.int64)
        if answer.shape != linked.shape:
            raise EngineError(f"the library placed {answer.size} of {linked.size} nodes")
        found[linked] = answer + nodes
        return numbered(found)


def numbered(membership: Integers) -> Integers:
    """The same membership with numbers from 0 in the order of each community's first node."""
    _, first, place = np.unique(membership, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    return number[place.reshape(-1)]


def _check(
    nodes: int, low: Integers, high: Integers, weights: Floats, initial: Integers | None
) -> None:
    if not low.shape == high.shape == weights.shape:
        raise EngineError(f"{len(low)} edges have {len(weights)} weights, wanted one each")
    if initial is not None and initial.shape != (nodes,):
        raise EngineError(f"the membership to start from has {len(initial)} places for {nodes}")
    if not len(low):
        return
    if low.min() < 0 or high.max() >= nodes or np.any(low == high):
        raise EngineError(f"an edge leaves the nodes 0 to {nodes - 1} or is a loop")
    if not np.isfinite(weights).all() or weights.min() <= 0.0:
        raise EngineError(f"an edge has weight {weights.min()}, wanted a finite one above 0")
