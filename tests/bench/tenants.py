"""Measures what many tenants cost in one database: a schema each.

    python -m tests.bench.tenants --tenants 200,2000

Starts a server of its own and grows the number of tenants: seconds for making one, a new
connection with its first read, planning, the catalogue, a vacuum of everything, and `pg_dump`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.seals import sha256
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.testing.fixtures import fact, rows, source
from crp_integrations.vocabulary import EventType
from tests.postgres import Server

# Tenants, spread over all, that a measure is the median of.
SAMPLES = 20
# Tenants made on one connection.
FRESH = 25
CATALOGUE = (
    "SELECT (SELECT count(*) FROM pg_class), pg_database_size(current_database()), "
    "(SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class "
    "WHERE relnamespace = 'pg_catalog'::regnamespace)"
)


def seconds(act: Callable[[], object]) -> float:
    """Seconds by the clock."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def name_of(number: int) -> str:
    """The name of a tenant."""
    return f"tenant-{number}"


def make(store: PostgresStore, number: int) -> None:
    """A tenant with one fact and one event."""
    name = name_of(number)
    made = fact(f"Tenant {number} keeps one fact of some ten words for its users.", namespace=name)
    with store.begin(name) as transaction:
        transaction.facts.add_source(source("a.md"))
        transaction.facts.add([made], rows([made]))
        draft = EventDraft(EventType.FACT_INGESTED, {"source": "a", "document_hash": sha256("")})
        append_events(transaction.journal, b"k" * 32, [draft], "2026-05-25T10:00:00Z")


def first_read(address: str, number: int) -> None:
    """Open a store and read one tenant, as a process that starts does."""
    with (
        closing(PostgresStore(address)) as store,
        store.begin(name_of(number), write=False) as read,
    ):
        assert read.facts.generation()


def made(address: str, numbers: range) -> list[float]:
    """Seconds for each tenant, with a new connection now and then: one slows with its caches."""
    taken: list[float] = []
    for start in range(numbers.start, numbers.stop, FRESH):
        with closing(PostgresStore(address)) as store:
            for number in range(start, min(start + FRESH, numbers.stop)):
                taken.append(seconds(lambda n=number: make(store, n)))  # type: ignore[misc]
    return taken


def held_kib(address: str, numbers: range) -> float:
    """Memory that a connection of the server keeps for each tenant that it has read."""
    memory = "SELECT sum(total_bytes) FROM pg_backend_memory_contexts"
    sizes = []
    with closing(PostgresStore(address)) as store:
        for number in numbers:
            with store.begin(name_of(number), write=False) as read:
                assert read.facts.retrievable() and read.facts.generation()
                assert read.journal.tip() is not None
            with store._pool.connection() as connection:
                row = connection.one(memory)
                assert row is not None
                sizes.append(int(row[0]))
    return (sizes[-1] - sizes[0]) / (len(sizes) - 1) / 1024


def planning_ms(raw: psycopg.Connection, number: int) -> float:
    """Planning time of a join in a tenant's schema that this connection has not seen."""
    schema = schema_of(name_of(number))
    query = (
        f"EXPLAIN (SUMMARY, FORMAT JSON) SELECT fact_id FROM {schema}.facts "
        f"JOIN {schema}.stem_sequences USING (fact) JOIN {schema}.vectors USING (fact) "
        "WHERE fact_id = 'a'"
    )
    row = raw.execute(query).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return float(row[0][0]["Planning Time"])


def dump(server: Server) -> float | str:
    """Seconds of `pg_dump`, or why it failed."""
    try:
        # The folder is the server's user's, who writes the file.
        return seconds(
            lambda: server.run(
                *("pg_dump", "-Fc", "-f", str(server.data / "dump"), "-h", str(server.sockets)),
                *("-p", str(server.port), "-U", "postgres", "-d", "postgres"),
                timeout=3_600,
            )
        )
    except subprocess.SubprocessError as error:
        return f"{type(error).__name__}: {str(getattr(error, 'stderr', '') or '')[-200:]}"


def measure(counts: list[int], locks: int) -> None:
    """Grow one database and print a line for each number of tenants."""
    server = Server(
        *("fsync=off", "autovacuum=off", "max_connections=60", "shared_buffers=256MB"),
        f"max_locks_per_transaction={locks}",
    )
    address = server.address()
    there = 0
    with closing(PostgresStore(address)) as store:
        for count in counts:
            making = made(address, range(there, count))
            there = count
            some = range(0, count, max(1, count // SAMPLES))
            opening = [seconds(lambda n=n: first_read(address, n)) for n in some]  # type: ignore[misc]
            with psycopg.connect(address, autocommit=True) as raw:
                planning = [planning_ms(raw, n) for n in some]
                row = raw.execute(CATALOGUE).fetchone()
                assert row is not None
                names_s = seconds(store.namespaces)
                analysed_s = seconds(lambda: raw.execute("VACUUM (ANALYZE)"))
            report: dict[str, Any] = {
                "tenants": count,
                "make_ms": 1000 * statistics.median(making),
                "open_and_read_ms": 1000 * statistics.median(opening),
                "held_kib_a_tenant": held_kib(address, some),
                "planning_ms": statistics.median(planning),
                "list_tenants_s": names_s,
                "pg_class_rows": row[0],
                "pg_class_rows_a_tenant": row[0] / count,
                "mib_a_tenant": row[1] / count / 2**20,
                "catalogue_mib": row[2] / 2**20,
                "vacuum_analyze_s": analysed_s,
                "pg_dump_s": dump(server),
            }
            shown = {k: round(v, 2) if isinstance(v, float) else v for k, v in report.items()}
            print(json.dumps(shown), flush=True)
    server.close()


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.tenants", description=__doc__)
    parser.add_argument("--tenants", default="200,2000", help="numbers, ascending, by commas")
    parser.add_argument("--locks", type=int, default=2048, help="max_locks_per_transaction")
    options = parser.parse_args(arguments)
    measure([int(part) for part in options.tenants.split(",")], options.locks)


if __name__ == "__main__":
    main()
