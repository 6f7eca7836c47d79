"""How a search reads: its end, and the rows that it is sent."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from crp_integrations.errors import EngineError, StoreBusy, StoreError
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.fabric.search.store_index import StoreIndex
from crp_integrations.stores.postgres import PostgresStore, vector_search
from crp_integrations.stores.postgres.connection import PostgresConnection, vector_sent
from crp_integrations.testing.fixtures import NAMESPACE, fact, rows
from tests.postgres import postgres_address  # noqa: F401 - a fixture

TEXTS = [f"text {number}" for number in range(6)]


@pytest.fixture
def store(postgres_address):  # noqa: F811
    made = PostgresStore(postgres_address, index_from=3)
    facts = [fact(text) for text in TEXTS]
    with made.begin(NAMESPACE) as transaction:
        transaction.facts.add(facts, rows(facts))
    yield made
    made.close()


def vector():
    return rows([fact(TEXTS[0])])[0]


def nearest(transaction):
    index = StoreIndex(transaction.facts, vector_search_of(transaction.facts))
    return index.nearest(vector(), 3, [True] * len(index.label_sets))


def test_a_search_that_fails_leaves_the_connection_whole(store, postgres_address):  # noqa: F811
    schema = searching_schema(store)
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        raw.execute(f"ALTER TABLE {schema}.vectors RENAME TO lost")
        with pytest.raises(StoreError), store.begin(NAMESPACE, write=False) as transaction:
            nearest(transaction)
        raw.execute(f"ALTER TABLE {schema}.lost RENAME TO vectors")
    with store.begin(NAMESPACE, write=False) as transaction:
        assert len(nearest(transaction)) == 3


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
        nearest(transaction)
    with store.begin(NAMESPACE, write=False) as transaction:
        assert len(nearest(transaction)) == 3
        assert transaction.facts._connection.raw.info.backend_pid != pid


def test_a_server_that_goes_within_a_search_is_told(store, postgres_address):  # noqa: F811
    def asked() -> None:
        with store.begin(NAMESPACE, write=False) as transaction:
            pid = transaction.facts._connection.raw.info.backend_pid
            with psycopg.connect(postgres_address, autocommit=True) as raw:
                raw.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            nearest(transaction)

    with pytest.raises(StoreBusy):
        asked()
    with store.begin(NAMESPACE, write=False) as transaction:
        assert len(nearest(transaction)) == 3


def test_nothing_that_is_found_is_no_row(store):
    with store.begin(NAMESPACE, write=False) as transaction:
        ids, found = vector_search_of(transaction.facts).nearest(
            vector(), 3, label_sets=[("none",)]
        )
        assert ids == [] and found.shape == (0, len(vector()))
        assert vector_search_of(transaction.facts).nearest(vector(), 3, among=[])[0] == []


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


def test_what_a_whole_namespace_has_is_read_when_a_reading_begins(store, monkeypatch):
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.set_setting("a", "b\0c")
    with store.begin(NAMESPACE, write=False) as transaction:
        facts = transaction.facts
        for name in ("rows", "one", "execute"):
            monkeypatch.setattr(PostgresConnection, name, None)
        assert (facts.setting("a"), facts.setting("b")) == ("b\0c", None)
        assert facts.generation() == 1
        assert facts.mark().sequence == len(TEXTS)
        assert facts.mark().token
        monkeypatch.undo()
