"""The store in memory, where readers and a writer of one namespace meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from crp_integrations.fabric.ports import FactsFacet, Store
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.testing.fixtures import NAMESPACE, fact, rows


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(MemoryStore()) as made:
        with made.begin(NAMESPACE) as transaction:
            add(transaction.facts, "first walrus")
        yield made


def add(facts: FactsFacet, text: str) -> None:
    made = [fact(text)]
    facts.add(made, rows(made))


def seen(facts: FactsFacet) -> set[str]:
    """Texts that the word search finds, which are those that are kept."""
    found = {id_ for id_, _ in facts.search_text(["walrus"], 9)}
    assert found == {id_ for id_, _ in facts.retrievable()}
    return {text for _, text in facts.texts(sorted(found))}


@pytest.mark.parametrize("commits", [True, False])
def test_readers_beside_a_writer_see_what_was_committed(store: Store, commits: bool) -> None:
    error = None if commits else ValueError("stop")
    try:
        with store.begin(NAMESPACE) as writer:
            add(writer.facts, "second walrus")
            with store.begin(NAMESPACE, write=False) as reader:
                assert seen(reader.facts) == {"first walrus"}
                add(writer.facts, "third walrus")
                assert seen(writer.facts) == {"first walrus", "second walrus", "third walrus"}
                assert seen(reader.facts) == {"first walrus"}
            add(writer.facts, "fourth walrus")
            if error is not None:
                raise error
    except ValueError:
        assert error is not None
    after = {"first walrus"}
    if commits:
        after |= {"second walrus", "third walrus", "fourth walrus"}
    with store.begin(NAMESPACE, write=False) as reader:
        assert seen(reader.facts) == after


def test_every_reader_keeps_the_state_it_began_with(store: Store) -> None:
    with store.begin(NAMESPACE, write=False) as oldest:
        with store.begin(NAMESPACE) as writer:
            add(writer.facts, "second walrus")
        with store.begin(NAMESPACE, write=False) as later:
            with store.begin(NAMESPACE) as writer:
                add(writer.facts, "third walrus")
            assert len(seen(oldest.facts)) == 1
            assert len(seen(later.facts)) == 2
        with store.begin(NAMESPACE, write=False) as last:
            assert len(seen(last.facts)) == 3


def test_a_store_is_closed_under_its_transactions(store: Store) -> None:
    with store.begin(NAMESPACE, write=False) as reader, store.begin(NAMESPACE) as writer:
        add(writer.facts, "second walrus")
        store.close()
        assert seen(reader.facts) == {"first walrus"}
