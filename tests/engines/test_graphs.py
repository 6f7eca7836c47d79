"""The fact graph leaves as a networkx graph and as GraphML, without a fact's text."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest

from crp_integrations.engines.graphs import as_networkx, engine_for, write_graphml
from crp_integrations.errors import EngineError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.similarity_graph import FactGraph
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import FixedClock, HashEmbedder, WordCounter

# a - b - c - d and, apart, e.
GRAPH = FactGraph(
    ids=("a", "b", "c", "d", "e"),
    communities=("EU AI Act", "EU AI Act", "EU AI Act", "wind & <sun>", None),
    sources=("s1", "s1", "s2", "s2", "s3"),
    left=np.array([0, 1, 2]),
    right=np.array([1, 2, 3]),
    weights=np.array([0.9, 0.75, 0.600001]),
)


@pytest.mark.requirement("CARD-7")
def test_graphml_reads_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "facts.graphml"
    write_graphml(GRAPH, path)
    read = networkx.read_graphml(path)
    made = as_networkx(GRAPH)
    assert dict(read.nodes(data=True)) == dict(made.nodes(data=True))
    assert {frozenset(e[:2]): e[2] for e in read.edges(data=True)} == {
        frozenset("ab"): {"weight": 0.9},
        frozenset("bc"): {"weight": 0.75},
        frozenset("cd"): {"weight": 0.600001},
    }
    assert read.nodes["d"] == {"source": "s2", "community": "wind & <sun>"}
    assert read.nodes["e"] == {"source": "s3"} and not read.is_directed()
    again = tmp_path / "again.graphml"
    write_graphml(GRAPH, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.requirement("CARD-7")
def test_a_namespaces_graph_and_communities_are_exported(tmp_path: Path) -> None:
    fabric = Fabric(
        MemoryStore(),
        HashEmbedder(),
        WordCounter(),
        FixedClock(),
        FixedKeyRing(b"k" * 32),
        leiden=engine_for("graspologic"),
    )
    namespace = fabric.bind()
    texts = [f"The wind farm off the coast feeds the grid through its cable {n}" for n in range(5)]
    ids = namespace.add(
        [*texts, "Nothing else in here speaks of penguins and their umbrellas"]
    ).facts
    namespace.recluster()
    write_graphml(namespace.graph(), tmp_path / "kb.graphml")
    text = (tmp_path / "kb.graphml").read_text(encoding="utf-8")
    read = networkx.read_graphml(tmp_path / "kb.graphml")
    assert set(read.nodes) == set(ids)
    (community,) = namespace.communities()
    inside = {node for node, data in read.nodes(data=True) if "community" in data}
    assert inside == set(ids[:5])
    assert {read.nodes[node]["community"] for node in inside} == {community.label}
    assert read.number_of_edges() == 10
    # Ids, labels, sources and weights alone.
    assert "penguins" not in text and "feeds the grid" not in text


def test_texts_leave_only_when_they_are_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "facts.graphml"
    write_graphml(GRAPH, path, {"a": "one\x00two\x0b\ufffe", "unknown": "never shown"})
    read = networkx.read_graphml(path)
    assert read.nodes["a"]["content"] == "one\ufffdtwo\ufffd\ufffd"
    assert "content" not in read.nodes["b"] and "unknown" not in read
    assert "content" not in as_networkx(GRAPH).nodes["a"]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="5 facts could not be written"):
        write_graphml(GRAPH, tmp_path / "no such folder" / "facts.graphml")
