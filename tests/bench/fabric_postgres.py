"""The fabric on PostgreSQL beside plain SQL, and writers that begin at once, each a process.

HNSW insertion costs more the larger the index is, so four writers on one tenant stand beside one
writer that writes as many facts as they do together, and beside as many tenants as writers.

    python -m tests.bench.fabric_postgres --store postgresql://… --facts 100000 --cache FOLDER
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.search.store_index import StoreIndex
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.connection import Raw
from crp_integrations.stores.postgres.facts import PostgresFacts
from crp_integrations.stores.postgres.schema import schema_of, set_up
from crp_integrations.vectors import FloatRows, unit_rows
from tests.bench import fabric_corpus
from tests.bench.fabric_corpus import Kind
from tests.bench.made_up import made_up_facts
from tests.bench.measure import has_one_thread, in_one_thread, machine

# Batches of each writer, and facts of each.
WRITES, WRITTEN = 8, 250
NAMES = ("bench-0", "bench-1", "bench-2", "bench-3")


def measured(address: str) -> dict[str, float]:
    """Facts a second by the clock, all writers together; the namespaces are dropped after."""
    return {
        "one writer": written(address, [0]),
        "four on four tenants": written(address, [0, 1, 2, 3]),
        "one writer, as many facts as four": written(address, [0], WRITES * 4),
        "four on one tenant": written(address, [0, 0, 0, 0]),
    }


def written(address: str, tenants: Sequence[int], writes: int = WRITES) -> float:
    """Facts a second of one writer for each of the tenants named."""
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(len(tenants) + 1)
    writers = [
        spawn.Process(target=_write, args=(address, NAMES[tenant], number, writes, start))
        for number, tenant in enumerate(tenants)
    ]
    for writer in writers:
        writer.start()
    start.wait()
    begun = time.perf_counter()
    for writer in writers:
        writer.join()
    seconds = time.perf_counter() - begun
    with closing(PostgresStore(address)) as store:
        for tenant in set(tenants):
            store.drop(NAMES[tenant])
    if any(writer.exitcode for writer in writers):
        raise RuntimeError("a writer failed; its error stands above")
    return round(len(tenants) * writes * WRITTEN / seconds, 1)


def _write(address: str, namespace: str, number: int, writes: int, start: Barrier) -> None:
    facts, rows = made_up_facts(writes * WRITTEN, seed=100 + number)
    # From the first batch on there is an index, which is the dearest case.
    with closing(PostgresStore(address, busy_seconds=60, index_from=1)) as store:
        start.wait()
        for at in range(0, len(facts), WRITTEN):
            with store.begin(namespace) as transaction:
                transaction.facts.add(facts[at : at + WRITTEN], rows[at : at + WRITTEN])


MODULE = "tests.bench.fabric_postgres"
BATCH = 1_000
QUERIES, K, ROUNDS = 200, 50, 5
# A hundredth more passages than facts are read, as by the bench of the embedded store.
GROWTH = 100
RAW = "crp_bench_raw"
# What both sides build an index with: in one process, whose time is counted, and with the graph in
# memory, as pgvector's documentation advises.
OPTIONS = "-c max_parallel_maintenance_workers=0 -c maintenance_work_mem=512MB"
Ask = Callable[[npt.NDArray[np.float32]], list[str]]


@dataclass(frozen=True)
class Material:
    """What is written and asked.

    Attributes:
        rows: unit rows of the facts, shape (len(facts), dimensions).
        asked: unit rows that are asked for.
        more, more_rows: one more batch, and its unit rows.
    """

    facts: Sequence[Fact]
    rows: FloatRows
    asked: FloatRows
    more: Sequence[Fact]
    more_rows: FloatRows


def made_up(count: int) -> Material:
    """Synthetic facts with their vectors, and questions near some of them."""
    facts, rows = made_up_facts(count)
    near = rows[:: max(1, count // QUERIES)][:QUERIES]
    noise = np.random.default_rng(2).standard_normal(near.shape).astype(np.float32)
    asked = unit_rows(near + 0.5 * noise / np.sqrt(rows.shape[1]))
    return Material(facts, rows, asked, *made_up_facts(BATCH, seed=3))


def real(count: int, cache: Path, kind: Kind = "minilm") -> Material:
    """Passages of the installed packages with their vectors; the questions are other passages.

    Args:
        cache: as in `bench.fabric.run`, which asks for as many passages.

    Raises:
        ConfigError: this environment has too few passages.
    """
    texts = fabric_corpus.read(count + max(count // GROWTH, QUERIES), cache).texts
    rows = fabric_corpus.vectors(kind, texts, cache)
    stored = {number * len(rows) // count for number in range(count)}
    others = [number for number in range(len(rows)) if number not in stored]
    asked = [others[number * len(others) // QUERIES] for number in range(QUERIES)]

    def these(places: Sequence[int]) -> tuple[list[Fact], FloatRows]:
        # Plain SQL keeps no NUL.
        facts = [Fact(content=texts[place].replace("\0", " ")) for place in places]
        return facts, np.ascontiguousarray(rows[places])

    written, more = these(sorted(stored)), these(others[:BATCH])
    return Material(*written, np.ascontiguousarray(rows[asked]), *more)


def run(address: str, given: Material, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure ingestion, search and writers beside each other.

    The namespaces `bench-0` to `bench-3` and the schema of the plain tables are dropped, before
    and after.

    Args:
        given: facts, their unit rows, and unit rows that are asked for.
    """
    facts, rows, asked = given.facts, given.rows, given.asked
    count = len(facts)
    options = conninfo_to_dict(address).get("options") or ""
    address = make_conninfo(address, options=f"{OPTIONS} {options}")
    with closing(PostgresStore(address)) as store, _plain(address) as raw:
        _clean(address, store)
        try:
            say(f"writing {count} facts through the store")
            ours = _ingested(address, facts, rows)
            _analysed(address)
            sizes = _sizes(address, count)
            say("writing the same as COPY and CREATE INDEX")
            plain = _copied(raw, facts, rows)
            say(f"asking {len(asked)} questions of each")
            exact = [_best(rows, facts, one) for one in asked]
            found = _searched(store, raw, asked, exact)
            say(f"writing {len(given.more)} facts more")
            grown = _grown(store, raw, given)
            say("four writers")
            _clean(address, store)
            writers = measured(address)
        finally:
            _clean(address, store)
    return {
        "machine": machine(),
        "facts": count,
        "dimensions": rows.shape[1],
        "bytes_a_fact": sizes,
        "ingestion": _beside(ours, plain),
        "one_more_batch": {"facts": len(given.more)} | _beside(*grown),
        "search": found | {"cpu_ratio": round(found["ours"]["cpu_ms"] / found["raw"]["cpu_ms"], 3)},
        "rows_per_second": writers,
    }


def _beside(ours: dict[str, float], plain: dict[str, float]) -> dict[str, Any]:
    share = round(ours["rows_cpu_s"] / plain["rows_cpu_s"], 3)
    return {"ours": ours, "raw": plain, "share": share}


@contextmanager
def _plain(address: str) -> Iterator[Raw]:
    """The connection of the plain tables; it searches its index as those of the store do."""
    with psycopg.connect(address, autocommit=True) as raw:
        set_up(raw)
        yield raw


def _clean(address: str, store: PostgresStore) -> None:
    for name in NAMES:
        store.drop(name)
    with psycopg.connect(address, autocommit=True) as raw:
        raw.execute(f"DROP SCHEMA IF EXISTS {RAW} CASCADE".encode())


def _ingested(address: str, facts: Sequence[Fact], rows: FloatRows) -> dict[str, float]:
    # With connections of its own, so that `_pid` of the other store stays right.
    with closing(PostgresStore(address)) as store:
        with store.begin(NAMES[0], write=True) as transaction:
            transaction.facts.set_setting("embedder", "bench")
        with store.loading(NAMES[0]):
            # The one other connection is the one that writes, and then builds the index.
            begun, pid = _started(_pid(store))
            for start in range(0, len(facts), BATCH):
                with store.begin(NAMES[0]) as transaction:
                    transaction.facts.add(facts[start : start + BATCH], rows[start : start + BATCH])
        return _speed(len(facts), begun, pid)


def _grown(
    store: PostgresStore, raw: Raw, given: Material
) -> tuple[dict[str, float], dict[str, float]]:
    """One more batch of each, into the index that is there."""
    begun, pid = _started(_pid(store))
    with store.begin(NAMES[0]) as transaction:
        transaction.facts.add(given.more, given.more_rows)
    ours = _speed(len(given.more), begun, pid)
    begun, pid = _started(raw.info.backend_pid)
    _copy(raw, given.more, given.more_rows)
    return ours, _speed(len(given.more), begun, pid)


def _analysed(address: str) -> None:
    """What a server does by itself after a while."""
    schema = schema_of(NAMES[0])
    with psycopg.connect(address, autocommit=True) as raw:
        for table in ("facts", "vectors"):
            raw.execute(f"VACUUM (ANALYZE) {schema}.{table}".encode())


def _sizes(address: str, count: int) -> dict[str, int]:
    """Bytes on the disk for each fact: of tables with their indexes, and of the vectors' index."""
    schema = schema_of(NAMES[0])
    with psycopg.connect(address, autocommit=True) as raw:
        found = raw.execute(
            "SELECT relname, CASE relkind WHEN 'r' THEN pg_total_relation_size(oid) "
            "ELSE pg_relation_size(oid) END FROM pg_class WHERE relnamespace = %s::regnamespace "
            "AND (relkind = 'r' OR relname = 'vectors_near') ORDER BY 2 DESC",
            [schema],
        ).fetchall()
    each = {name: round(size / count) for name, size in found}
    tables = sum(size for name, size in each.items() if name != "vectors_near")
    return {"all": tables} | {name: size for name, size in each.items() if size >= 1}


def _copied(raw: Raw, facts: Sequence[Fact], rows: FloatRows) -> dict[str, float]:
    begun, pid = _started(raw.info.backend_pid)
    raw.execute(f"CREATE SCHEMA {RAW}".encode())
    raw.execute(f"SET search_path = {RAW}, public".encode())
    size = rows.shape[1]
    raw.execute(
        f"CREATE TABLE passages (id text PRIMARY KEY, content text, vector vector({size}))".encode()
    )
    for start in range(0, len(facts), BATCH):
        _copy(raw, facts[start : start + BATCH], rows[start : start + BATCH])
    raw.execute(
        f"CREATE INDEX ON passages USING hnsw ((vector::halfvec({size})) halfvec_ip_ops)".encode()
    )
    speed = _speed(len(facts), begun, pid)
    raw.execute("VACUUM (ANALYZE) passages")
    return speed


def _copy(raw: Raw, facts: Sequence[Fact], rows: FloatRows) -> None:
    with raw.cursor() as cursor, cursor.copy("COPY passages FROM STDIN") as copying:
        for fact, row in zip(facts, rows, strict=True):
            copying.write_row((fact.fact_id, fact.content, str(row.tolist())))


def _pid(store: PostgresStore) -> int:
    """The server's process of the connection that one thread has every time."""
    with store.begin(NAMES[0], write=False) as transaction:
        facts = transaction.facts
        assert isinstance(facts, PostgresFacts)
        return int(facts.statements.rows("SELECT pg_backend_pid()")[0][0])


def _started(pid: int) -> tuple[tuple[float, float], int]:
    return (time.perf_counter(), time.process_time() + _cpu(pid)), pid


def _speed(count: int, begun: tuple[float, float], pid: int) -> dict[str, float]:
    """Rows a second, by the clock and by the processor time of both processes."""
    seconds = time.perf_counter() - begun[0]
    cpu = time.process_time() + _cpu(pid) - begun[1]
    return {
        "seconds": round(seconds, 1),
        "rows_s": round(count / seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "rows_cpu_s": round(count / cpu, 1),
    }


def _searched(
    store: PostgresStore, raw: Raw, asked: FloatRows, exact: Sequence[set[str]]
) -> dict[str, dict[str, float]]:
    """Means over the questions, which both are asked in turns, again and again."""
    statement = (
        f"SELECT id FROM {RAW}.passages ORDER BY "
        f"vector::halfvec({asked.shape[1]}) <#> %s::halfvec({asked.shape[1]}) LIMIT {K}"
    ).encode()

    def plain(vector: npt.NDArray[np.float32]) -> list[str]:
        found = raw.execute(statement, [str(vector.tolist())]).fetchall()
        return [id_ for (id_,) in found]

    def ours(vector: npt.NDArray[np.float32]) -> list[str]:
        with store.begin(NAMES[0], write=False) as transaction:
            searching = vector_search_of(transaction.facts)
            assert searching is not None
            index = StoreIndex(transaction.facts, searching)
            return [hit.fact_id for hit in index.nearest(vector, K, last=True)]

    sides: dict[str, tuple[Ask, int]] = {
        "ours": (ours, _pid(store)),
        "raw": (plain, raw.info.backend_pid),
    }
    spent = {name: np.zeros(3) for name in sides}
    hits: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(ROUNDS + 1):
        for vector, best in zip(asked, exact, strict=True):
            for name, (ask, pid) in sides.items():
                begun = np.array([time.process_time(), _cpu(pid), time.perf_counter()])
                ids = ask(vector)
                # The first round fills what each side keeps ready.
                if number:
                    spent[name] += [time.process_time(), _cpu(pid), time.perf_counter()]
                    spent[name] -= begun
                else:
                    hits[name].append(len({*ids} & best) / len(best))
    found = {}
    for name, seconds in spent.items():
        own, server, wall = (seconds * 1000 / (ROUNDS * len(asked))).tolist()
        found[name] = {
            "cpu_ms": round(own + server, 3),
            "server_cpu_ms": round(server, 3),
            "wall_ms": round(wall, 3),
            "recall": round(statistics.mean(hits[name]), 4),
        }
    return found


def _cpu(pid: int) -> float:
    """Seconds that a process of this machine has computed; 0 where that cannot be read."""
    try:
        # In nanoseconds, where the kernel counts them.
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _best(rows: FloatRows, facts: Sequence[Fact], vector: npt.NDArray[np.float32]) -> set[str]:
    scores = rows @ vector
    return {facts[place].fact_id for place in np.argpartition(-scores, K)[:K].tolist()}


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--store", required=True, help="postgresql:// address, to be written")
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--cache", type=Path, help="of passages and vectors, see bench.fabric")
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    made = real(given.facts, given.cache, given.embedder) if given.cache else made_up(given.facts)
    report = run(given.store, made, lambda line: print(line, file=sys.stderr))
    text = json.dumps(report, indent=2)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
