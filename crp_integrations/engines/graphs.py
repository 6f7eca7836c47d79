"""Graph engines: Leiden communities by two libraries, and the fact graph in networkx.

Both libraries optimise modularity with a resolution; they differ in speed and slightly in quality.
A library is loaded when its engine is created. Nodes without an edge are not passed to a
library: each is its own community, and one library cannot take them.

Spec: CRP-SPEC-009 §5
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.ports import Link, ReachedNode
from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.fabric.similarity_graph import FactGraph
from crp_integrations.scores import SCALE

if TYPE_CHECKING:
    import networkx

    from crp_integrations.fabric.ports import CommunityEngine

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Network:
    """A graph in which every node has an edge.

    Attributes:
        nodes: number of nodes, at least 2.
        sources, targets: each undirected edge once, sources below targets, sorted, shape (edges,).
        weights: weights of the edges, above 0, shape (edges,).
        initial: community of each node to start from, numbered from 0 without gaps, or None.
    """

    nodes: int
    sources: Integers
    targets: Integers
    weights: Floats
    initial: Integers | None


class LeidenEngine(ABC):
    """Normalises a graph, lets a library partition it, and numbers the communities.

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
        """Take the library's name and the exceptions that it raises when it fails."""
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
        """
        low, high = np.minimum(sources, targets), np.maximum(sources, targets)
        _check(nodes, low, high, weights, initial)
        communities = np.arange(nodes, dtype=np.int64)
        if not len(low):
            return communities
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
            membership = self._solve(
                network, resolution=resolution, iterations=iterations, seed=seed
            )
        except self._failures as error:
            raise EngineError(
                f"{self.name} could not partition {network.nodes} nodes: {error}",
                engine=self._library,
                version=self._version,
            ) from error
        answer = np.asarray(membership, dtype=np.int64)
        if answer.shape != linked.shape:
            raise EngineError(f"the library placed {answer.size} of {linked.size} nodes")
        communities[linked] = answer + nodes
        return numbered(communities)


def numbered(membership: Integers) -> Integers:
    """Renumber communities from 0 in the order of each community's first node."""
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
        raise EngineError(f"the initial membership has {len(initial)} entries for {nodes} nodes")
    if not len(low):
        return
    if low.min() < 0 or high.max() >= nodes or np.any(low == high):
        raise EngineError(f"an edge leaves the nodes 0 to {nodes - 1} or is a loop")
    if not np.isfinite(weights).all() or weights.min() <= 0.0:
        raise EngineError(f"an edge has weight {weights.min()}, wanted a finite one above 0")


GRASPOLOGIC = "graspologic-native"
_FAILURES = (
    "ClusterIndexingError",
    "EmptyNetworkError",
    "InternalNetworkIndexingError",
    "InvalidCommunityMappingError",
    "ParameterRangeError",
    "QueueError",
    "UnsafeInducementError",
)


class GraspologicLeiden(LeidenEngine):
    """Modularity with a resolution, by graspologic-native."""

    def __init__(self) -> None:
        try:
            import graspologic_native
        except ModuleNotFoundError as error:
            raise MissingExtra("communities", "the engine graspologic") from error
        # Typed as Any, since the type stubs lack exceptions and defaults that the library has.
        self._graspologic: Any = graspologic_native
        failures = tuple(getattr(graspologic_native, name) for name in _FAILURES)
        super().__init__(GRASPOLOGIC, version(GRASPOLOGIC), failures)

    def _solve(
        self, network: Network, *, resolution: float, iterations: int, seed: int
    ) -> list[int]:
        # The library accepts only strings as nodes.
        names = [str(node) for node in range(network.nodes)]
        edges = list(
            zip(
                map(names.__getitem__, network.sources.tolist()),
                map(names.__getitem__, network.targets.tolist()),
                network.weights.tolist(),
                strict=True,
            )
        )
        start = network.initial
        known = None if start is None else dict(zip(names, start.tolist(), strict=True))
        _, communities = self._graspologic.leiden(
            edges,
            starting_communities=known,
            resolution=resolution,
            iterations=iterations,
            seed=seed,
        )
        return [communities[name] for name in names]


class LeidenalgLeiden(LeidenEngine):
    """Modularity with a resolution (`RBConfigurationVertexPartition`), by leidenalg."""

    def __init__(self) -> None:
        try:
            import igraph
            import leidenalg
        except ModuleNotFoundError as error:
            raise MissingExtra("leidenalg", "the engine leidenalg") from error
        self._igraph: ModuleType = igraph
        self._leidenalg: ModuleType = leidenalg
        version = str(leidenalg.__version__)
        super().__init__(
            "leidenalg",
            version,
            (igraph.InternalError, RuntimeError),
            name=f"leidenalg {version} on igraph {igraph.__version__}",
        )

    def _solve(
        self, network: Network, *, resolution: float, iterations: int, seed: int
    ) -> list[int]:
        edges = zip(network.sources.tolist(), network.targets.tolist(), strict=True)
        start = network.initial
        partition = self._leidenalg.find_partition(
            self._igraph.Graph(n=network.nodes, edges=edges),
            self._leidenalg.RBConfigurationVertexPartition,
            initial_membership=None if start is None else start.tolist(),
            weights=network.weights.tolist(),
            n_iterations=iterations,
            seed=seed,
            resolution_parameter=resolution,
        )
        return list(partition.membership)


EngineName = Literal["graspologic", "leidenalg"]


def engine_for(name: EngineName) -> CommunityEngine:
    """The engine with this name.

    Spec: CRP-SPEC-009 §5.3
    """
    return GraspologicLeiden() if name == "graspologic" else LeidenalgLeiden()


def available_engine(name: EngineName) -> CommunityEngine | None:
    """The engine with this name; None for the default one if its library is not installed."""
    if name == "graspologic" and find_spec("graspologic_native") is None:
        return None
    return engine_for(name)


def _networkx(purpose: str) -> ModuleType:
    try:
        import networkx
    except ModuleNotFoundError as error:
        raise MissingExtra("communities", purpose) from error
    module: ModuleType = networkx
    return module


def as_networkx(graph: FactGraph, texts: Mapping[str, str] | None = None) -> networkx.Graph:
    """The fact graph as an undirected networkx graph.

    Nodes are fact ids with `source` and, for a fact in a community, `community`; edges carry
    `weight`, the cosine.

    Spec: CRP-SPEC-009 §5.2
    """
    made = _networkx("the fact graph in networkx").Graph()
    for fact_id, label, source in zip(graph.ids, graph.communities, graph.sources, strict=True):
        made.add_node(fact_id, source=source)
        if label is not None:
            made.nodes[fact_id]["community"] = label
        if texts is not None and fact_id in texts:
            made.nodes[fact_id]["content"] = texts[fact_id]
    made.add_weighted_edges_from(
        (graph.ids[left], graph.ids[right], weight)
        for left, right, weight in zip(
            graph.left.tolist(), graph.right.tolist(), graph.weights.tolist(), strict=True
        )
    )
    return made


def write_graphml(
    graph: FactGraph, path: str | Path, texts: Mapping[str, str] | None = None
) -> None:
    """Write the fact graph as GraphML; equal graphs give equal bytes."""
    networkx = _networkx("a graph in GraphML")
    shown = None if texts is None else {id_: _in_xml(text) for id_, text in texts.items()}
    made = as_networkx(graph, shown)
    try:
        networkx.write_graphml_xml(made, path, encoding="utf-8")
    except (networkx.NetworkXError, OSError, ValueError) as error:
        raise EngineError(
            f"the graph of {len(graph.ids)} facts could not be written as GraphML: {error}",
            engine="networkx",
            version=version("networkx"),
        ) from error


def _in_xml(text: str) -> str:
    return "".join(
        character
        if character in "\t\n\r" or (character >= " " and character not in "\ufffe\uffff")
        else "\ufffd"
        for character in text
    )


# Maximum hops of a path: a path of so few links always costs less than one of more hops.
MOST_HOPS: Final = 16
_STEP: Final = SCALE * 64
# Artificial node at which all paths begin; other nodes never have this name.
_ROOT: Final = ""


class NetworkxWalker:
    """A `Walker` that uses networkx."""

    @cached_property
    def identity(self) -> str:
        """Library and version."""
        return f"networkx/{version('networkx')}" if find_spec("networkx") else "networkx absent"

    def reach(
        self,
        links: Sequence[Link],
        seeds: Mapping[str, int],
        hops: int,
        barred: Collection[str],
    ) -> dict[str, ReachedNode]:
        """The path to each node within this many hops: the shortest, among these the strongest.

        Spec: Summit §Context Assembly Pipeline
        """
        networkx = _networkx("ways between linked facts")
        graph = networkx.Graph()
        ends = {end for link in links for end in (link.left, link.right)}
        # Sorted, so that every process chooses the same of several equal paths.
        graph.add_nodes_from(sorted(ends | seeds.keys()))
        for link in sorted(links, key=_strength):
            cost = link.length * _STEP + SCALE - link.weight
            graph.add_edge(
                link.left,
                link.right,
                cost=cost,
                weight=link.weight,
                kind=link.kind,
                length=link.length,
            )
        for seed, strength in sorted(seeds.items()):
            graph.add_edge(_ROOT, seed, cost=SCALE - strength)
        graph.remove_nodes_from([node for node in barred if node in graph])
        if _ROOT not in graph:
            return {}
        farthest = 2 * min(hops, MOST_HOPS) * _STEP + _STEP - 1
        _, ways = networkx.single_source_dijkstra(graph, _ROOT, cutoff=farthest, weight="cost")
        return {
            node: _reached(graph, way, seeds)
            for node, way in ways.items()
            if node != _ROOT and node not in seeds
        }


def _strength(link: Link) -> tuple[int, int, str, str, str]:
    """Sort key for links: the last one between two nodes counts, so the strongest is last."""
    return (link.weight, -link.length, link.kind, link.left, link.right)


def _reached(graph: object, way: Sequence[str], seeds: Mapping[str, int]) -> ReachedNode:
    strength, length, via = seeds[way[1]], 0, []
    for left, right in pairwise(way[1:]):
        link = graph[left][right]  # type: ignore[index]
        strength = strength * int(link["weight"]) // SCALE
        length += int(link["length"])
        via.append(str(link["kind"]))
    return ReachedNode(hop=(length + 1) // 2, strength=strength, via=tuple(via))
