"""When the vectors of a namespace get their index."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.errors import StoreBusy, StoreError
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.relay.batches import ingest_over
from crp_integrations.stores.postgres import PostgresStore, vector_search
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.testing.fixtures import NAMESPACE, fact, rows
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.stores.postgres_processes import OPTIONS


@pytest.fixture
def stores(postgres_address):  # noqa: F811
    made = [PostgresStore(postgres_address, index_from=3) for _ in range(2)]
    yield made
    for store in made:
        store.close()


def add(store: PostgresStore, *texts: str, namespace: str = NAMESPACE) -> list[str]:
    made = [fact(text, namespace=namespace) for text in texts]
    with store.begin(namespace) as transaction:
        transaction.facts.add(made, rows(made))
    return [one.fact_id for one in made]


def indexed(address: str, namespace: str = NAMESPACE) -> bool:
    with psycopg.connect(address) as raw:
        found = raw.execute(
            "SELECT count(*) FROM pg_indexes WHERE schemaname = %s AND indexname = 'vectors_near'",
            [schema_of(namespace)],
        ).fetchone()
    return found == (1,)


def size(store: PostgresStore, namespace: str = NAMESPACE) -> int:
    with store.begin(namespace, write=False) as transaction:
        return vector_search_of(transaction.facts).size()


def nearest(store: PostgresStore, text: str, namespace: str = NAMESPACE) -> str:
    with store.begin(namespace, write=False) as transaction:
        return vector_search_of(transaction.facts).nearest(rows([fact(text)])[0], 1)[0][0]


def test_an_index_comes_with_the_facts_that_make_it_due(stores, postgres_address):  # noqa: F811
    add(stores[0], "a", "b")
    assert not indexed(postgres_address) and size(stores[0]) == 0
    add(stores[0], "c")
    assert indexed(postgres_address) and size(stores[0]) == 3


def test_a_load_builds_the_index_once_at_its_end(stores, postgres_address):  # noqa: F811
    loading, other = stores
    with loading.loading(NAMESPACE):
        add(loading, "a", "b", "c", "d")
        # Nor does a writer of another process build it meanwhile.
        add(other, "e")
        assert not indexed(postgres_address) and size(loading) == 0
    assert indexed(postgres_address) and size(other) == 5
    ids = add(other, "f")
    assert nearest(loading, "f") in ids


def test_the_planner_knows_what_was_loaded(stores, postgres_address):  # noqa: F811
    with stores[0].loading(NAMESPACE):
        add(stores[0], "a", "b")
    counted = "SELECT reltuples FROM pg_class WHERE oid = %s::regclass"
    with psycopg.connect(postgres_address) as raw:
        for table in ("facts", "vectors", "stem_sequences"):
            assert raw.execute(counted, [f"{schema_of(NAMESPACE)}.{table}"]).fetchone() == (2,)


def test_a_load_of_nothing_or_without_analysis_warns_at_most(stores, postgres_address, caplog):  # noqa: F811
    with stores[0].loading("never-made"):
        pass
    assert caplog.messages == []
    add(stores[0], "a")
    with psycopg.connect(postgres_address) as raw:
        raw.execute(f"DROP FUNCTION {schema_of(NAMESPACE)}.analyze_tables()")
    with stores[0].loading(NAMESPACE):
        add(stores[0], "b", "c")
    assert "the planner's statistics" in caplog.text
    assert indexed(postgres_address)


def test_the_last_of_two_loads_builds(stores, postgres_address):  # noqa: F811
    with stores[0].loading(NAMESPACE):
        with stores[1].loading(NAMESPACE):
            add(stores[1], "a", "b", "c")
        assert not indexed(postgres_address)
    assert indexed(postgres_address)


def test_a_load_that_fails_leaves_the_index_to_the_next_writer(stores, postgres_address):  # noqa: F811
    def load() -> None:
        with stores[0].loading(NAMESPACE):
            add(stores[0], "a", "b", "c")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        load()
    assert not indexed(postgres_address)
    add(stores[1], "d")
    assert indexed(postgres_address) and size(stores[1]) == 4


def test_a_load_whose_connection_is_lost_keeps_nobody_from_building(stores, postgres_address):  # noqa: F811
    def load() -> None:
        with stores[0].loading(NAMESPACE):
            with psycopg.connect(postgres_address, autocommit=True) as raw:
                raw.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks "
                    "WHERE locktype = 'advisory' AND mode = 'ShareLock'"
                )
            add(stores[1], "a", "b", "c")

    with pytest.raises(StoreError):
        load()
    assert indexed(postgres_address)


def test_files_over_an_executor_build_the_index_once_at_their_end(
    postgres_address,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    pages = [tmp_path / f"{word}.md" for word in ("tides", "moons", "reefs", "winds", "sands")]
    for page in pages:
        page.write_text(f"This page tells quite a lot about {page.stem} at night.\n")
    sizes = []
    build = vector_search.build

    def built(connection, dimensions):
        sizes.append(connection.one("SELECT count(*) FROM vectors")[0])
        build(connection, dimensions)

    monkeypatch.setattr(vector_search, "build", built)

    def begun() -> Relay:
        return Relay.open(PostgresStore(postgres_address, index_from=3), **OPTIONS)

    with ThreadPoolExecutor(2) as executor:
        results = ingest_over(executor, begun, pages, batch="pages", workers=2)
    assert [one["facts"] for one in results] == [1] * len(pages)
    assert sizes == [len(pages)]
    assert indexed(postgres_address, "local")


def test_nothing_is_built_where_nothing_was_written(stores):
    with stores[0].loading("never"):
        pass
    assert stores[0].namespaces() == []


def test_what_is_committed_stays_when_its_index_cannot_be_built(
    stores,
    postgres_address,  # noqa: F811
    monkeypatch,
    caplog,
):
    def busy(*given):
        raise StoreBusy("another one holds the table")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(vector_search, "build", busy)
        add(stores[0], "a", "b", "c")
    assert "is not built" in caplog.text
    assert not indexed(postgres_address)
    with stores[1].begin(NAMESPACE, write=False) as transaction:
        assert len(transaction.facts.retrievable()) == 3
    add(stores[0], "d")
    assert size(stores[1]) == 4


def test_vectors_of_a_length_that_went_out_of_use_are_refused(stores):
    add(stores[0], "a")
    made = [fact("b")]

    def add_late() -> None:
        with stores[0].begin(NAMESPACE) as transaction:
            # What another embedder changes after the length was looked at, and before the turn.
            taken = transaction.facts._gate.writing

            def writing() -> None:
                taken()
                transaction.facts._connection.execute(
                    "UPDATE own SET value = value + 1 WHERE name = 'dimensions'"
                )

            transaction.facts._gate = _Gate(transaction.facts._gate, writing)
            transaction.facts.add(made, rows(made))

    with pytest.raises(StoreError, match="vectors have shape"):
        add_late()


class _Gate:
    def __init__(self, gate, writing):
        self.adding, self.reading, self.writing = gate.adding, gate.reading, writing


def test_searches_go_on_when_the_server_forgot_what_was_prepared(stores):
    one = stores[0]
    names = (NAMESPACE, "tenant-b")
    ids = {name: add(one, "a", "b", "c", namespace=name) for name in names}
    for _ in range(3):
        for name in names:
            # Each finds its own, whichever schema the connection was in before.
            assert nearest(one, "b", name) == ids[name][1]
        # psycopg lets the server forget every statement after these.
        with pytest.raises(ValueError, match="undone"), one.begin(NAMESPACE):
            raise ValueError("undone")
        add(one, "d", namespace="other")
        assert one.drop("other")
