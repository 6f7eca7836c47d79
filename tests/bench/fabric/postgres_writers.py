"""Writers of the fabric on PostgreSQL, each a process, that begin at once.

HNSW insertion costs more the larger the index is, so four writers on one tenant stand beside one
writer that writes as many facts as they do together, and beside as many tenants as writers.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.synchronize import Barrier

from crp_integrations.stores.postgres import PostgresStore
from tests.bench.fabric.made_up import made_up_facts

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
