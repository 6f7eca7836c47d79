"""The fact graph as a networkx graph and as GraphML, and walks over networkx graphs.

What is exported are ids, labels, source ids and weights; a fact's text only when the caller hands
the texts over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from crp_integrations.envelope.ports import Link, Reached
from crp_integrations.errors import EngineError, RequestError
from crp_integrations.fabric.communities.similarity_graph import FactGraph
from crp_integrations.scores import SCALE

if TYPE_CHECKING:
    import networkx


def as_networkx(graph: FactGraph, texts: Mapping[str, str] | None = None) -> networkx.Graph:
    """The fact graph as an undirected networkx graph.

    Nodes are fact ids with `source` and, for a fact in a community, `community`; edges carry
    `weight`, the cosine.

    Spec: CRP-SPEC-009 §5.2
    """
    import networkx

    made = networkx.Graph()
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
    """Write the fact graph as GraphML, the same bytes for the same graph."""
    import networkx

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


def within_hops(graph: FactGraph, fact_id: str, hops: int) -> dict[str, int]:
    """The facts that at most so many edges lie away from a fact."""
    import networkx

    if hops < 0:
        raise RequestError(f"hops is {hops}, wanted at least 0")
    made = as_networkx(graph)
    if fact_id not in made:
        raise RequestError(f"fact {fact_id!r:.60} is not in the graph")
    found = networkx.single_source_shortest_path_length(made, fact_id, cutoff=hops)
    return dict(sorted(dict(found).items(), key=lambda entry: (entry[1], entry[0])))


def _in_xml(text: str) -> str:
    return "".join(
        character
        if character in "\t\n\r" or (character >= " " and character not in "\ufffe\uffff")
        else "\ufffd"
        for character in text
    )


# The longest way that is reckoned exactly: hops come before strengths in every comparison.
MOST_HOPS: Final = 16
_STEP: Final = SCALE * 64
# Where all ways begin; no node of ours is called so.
_ROOT: Final = ""


class NetworkxWalker:
    """The port `Walker` over networkx."""

    @cached_property
    def identity(self) -> str:
        """Library and version."""
        return f"networkx/{version('networkx')}"

    def reach(
        self,
        links: Sequence[Link],
        seeds: Mapping[str, int],
        hops: int,
        barred: Collection[str],
    ) -> dict[str, Reached]:
        """The way to each node within so many hops: the shortest, of equal ones the strongest.

        Spec: Summit §Context Assembly Pipeline
        """
        import networkx

        graph = networkx.Graph()
        ends = {end for link in links for end in (link.left, link.right)}
        # In the order of the names, so that equal ways are chosen alike in every process.
        graph.add_nodes_from(sorted(ends | seeds.keys()))
        for link in sorted(links, key=lambda one: (one.weight, one.kind, one.left, one.right)):
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


def _reached(graph: object, way: Sequence[str], seeds: Mapping[str, int]) -> Reached:
    strength, length, via = seeds[way[1]], 0, []
    for left, right in pairwise(way[1:]):
        link = graph[left][right]  # type: ignore[index]
        strength = strength * int(link["weight"]) // SCALE
        length += int(link["length"])
        via.append(str(link["kind"]))
    return Reached(hop=(length + 1) // 2, strength=strength, via=tuple(via))
