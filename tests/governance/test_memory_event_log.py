"""The event log of memories is the truth: vectors, words and graph are made anew from it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.engines.graphs import engine_for
from crp_integrations.errors import FactRejected, StoreDamaged
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.governance.memory_writer import MemoryWriter
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite.store import SqliteStore
from tests.example_scripts import load_example
from tests.fabric.lifecycle_fixtures import events, fabric
from tests.governance.memories import CONTEXT, TEXT, bound, memory, writer

EXAMPLE = load_example("memory_replay")
JUNE = datetime(2026, 6, 1, tzinfo=UTC)
TYPES = ("episodic", "procedural", "semantic")


def log_of(made: Fabric) -> Any:
    return EXAMPLE.rebuild(tuple(writer(made).items(strict=True)), events(made))


def filled(made: Fabric, count: int = 30) -> MemoryWriter:
    door = writer(made)
    for number in range(1, count + 1):
        words = " ".join(f"machine{number % 4}" for _ in range(6))
        door.write(
            memory(
                number,
                type=TYPES[number % 3],
                content=f"{TEXT} Visit {number} was to {words}.",
                security_label=["tenant:acme", "pii:low" if number % 2 else "pii:none"],
                graph_refs=[f"node-{number % 5}"],
            ),
            CONTEXT,
        )
    door.correct(memory(3).id, memory(99, content=TEXT + " Corrected."), CONTEXT, since=JUNE)
    door.retract(memory(4).id, CONTEXT)
    return door


def picture(namespace: Namespace) -> dict[str, object]:
    """What vectors, words and the graph say."""
    namespace.recluster(afresh=True)
    facts = [one for one in namespace.export(Where()) if isinstance(one, Fact)]
    ids = sorted(fact.fact_id for fact in facts)
    query = namespace.embedder.embed_query("When was machine2 visited?")
    return {
        "state": namespace.state_hash(),
        "vectors": namespace.vectors(ids).tobytes(),
        "nearest": [hit.fact_id for hit in namespace.nearest(query, 12)],
        "words": [hit.fact_id for hit in namespace.search_text("machine2 boiler", 12)],
        "graph": sorted((fact.fact_id, fact.community_label) for fact in facts),
        "facts": sorted((fact.fact_id, fact.content_hash, fact.labels) for fact in facts),
    }


@pytest.mark.requirement("SUM-store-1")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_other_stores_are_made_anew_from_the_log(kind: str, tmp_path: Path) -> None:
    graph = {"leiden": engine_for("graspologic")}
    made = fabric(MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "kb"), **graph)
    filled(made)
    before = bound(made).state_hash()
    log = log_of(made)
    assert log.unwitnessed == () and len(log.items) == 31
    assert {one.provenance.signer for one in log.items} == {"anna"}
    assert set(log.aside) == {memory(3).id, memory(4).id}
    # Into the other kind of store, of which nothing is left but its type.
    anew = SqliteStore(tmp_path / "other") if kind == "memory" else MemoryStore()
    other = fabric(anew, **graph)
    assert EXAMPLE.replay(log, bound(other)) == before
    assert picture(bound(other)) == picture(bound(made))
    # The new journal names the same signers and hashes, in the same order.
    again = log_of(other)
    assert again.items == log.items and again.aside == log.aside
    for name, versions in log.versions.items():
        theirs = again.versions[name]
        assert (
            versions[0].content_hash
            == theirs[-1].content_hash
            == sha256(next(one.text for one in log.items if one.id == name))
        )
        assert {one.signer for one in theirs} == {"anna"}


def test_the_log_is_only_appended_to() -> None:
    made = fabric()
    door = filled(made, 6)
    log = events(made)
    with pytest.raises(FactRejected, match="other content"):
        door.write(memory(1, content=TEXT + " Otherwise."), CONTEXT)
    known = next(one.text for one in log_of(made).items if one.id == memory(5).id)
    assert door.write(memory(5, type="semantic", content=known), CONTEXT).written
    # Whatever is done, the events that were there stay as they were.
    assert events(made)[: len(log)] == log


def test_what_the_log_does_not_witness_makes_no_store() -> None:
    made = fabric()
    door = filled(made, 6)
    forgetful = [event for event in events(made) if "signer" not in event.data]
    empty = fabric()
    with pytest.raises(StoreDamaged, match="not what the event log names"):
        EXAMPLE.replay(EXAMPLE.rebuild(tuple(door.items()), forgetful), bound(empty))
    assert bound(empty).state_hash() == bound(fabric()).state_hash()
