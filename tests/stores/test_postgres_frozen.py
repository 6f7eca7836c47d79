"""A server that is frozen, or cut off without a word, holds no caller for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from crp_integrations.errors import StoreBusy
from crp_integrations.stores.postgres import PostgresStore, pool
from crp_integrations.testing.fixtures import NAMESPACE, fact, rows
from tests.postgres import Server

BUSY_SECONDS = 1.0
# A statement's patience, a check by another connection, and the wait for one more.
BOUND_SECONDS = 12.0


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    with closing(Server("fsync=off")) as made:
        yield made


@pytest.fixture
def store(own: Server) -> Iterator[PostgresStore]:
    with (
        own.database() as name,
        closing(PostgresStore(own.address(name), busy_seconds=BUSY_SECONDS)) as made,
    ):
        with made.begin(NAMESPACE) as transaction:
            transaction.facts.add([fact("seen")], rows([fact("seen")]))
        yield made


def size(store: PostgresStore) -> int:
    with store.begin(NAMESPACE, write=False) as transaction:
        return len(transaction.facts.retrievable())


@pytest.mark.parametrize("idle", [False, True])
def test_a_read_ends_while_the_server_is_frozen(own, store, idle, monkeypatch):
    if idle:
        # A connection that was not used for a while is checked first.
        monkeypatch.setattr(pool, "TRUSTED_SECONDS", 0.0)
    assert size(store) == 1
    with own.frozen():
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreBusy):
                size(store)
            assert time.monotonic() - began < BOUND_SECONDS
    assert size(store) == 1


def test_a_write_within_which_the_server_freezes_is_undone(own, store):
    def write() -> None:
        made = [fact("unseen")]
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add(made, rows(made))
            with own.frozen():
                transaction.facts.retrievable()

    with pytest.raises(StoreBusy):
        write()
    assert size(store) == 1


def test_a_slow_statement_of_a_server_that_answers_is_waited_for(own, store):
    with store._connection() as connection:
        slow = f"SELECT 7 FROM pg_sleep({3 * BUSY_SECONDS})"
        assert connection.one(slow) == (7,)


def test_a_refusal_is_an_answer_and_what_happens_on_the_way_is_none(own, store):
    with store._connection() as connection:
        raw = connection.raw
        assert raw.answers()
        host, port = raw.info.host, raw.info.port
        refused = PostgresStore(own.address("no-such-database"), busy_seconds=BUSY_SECONDS)
        with closing(refused):
            assert refused._pool._answers(host, "", port)
            # Nobody listens there, or nobody knows the name.
            assert not refused._pool._answers("127.0.0.1", "", 1)
            assert not refused._pool._answers("no-host.invalid", "", port)
