"""The event log of memories, and the graph of a memory's nodes and edges.

A version of an item is a fact that is never overwritten, and its chained event in the journal names
its signer and its content's hash. Vectors, text index and communities follow from the items, so a
replayed log makes all of them again. An edge is an item too: a fact between the facts that it
relates, which a walk passes, shows, or is kept from by its labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crp_integrations.audit.records import Event, Stub
from crp_integrations.errors import RequestError, StoreDamaged
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Edge
from crp_integrations.governance.memory_items import (
    MemoryItem,
    MemoryItemRef,
    RebuiltItems,
    as_fact,
    fact_of,
    rebuild,
)
from crp_integrations.governance.memory_writer import MemoryWriter, PolicyContext


class MemoryEventStore:
    """The append-only truth about one subject's memories.

    Spec: Summit §Storage Interfaces
    """

    def __init__(self, writer: MemoryWriter, context: PolicyContext) -> None:
        """Take the door that is written through, and who writes."""
        self._writer = writer
        self._context = context

    def append(self, item: MemoryItem) -> MemoryItemRef:
        """Append an item; nothing that was appended is ever changed."""
        return self._writer.write(item, self._context)

    def log(self, events: Iterable[Event | Stub]) -> RebuiltItems:
        """Every item with its signed events, laid beside the journal, which decides."""
        return rebuild(tuple(self._writer.items(strict=True)), events)


def replay(log: RebuiltItems, into: Namespace) -> str:
    """Make a namespace anew from a log: its items with their signers, in the log's order.

    Spec: Summit §Storage Interfaces

    Returns:
        The state hash, which is the one of the namespace that the log is of, as far as that holds
        nothing but memories.

    Raises:
        StoreDamaged: an item has another content than the log names, or no signed event.
    """
    if log.unwitnessed:
        count = len(log.unwitnessed)
        raise StoreDamaged(
            f"memory item {log.unwitnessed[0]} is not what the event log names ({count} such); "
            "take what the log witnesses alone"
        )
    # One transaction, as one source each: nobody sees a half of it.
    items = sorted(log.items, key=lambda item: log.versions[item.id][0].seq)
    facts = [as_fact(item) for item in items]
    if facts:
        pairs = zip(facts, items, strict=True)
        into.put(facts, uris={fact.source_id: item.provenance.source_uri for fact, item in pairs})
    if log.aside:
        into.archive([fact_of(name) for name in log.aside])
    return into.state_hash()


RELATED: Final = "related"


class GraphStore:
    """The graph of one namespace; what is written is in its journal, and goes with its facts.

    Spec: Summit §Storage Interfaces
    """

    def __init__(self, namespace: Namespace) -> None:
        """Take the namespace that is written; it is bound to a tenant, a subject and a guard."""
        self._namespace = namespace
        self._writer = MemoryWriter(namespace)

    def upsert_node(self, item: MemoryItem, context: PolicyContext) -> MemoryItemRef:
        """Store a node; the same one again changes nothing."""
        _check_category(item, "graph-node")
        return self._writer.write(item, context)

    def upsert_edge(self, item: MemoryItem, context: PolicyContext) -> MemoryItemRef:
        """Store an edge between two stored nodes; the same one again changes nothing.

        Its kind is the value of `relation` in a content of JSON, else `related`; its weight is the
        item's confidence.
        """
        _check_category(item, "graph-edge")
        if len(item.graph_refs) != 2:
            raise RequestError(
                f"edge {item.id} has {len(item.graph_refs)} graph_refs, wanted its two ends"
            )
        left, right = (self._end(ref, item.id) for ref in item.graph_refs)
        relation = item.content.get("relation") if isinstance(item.content, dict) else None
        kind = relation if isinstance(relation, str) and relation else RELATED
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


def _check_category(item: MemoryItem, category: str) -> None:
    if item.type != "semantic" or item.category != category:
        actual = f"{item.type}, {item.category or 'of no category'}"
        raise RequestError(f"item {item.id} is {actual}; wanted semantic, {category}")
