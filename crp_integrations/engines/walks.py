"""Walks over a networkx graph: k hops from the best facts, past no node that is barred."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from typing import Final

from crp_integrations.envelope.ports import Link, Reached
from crp_integrations.scores import SCALE

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

        Args:
            links: of equal ends the heaviest counts.
            seeds: with their strengths, fixed point.
            hops: at most 16.
            barred: names of nodes.
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
