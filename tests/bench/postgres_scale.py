"""The fabric on PostgreSQL and on SQLite as it grows: ingestion, recall, `preview`, `ask`, memory.

    python -m tests.bench.postgres_scale --facts 20000,300000

Facts have words of a Zipf distribution and vectors around centres, both made up, so that nothing
is embedded and equal arguments give equal material. The server is the tests' own, or `--store`.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import psutil
import psycopg

from crp_integrations import Relay
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.gateway import GatewaySettings, KeyFile, create_app
from crp_integrations.gateway.admission import new_key
from crp_integrations.gateway.server import server
from crp_integrations.guard.decisions import Subject
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import FloatRows, cosine, unit_rows
from tests.bench.measure import has_one_thread, in_one_thread, machine, steady_mb
from tests.postgres import NEWEST, Server

MODULE: Final = "tests.bench.postgres_scale"
TENANT: Final = "scale"
CENTRES, SPREAD = 500, 0.9
# Words of the vocabulary, and by how much the rank of the most frequent ones is flattened.
VOCABULARY, FLAT, POWER = 40_000, 12.0, 1.07
DOORS: Final = ("preview", "ask")
PATHS: Final = {"preview": "/v1/preview", "ask": "/v1/chat/completions"}
# Requests at a time to two gateways together.
LEVELS: Final = (1, 8, 32)
BATCH, PART = 1_000, 10_000
# Nearest facts whose recall is measured, and questions that it is measured with.
NEAREST, RECALLED = 50, 40
ONCE: Final = {"redispatches": 0, "continue_incomplete": False}
SETTINGS: Final[Mapping[str, Any]] = {"key": "ab" * 32, "model": "gpt-4o", "dispatch": ONCE}


class Given:
    """An embedder that looks its vectors up."""

    thresholds: Mapping[str, float] = {}

    def __init__(self, dimensions: int) -> None:
        self.identity, self.dimensions = f"bench-given/{dimensions}", dimensions
        self.rows: dict[str, FloatRows] = {}

    def embed_query(self, text: str) -> FloatRows:
        return self.rows[text]

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        return np.stack([self.rows.get(text, next(iter(self.rows.values()))) for text in texts])


class Answering:
    """A model that repeats the first sentence of what it was given."""

    def call(self, call: ModelCall) -> Reply:
        prompt = "\n".join(str(message.content) for message in call.messages)
        return Reply(text=f"{prompt[-400:-200]}.", model=call.model)

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


@dataclass(frozen=True)
class Material:
    """Facts with their vectors, and what is asked.

    Attributes:
        rows: unit rows of the facts.
        asked: questions, each with the vector of its embedding.
    """

    facts: Sequence[Fact]
    rows: FloatRows
    asked: Sequence[str]
    embedder: Given


def material(count: int, questions: int, dimensions: int) -> Material:
    """Facts of 20 to 200 words, and questions of six words of a fact and two frequent ones."""
    chance = np.random.default_rng(count)
    shares = 1.0 / (np.arange(VOCABULARY) + 1.0 + FLAT) ** POWER
    ends = np.cumsum(shares / shares.sum())
    centres = chance.standard_normal((CENTRES, dimensions)).astype(np.float32)
    rows = np.empty((count, dimensions), dtype=np.float32)
    lengths = np.clip(chance.lognormal(4.2, 0.45, count), 20, 200).astype(np.int64)
    facts: list[Fact] = []
    for start in range(0, count, PART):
        many = lengths[start : start + PART]
        noise = chance.standard_normal((len(many), dimensions)).astype(np.float32)
        own = centres[chance.integers(CENTRES, size=len(many))]
        rows[start : start + PART] = unit_rows(own + SPREAD * noise)
        drawn = np.searchsorted(ends, chance.random(int(many.sum()))).tolist()
        at = 0
        for number, length in enumerate(many.tolist(), start=start):
            line = " ".join([f"w{word:x}" for word in drawn[at : at + length]])
            facts.append(Fact(content=f"Passage {number:x}: {line}."))
            at += length
    embedder = Given(dimensions)
    for number in range(questions):
        place = int(chance.integers(count))
        words = facts[place].content.rstrip(".").split()[2:]
        chosen = [words[at] for at in chance.choice(len(words), 6, replace=False)]
        common = [f"w{word:x}" for word in chance.integers(20, size=2)]
        near = (
            rows[place]
            + 0.5 * chance.standard_normal(dimensions).astype(np.float32) / dimensions**0.5
        )
        text = f"Q{number} what of {' '.join([*chosen, *common])}?"
        embedder.rows[text] = unit_rows(near[None])[0]
    return Material(facts, rows, list(embedder.rows), embedder)


def ingested(store: Store, made: Material) -> float:
    """Seconds of writing all facts with their vectors, the index of the vectors included."""
    begun = time.perf_counter()
    with ExitStack() as stack:
        with store.begin(TENANT) as transaction:
            transaction.facts.set_setting(EMBEDDER_SETTING, made.embedder.identity)
        if isinstance(store, PostgresStore):
            stack.enter_context(store.loading(TENANT))
        for at in range(0, len(made.facts), BATCH):
            with store.begin(TENANT) as transaction:
                transaction.facts.add(made.facts[at : at + BATCH], made.rows[at : at + BATCH])
    return time.perf_counter() - begun


def recall(relay: Relay, made: Material) -> float:
    """Share of the exactly nearest facts that a search gives."""
    shares = []
    ids = np.array([fact.fact_id for fact in made.facts])
    for text in made.asked[:RECALLED]:
        vector = made.embedder.rows[text]
        exact = set(ids[np.argsort(-cosine(made.rows, vector), kind="stable")[:NEAREST]].tolist())
        near = {hit.fact_id for hit in relay.fabric.nearest(vector, NEAREST)}
        shares.append(len(near & exact) / NEAREST)
    return round(statistics.mean(shares), 4)


def server_cpu(root: psutil.Process | None) -> float:
    """Processor seconds of the server's processes so far."""
    if root is None:
        return 0.0
    seconds = 0.0
    for process in root.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += times.user + times.system
    return seconds


def waited(call: Callable[[str], object], asked: Sequence[str], at_a_time: int) -> list[float]:
    """Milliseconds by the clock of each call."""

    def wall(text: str) -> float:
        begun = time.perf_counter()
        call(text)
        return (time.perf_counter() - begun) * 1000

    with ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(wall, asked))


def summary(walls: Sequence[float], own_s: float, server_s: float) -> dict[str, float]:
    """Wall p50 and p95 of a call, and processor time a call of its process and of the server."""
    ordered = sorted(walls)
    return {
        "p50": round(ordered[len(ordered) // 2], 1),
        "p95": round(ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)], 1),
        "cpu": round(own_s * 1000 / len(ordered), 1),
        "server_cpu": round(server_s * 1000 / len(ordered), 1),
    }


def timed(
    call: Callable[[str], object], asked: Sequence[str], root: psutil.Process | None
) -> dict[str, float]:
    """Calls one at a time, in this process."""
    own, server = time.process_time(), server_cpu(root)
    walls = waited(call, asked, 1)
    return summary(walls, time.process_time() - own, server_cpu(root) - server)


class Upstream:
    """The models of a gateway, all of them scripted."""

    def known(self, model: str) -> None:
        """Every name is a model's."""

    def shaped(self, arguments: Mapping[str, Any]) -> Answering:
        return Answering()

    async def aclose(self) -> None:
        """Nothing is open."""


def serve(place: str, keys: Path, embedder: Given, sending: Connection) -> None:
    """A gateway with default limits, but for those that refuse; sends its port."""
    limits = GatewaySettings(requests_per_minute=1e9, burst=1_000_000)
    app = create_app(
        place,
        keys=KeyFile(keys),
        upstream=Upstream(),
        settings=limits,
        options={"embedder": embedder},
        **SETTINGS,
    )
    made = server(app, port=0, settings=limits)

    def tell() -> None:
        while not made.started:
            time.sleep(0.02)
        sending.send(made.servers[0].sockets[0].getsockname()[1])

    threading.Thread(target=tell, daemon=True).start()
    made.run()


@contextmanager
def gateways(place: str, embedder: Given) -> Iterator[list[tuple[httpx.Client, psutil.Process]]]:
    """Two gateways over one store: a client of each, and its process."""
    with tempfile.TemporaryDirectory(prefix="crp-scale-") as folder, ExitStack() as stack:
        keys = Path(folder, "keys")
        secret, key = new_key(TENANT)
        KeyFile(keys).add(key)
        # A fork has the material, and opens its own store.
        context = multiprocessing.get_context("fork")
        waiting, processes = [], []
        for _ in range(2):
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=serve, args=(place, keys, embedder, sending))
            process.start()
            sending.close()
            stack.callback(process.join)
            stack.callback(process.terminate)
            waiting.append(receiving)
            processes.append(psutil.Process(process.pid))
        clients = [
            stack.enter_context(
                httpx.Client(
                    base_url=f"http://127.0.0.1:{receiving.recv()}",
                    headers={"Authorization": f"Bearer {secret}"},
                    timeout=120,
                )
            )
            for receiving in waiting
        ]
        yield list(zip(clients, processes, strict=True))


def through_gateways(
    opened: Sequence[tuple[httpx.Client, psutil.Process]],
    door: str,
    asked: Sequence[str],
    at_a_time: int,
    root: psutil.Process | None,
) -> dict[str, float]:
    """Requests of several callers at a time, to the gateways in turns."""
    turns = cycle([client for client, _ in opened])

    def call(text: str) -> None:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
        next(turns).post(PATHS[door], json=body).raise_for_status()

    def cpu() -> float:
        return sum(sum(process.cpu_times()[:2]) for _, process in opened)

    own, database = cpu(), server_cpu(root)
    walls = waited(call, asked, at_a_time)
    return summary(walls, cpu() - own, server_cpu(root) - database)


def measured(
    name: str, place: str | Path, made: Material, rounds: int, root: psutil.Process | None
) -> dict[str, Any]:
    """One store with one number of facts; a database is vacuumed after the load."""
    store = PostgresStore(str(place)) if name == "postgres" else SqliteStore(place)
    report: dict[str, Any] = {"store": name, "facts": len(made.facts)}
    with closing(store):
        if isinstance(store, PostgresStore):
            store.drop(TENANT, artifacts=())
        report["ingest_s"] = round(ingested(store, made), 1)
    waiting = iter(made.asked)
    before = steady_mb()
    subject = Subject(tenant=TENANT)
    with Relay.open(
        place, subject=subject, models=Answering(), embedder=made.embedder, **SETTINGS
    ) as relay:
        relay.fabric.maintain()
        if name == "postgres":
            with psycopg.connect(str(place), autocommit=True) as raw:
                raw.execute("VACUUM (ANALYZE)")
                raw.execute("CHECKPOINT")
        for _ in range(3):
            relay.preview(next(waiting))
        # The material is no part of what a process holds; `crp serve` freezes what it has as well.
        gc.collect()
        gc.freeze()
        report["recall"] = recall(relay, made)
        for door, call in (("preview", relay.preview), ("ask", relay.ask)):
            asked = [next(waiting) for _ in range(rounds)]
            report[f"{door} 1"] = timed(call, asked, root)
            report[f"{door} again"] = timed(call, asked, root)
        report["rss_mb"] = round(steady_mb() - before, 1)
    with gateways(str(place), made.embedder) as opened_gateways:
        for door in DOORS:
            through_gateways(opened_gateways, door, [next(waiting) for _ in range(6)], 2, root)
            for level in LEVELS:
                asked = [next(waiting) for _ in range(rounds)]
                key = f"{door} through gateways {level}"
                report[key] = through_gateways(opened_gateways, door, asked, level, root)
    gc.unfreeze()
    return report


@contextmanager
def stores(address: str) -> Iterator[tuple[str, Path, psutil.Process | None]]:
    """The address of a server, a folder, and the server's first process where it is ours."""
    with tempfile.TemporaryDirectory(prefix="crp-scale-") as folder:
        if address:
            yield address, Path(folder), None
            return
        server = Server(
            *("shared_buffers=512MB", "maintenance_work_mem=3GB", "max_wal_size=4GB"),
            *("max_parallel_maintenance_workers=1", "max_connections=60"),
            version=NEWEST,
        )
        pid = int((server.data / "postmaster.pid").read_text().splitlines()[0])
        try:
            yield server.address(), Path(folder), psutil.Process(pid)
        finally:
            server.close()


def run(
    counts: Sequence[int], dimensions: int, rounds: int, address: str, kinds: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Measure each store with each number of facts."""
    for count in counts:
        made = material(count, len(DOORS) * (4 * rounds + 6) + 10, dimensions)
        with stores(address) as (place, folder, root):
            for kind in kinds:
                where = place if kind == "postgres" else folder
                yield measured(kind, where, made, rounds, root if kind == "postgres" else None)


def table(reports: Sequence[Mapping[str, Any]]) -> str:
    """The reports as a table in Markdown, in milliseconds: one question at a time, the same ones
    again, whose facts were read before, and several at a time through two gateways.
    """
    gateways = [f"through gateways {level}" for level in LEVELS]
    levels = [f"{door} {level}" for door in DOORS for level in (1, "again", *gateways)]
    lines = [
        f"| Store | Facts | Ingest s | Recall | {' | '.join(levels)} | RSS MB |",
        f"|{'---|' * (len(levels) + 5)}",
    ]
    for report in reports:
        cells = [
            "p50 {p50:.0f}, p95 {p95:.0f} (CPU {cpu:.0f} + {server_cpu:.0f})".format(**report[name])
            for name in levels
        ]
        first = [report[key] for key in ("store", "facts", "ingest_s", "recall")]
        lines.append(f"| {' | '.join(map(str, [*first, *cells, report['rss_mb']]))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    asked = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    asked.add_argument("--facts", default="20000,300000", help="numbers of facts, by commas")
    asked.add_argument("--dimensions", type=int, default=384)
    asked.add_argument("--rounds", type=int, default=60, help="calls of each door and level")
    asked.add_argument("--store", default="", help="address of a server; the tests' own without")
    asked.add_argument("--kinds", default="postgres,sqlite")
    asked.add_argument("--json", type=Path, help="file for the reports")
    options = asked.parse_args(arguments)
    if not has_one_thread():
        return in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments)
    reports = []
    counts = [int(count) for count in options.facts.split(",")]
    kinds = options.kinds.split(",")
    for report in run(counts, options.dimensions, options.rounds, options.store, kinds):
        print(json.dumps(report), flush=True)
        reports.append(report)
        if options.json:
            options.json.write_text(json.dumps({"machine": machine(), "reports": reports}))
    print(table(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
