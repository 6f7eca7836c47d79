"""Laws of the exact search and of fact identity.

The index brought forward from change to change answers as one that is read afresh.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from crp_integrations.errors import CRPError, EngineError, StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.search import vector_index as module
from crp_integrations.fabric.search.namespace_state import NamespaceState
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.fabric.state_hash import advance_epoch, epoch_item, state_hash
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import unit_rows
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON
from tests.fabric.vector_facts import NAME, fact, numbered, put, ties


def index(block: np.ndarray, labels: list[tuple[str, ...]] | None = None) -> VectorIndex:
    ids = [f"f{number:05d}" for number in range(len(block))]
    return VectorIndex.of(1, list(zip(ids, labels or [()] * len(ids), strict=True)), block)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(2, 40), st.integers(1, 60))
def test_search_finds_the_k_best_in_order(seed: int, rows: int, width: int, k: int) -> None:
    random = np.random.default_rng(seed)
    # Few distinct values, so that ties are common.
    block = unit_rows(random.integers(-1, 2, size=(rows, width)))
    vector = unit_rows(random.integers(-1, 2, size=(1, width)))[0]
    made = index(block)
    hits = made.nearest(vector, k)
    exact = np.einsum("ij,j->i", block, vector, dtype=np.float32)
    wanted = sorted(range(rows), key=lambda i: (-float(exact[i]), made.ids[i]))[:k]
    assert [hit.fact_id for hit in hits] == [made.ids[i] for i in wanted]
    assert [hit.score for hit in hits] == [float(exact[i]) for i in wanted]


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_a_score_does_not_depend_on_what_else_is_stored(seed: int) -> None:
    random = np.random.default_rng(seed)
    block = unit_rows(random.standard_normal((200, 384)))
    vector = unit_rows(random.standard_normal((1, 384)))[0]
    alone = {hit.fact_id: hit.score for hit in index(block[:50]).nearest(vector, 50)}
    among = {hit.fact_id: hit.score for hit in index(block).nearest(vector, 200)}
    assert all(among[name] == score for name, score in alone.items())


def test_labels_that_are_withheld_do_not_appear() -> None:
    random = np.random.default_rng(1)
    labels: list[tuple[str, ...]] = [("a",) if n % 3 else ("b",) for n in range(90)]
    made = index(unit_rows(random.standard_normal((90, 8))), labels)
    vector = unit_rows(random.standard_normal((1, 8)))[0]
    hits = made.nearest(vector, 90, allowed=[False, True])
    assert len(hits) == 30
    assert all(labels[int(hit.fact_id[1:])] == ("b",) for hit in hits)
    assert made.nearest(vector, 5, allowed=[False, False]) == []
    with pytest.raises(StoreError):
        made.rows([made.ids[1]], allowed=[False, True])


def test_a_vector_of_another_length_is_refused() -> None:
    made = index(unit_rows(np.eye(4)))
    with pytest.raises(EngineError, match=r"wanted \(4,\)"):
        made.nearest(np.ones(3, dtype=np.float32), 1)
    with pytest.raises(EngineError, match="finite"):
        made.nearest(np.array([np.nan, 0, 0, 0], dtype=np.float32), 1)


@pytest.mark.requirement("009-2-2")
@given(st.text(min_size=1, max_size=20), st.text(max_size=9), st.text(max_size=9))
def test_a_fact_id_is_a_uuid5_of_source_location_and_content(
    content: str, source: str, location: str
) -> None:
    fact = Fact(content=content, source_id=source, source_location=location)
    assert UUID(fact.fact_id).version == 5
    assert fact.fact_id == Fact(content=content, source_id=source, source_location=location).fact_id
    for other in (
        Fact(content=content + "x", source_id=source, source_location=location),
        Fact(content=content, source_id=source + "x", source_location=location),
        Fact(content=content, source_id=source, source_location=location + "x"),
    ):
        assert other.fact_id != fact.fact_id
    moved = fact.changed(content="quite another text", source_location="elsewhere")
    assert moved.fact_id == fact.fact_id


@pytest.mark.requirement("009-2-3")
@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_the_content_hash_reveals_any_change(content: str, other: str) -> None:
    fact = Fact(content=content)
    assert fact.content_hash == "sha256:" + hashlib.sha256(content.encode()).hexdigest()
    assert (fact.changed(content=other).content_hash == fact.content_hash) == (content == other)
    # A hash that is handed in is never believed.
    assert Fact(content=content, content_hash="sha256:0").content_hash == fact.content_hash


LABELS = [(), ("a",), ("b",), ("a", "b")]
NUMBERS = st.lists(st.integers(0, 59), min_size=1, max_size=8, unique=True)


class Undone(CRPError):
    """Ends a transaction that is to be undone."""


class Bringing(RuleBasedStateMachine):
    """Whatever is written, and undone, between two looks: both answers are the same."""

    store: Store
    merge_rows = 3

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.kept_rows, self.kept_share = module._MERGE_ROWS, module._MERGE_SHARE
        module._MERGE_ROWS = self.merge_rows
        self.store = self.make()
        self.seed = seed
        self.live = self.watch()
        self.there: set[str] = set()
        self.round = 0
        made = numbered(30) if seed % 4 else []
        put(self.store, made, self.rows(len(made)))
        self.there |= {one.fact_id for one in made}

    def make(self) -> Store:
        return MemoryStore()

    def watch(self) -> NamespaceState:
        settings = VectorGraphSettings(exact_up_to=10**6)
        return NamespaceState(lambda: self.store.begin(NAME, write=False), None, settings)

    def teardown(self) -> None:
        module._MERGE_ROWS = self.kept_rows
        self.store.close()

    def rows(self, count: int) -> Any:
        self.round += 1
        return ties(count, seed=self.seed + self.round)

    def present(self, numbers: list[int]) -> list[str]:
        return [fact(n).fact_id for n in numbers if fact(n).fact_id in self.there]

    @rule(numbers=NUMBERS, label=st.sampled_from(LABELS), undo=st.booleans())
    def add(self, numbers: list[int], label: tuple[str, ...], undo: bool) -> None:
        made = [fact(n, labels=label) for n in numbers if fact(n).fact_id not in self.there]
        try:
            with self.store.begin(NAME, write=True) as transaction:
                transaction.facts.add(made, self.rows(len(made)))
                self.check_hash(transaction.facts)
                if undo:
                    raise Undone("undone")
        except Undone:
            return
        self.there |= {one.fact_id for one in made}

    @rule(numbers=NUMBERS, vectors=st.booleans(), label=st.sampled_from(LABELS))
    def replace(self, numbers: list[int], vectors: bool, label: tuple[str, ...]) -> None:
        self.round += 1
        ids = set(self.present(numbers))
        made = [
            fact(n, content=f"Text {self.round} of fact {n} with words enough.", labels=label)
            for n in numbers
            if fact(n).fact_id in ids
        ]
        with self.store.begin(NAME, write=True) as transaction:
            transaction.facts.replace(made, self.rows(len(made)) if vectors else None)

    @rule(numbers=NUMBERS)
    def remove(self, numbers: list[int]) -> None:
        ids = self.present(numbers)
        with self.store.begin(NAME, write=True) as transaction:
            transaction.facts.remove(ids)
        self.there -= set(ids)

    @rule(numbers=NUMBERS, status=st.sampled_from(list(FactStatus)), undo=st.booleans())
    def status(self, numbers: list[int], status: FactStatus, undo: bool) -> None:
        try:
            with self.store.begin(NAME, write=True) as transaction:
                transaction.facts.set_status(self.present(numbers), status, NOON)
                self.check_hash(transaction.facts)
                if undo:
                    raise Undone("undone")
        except Undone:
            return

    @rule(numbers=NUMBERS, back=st.booleans())
    def archive(self, numbers: list[int], back: bool) -> None:
        with self.store.begin(NAME, write=True) as transaction:
            transaction.facts.set_archived(self.present(numbers), None if back else NOON)

    @rule(numbers=NUMBERS, epoch=st.booleans())
    def recluster(self, numbers: list[int], epoch: bool) -> None:
        with self.store.begin(NAME, write=True) as transaction:
            labels = dict.fromkeys(self.present(numbers), f"c{self.round}")
            transaction.facts.set_communities(labels)
            if epoch:
                advance_epoch(transaction.facts)

    @rule(numbers=NUMBERS)
    def touch(self, numbers: list[int]) -> None:
        with self.store.begin(NAME, write=False) as transaction:
            before = self.live.state_hash(transaction.facts)
        with self.store.begin(NAME, write=True) as transaction:
            transaction.facts.touch(self.present(numbers), NOON)
        with self.store.begin(NAME, write=False) as transaction:
            assert self.live.state_hash(transaction.facts) == before

    @rule()
    def forget_the_log(self) -> None:
        with self.store.begin(NAME, write=True) as transaction:
            transaction.facts.trim_changes(1)

    def check_hash(self, facts: Any) -> None:
        item = epoch_item(facts)
        wanted = state_hash([*facts.state(), *([item] if item else [])])
        assert self.live.hash_in(facts) == wanted

    @invariant()
    def equal(self) -> None:
        with self.store.begin(NAME, write=False) as transaction:
            facts = transaction.facts
            self.check_hash(facts)
            assert self.live.state_hash(facts) == self.live.hash_in(facts)
            picture = self.live.snapshot(facts)
            brought, fresh = picture.index, VectorIndex.read(facts)
            assert picture.mark == facts.mark()
            assert picture.generation == facts.generation()
            assert self.live.snapshot(facts).mark == picture.mark
            where = Where(labels=("a",))
            chosen = brought.select(facts.find(where))
            meant = fresh.select(facts.find(where))
            query = ties(1, seed=self.round)[0]
            assert brought.nearest(query, 50, among=chosen) == fresh.nearest(query, 50, among=meant)
        assert len(brought) == len(fresh)
        assert brought.ids == fresh.ids == tuple(sorted(fresh.ids))
        ids, block = brought.all_rows()
        assert ids == fresh.ids
        np.testing.assert_array_equal(block, fresh.all_rows()[1])
        np.testing.assert_array_equal(brought.rows(ids), fresh.rows(ids))
        for k in (1, 4, 60):
            assert brought.nearest(query, k) == fresh.nearest(query, k)
        for wanted in ({"a"}, set(), {"a", "b"}):
            ours = [set(labels) <= wanted for labels in brought.label_sets]
            theirs = [set(labels) <= wanted for labels in fresh.label_sets]
            assert brought.count(ours) == fresh.count(theirs)
            assert brought.nearest(query, 5, allowed=ours) == fresh.nearest(
                query, 5, allowed=theirs
            )


class BringingOnDisk(Bringing):
    """The same with SQLite, where nothing is merged."""

    merge_rows = 10**6

    def make(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteStore(Path(self.folder.name) / "kb")

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class BringingWithGraph(BringingOnDisk):
    """The same with a graph from the first fact on, built now and then, and with new processes."""

    def watch(self) -> NamespaceState:
        from crp_integrations.engines.hnsw import HnswEngine

        begin, cache = (lambda: self.store.begin(NAME, write=False)), self.store.cache(NAME)
        return NamespaceState(begin, cache, VectorGraphSettings(exact_up_to=0), HnswEngine())

    @rule(thorough=st.booleans())
    def settle(self, thorough: bool) -> None:
        self.live.settle(thorough=thorough)

    @rule()
    def open_again(self) -> None:
        self.live = self.watch()


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
TestInMemory = pytest.mark.requirement("009-6.2-1", "009-6.2-2", "009-6.2-4", "009-6.1-4")(
    Bringing.TestCase
)
TestOnDisk = BringingOnDisk.TestCase
TestInMemory.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=SLOW
)
TestOnDisk.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=SLOW
)


def test_the_same_holds_with_a_graph() -> None:
    pytest.importorskip("hnswlib")
    run_state_machine_as_test(BringingWithGraph, settings=TestOnDisk.settings)
