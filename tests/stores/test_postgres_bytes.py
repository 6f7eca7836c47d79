"""What only PostgreSQL keeps of an erased text, and an answer for every column."""

from __future__ import annotations

import threading

import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.upkeep import CONTENTS
from crp_integrations.testing.fixtures import NAMESPACE, OTHER, fact, fill, rows
from tests.conformance.erasure import Archive
from tests.doubles import HashEmbedder
from tests.postgres import postgres_address, server  # noqa: F401 - a fixture
from tests.stores.test_columns import COVERED
from tests.stores.test_postgres_logins import database, init, login  # noqa: F401 - fixtures

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
        "entries": "numbers; removed with their fact",
    },
    "stem_sequences": {"stems": "hashes of words; removed with their fact"},
}


def whole(address: str) -> bytes:
    """The bytes of the tables, of all databases; what is in memory is written first."""
    with psycopg.connect(address, autocommit=True) as raw:
        raw.execute("CHECKPOINT")
    files = sorted(path for path in (server().data / "base").rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)


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
    kept = {
        "own",
        "named",
        "settings",
        "events",
        "seals",
        "changes",
        "sessions",
        "windows",
        "jobs",
        "judge_spending",
    }
    assert {table for table, _ in columns} - scrubbed == kept | {"receipts", "receipt_log"}
    store.close()


@pytest.mark.parametrize("what", ["schema", "role"])
def test_names_of_schemas_say_nothing(what):
    name = "a tenant's name"
    assert schema_of(name).removeprefix("crp_").isalnum()
    assert len(schema_of(name)) < 63
    assert schema_of(name) != schema_of(name + " ")


@pytest.mark.requirement("009-8.3-3")
def test_what_the_planner_noted_of_a_text_goes_with_it(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address)
    archive = Archive(11, lambda row: row.astype(">f4").tobytes())
    ids = {name: archive.add(store, name, 40) for name in (NAMESPACE, OTHER)}
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        for name in ids:
            for table in ("facts", "vectors", "postings", "stem_sequences"):
                # As the server does by itself after a while.
                raw.execute(f"ANALYZE {schema_of(name)}.{table}")
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(ids[NAMESPACE][:20])
    assert store.scrub(NAMESPACE) is True
    assert archive.found(whole(postgres_address)) == {*ids[NAMESPACE][20:], *ids[OTHER]}
    assert store.drop(OTHER) is True
    assert archive.found(whole(postgres_address)) == {*ids[NAMESPACE][20:]}
    store.close()


@pytest.mark.requirement("009-8.3-3")
@pytest.mark.parametrize("keep", [0, 3])
@pytest.mark.parametrize("role", ["postgres", "crp", "crp_writer"])
def test_no_login_leaves_a_noted_word_and_one_that_may_not_rewrite_the_file_says_so(
    init,  # noqa: F811
    database,  # noqa: F811
    caplog,
    role,
    keep,
):
    init("--tenant", "acme")
    owner = server().address(database)
    address = owner if role == "postgres" else login(database, role)
    with (
        psycopg.connect(owner, autocommit=True) as raw,
        Relay.open(address, subject=Subject(tenant="acme"), embedder=HashEmbedder()) as relay,
    ):
        facts = [f"Walruszq number {i} sleeps on the ice until noon every day." for i in range(30)]
        relay.fabric.add([Fact(content=text, source_id="secret") for text in facts])
        if keep:
            relay.add([f"Gate number {i} opens at seven and closes at ten." for i in range(keep)])
        raw.execute("ANALYZE")
        hashes = "|".join(
            fact.content_hash for fact in relay.fabric.facts(relay.fabric.find(Where()))
        )
        texts = "concat(histogram_bounds::text, most_common_vals::text)"

        def noted(pattern):
            return raw.execute(
                f"SELECT tablename, attname FROM pg_stats WHERE {texts} ~* %s", [pattern]
            ).fetchall()

        assert noted("walruszq") == [("postings", "stem")]
        assert ("facts", "content_hash") in noted(hashes)
        assert relay.fabric.erase("secret").scrubbed
        assert noted("walruszq") == []
        assert keep or noted(hashes) == []
        refused = "run VACUUM FULL pg_statistic as the database's owner" in caplog.text
        assert refused is (role != "postgres")
        if refused:
            raw.execute("VACUUM FULL pg_statistic")
        raw.execute("CHECKPOINT")
        ((path,),) = raw.execute("SELECT pg_relation_filepath('pg_statistic')").fetchall()
    assert b"walruszq" not in (server().data / path).read_bytes()


def test_the_planner_notes_no_numbers_of_an_indexed_vector(postgres_address):  # noqa: F811
    store = PostgresStore(postgres_address, index_from=10)
    fill(store, *(f"text {number}" for number in range(40)))
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        raw.execute("ANALYZE")
        noted = raw.execute(
            "SELECT tablename, attname FROM pg_stats WHERE schemaname = %s", [schema_of(NAMESPACE)]
        ).fetchall()
        index = raw.execute("SELECT to_regclass(%s)", [f"{schema_of(NAMESPACE)}.vectors_near"])
        assert index.fetchone() != (None,)
    assert {name for table, name in noted if table.startswith("vectors")} == {"fact", "series"}
    store.close()
