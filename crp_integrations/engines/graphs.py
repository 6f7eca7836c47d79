"""The fact graph as a networkx graph and as GraphML, and walks over it.

What leaves here are ids, labels, source ids and weights. A fact's text does so only when its
caller hands the texts over.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from crp_integrations.errors import EngineError, RequestError
from crp_integrations.fabric.communities.similarity_graph import FactGraph

if TYPE_CHECKING:
    import networkx


def as_networkx(graph: FactGraph, texts: Mapping[str, str] | None = None) -> networkx.Graph:
    """The fact graph as an undirected networkx graph.

    Nodes are fact ids with `source` and, for a fact in a community, `community`; edges carry
    `weight`, the cosine.

    Spec: CRP-SPEC-009 §5.2

    Args:
        texts: contents by fact id, put into the nodes as `content`; None for no content.
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
    """Write the fact graph as GraphML, the same bytes for the same graph.

    Args:
        path: is replaced if it exists.
        texts: as in `as_networkx`; characters that XML cannot hold become U+FFFD.

    Raises:
        EngineError: networkx could not write it, or the file cannot be written.
    """
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
    """The facts that at most so many edges lie away from a fact.

    Returns:
        Hops by fact id, the fact itself with 0; nearest first, then by id.

    Raises:
        RequestError: the graph does not hold the fact, or `hops` is below 0.
    """
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
