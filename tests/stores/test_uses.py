"""Uses of facts: counted in rows of their own, and read with what the facts came with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.ports.store import fault_counts_of
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.transfer import move
from crp_integrations.testing.fixtures import NAMESPACE, NOON, fact, rows
from crp_integrations.vocabulary import FactStatus
from tests.postgres import server

DAY = timedelta(days=1)
# Used before it came here, never used, and never given a moment.
GIVEN = [
    fact("used", access_count=3, last_accessed_at=NOON, ingested_at=NOON - DAY),
    fact("fresh", ingested_at=NOON),
    fact("timeless", ingested_at=None),
    fact("aside", ingested_at=NOON - DAY, status=FactStatus.DELETED),
]
IDS = [one.fact_id for one in GIVEN]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        with closing(SqliteStore(tmp_path / "kb")) as made:
            yield made
    else:
        with (
            server().database() as name,
            closing(PostgresStore(server().address(name))) as database,
        ):
            yield database


def given(store: Store, facts: list[Fact] = GIVEN) -> None:
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(facts, rows(facts))


def counts(store: Store) -> dict[str, tuple[int, object]]:
    with store.begin(NAMESPACE, write=False) as transaction:
        found = transaction.facts.get(IDS)
    return {one.content: (one.access_count, one.last_accessed_at) for one in found}


def test_uses_are_counted_on_top_of_what_a_fact_came_with(store: Store) -> None:
    given(store)
    before = counts(store)
    for days in (2, 1):
        # Also a clock that was set back has the last word.
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch(IDS[:2], NOON + days * DAY)
    assert counts(store) == before | {"used": (5, NOON + DAY), "fresh": (2, NOON + DAY)}


def test_a_record_put_in_its_place_has_the_last_word(store: Store) -> None:
    given(store)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.touch(IDS, NOON + DAY)
        (read,) = transaction.facts.get(IDS[:1])
        transaction.facts.replace([read.changed(community_label="seas")])
    assert counts(store)["used"] == (4, NOON + DAY)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.replace([GIVEN[1]])
        transaction.facts.touch(IDS[:1], NOON + 2 * DAY)
    assert counts(store) == {
        "used": (5, NOON + 2 * DAY),
        "fresh": (0, None),
        "timeless": (1, NOON + DAY),
        "aside": (1, NOON + DAY),
    }


def test_what_was_used_is_not_out_of_use(store: Store) -> None:
    given(store)

    def unused(days: float, **more: object) -> list[str]:
        where = Where(unused_since=NOON + days * DAY, **more)
        with store.begin(NAMESPACE, write=False) as transaction:
            found = {*transaction.facts.find(where)}
        return [one.content for one in GIVEN if one.fact_id in found]

    every = {"statuses": tuple(FactStatus)}
    assert unused(0) == ["timeless"]
    assert unused(0.5) == ["used", "fresh", "timeless"]
    assert unused(0.5, **every) == ["used", "fresh", "timeless", "aside"]
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.touch([IDS[0], IDS[2], IDS[3]], NOON + DAY)
    assert unused(1) == unused(1, **every) == ["fresh"]
    assert unused(1.5) == ["used", "fresh", "timeless"]
    assert unused(1.5, **every) == ["used", "fresh", "timeless", "aside"]
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.touch(IDS[:1], NOON - 2 * DAY)
        transaction.facts.touch(IDS[1:2], NOON - 2 * DAY)
    # It was used before it came in, by a clock that was set back; it came in at noon.
    assert unused(-0.5) == ["used"]
    assert unused(0.5) == ["used", "fresh"]


def test_findings_are_a_share_of_all_uses(store: Store) -> None:
    given(store)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.touch(IDS[:1], NOON)
        facet = fault_counts_of(transaction)
        assert facet is not None
        assert (facet.count(IDS[:1])[IDS[0]].findings, facet.count(IDS[:1])[IDS[0]].uses) == (1, 4)
        assert facet.due(2, 0.5) == IDS[:1]
        assert facet.due(2, 0.6) == []
        facet.reset(IDS[:1])
        transaction.facts.touch(IDS[:1], NOON)
        assert facet.count(IDS[:1])[IDS[0]].uses == 1


def test_they_go_with_their_fact(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "kb")) as store:
        given(store)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch(IDS, NOON)
            transaction.facts.remove(IDS[1:])
        assert store.check(NAMESPACE) == []
    (path,) = tmp_path.rglob("*.sqlite")
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT uses, last_used_at FROM fact_uses").fetchall() == [
            (1, "2026-05-25T12:00:00Z")
        ]


def test_a_move_takes_them_along(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "a")) as old, closing(SqliteStore(tmp_path / "b")) as new:
        given(old)
        with old.begin(NAMESPACE) as transaction:
            transaction.facts.touch(IDS[:2], NOON + DAY)
        move(old, new, NAMESPACE, lambda table, written: None)
        assert counts(new) == counts(old)
        assert counts(new)["used"] == (4, NOON + DAY)
