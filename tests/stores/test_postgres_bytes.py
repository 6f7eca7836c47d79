"""What is erased from PostgreSQL is in no file of its tables, and every column has its answer."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.upkeep import CONTENTS
from crp_integrations.testing.conformance_sessions import prior, session, window
from crp_integrations.testing.records import NAMESPACE, NOON, OTHER, fact, fill, rows
from tests.postgres import postgres_address, server  # noqa: F401 - a fixture
from tests.stores.test_columns import COVERED
from tests.stores.test_erasure_bytes import Archive, found

# What only PostgreSQL has; everything else has the names of the embedded store's columns.
OWN_COLUMNS = {
    "named": {"namespace": "name of the namespace"},
    "jobs": {
        "batch": "a name that the caller gave to a work",
        "job_id": "a hash",
        "result": "numbers, levels and hashes",
    },
    "postings": {
        "stem": "removed with its fact, and written anew by scrub",
        "places": "numbers; removed with their fact",
    },
}


def files(address: str) -> Path:
    """The files of the tables, of all databases; what is in memory is written first."""
    with psycopg.connect(address, autocommit=True) as raw:
        raw.execute("CHECKPOINT")
    return server().data / "base"


def test_after_scrubbing_no_file_of_a_table_holds_what_was_removed(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=20)
    archive = Archive(3)
    ids = {}
    for name in (NAMESPACE, OTHER):
        facts, block = archive.made(name, 30)
        # pgvector keeps numbers with the highest byte first.
        for one, row in zip(facts, block, strict=True):
            archive.vectors[one.fact_id] = row.astype(">f4").tobytes()
        with store.begin(name) as transaction:
            transaction.facts.add(facts, block)
            transaction.facts.save_token_counts("words", {one.fact_id: 7 for one in facts})
            transaction.facts.prepare("e", [one.content_hash for one in facts], block)
        ids[name] = [one.fact_id for one in facts]
    assert found(files(postgres_address), archive) >= {*ids[NAMESPACE]}
    gone = ids[NAMESPACE][::2]
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(gone)
    assert store.scrub(NAMESPACE) is True
    left = found(files(postgres_address), archive)
    assert left & {*gone} == set()
    assert left >= {*ids[NAMESPACE][1::2], *ids[OTHER]}
    # Nothing is due any more, and everything else can be found as before.
    assert store.scrub(NAMESPACE) is True
    assert store.check(NAMESPACE) == []
    assert store.drop(OTHER) is True
    assert found(files(postgres_address), archive) & {*ids[OTHER]} == set()
    store.close()


def test_what_windows_said_goes_with_its_bytes(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address)
    with store.begin(NAMESPACE) as transaction:
        sessions = sessions_of(transaction)
        sessions.keep(session("s"))
        said = prior(1, "f", answer="the zqwalruszq sleeps")
        sessions.add_window(window(1), prior=said, report='{"x": "zqwalruszq"}')

    def holds() -> bool:
        names = [path for path in files(postgres_address).rglob("*") if path.is_file()]
        return any(b"zqwalruszq" in path.read_bytes() for path in names)

    assert holds()
    with store.begin(NAMESPACE) as transaction:
        assert sessions_of(transaction).withdraw(["f"], NOON) == 1
    assert store.scrub(NAMESPACE) is True
    assert not holds()
    store.close()


def test_a_reader_of_the_old_state_holds_scrubbing_up(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, busy_seconds=3.0)
    ids = fill(store, "one", "two")
    fill_other, held, done = [], threading.Event(), threading.Event()

    def read() -> None:
        # Of another namespace: its snapshot alone keeps the rows, and no lock of a table.
        with store.begin(OTHER, write=False) as transaction:
            fill_other.append(transaction.facts.generation())
            held.set()
            done.wait()

    with store.begin(OTHER) as transaction:
        transaction.facts.add([one := fact("x", namespace=OTHER)], rows([one]))
    reader = threading.Thread(target=read)
    reader.start()
    held.wait()
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(ids[:1])
    assert store.scrub(NAMESPACE) is False
    done.set()
    reader.join()
    assert store.scrub(NAMESPACE) is True
    store.close()


def test_every_column_of_text_or_bytes_is_covered(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address)
    fill(store, "a")
    with psycopg.connect(postgres_address) as raw:
        columns = raw.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE "
            "table_schema = %s AND udt_name NOT IN ('int4', 'int8', 'float8')",
            [schema_of(NAMESPACE)],
        ).fetchall()
    covered = COVERED | OWN_COLUMNS
    assert len(columns) > 90
    for table, column in columns:
        assert column in covered[table], f"{table}.{column}"
    # What is kept for ever says nothing; every other table is written anew by scrub.
    scrubbed = {table for tables in CONTENTS.values() for table in tables}
    kept = {"own", "named", "settings", "events", "seals", "changes", "sessions", "windows", "jobs"}
    assert {table for table, _ in columns} - scrubbed == kept | {"receipts", "receipt_log"}
    store.close()


@pytest.mark.parametrize("what", ["schema", "role"])
def test_names_of_schemas_say_nothing(what):
    name = "a tenant's name"
    assert schema_of(name).removeprefix("crp_").isalnum()
    assert len(schema_of(name)) < 63
    assert schema_of(name) != schema_of(name + " ")
