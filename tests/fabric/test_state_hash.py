"""The state hash kept from change to change is that of the formula.

The epoch enters the state hash once it was advanced, and never before.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.search.namespace_state import NamespaceState
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.fabric.state_hash import (
    EPOCH_SETTING,
    Item,
    StateHash,
    advance_epoch,
    epoch_item,
    read_epoch,
    state_hash,
)
from crp_integrations.stores.memory import MemoryStore
from tests.fabric.vector_facts import NAME, numbered, put, vectors

EMPTY = "sha256:" + hashlib.sha256(b"").hexdigest()
# Ids that begin like each other, hold what joins items, or come before and behind the epoch.
IDS = st.text(alphabet="ab:|@zé\U0001f600", min_size=0, max_size=4)
ITEMS = st.tuples(IDS, st.text(alphabet="ab:|", max_size=3), st.sampled_from(["ACTIVE", "STALE"]))
EPOCHS = st.none() | st.tuples(st.just("@epoch"), st.sampled_from("123"), st.just("model/1"))
STEPS = st.tuples(st.lists(IDS, max_size=4), st.lists(ITEMS, max_size=6), EPOCHS)


def formula(items: dict[str, Item], epoch: Item | None) -> str:
    return state_hash([*items.values(), *([] if epoch is None else [epoch])])


@pytest.mark.requirement("009-6.1-1", "009-6.1-4")
@settings(max_examples=150)
@given(st.lists(ITEMS, max_size=30), st.lists(STEPS, max_size=12))
def test_any_sequence_of_changes_gives_the_formula(
    first: list[Item], steps: list[tuple[list[str], list[Item], Any]]
) -> None:
    items = {item[0]: item for item in first}
    state = StateHash(items.values())
    assert (state.digest, len(state)) == (formula(items, None), len(items))
    for removed, added, epoch in steps:
        earlier, digest = state, state.digest
        new = {item[0]: item for item in added}
        for id_ in removed:
            items.pop(id_, None)
        items |= new
        state = state.changed(removed, new.values(), epoch)
        assert state.digest == formula(items, epoch)
        assert len(state) == len(items)
        # What it was made from is still what it was.
        assert earlier.digest == digest
        assert earlier.changed([], [], earlier.epoch) is earlier


@pytest.mark.requirement("009-6.1-1")
def test_the_formula_to_the_letter() -> None:
    items = [("id2", "sha256:bb", "STALE"), ("id10", "sha256:aa", "ACTIVE")]
    joined = "id10:sha256:aa:ACTIVE|id2:sha256:bb:STALE"
    wanted = "sha256:" + hashlib.sha256(joined.encode()).hexdigest()
    assert state_hash(items) == StateHash(items).digest == wanted
    assert state_hash([]) == StateHash().digest == EMPTY


@given(st.lists(st.tuples(st.uuids().map(str), st.text(max_size=3)), unique_by=lambda t: t[0]))
def test_the_order_of_facts_does_not_matter(pairs: list[tuple[str, str]]) -> None:
    items = [(name, text.replace("\ud800", ""), "ACTIVE") for name, text in pairs]
    assert state_hash(items) == state_hash(reversed(items)) == StateHash(reversed(items)).digest


@pytest.mark.requirement("009-6.1-3")
def test_the_epoch_is_one_more_item() -> None:
    items = [("ffff", "sha256:a", "ACTIVE"), ("0000", "sha256:b", "STALE")]
    plain = StateHash(items)
    joined = "0000:sha256:b:STALE|@epoch:3:minilm/1|ffff:sha256:a:ACTIVE"
    third = plain.changed([], [], ("@epoch", "3", "minilm/1"))
    assert third.digest == "sha256:" + hashlib.sha256(joined.encode()).hexdigest()
    assert third.changed([], [], None).digest == plain.digest
    assert third.changed([], [], ("@epoch", "3", "minilm/1")) is third


def test_a_fact_cannot_pass_for_the_epoch() -> None:
    epoch = ("@epoch", "1", "minilm/1")
    both = StateHash([epoch], epoch)
    assert both.digest == state_hash([epoch, epoch])
    assert both.changed([], [], None).digest == state_hash([epoch])
    assert both.changed(["@epoch"], [], epoch).digest == state_hash([epoch])


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    put(made, numbered(5), vectors(5))
    return made


def read(store: MemoryStore, live: NamespaceState) -> str:
    with store.begin(NAME, write=False) as transaction:
        assert live.hash_in(transaction.facts) == live.state_hash(transaction.facts)
        return live.state_hash(transaction.facts)


@pytest.mark.requirement("009-6.1-3", "009-6.2-3", "009-3.4-4")
def test_advancing_changes_the_hash_by_one_item_and_nothing_else(store: MemoryStore) -> None:
    live = NamespaceState(lambda: store.begin(NAME, write=False), None, VectorGraphSettings())
    with store.begin(NAME, write=False) as transaction:
        items = list(transaction.facts.state())
        assert epoch_item(transaction.facts) is None
    assert read(store, live) == state_hash(items)
    seen = {read(store, live)}
    for number in (1, 2, 3):
        with store.begin(NAME, write=True) as transaction:
            assert advance_epoch(transaction.facts) == number
            inside = live.hash_in(transaction.facts)
        wanted = state_hash([*items, ("@epoch", str(number), "rows/1")])
        assert read(store, live) == inside == wanted
        seen.add(wanted)
    assert len(seen) == 4
    with store.begin(NAME, write=True) as transaction:
        transaction.facts.set_setting("embedder", "rows/2")
    assert read(store, live) == state_hash([*items, ("@epoch", "3", "rows/2")])


def test_the_model_enters_only_with_an_epoch(store: MemoryStore) -> None:
    live = NamespaceState(lambda: store.begin(NAME, write=False), None, VectorGraphSettings())
    before = read(store, live)
    with store.begin(NAME, write=True) as transaction:
        transaction.facts.set_setting("embedder", "rows/2")
    assert read(store, live) == before


def test_an_epoch_that_is_no_number_is_damage(store: MemoryStore) -> None:
    with store.begin(NAME, write=True) as transaction:
        transaction.facts.set_setting(EPOCH_SETTING, "two")
        with pytest.raises(StoreDamaged, match="wanted a number"):
            read_epoch(transaction.facts)
