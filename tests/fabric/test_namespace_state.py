"""What is kept in memory of a namespace: brought forward, shared by threads, with its graph."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.search.namespace_state import NamespaceState, Snapshot
from crp_integrations.fabric.search.neighbour_graph import GRAPH_FILE
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import cosine
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON
from tests.fabric.vector_facts import NAME, fact, numbered, put, vectors

SMALL = VectorGraphSettings(exact_up_to=50)
STORES = ["memory", "sqlite"]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    yield made
    made.close()


@pytest.fixture
def engine() -> Any:
    pytest.importorskip("hnswlib")
    from crp_integrations.engines.hnsw import HnswEngine

    return HnswEngine()


class Spy:
    """The engine, counting what it is asked for."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.name = engine.name
        self.built: list[int] = []
        self.loaded = 0
        self.searched: list[int] = []
        self.fails = False

    def _watched(self, graph: Any) -> Any:
        search = graph.search

        def counted(vector: Any, k: int) -> Any:
            self.searched.append(k)
            return search(vector, k)

        graph.search = counted
        return graph

    def build(self, block: Any, settings: VectorGraphSettings) -> Any:
        if self.fails:
            raise EngineError("no more", engine="spy")
        self.built.append(len(block))
        return self._watched(self.engine.build(block, settings))

    def load(self, path: str, block: Any, settings: VectorGraphSettings) -> Any:
        graph = self.engine.load(path, block, settings)
        self.loaded += 1
        return self._watched(graph)


def live(
    store: Store, engine: Any = None, settings: VectorGraphSettings = SMALL, name: str = NAME
) -> NamespaceState:
    return NamespaceState(
        lambda: store.begin(name, write=False), store.cache(name), settings, engine
    )


def look(store: Store, kept: NamespaceState, name: str = NAME) -> Snapshot:
    with store.begin(name, write=False) as transaction:
        return kept.snapshot(transaction.facts)


def fresh(store: Store, name: str = NAME) -> VectorIndex:
    with store.begin(name, write=False) as transaction:
        return VectorIndex.read(transaction.facts)


def write(store: Store, change: Callable[[Any], None]) -> None:
    with store.begin(NAME, write=True) as transaction:
        change(transaction.facts)


def ids(hits: list[Any]) -> list[str]:
    return [hit.fact_id for hit in hits]


# --- exact ----------------------------------------------------------------------------------


class Counting:
    """A facet that counts the vectors that are read."""

    def __init__(self, facts: Any) -> None:
        self.facts = facts
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.facts, name)

    def vectors(self, ids: Any, **given: Any) -> Any:
        self.read += len(ids)
        return self.facts.vectors(ids, **given)


class States(Counting):
    """A facet that counts how often every state is read."""

    def state(self, ids: Any = None) -> Any:
        self.read += ids is None
        return self.facts.state(ids)


@pytest.mark.parametrize("first", [True, False])
def test_a_hash_of_what_was_undone_is_never_told_again(store: Store, first: bool) -> None:
    put(store, numbered(5), vectors(5))
    kept = live(store)
    with suppress(RuntimeError), store.begin(NAME, write=True) as transaction:
        if first:
            kept.hash_in(transaction.facts)
        transaction.facts.set_status([fact(0).fact_id], FactStatus.DELETED, NOON)
        kept.hash_in(transaction.facts)
        raise RuntimeError
    # As many changes as those that were undone, so the numbers are the same.
    write(store, lambda facts: facts.set_status([fact(1).fact_id], FactStatus.DELETED, NOON))
    with store.begin(NAME, write=False) as transaction:
        wanted = state_hash(transaction.facts.state())
        assert kept.hash_in(transaction.facts) == wanted
        assert kept.state_hash(transaction.facts) == wanted


@pytest.mark.requirement("009-3.3-1", "009-3.3-2", "009-2.2-9", "009-2.2-10", "003-17.2-2")
@pytest.mark.parametrize("status", [FactStatus.DELETED, FactStatus.QUARANTINED])
def test_a_new_fact_is_there_at_once_and_one_that_went_is_gone_at_once(
    store: Store, status: FactStatus
) -> None:
    kept = live(store)
    rows = vectors(60)
    put(store, numbered(30), rows[:30])
    query = rows[29]
    assert ids(look(store, kept).index.nearest(query, 1)) == [fact(29).fact_id]
    put(store, [fact(30)], rows[29:30])
    assert set(ids(look(store, kept).index.nearest(query, 2))) == {
        fact(29).fact_id,
        fact(30).fact_id,
    }
    write(store, lambda facts: facts.set_status([fact(29).fact_id], status, NOON))
    hits = ids(look(store, kept).index.nearest(query, 100))
    assert hits[0] == fact(30).fact_id
    assert fact(29).fact_id not in hits
    write(store, lambda facts: facts.remove([fact(30).fact_id]))
    assert fact(30).fact_id not in ids(look(store, kept).index.nearest(query, 100))


@pytest.mark.requirement("009-3.3-4")
def test_a_changed_text_moves_its_fact(store: Store) -> None:
    kept = live(store)
    rows = vectors(40)
    put(store, numbered(30), rows[:30])
    look(store, kept)
    changed = fact(4, content="Quite another text of more than ten words stands here now.")
    write(store, lambda facts: facts.replace([changed], rows[35:36]))
    index = look(store, kept).index
    assert index.nearest(rows[35], 1)[0].fact_id == changed.fact_id
    assert index.nearest(rows[35], 1)[0].score == pytest.approx(1.0)
    assert index.nearest(rows[4], 1)[0].fact_id != changed.fact_id


def test_a_reader_that_began_earlier_sees_its_own_state(store: Store) -> None:
    kept = live(store)
    put(store, numbered(20), vectors(20))
    look(store, kept)
    with store.begin(NAME, write=False) as early:
        early.facts.mark()
        put(store, numbered(5, 20), vectors(5, seed=1))
        assert len(look(store, kept).index) == 25
        assert len(kept.snapshot(early.facts).index) == 20
    assert len(look(store, kept).index) == 25


def test_a_store_put_back_from_a_copy_is_read_anew(tmp_path: Path) -> None:
    store, other = SqliteStore(tmp_path / "one"), SqliteStore(tmp_path / "two")
    kept = NamespaceState(lambda: current.begin(NAME, write=False), None, SMALL)
    for place, start in ((store, 0), (other, 100)):
        put(place, numbered(10, start), vectors(10, seed=start))
    put(store, numbered(3, 50), vectors(3))
    current: Store = store
    assert len(look(current, kept).index) == 13
    with store.begin(NAME, write=False) as transaction:
        before = kept.state_hash(transaction.facts)
    current = other
    assert look(current, kept).index.ids == fresh(other).ids
    assert look(current, kept) is look(current, kept)
    with other.begin(NAME, write=False) as transaction:
        assert kept.state_hash(transaction.facts) != before
    store.close()
    other.close()


# --- filters --------------------------------------------------------------------------------


def test_a_filter_finds_exactly_the_best_of_what_is_meant(store: Store) -> None:
    kept = live(store)
    rows = vectors(300)
    made = [fact(n, metadata={"part": n % 10}, labels=("x",) if n % 3 else ()) for n in range(300)]
    put(store, made, rows)
    query = vectors(1, seed=3)[0]
    for where in (
        Where(metadata={"part": 4}),
        Where(labels=("x",)),
        Where(metadata={"part": 4}, labels=("x",)),
        Where(metadata={"part": 11}),
        Where(statuses=(FactStatus.STALE,)),
    ):
        with store.begin(NAME, write=False) as transaction:
            picture = kept.snapshot(transaction.facts)
            meant = transaction.facts.find(where)
            chosen = picture.index.select(meant)
        place = {one.fact_id: n for n, one in enumerate(made)}
        exact = cosine(rows, query)
        wanted = sorted(meant, key=lambda id_: (-float(exact[place[id_]]), id_))[:20]
        assert ids(picture.index.nearest(query, 20, among=chosen)) == wanted


@pytest.mark.parametrize("status", [FactStatus.DELETED, FactStatus.QUARANTINED])
def test_no_filter_brings_back_what_may_not_be_retrieved(store: Store, status: FactStatus) -> None:
    kept = live(store)
    rows = vectors(20)
    put(store, numbered(20), rows)
    write(store, lambda facts: facts.set_status([fact(2).fact_id], status, NOON))
    write(store, lambda facts: facts.set_archived([fact(3).fact_id], NOON))
    with store.begin(NAME, write=False) as transaction:
        picture = kept.snapshot(transaction.facts)
        chosen = picture.index.select(transaction.facts.find(Where(statuses=tuple(FactStatus))))
    hits = ids(picture.index.nearest(rows[2], 50, among=chosen))
    assert len(hits) == 18
    assert not {fact(2).fact_id, fact(3).fact_id} & set(hits)


# --- the graph ------------------------------------------------------------------------------


@pytest.mark.requirement("009-3.1-2", "CARD-4")
def test_a_graph_above_the_size_and_exact_below(store: Store, engine: Any) -> None:
    spy = Spy(engine)
    kept = live(store, spy)
    rows = vectors(200)
    put(store, numbered(50), rows[:50])
    assert not kept.settle()
    look(store, kept).index.nearest(rows[0], 5)
    assert (spy.built, spy.searched) == ([], [])
    put(store, numbered(1, 50), rows[50:51])
    # A reader never builds one.
    assert look(store, kept).index.graph is None
    assert kept.settle()
    assert spy.built == [51]
    picture = look(store, kept)
    exact = fresh(store).nearest(rows[9], 10)
    assert picture.index.nearest(rows[9], 10) == exact
    assert spy.searched[-1] >= 51
    assert not kept.settle()


@pytest.mark.requirement("009-3.1-2")
def test_literal_builds_the_graph_from_the_first_fact(store: Store, engine: Any) -> None:
    spy = Spy(engine)
    kept = live(store, spy, FabricSettings.preset("literal").graph)
    put(store, [fact(0)], vectors(1))
    assert kept.settle()
    assert spy.built == [1]
    assert ids(look(store, kept).index.nearest(vectors(1)[0], 5)) == [fact(0).fact_id]


@pytest.mark.requirement("009-3.2-3")
def test_the_graph_is_asked_for_ef_search_candidates_which_are_scored_exactly(
    store: Store, engine: Any
) -> None:
    spy = Spy(engine)
    settings = VectorGraphSettings(exact_up_to=50, ef_search=120, ef_beyond=0)
    kept = live(store, spy, settings)
    rows = vectors(2_000, width=24)
    put(store, numbered(2_000), rows)
    kept.settle()
    index = look(store, kept).index
    found = wanted = 0
    place = {one.fact_id: n for n, one in enumerate(numbered(2_000))}
    for query in vectors(30, width=24, seed=8):
        hits = index.nearest(query, 20)
        assert spy.searched[-1] == 120
        assert [hit.score for hit in hits] == [
            float(cosine(rows[[place[hit.fact_id]]], query)[0]) for hit in hits
        ]
        found += len(set(ids(hits)) & set(ids(fresh(store).nearest(query, 20))))
        wanted += 20
    assert found >= 0.98 * wanted
    index.nearest(rows[0], 500)
    assert spy.searched[-1] == 500


@pytest.mark.requirement("009-3.3-1", "009-3.3-2", "009-2.2-9", "003-17.2-2")
def test_with_a_graph_too_new_facts_are_found_and_old_ones_gone_at_once(
    store: Store, engine: Any
) -> None:
    spy = Spy(engine)
    kept = live(store, spy)
    rows = vectors(220)
    put(store, numbered(200), rows[:200])
    kept.settle()
    look(store, kept)
    put(store, [fact(200)], rows[200:201])
    moved = fact(11, content="Another text of more than ten words for the eleventh fact here.")
    write(store, lambda facts: facts.replace([moved], rows[201:202]))
    write(store, lambda facts: facts.set_status([fact(12).fact_id], FactStatus.DELETED, NOON))
    index = look(store, kept).index
    assert index.graph is not None
    before = len(spy.searched)
    assert index.nearest(rows[200], 1)[0].fact_id == fact(200).fact_id
    assert index.nearest(rows[201], 1)[0].fact_id == fact(11).fact_id
    assert index.nearest(rows[11], 1)[0].fact_id != fact(11).fact_id
    assert fact(12).fact_id not in ids(index.nearest(rows[12], 220))
    assert len(spy.searched) > before
    for query in vectors(10, seed=4):
        assert index.nearest(query, 20) == fresh(store).nearest(query, 20)
    assert spy.built == [200]


@pytest.mark.requirement("009-3.3-5")
def test_the_graph_is_built_anew_once_more_than_a_fifth_changed(store: Store, engine: Any) -> None:
    spy = Spy(engine)
    kept = live(store, spy)
    rows = vectors(400)
    put(store, numbered(100), rows[:100])
    assert kept.settle()
    # Seven added, seven modified (one of them twice), six deleted: a fifth, and not more.
    put(store, numbered(7, 100), rows[100:107])
    for seed in (0, 1):
        count = 7 - 6 * seed
        again = [
            fact(n, content=f"Text {seed} of the fact {n} in ten words and more.")
            for n in range(count)
        ]
        write(store, lambda facts, a=again, s=seed: facts.replace(a, vectors(len(a), seed=50 + s)))
    gone = [fact(n).fact_id for n in range(20, 26)]
    write(store, lambda facts: facts.set_status(gone, FactStatus.DELETED, NOON))
    assert look(store, kept).index.worn == pytest.approx(0.20)
    assert not kept.settle()
    # One that was added and is gone again is no change; one more is.
    write(store, lambda facts: facts.set_status([fact(30).fact_id], FactStatus.QUARANTINED, NOON))
    assert look(store, kept).index.worn == pytest.approx(0.21)
    assert kept.settle()
    assert spy.built == [100, 100]
    index = look(store, kept).index
    assert index.worn == 0.0
    assert not set(gone) & set(index.base_ids)


@pytest.mark.parametrize("mode", ["exact", "graph"])
def test_the_answer_does_not_depend_on_the_order_of_insertion(
    tmp_path: Path, engine: Any, mode: str
) -> None:
    rows = vectors(400)
    made = numbered(400)
    settings = VectorGraphSettings(exact_up_to=0 if mode == "graph" else 10**6)
    answers = []
    for turn, order in enumerate(
        (range(400), reversed(range(400)), np.random.default_rng(1).permutation(400))
    ):
        store = SqliteStore(tmp_path / str(turn))
        kept = live(store, engine, settings)
        listed = [int(n) for n in order]
        for start in range(0, 400, 90 + 40 * turn):
            part = listed[start : start + 90 + 40 * turn]
            put(store, [made[n] for n in part], rows[part])
            look(store, kept)
        again = live(store, engine, settings)
        store.cache(NAME).drop()
        again.settle()
        index = look(store, again).index
        assert (index.graph is not None) == (mode == "graph")
        answers.append([index.nearest(query, 30) for query in vectors(20, seed=6)])
        store.close()
    assert answers[0] == answers[1] == answers[2]


def test_a_guard_that_withholds_much_is_answered_exactly(store: Store, engine: Any) -> None:
    spy = Spy(engine)
    kept = live(store, spy)
    rows = vectors(300)
    made = [fact(n, labels=("open",) if n % 10 else ("closed",)) for n in range(300)]
    put(store, made, rows)
    kept.settle()
    index, whole = look(store, kept).index, fresh(store)
    for wanted in ("open", "closed"):
        ours = [labels == (wanted,) for labels in index.label_sets]
        theirs = [labels == (wanted,) for labels in whole.label_sets]
        before = len(spy.searched)
        for query in vectors(10, seed=2):
            hits = index.nearest(query, 20, allowed=ours)
            assert hits == whole.nearest(query, 20, allowed=theirs)
        assert (len(spy.searched) > before) == (wanted == "open")
    assert index.nearest(rows[0], 5, allowed=[False, False]) == []


def test_a_graph_that_finds_too_little_is_answered_exactly(store: Store, engine: Any) -> None:
    spy = Spy(engine)
    kept = live(store, spy)
    put(store, numbered(100), vectors(100))
    kept.settle()
    index = look(store, kept).index
    assert index.graph is not None
    index.graph.index.search = lambda vector, k: np.zeros(0, dtype=np.int64)  # type: ignore[method-assign]
    query = vectors(1, seed=2)[0]
    assert index.nearest(query, 10) == fresh(store).nearest(query, 10)


def test_what_fails_while_settling_undoes_nothing(
    store: Store, engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spy = Spy(engine)
    spy.fails = True
    kept = live(store, spy)
    put(store, numbered(60), vectors(60))
    with caplog.at_level(logging.WARNING):
        assert not kept.settle()
    assert "could not be brought up to date: no more" in caplog.text
    query = vectors(1, seed=2)[0]
    assert look(store, kept).index.nearest(query, 10) == fresh(store).nearest(query, 10)
    spy.fails = False
    assert kept.settle()


# --- threads --------------------------------------------------------------------------------


def test_readers_in_threads_beside_a_writer_see_whole_states(store: Store) -> None:
    kept = live(store, settings=VectorGraphSettings(exact_up_to=10**6))
    rows = vectors(10)
    put(store, numbered(1), rows[:1])
    wrong: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with store.begin(NAME, write=False) as transaction:
                size = transaction.facts.tally()["ACTIVE"]
                picture = kept.snapshot(transaction.facts)
                hash_, meant = kept.state_hash(transaction.facts), kept.hash_in(transaction.facts)
            hits = picture.index.nearest(rows[0], 10_000)
            # Facts come in tens, so any other number was never a state.
            if not len(hits) == size == len(picture.index) or size % 10 != 1 or hash_ != meant:
                wrong.append(f"{len(hits)} hits of {size} facts")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(40):
        put(store, numbered(10, 1 + 10 * turn), vectors(10, seed=turn))
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert len(look(store, kept).index) == 401


@pytest.mark.requirement("009-9.1-2", "009-9.1-4")
def test_namespaces_have_indexes_graphs_and_hashes_of_their_own(store: Store, engine: Any) -> None:
    ours, theirs = live(store, engine), live(store, engine, name="other")
    rows = vectors(120)
    put(store, numbered(60), rows[:60])
    put(store, numbered(60, 60), rows[60:], "other")
    ours.settle()
    theirs.settle()
    seen = set(ids(look(store, ours).index.nearest(rows[70], 500)))
    assert seen == {fact(n).fact_id for n in range(60)}
    with store.begin(NAME, write=False) as transaction:
        before = ours.state_hash(transaction.facts)
    put(store, numbered(1, 200), rows[:1], "other")
    with store.begin(NAME, write=False) as transaction:
        assert ours.state_hash(transaction.facts) == before
    with store.begin("other", write=False) as transaction:
        assert theirs.state_hash(transaction.facts) != before
    if store.cache(NAME) is not None:
        assert store.cache(NAME).load(GRAPH_FILE).path != store.cache("other").load(GRAPH_FILE).path


@pytest.mark.requirement("009-3.3-5")
def test_a_namespace_that_shrank_is_one_block_again_without_its_graph(
    store: Store, engine: Any
) -> None:
    kept = live(store, engine)
    put(store, numbered(200), vectors(200))
    kept.settle()
    assert look(store, kept).index.graph is not None
    gone = [fact(number).fact_id for number in range(40, 200)]
    write(store, lambda facts: facts.set_status(gone, FactStatus.DELETED, NOON))
    kept.settle()
    index = look(store, kept).index
    assert index.graph is None
    assert len(index.base) == len(index) == 40
    query = vectors(1, seed=5)[0]
    assert index.nearest(query, 20) == fresh(store).nearest(query, 20)
    # A few facts less than the size for a graph are no reason to throw one away.
    put(store, numbered(20, start=300), vectors(20, seed=6))
    kept.settle()
    assert look(store, kept).index.graph is not None
    write(
        store,
        lambda facts: facts.set_status(
            [fact(number).fact_id for number in range(300, 311)], FactStatus.DELETED, NOON
        ),
    )
    assert len(look(store, kept).index) == 49
    assert look(store, kept).index.graph is not None
