"""Nodes and edges of a graph are memory items, and a walk stays within tenant and labels."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.governance.context_pack import AssembleRequest
from crp_integrations.governance.memory_items import MemoryItem
from crp_integrations.governance.memory_writer import MemoryWriter, PolicyContext
from crp_integrations.guard.decisions import LOCAL, LabelFilter, Subject
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, HashEmbedder
from tests.governance.memories import memory

KEY = "ab" * 32
CONTEXT = PolicyContext(subject=LOCAL)
FILLERS = tuple(
    f"At the market in hamlet {n} the pottery was sold when it rained." for n in range(150)
)
NODES = (
    "The kiln of the old pottery at the river is fired with oak and birch.",
    "Barges carry heavy loads along the northern canal in early spring.",
)
BETWEEN = "Fuel for furnaces arrives by water from woodlands further upstream."


def one(number: int, content: Any, category: str, *labels: str, **more: Any) -> MemoryItem:
    return memory(
        number, type="semantic", category=category, content=content, confidence=0.9,
        scope={"tenant": LOCAL.tenant}, security_label=["tenant:local", *labels], **more,
    )  # fmt: skip


def opened(store: MemoryStore, **options: Any) -> Relay:
    return Relay.open(
        store, embedder=HashEmbedder(), key=KEY, clock=NOON,
        packs={"top_k": 3, "depth": 1, "screening": {"relevance_floor": 0.0}}, **options,
    )  # fmt: skip


def grown(edge_label: str = "site:east") -> tuple[Relay, list[str]]:
    relay = opened(MemoryStore())
    relay.fabric.add(list(FILLERS))
    graph = MemoryWriter(relay.fabric)
    nodes = [one(n, text, "graph-node") for n, text in enumerate(NODES, start=1)]
    edge = one(
        9, {"relation": "supplied-by", "text": BETWEEN}, "graph-edge", edge_label,
        graph_refs=[node.id for node in nodes],
    )  # fmt: skip
    ids = [graph.write(node, CONTEXT).fact_id for node in nodes]
    return relay, [ids[0], graph.write(edge, CONTEXT).fact_id, ids[1]]


def found(relay: Relay, context: PolicyContext = CONTEXT) -> Any:
    request = AssembleRequest(
        message="How is the kiln of the old pottery fired?", budget_tokens=4000
    )
    return relay.assembler(model="gpt-4o").compose(request, context)


@pytest.mark.requirement("SUM-store-3")
def test_nodes_and_edges_are_stored_and_walked() -> None:
    relay, (kiln, supply, barges) = grown()
    edges = relay.fabric.edges([kiln, supply])
    assert {(e.source_fact, e.target_fact) for e in edges} == {
        (kiln, supply), (supply, kiln), (supply, barges),
    }  # fmt: skip
    assert {e.kind for e in edges} == {"supplied-by", "^supplied-by"}
    made = found(relay)
    ways = {
        id_: next((s for s in seen if s.retriever == "graph"), None)
        for id_, seen in made.evidence.items()
    }
    assert (ways[supply].hop, ways[barges].hop) == (1, 2)
    assert ways[barges].via == ("supplied-by", "supplied-by")
    # The same item again changes nothing.
    again = one(
        9, {"relation": "supplied-by", "text": BETWEEN}, "graph-edge", "site:east",
        graph_refs=[memory(1).id, memory(2).id],
    )  # fmt: skip
    assert not MemoryWriter(relay.fabric).write(again, CONTEXT).written


@pytest.mark.requirement("SUM-store-3")
def test_a_walk_stays_within_the_labels_that_policy_lets_in() -> None:
    relay, (kiln, supply, barges) = grown("export:restricted")
    assert {supply, barges} <= found(relay).evidence.keys()
    context = PolicyContext(subject=LOCAL, labels=LabelFilter(without=("export:restricted",)))
    shown = {item.id for item in found(relay, context).pack.items}
    assert kiln in shown
    assert shown.isdisjoint({supply, barges})


@pytest.mark.requirement("SUM-store-3")
def test_a_walk_stays_within_the_tenant() -> None:
    relay, ids = grown()
    other = opened(relay._store, subject=Subject(tenant="other"))
    assert other.fabric.edges(ids) == []
    stranger = one(1, NODES[0], "graph-node")
    with pytest.raises(AccessDenied, match="tenant"):
        MemoryWriter(other.fabric).write(stranger, PolicyContext(subject=other.fabric.subject))


def test_an_edge_names_two_ends_that_are_there() -> None:
    relay, _ = grown()
    graph = MemoryWriter(relay.fabric)
    text = {"relation": "r", "text": BETWEEN + " And more of it."}
    with pytest.raises(RequestError, match="has 1 graph_refs"):
        graph.write(one(20, text, "graph-edge", graph_refs=[memory(1).id]), CONTEXT)
    ends = [memory(1).id, memory(99).id]
    with pytest.raises(RequestError, match="not stored here"):
        graph.write(one(20, text, "graph-edge", graph_refs=ends), CONTEXT)


def test_edges_go_with_their_facts() -> None:
    relay, (kiln, supply, barges) = grown()
    relay.fabric.forget(facts=[supply])
    assert relay.fabric.edges([kiln, barges]) == []
