"""How a search reads: its round trips, its end, and the rows that it is sent."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest
from psycopg.pq import TransactionStatus

from crp_integrations import Relay
from crp_integrations.errors import EngineError, StoreBusy, StoreError
from crp_integrations.fabric.ports.searching import searching_in
from crp_integrations.fabric.search.stored import StoredIndex
from crp_integrations.stores.postgres import PostgresStore, vector_search
from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.postgres.dialect import vector_sent
from crp_integrations.stores.postgres.session import Session
from crp_integrations.testing.records import NAMESPACE, fact, rows
from tests.doubles import HashEmbedder
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.stores.postgres_processes import OPTIONS

TEXTS = [f"text {number}" for number in range(6)]


@pytest.fixture
def store(postgres_address):  # noqa: F811
    made = PostgresStore(postgres_address, index_from=3)
    facts = [fact(text) for text in TEXTS]
    with made.begin(NAMESPACE) as transaction:
        transaction.facts.add(facts, rows(facts))
    yield made
    made.close()


@pytest.fixture
def trips(monkeypatch):
    """The round trips of readings, in order."""
    made: list[str] = []
    for name in ("at_once", "together", "sent", "rows", "one", "script"):
        before = getattr(Connection, name)

        def noted(self, *given, _before=before, _name=name, **named):
            made.append(_name)
            return _before(self, *given, **named)

        monkeypatch.setattr(Connection, name, noted)
    return made


def vector():
    return rows([fact(TEXTS[0])])[0]


def nearest(transaction, k=3, **named):
    return StoredIndex(transaction.facts, searching_in(transaction.facts)).nearest(
        vector(), k, **named
    )


def test_a_search_that_is_the_last_read_takes_two_round_trips_and_ends_its_transaction(
    store, trips
):
    with store.begin(NAMESPACE, write=False) as transaction:
        usual = nearest(transaction)
    trips.clear()
    with store.begin(NAMESPACE, write=False) as transaction:
        assert nearest(transaction, last=True) == usual
        raw = transaction.facts._connection.raw
        assert raw.pgconn.transaction_status == TransactionStatus.IDLE
        # Nothing is read of another state than the search saw.
        for read in (transaction.facts.generation, lambda: nearest(transaction)):
            with pytest.raises(StoreError, match="has ended"):
                read()
        for facet in (transaction.journal, transaction.sessions, transaction.receipts):
            with pytest.raises(StoreError, match="has ended"):
                facet._gate.reading()
    assert trips == ["together", "sent"]
    # The connection is as good as before.
    with store.begin(NAMESPACE, write=False) as transaction:
        assert nearest(transaction) == usual and transaction.facts.generation() == 1


def test_the_first_reading_of_a_process_may_end_with_its_search_too(
    store,
    postgres_address,  # noqa: F811
    trips,
):
    fresh = PostgresStore(postgres_address, index_from=3)
    with fresh.begin(NAMESPACE, write=False) as transaction:
        assert len(nearest(transaction, last=True)) == 3
    # Nothing is left to be committed.
    assert trips[-1] == "sent"
    fresh.close()


def test_a_writer_goes_on_after_its_last_search(store):
    more = [fact("one more")]
    with store.begin(NAMESPACE) as transaction:
        assert len(nearest(transaction, last=True)) == 3
        transaction.facts.add(more, rows(more))
    with store.begin(NAMESPACE, write=False) as transaction:
        assert len(transaction.facts.retrievable()) == len(TEXTS) + 1


def test_a_last_search_that_fails_leaves_the_connection_whole(store, postgres_address):  # noqa: F811
    schema = searching_schema(store)
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        raw.execute(f"ALTER TABLE {schema}.vectors RENAME TO lost")
        with pytest.raises(StoreError), store.begin(NAMESPACE, write=False) as transaction:
            nearest(transaction, last=True)
        raw.execute(f"ALTER TABLE {schema}.lost RENAME TO vectors")
    with store.begin(NAMESPACE, write=False) as transaction:
        assert len(nearest(transaction, last=True)) == 3


def searching_schema(store: PostgresStore) -> str:
    with store.begin(NAMESPACE, write=False) as transaction:
        return transaction.facts._connection.one("SELECT current_schema()")[0]


def test_a_reading_whose_server_ends_its_connection_is_told_and_the_next_one_reads(
    store,
    postgres_address,  # noqa: F811
):
    with store.begin(NAMESPACE, write=False) as transaction:
        pid = transaction.facts._connection.raw.info.backend_pid
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        raw.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    # It was in use a moment ago, so nobody asks first whether it is still there.
    with pytest.raises(StoreBusy), store.begin(NAMESPACE, write=False) as transaction:
        nearest(transaction, last=True)
    with store.begin(NAMESPACE, write=False) as transaction:
        assert len(nearest(transaction, last=True)) == 3
        assert transaction.facts._connection.raw.info.backend_pid != pid


def test_a_server_that_goes_within_a_search_is_told(store, postgres_address):  # noqa: F811
    def asked() -> None:
        with store.begin(NAMESPACE, write=False) as transaction:
            pid = transaction.facts._connection.raw.info.backend_pid
            with psycopg.connect(postgres_address, autocommit=True) as raw:
                raw.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            nearest(transaction, last=True)

    with pytest.raises(StoreBusy):
        asked()
    with store.begin(NAMESPACE, write=False) as transaction:
        assert len(nearest(transaction)) == 3


def test_a_search_that_is_interrupted_half_way_leaves_no_connection_behind(store, monkeypatch):
    before, calls = Session._crp_next, []

    def interrupted(self):
        calls.append(before(self))
        # Two of the beginning and its end, then the search; its COMMIT is still to come.
        if len(calls) == 4:
            raise KeyboardInterrupt
        return calls[-1]

    def asked() -> int:
        with store.begin(NAMESPACE, write=False) as transaction:
            pid = transaction.facts._connection.raw.info.backend_pid
            nearest(transaction, last=True)
        return pid

    pid = asked()
    monkeypatch.setattr(Session, "_crp_next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        asked()
    assert asked() != pid


def test_a_search_of_the_fabric_ends_with_its_statement(postgres_address, trips):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=3)
    # With four facts at most in memory, this one searches in the database.
    with Relay.open(store, **OPTIONS, fabric={"graph": {"exact_up_to": 4}}) as relay:
        relay.fabric.add([f"The walrus number {n} sleeps on the ice" for n in range(9)])
        asked = HashEmbedder().embed_query("where does the walrus sleep?")
        trips.clear()
        assert len(relay.fabric.nearest(asked, 5)) == 5
        assert trips[-1] == "sent"


@pytest.mark.parametrize("k", [1, 3, 50])
def test_rows_that_are_many_are_sent_one_by_one_and_are_the_same(store, monkeypatch, k):
    with store.begin(NAMESPACE, write=False) as transaction:
        together = searching_in(transaction.facts).nearest(vector(), k)
    monkeypatch.setattr(vector_search, "MOST_TOGETHER", 0)
    vector_search._statement.cache_clear()
    with store.begin(NAMESPACE, write=False) as transaction:
        alone = searching_in(transaction.facts).nearest(vector(), k)
    vector_search._statement.cache_clear()
    assert together[0] == alone[0] and np.array_equal(together[1], alone[1])
    assert len(together[0]) == min(k + vector_search.SPARE, len(TEXTS))


def test_nothing_that_is_found_is_no_row(store):
    with store.begin(NAMESPACE, write=False) as transaction:
        ids, found = searching_in(transaction.facts).nearest(vector(), 3, label_sets=[("none",)])
        assert ids == [] and found.shape == (0, len(vector()))
        assert searching_in(transaction.facts).nearest(vector(), 3, among=[])[0] == []


def sent(*lengths: int) -> bytes:
    return b"".join(vector_sent(np.arange(length, dtype="<f4").tobytes()) for length in lengths)


def test_rows_and_ids_come_as_they_were_stored():
    ids, found = vector_search._block([(b"a\0\x1a0b\x1a1", sent(3, 3)), (b"c", sent(3))], 3)
    assert ids == ["a", "\0b\x1a", "c"]
    assert found.dtype == np.float32 and found.flags.c_contiguous
    assert np.array_equal(found, [[0, 1, 2]] * 3)


@pytest.mark.parametrize("lengths", [(3, 3, 2), (3, 4, 2), (2, 4, 3), (4, 3, 3)])
def test_a_row_of_another_length_is_refused_by_its_fact(lengths):
    first = next(place for place, length in enumerate(lengths) if length != 3)
    with pytest.raises(EngineError, match=f"of fact {'abc'[first]} has {lengths[first]} numbers"):
        vector_search._block([(b"a\0b\0c", sent(*lengths))], 3)
