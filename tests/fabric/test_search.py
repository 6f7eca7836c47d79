"""Search through a namespace: filters, the guard, the graph of a large one, and its state hash."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import cosine
from crp_integrations.vocabulary import FactStatus, SourceKind
from tests.doubles import NOON, FixedClock, HashEmbedder, erase_all
from tests.fabric.embedders import index_of
from tests.fabric.test_namespace import ACME, Labelled, document, fabric, sentence

LITERAL = FabricSettings.preset("literal")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    yield made
    made.close()


def graphs() -> Any:
    pytest.importorskip("hnswlib")
    from crp_integrations.engines.hnsw import HnswEngine

    return HnswEngine()


def facts(count: int) -> list[Fact]:
    return [
        Fact(
            content=sentence(number),
            metadata={"part": number % 5, "deep": {"a": [number % 2]}},
            labels=("secret",) if number % 4 == 0 else (),
            kind=SourceKind.WEB if number % 3 else SourceKind.OFFICIAL,
        )
        for number in range(count)
    ]


def best(namespace: Namespace, query: Any, meant: list[str], k: int) -> list[str]:
    """The nearest of some facts by comparing each."""
    rows = namespace.vectors(meant)
    scores = dict(zip(meant, cosine(rows, query).tolist(), strict=True))
    return sorted(meant, key=lambda id_: (-scores[id_], id_))[:k]


WHERES = (
    Where(metadata={"part": 2}),
    Where(metadata={"deep": {"a": [1]}}),
    Where(kinds=(SourceKind.OFFICIAL,), metadata={"part": 0}),
    Where(labels=("secret",)),
    Where(statuses=tuple(FactStatus)),
    Where(statuses=(FactStatus.DELETED, FactStatus.QUARANTINED)),
    Where(statuses=tuple(FactStatus), archived=True),
    Where(ingested_after=NOON + timedelta(days=1)),
    Where(sources=("nowhere",)),
)


@pytest.mark.requirement("009-2.2-9", "009-2.2-10", "009-2.2-8", "003-17.2-2")
@pytest.mark.parametrize("large", [False, True])
def test_a_filter_has_recall_one_and_brings_nothing_that_may_not_be_retrieved(
    store: Store, large: bool
) -> None:
    settings = FabricSettings(graph=VectorGraphSettings(exact_up_to=20)) if large else None
    made = fabric(store, settings=settings, graphs=graphs() if large else None)
    whole = made.bind(ACME)
    given = facts(60)
    whole.add(given)
    assert (index_of(made).graph is not None) == large
    whole.forget(facts=[given[2].fact_id])
    whole.quarantine([given[7].fact_id], "wrong")
    whole.mark_stale([given[12].fact_id])
    whole.archive([given[22].fact_id])
    hidden = {given[number].fact_id for number in (2, 7, 22)}
    fewer = made.bind(ACME, Labelled())
    query = whole.embedder.embed_query("passage 12 says value12 in units")
    for namespace in (whole, fewer):
        for where in WHERES:
            meant = namespace.find(where)
            assert not hidden & set(meant)
            hits = [hit.fact_id for hit in namespace.nearest(query, 10, where)]
            assert hits == best(namespace, query, meant, 10)
            texts = [hit.fact_id for hit in namespace.search_text("passage says", 100, where)]
            assert set(texts) == set(meant)
    meant = fewer.find(Where(metadata={"part": 2}))
    assert given[12].fact_id not in meant
    assert given[12].fact_id in whole.find(Where(metadata={"part": 2}))
    assert len(meant) < len(whole.find(Where(metadata={"part": 2})))


def test_a_filter_follows_every_change_at_once(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    given = facts(20)
    namespace.add(given)
    where = Where(metadata={"part": 1})
    query = namespace.embedder.embed_query("passage")

    def found() -> set[str]:
        return {hit.fact_id for hit in namespace.nearest(query, 50, where)}

    wanted = {one.fact_id for one in given if one.metadata["part"] == 1}
    assert found() == wanted
    namespace.update(given[1].fact_id, metadata={"part": 2})
    namespace.update(given[2].fact_id, metadata={"part": 1})
    wanted = wanted - {given[1].fact_id} | {given[2].fact_id}
    assert found() == wanted
    namespace.forget(facts=[given[2].fact_id])
    assert found() == wanted - {given[2].fact_id}


@pytest.mark.requirement("009-3.1-2", "009-3.3-1", "009-3.3-2", "CARD-4")
def test_literal_searches_a_graph_after_every_write(store: Store) -> None:
    made = fabric(store, settings=LITERAL, graphs=graphs())
    plain = fabric(MemoryStore())
    ours, theirs = made.bind(ACME), plain.bind(ACME)
    queries = [ours.embedder.embed_query(f"value{number} passage") for number in range(12)]

    def equal() -> None:
        assert index_of(made).graph is not None
        assert index_of(plain).graph is None
        for query in queries:
            assert ours.nearest(query, 5) == theirs.nearest(query, 5)

    for turn in range(3):
        for namespace in (ours, theirs):
            report = namespace.ingest(
                [document(f"d{turn}", *(sentence(10 * turn + n) for n in range(10)))]
            )
        equal()
        for namespace in (ours, theirs):
            namespace.forget(facts=report.facts[:2])
        equal()


def test_maintenance_builds_a_graph_and_opening_does_not(tmp_path: Path) -> None:
    plain = fabric(SqliteStore(tmp_path / "kb"))
    plain.bind(ACME).add(facts(40))
    made = fabric(SqliteStore(tmp_path / "kb"), settings=LITERAL, graphs=graphs())
    namespace = made.bind(ACME)
    namespace.maintain(graph=False)
    assert index_of(made).graph is None
    namespace.maintain()
    assert index_of(made).graph is not None


@pytest.mark.requirement(
    "009-6.1-1", "009-6.1-2", "009-6.1-4", "009-6.2-1", "009-6.2-2", "009-6.2-4"
)
def test_the_state_hash_of_a_namespace_is_the_formula_after_every_verb(store: Store) -> None:
    clock = FixedClock()
    made = fabric(store, clock=clock)
    namespace = made.bind(ACME)
    seen: list[str] = []

    def formula() -> str:
        with made.begin("acme", write=False) as transaction:
            ids = transaction.facts.find(Where(statuses=tuple(FactStatus)))
            items = [
                (one.fact_id, one.content_hash, one.status.value)
                for one in transaction.facts.get(ids)
                if one.status in (FactStatus.ACTIVE, FactStatus.STALE) and one.archived_at is None
            ]
        return state_hash(items)

    def changed(*, by: bool = True) -> None:
        clock.moment += timedelta(minutes=1)
        now = namespace.state_hash()
        assert now == formula()
        assert (now != seen[-1]) == by
        seen.append(now)

    seen.append(namespace.state_hash())
    given = facts(12)
    assert namespace.add(given).state_hash == formula()
    changed()
    ids = [one.fact_id for one in given]
    namespace.update(ids[0], content="Another text of ten words or more stands in this fact now.")
    changed()
    namespace.mark_stale(ids[1:3])
    changed()
    namespace.quarantine(ids[3:4], "wrong")
    changed()
    namespace.lift(ids[3:4])
    changed()
    namespace.archive(ids[4:5])
    changed()
    namespace.restore(ids[4:5])
    changed()
    namespace.forget(facts=ids[5:6])
    changed()
    # Reading, using and counting change nothing.
    query = namespace.embedder.embed_query("passage")
    namespace.nearest(query, 5)
    namespace.nearest(query, 5, Where(metadata={"part": 1}))
    namespace.search_text("passage", 5)
    namespace.facts(ids)
    namespace.vectors(ids[:1])
    namespace.token_counts("words", ids, lambda texts: [len(text) for text in texts])
    with namespace.begin(True) as transaction:
        transaction.facts.touch(ids, clock.now())
    changed(by=False)
    # Coming back to an earlier state gives its hash again.
    erase_all(namespace)
    changed()
    assert seen[-1] == seen[0]


class Reads(MemoryStore):
    """A store that counts the vectors that are read out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def begin(self, namespace: str, *, write: bool = True) -> Any:
        begun = super().begin(namespace, write=write)
        store = self

        class Begun:
            def __enter__(self) -> Any:
                transaction = begun.__enter__()
                read = transaction.facts.vectors

                def vectors(ids: Any, **given: Any) -> Any:
                    store.rows += len(ids)
                    return read(ids, **given)

                transaction.facts.vectors = vectors
                return transaction

            def __exit__(self, *error: Any) -> Any:
                return begun.__exit__(*error)

        return Begun()


@pytest.mark.parametrize(
    "where",
    [
        Where(sources=("\ud800",)),
        Where(communities=("a\udfff",)),
        Where(labels=("\udc00",)),
        Where(metadata={"a": "\ud800"}),
    ],
)
def test_half_a_surrogate_pair_in_a_filter_is_refused_by_name(where: Where) -> None:
    namespace = fabric().bind(ACME)
    namespace.add(["A passage of ten words or more that somebody would search for."])
    with pytest.raises(RequestError, match="surrogate"):
        namespace.nearest(HashEmbedder().embed_query("passage"), 3, where)
