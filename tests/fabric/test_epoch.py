"""The epoch enters the state hash once it was advanced, and never before."""

from __future__ import annotations

import pytest

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.namespace_counters import (
    EPOCH_SETTING,
    advance_epoch,
    epoch_item,
    read_epoch,
)
from crp_integrations.fabric.search.namespace_state import NamespaceState
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.stores.memory import MemoryStore
from tests.fabric.pictures import NAME, numbered, put, vectors


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
