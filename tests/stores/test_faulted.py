"""Findings against facts, in both stores."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.fabric.ports.faulted import Counted, faulted_in
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.records import NAMESPACE, facts, rows
from tests.doubles import NOON


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    with made.begin(NAMESPACE) as transaction:
        chosen = facts("walrus sleeps", "otter swims")
        transaction.facts.add(chosen, rows(chosen))
    yield made
    made.close()


def ids(store: Any) -> list[str]:
    with store.begin(NAMESPACE, write=False) as transaction:
        return [id_ for id_, _ in transaction.facts.retrievable()]


def counted(store: Any, *fact_ids: str) -> dict[str, Counted]:
    with store.begin(NAMESPACE) as transaction:
        facet = faulted_in(transaction)
        assert facet is not None
        return facet.count(fact_ids)


def test_findings_and_uses_are_counted_for_each_fact(store: Any) -> None:
    one, other = ids(store)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.touch([one, other], NOON)
        transaction.facts.touch([one], NOON + timedelta(hours=1))
    assert counted(store, one) == {one: Counted(1, 2)}
    assert counted(store, one, other) == {one: Counted(2, 2), other: Counted(1, 1)}
    assert counted(store, "unknown") == {}


def test_a_reset_forgets_findings_and_the_uses_before_it(store: Any) -> None:
    one, other = ids(store)
    counted(store, one, other)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.touch([one], NOON)
        facet = faulted_in(transaction)
        assert facet is not None
        facet.reset([one, "unknown"])
        transaction.facts.touch([one], NOON + timedelta(hours=1))
    assert counted(store, one, other) == {one: Counted(1, 1), other: Counted(2, 0)}


def test_what_is_undone_counts_nothing(store: Any) -> None:
    one, _ = ids(store)

    def undone() -> None:
        with store.begin(NAMESPACE) as transaction:
            facet = faulted_in(transaction)
            assert facet is not None
            facet.count([one])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        undone()
    assert counted(store, one) == {one: Counted(1, 0)}


def test_counts_go_with_their_fact(store: Any) -> None:
    one = facts("walrus sleeps", "otter swims")[0].fact_id
    counted(store, one)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove([one])
    assert counted(store, one) == {}
    with store.begin(NAMESPACE) as transaction:
        again = facts("walrus sleeps", "otter swims")[:1]
        transaction.facts.add(again, rows(again))
    assert set(ids(store)) >= {one}
    assert counted(store, one) == {one: Counted(1, 0)}
