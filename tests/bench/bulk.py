"""Measures a bulk load: facts with given vectors, through `Namespace.loading`, killed and resumed.

    python -m tests.bench.bulk --facts 20000,300000 [--postgres | --store postgresql://…]

Each size is loaded into a new folder, or into a tenant of the database that is dropped afterwards.
A process of its own loads; with `--killed-at` it is killed with SIGKILL after that share, and the
same load is begun again. Then one batch of `CHANGED` facts is added to the loaded tenant, as an
ordinary write, and `maintain` finds the communities.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import multiprocessing
import os
import pstats
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crp_integrations.engines.graphs import engine_for
from crp_integrations.engines.system import SystemClock
from crp_integrations.engines.tokens import counter_for
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import FloatRows
from tests.bench.made_up import DIMENSIONS, made_up_facts
from tests.bench.postgres_scale import stores

TENANT = "bench-bulk"
# Facts that are made and written at a time, and facts of the write after the load.
BATCH, CHANGED = 2_000, 60


class GivenVectors:
    """An embedder that must not be asked: every vector is given."""

    identity = "given"
    dimensions = DIMENSIONS
    thresholds: dict[str, float] = {}

    def embed_passages(self, texts: list[str]) -> FloatRows:
        """Refuse."""
        raise AssertionError(f"{len(texts)} texts were embedded")

    def embed_query(self, text: str) -> FloatRows:
        """Refuse."""
        raise AssertionError("a query was embedded")


def opened(place: str) -> tuple[Store, Namespace]:
    """The store at a folder or address, and its tenant."""
    store = PostgresStore(place) if "://" in place else SqliteStore(place)
    fabric = Fabric(
        store,
        GivenVectors(),  # type: ignore[arg-type]
        counter_for("gpt-4"),
        SystemClock(),
        FixedKeyRing(b"b" * 32),
        leiden=engine_for("graspologic"),
    )
    return store, fabric.bind(Subject(tenant=TENANT))


def batch(number: int, size: int) -> tuple[list[Fact], FloatRows]:
    """The facts of a batch with fixed ids, and their vectors."""
    facts, rows = made_up_facts(size, seed=1_000 + number)
    return [fact.changed(source_id=f"batch-{number}") for fact in facts], rows


def load(
    place: str, count: int, size: int, dies_after: int, profile: bool, answer: Connection
) -> None:
    """Load in this process; send what it took. Making the material is not counted."""
    store, namespace = opened(place)
    counted = wall = 0.0
    profiler = cProfile.Profile()
    with closing(store):
        with namespace.loading():
            for number, start in enumerate(range(0, count, size)):
                if dies_after and start >= dies_after:
                    os.kill(os.getpid(), signal.SIGKILL)
                facts, rows = batch(number, min(size, count - start))
                cpu, clock = time.process_time(), time.perf_counter()
                if profile:
                    profiler.enable()
                namespace.put(facts, vectors=rows)
                profiler.disable()
                counted += time.process_time() - cpu
                wall += time.perf_counter() - clock
            cpu, clock = time.process_time(), time.perf_counter()
        end = {"end_cpu_s": time.process_time() - cpu, "end_wall_s": time.perf_counter() - clock}
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer.send(
            {
                "cpu_s": counted,
                "wall_s": wall,
                **end,
                "rss_mib": memory,
                "state": namespace.state_hash(),
            }
        )
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumulative").print_stats(45)


def after(place: str, answer: Connection) -> None:
    """One ordinary write into the loaded tenant, and the maintenance that it makes due."""
    store, namespace = opened(place)
    with closing(store):
        facts, rows = batch(900_000, CHANGED)
        took: dict[str, float] = {}
        acts: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("write", lambda: namespace.put(facts, vectors=rows)),
            ("maintain", namespace.maintain),
        )
        for name, act in acts:
            cpu, clock = time.process_time(), time.perf_counter()
            act()
            took[f"{name}_cpu_s"] = time.process_time() - cpu
            took[f"{name}_wall_s"] = time.perf_counter() - clock
        answer.send(took)


def in_a_process(work: Callable[..., None], *arguments: Any) -> dict[str, Any]:
    """What a process of its own sends; empty if it was killed."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(*arguments, sending))
    child.start()
    sending.close()
    try:
        answer: dict[str, Any] = receiving.recv()
    except EOFError:
        answer = {}
    child.join()
    return answer


def measure(
    place: str,
    count: int,
    *,
    size: int = BATCH,
    killed_at: float = 0.0,
    profile: bool = False,
    maintain: bool = True,
) -> dict[str, Any]:
    """Load a number of facts, with a kill on the way if wanted."""
    killed = int(count * killed_at)
    report: dict[str, Any] = {"store": place.partition(":")[0] if "://" in place else "sqlite"}
    if killed:
        in_a_process(load, place, count, size, killed, False)
    report |= {"facts": count, "killed_at": killed}
    report |= in_a_process(load, place, count, size, 0, profile)
    if maintain:
        report |= in_a_process(after, place)
    return {k: round(v, 2) if isinstance(v, float) else v for k, v in report.items()}


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.bulk", description=__doc__)
    parser.add_argument("--facts", default="20000", help="sizes, separated by commas")
    parser.add_argument("--store", default="", help="address of a database; a folder without")
    parser.add_argument("--postgres", action="store_true", help="load into the tests' own server")
    parser.add_argument(
        "--killed-at", type=float, default=0.0, help="share after which it is killed"
    )
    parser.add_argument("--no-maintain", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    for count in map(int, options.facts.split(",")):
        with ExitStack() as stack:
            address = options.store
            if options.postgres:
                address, _, _ = stack.enter_context(stores(""))
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            try:
                report = measure(
                    address or str(Path(folder, "kb")),
                    count,
                    killed_at=options.killed_at,
                    profile=options.profile,
                    maintain=not options.no_maintain,
                )
                print(json.dumps(report), flush=True)
            finally:
                if address:
                    with closing(PostgresStore(address)) as store:
                        store.drop(TENANT)


if __name__ == "__main__":
    main()
