"""Nodes and edges of a memory's graph, each stored as the memory item that it is.

An edge is an item too: a fact with a text, labels and a source, which lies between the facts that
it relates. So a walk passes it, shows it, or is kept from it by its labels, as with any fact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Edge
from crp_integrations.governance.items import MemoryItem, MemoryItemRef, fact_of
from crp_integrations.governance.writing import MemoryNamespace, MemoryWriter, PolicyContext

RELATED: Final = "related"


class GraphNamespace(MemoryNamespace, Protocol):
    """What a graph asks of a fabric's namespace."""

    def link(self, edges: Iterable[Edge]) -> None:
        """Store edges between facts, found from both ends."""
        ...


class GraphStore:
    """The graph of one namespace; what is written is in its journal, and goes with its facts.

    Spec: Summit §Storage Interfaces
    """

    def __init__(self, namespace: GraphNamespace) -> None:
        """Take the namespace that is written; it is bound to a tenant, a subject and a guard."""
        self._namespace = namespace
        self._writer = MemoryWriter(namespace)

    def upsert_node(self, item: MemoryItem, context: PolicyContext) -> MemoryItemRef:
        """Store a node; the same one again changes nothing.

        Spec: Summit §Storage Interfaces

        Raises:
            RequestError: the item is no semantic one of category `graph-node`.
            AccessDenied, FactRejected: as for `MemoryWriter.write`.
        """
        _must_be(item, "graph-node")
        return self._writer.write(item, context)

    def upsert_edge(self, item: MemoryItem, context: PolicyContext) -> MemoryItemRef:
        """Store an edge between two stored nodes; the same one again changes nothing.

        Its kind is the value of `relation` in a content of JSON, else `related`; its weight is the
        item's confidence.

        Spec: Summit §Storage Interfaces

        Args:
            item: `graph_refs` has the ids of the two items, or facts, that it relates.

        Raises:
            RequestError: it is no semantic item of category `graph-edge`, or does not name two
                facts that are stored here and may be read.
            AccessDenied, FactRejected: as for `MemoryWriter.write`.
        """
        _must_be(item, "graph-edge")
        if len(item.graph_refs) != 2:
            raise RequestError(
                f"edge {item.id} has {len(item.graph_refs)} graph_refs, wanted its two ends"
            )
        left, right = (self._end(ref, item.id) for ref in item.graph_refs)
        said = item.content.get("relation") if isinstance(item.content, dict) else None
        kind = said if isinstance(said, str) and said else RELATED
        reference = self._writer.write(item, context)
        between = item.fact_id
        self._namespace.link(
            Edge(source_fact=source, target_fact=target, kind=kind, weight=item.confidence)
            for source, target in ((left, between), (between, right))
        )
        return reference

    def _end(self, ref: str, edge: str) -> str:
        for id_ in (fact_of(ref), ref):
            if self._namespace.facts([id_]):
                return id_
        raise RequestError(f"edge {edge} names {ref!r:.80}, which is not stored here, or withheld")


def _must_be(item: MemoryItem, category: str) -> None:
    if item.type != "semantic" or item.category != category:
        said = f"{item.type}, {item.category or 'of no category'}"
        raise RequestError(f"item {item.id} is {said}; wanted semantic, {category}")
