"""What the specification says of facts and their sources, shown on both stores."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crp_integrations.fabric.ports import FactsFacet, Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.fixtures import (
    NAMESPACE,
    NOON,
    OTHER,
    fact,
    facts,
    fill,
    rows,
    source,
)
from crp_integrations.vocabulary import FactStatus
from tests.fabric.lifecycle_fixtures import ACME, EVERY, document, fabric, sentence

LATER = NOON + timedelta(days=1)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")


def back(store: Store, *made: Fact) -> list[Fact]:
    """Facts as they come back in another transaction."""
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
    with store.begin(NAMESPACE, write=False) as transaction:
        return transaction.facts.get([one.fact_id for one in made])


@pytest.mark.requirement("009-2-1")
def test_every_field_of_a_fact_is_kept(store: Store) -> None:
    named: dict[str, Any] = {
        "content": "text",
        "fact_id": "f",
        "source_id": "doc",
        "source_location": "p. 3",
        "importance_weight": 0.75,
        "community_label": "seas",
        "ingested_at": NOON,
        "modified_at": LATER,
        "access_count": 4,
        "last_accessed_at": LATER,
        "ttl": "P90D",
        "status": FactStatus.STALE,
        "metadata": {"page": 3},
    }
    (found,) = back(store, fact(**named))
    assert {name: getattr(found, name) for name in named} == named
    assert found.content_hash == fact("text").content_hash
    with store.begin(NAMESPACE, write=False) as transaction:
        embedding = transaction.facts.vectors(["f"])
    assert embedding.tolist() == rows([found]).tolist()


@pytest.mark.requirement("009-2-7")
@pytest.mark.parametrize("ttl", ["P90D", "PT1H", "P1W", "P1Y2M3DT4H5M6S", None])
def test_a_ttl_is_a_duration_or_none(store: Store, ttl: str | None) -> None:
    (found,) = back(store, fact("text", ttl=ttl))
    assert found.ttl == ttl
    with store.begin(NAMESPACE, write=False) as transaction:
        expired = transaction.facts.find(Where(expired_at=NOON + timedelta(days=3_000)))
    assert expired == ([] if ttl is None else [found.fact_id])


@pytest.mark.requirement("009-2-7")
@pytest.mark.parametrize("ttl", ["90 days", "", "P", "PT0S", "-P1D", "1"])
def test_no_other_ttl_is_taken(ttl: str) -> None:
    with pytest.raises(ValidationError):
        fact("text", ttl=ttl)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    return [MemoryStore(), SqliteStore(tmp_path_factory.mktemp("metadata") / "kb")]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=6,
)


@pytest.mark.requirement("009-2-8")
@given(metadata=st.dictionaries(st.text(st.characters(codec="utf-8")), json_values, max_size=4))
def test_any_metadata_come_back(both: list[Store], metadata: dict[str, object]) -> None:
    made = fact("text", metadata=metadata)
    for store in both:
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([made.fact_id])
        assert back(store, made) == [made]


@pytest.mark.requirement("009-2-9")
def test_a_status_is_one_of_four(store: Store) -> None:
    assert [status.value for status in FactStatus] == ["ACTIVE", "STALE", "DELETED", "QUARANTINED"]
    made = [fact(f"text {status}", status=status) for status in FactStatus]
    assert [one.status for one in back(store, *made)] == list(FactStatus)
    with pytest.raises(ValidationError):
        fact("text", status="ARCHIVED")


@pytest.mark.requirement("009-2-10")
@pytest.mark.parametrize("weight", [0.0, 1.0, 0.3])
def test_an_importance_lies_between_0_and_1(store: Store, weight: float) -> None:
    assert back(store, fact("text", importance_weight=weight))[0].importance_weight == weight
    for wrong in (weight - 1.01, weight + 1.01, float("nan")):
        with pytest.raises(ValidationError):
            fact("text", importance_weight=wrong)


@pytest.mark.requirement("009-2-5")
def test_every_fact_has_a_source_in_the_registry(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)

    def registered() -> int:
        with store.begin("acme", write=False) as transaction:
            every = transaction.facts.get(transaction.facts.find(Where(statuses=EVERY)))
            entries = {one.source_id for one in transaction.facts.sources()}
            assert {one.source_id for one in every} <= entries
            return len(every)

    namespace.add([sentence(1), Fact(content=sentence(2), source_id="theirs")])
    assert registered() == 2
    report = namespace.ingest([document("a.md", sentence(3), sentence(4))])
    assert registered() >= 3
    namespace.forget(facts=report.facts[:1])
    registered()
    namespace.forget(source=report.sources[0])
    registered()
    namespace.erase("theirs")
    assert registered() >= 2
    namespace.ingest([document("a.md", sentence(3), sentence(5))])
    registered()


@pytest.mark.requirement("003-17.2-2", "009-2.2-9", "009-2.2-10")
@pytest.mark.parametrize("status", [FactStatus.DELETED, FactStatus.QUARANTINED])
def test_a_marked_fact_is_in_the_files_and_in_no_answer(store: Store, status: FactStatus) -> None:
    ids = fill(store, "the walrus sleeps", "the walrus wakes")
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.prepare("e", [one.content_hash for one in facts("the walrus sleeps")],
                                  rows(facts("the walrus sleeps")))  # fmt: skip
        transaction.facts.set_status(ids[:1], status, LATER)
    for write in (True, False):
        with store.begin(NAMESPACE, write=write) as transaction:
            found = transaction.facts
            assert [one.status for one in found.get(ids[:1])] == [status]
            assert found.vectors(ids[:1]).shape == (1, 8)
            assert [id for id, _ in found.retrievable()] == ids[1:]
            assert found.retrievable(ids[:1]) == []
            assert [id for id, _, _ in found.state()] == ids[1:]
            assert [one.fact_id for one in found.outline()] == ids[1:]
            assert [id for id, _ in found.search_text(["walrus", "sleeps"], 9)] == ids[1:]
            assert found.find(Where()) == ids[1:]
            assert found.prepared_ids("e") == []


@pytest.mark.requirement("003-16.1-1", "009-9.1-1", "009-9.1-4")
def test_no_reading_of_one_namespace_shows_another(store: Store) -> None:
    (one,) = facts("the walrus of a tenant")
    id = one.fact_id

    def seen(found: FactsFacet) -> list[object]:
        return [
            found.generation(),
            found.setting("embedder"),
            list(found.sources()),
            found.get([id]),
            found.of_source("user"),
            found.passages("user"),
            found.retrievable(),
            list(found.state()),
            list(found.outline()),
            found.tally(),
            found.find(Where(statuses=EVERY)),
            found.search_text(["walrus"], 9),
            found.token_counts("words", [id]),
            found.edges([id]),
            list(found.prepared("e", [one.content_hash])),
            found.prepared_ids("e"),
            found.unprepared("f", 9),
            found.mark(),
            found.changes(found.mark()),
        ]

    with store.begin(OTHER, write=False) as transaction:
        empty = seen(transaction.facts)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add([one], rows([one]))
        transaction.facts.add_source(source("a.md"))
        transaction.facts.set_setting("embedder", "x")
        transaction.facts.save_token_counts("words", {id: 3})
        transaction.facts.prepare("e", [one.content_hash], rows([one]))
        full = seen(transaction.facts)
    for write in (False, True):
        with store.begin(OTHER, write=write) as transaction:
            assert seen(transaction.facts) == empty
            if write:
                transaction.facts.remove([id])
    with store.begin(NAMESPACE, write=False) as transaction:
        assert seen(transaction.facts) == full
    assert full != empty
