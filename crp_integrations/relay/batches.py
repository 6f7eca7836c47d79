"""Ingestion of many files over any `concurrent.futures.Executor`.

The database contains a table of jobs; the workers in the executor take one after the other until
none is left. If a worker dies, another takes its job. Nothing is stored twice: a job has one
result, and a document whose worker died after storing it is found unchanged when it is redone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from crp_integrations.errors import ConfigError, CRPError, EngineError, RequestError, StoreBusy
from crp_integrations.fabric.ports.store import Jobs, bulk_load, jobs_of
from crp_integrations.relay.relay import Relay
from crp_integrations.seals import sha256

# Opens a relay in the worker's process. It must be picklable, since it is sent there.
RelayOpener = Callable[[], Relay]
JobResult = dict[str, JsonValue]
# Times that workers are started: once, and again for the jobs that dead workers left.
MAX_ROUNDS: Final = 3
# Pause, and maximum number of pauses in a row, while other workers write to the store.
BUSY_PAUSE_SECONDS: Final = 0.05
MAX_BUSY_PAUSES: Final = 200
_MAX_NAME_CHARACTERS: Final = 200


def ingest_over(
    executor: Executor,
    opened: RelayOpener,
    sources: Sequence[str | Path],
    *,
    batch: str,
    workers: int = 4,
    labels: Sequence[str] = (),
    prefix: str | None = None,
) -> list[JobResult]:
    """Ingest files and folders over an executor; each is one job and one transaction.

    The first vector index is built after all of them are ingested.

    Spec: CRP-SPEC-009 §4.1

    Args:
        executor: threads, processes, or for example Dask's `Client.get_executor()`; its workers
            need access to the paths and the database.
        opened: for example `functools.partial(Relay.open, "postgresql://…", key=…)`.
        sources: paths. A source that has changed is ingested again under a new batch.
        batch: a name for this work; the same name continues it and returns earlier results too.
        workers: number of workers at a time.
        labels: access labels of every fact.
        prefix: as in `Relay.ingest`.

    Returns:
        For each source the numbers of `facts`, `unchanged`, `stale` and `skipped`, or the class
        name of the `error`.

    Raises:
        EngineError: workers died or failed, and jobs are left; call this again.
        RequestError: the batch already exists with other jobs.
        ConfigError: the store has no table of jobs.
    """
    if workers < 1:
        raise RequestError(f"workers is {workers}, wanted 1 or more")
    payloads = [
        {"source": str(source), "labels": [*labels], "prefix": prefix} for source in sources
    ]
    ids = [sha256(json.dumps(["ingest", payload], sort_keys=True)) for payload in payloads]
    by_id = dict(zip(ids, payloads, strict=True))
    lost: BaseException | None = None
    with opened() as relay:
        jobs, tenant = _jobs(relay), relay.fabric.subject.tenant
        existing = jobs.results(tenant, _check_name(batch))
        if existing and existing.keys() != by_id.keys():
            raise RequestError(
                f"batch {batch!r} already has {len(existing)} jobs, which differ from these "
                f"{len(by_id)}; give it another name"
            )
        jobs.put(tenant, batch, list(by_id))
        with bulk_load(relay._store, tenant):
            for _ in range(MAX_ROUNDS):
                waiting = sum(result is None for result in jobs.results(tenant, batch).values())
                if not waiting:
                    break
                lost = _send_workers(executor, min(workers, waiting), opened, batch, by_id)
        done = jobs.results(tenant, batch)
    unfinished = sum(result is None for result in done.values())
    if unfinished:
        raise EngineError(
            f"{unfinished} of {len(by_id)} jobs of batch {batch!r} are not done "
            f"({type(lost).__name__ if lost else 'no error was reported'}); call it again"
        ) from lost
    return [json.loads(done[id_] or "null") for id_ in ids]


def forget_batch(opened: RelayOpener, batch: str) -> int:
    """Delete a batch's jobs and results from the table; returns the number of jobs."""
    with opened() as relay:
        return _jobs(relay).forget(relay.fabric.subject.tenant, _check_name(batch))


def _send_workers(executor: Executor, count: int, *work: Any) -> BaseException | None:
    """Run workers until no job is left; returns the first error that ended one, or None."""
    futures: list[Future[int]] = []
    first_error: BaseException | None = None
    try:
        futures = [executor.submit(work_off, *work) for _ in range(count)]
    except RuntimeError as error:
        # A pool of which a process died accepts no more work.
        first_error = error
    # Wait for all of them, even if one failed.
    errors = [future.exception() for future in futures]
    return first_error or next((error for error in errors if error is not None), None)


def work_off(opened: RelayOpener, batch: str, payloads: Mapping[str, dict[str, Any]]) -> int:
    """Do one job after the other until none is free; returns the number done."""
    count = busy = 0
    with opened() as relay:
        jobs, tenant = _jobs(relay), relay.fabric.subject.tenant
        while True:
            try:
                with jobs.claim(tenant, batch) as claim:
                    if claim is None:
                        return count
                    claim.finish(json.dumps(_ingest_source(relay, **payloads[claim.job_id])))
            except StoreBusy:
                # The job is free again; what it has stored is found unchanged when it is redone.
                busy += 1
                if busy > MAX_BUSY_PAUSES:
                    raise
                time.sleep(BUSY_PAUSE_SECONDS)
                continue
            count, busy = count + 1, 0


def _ingest_source(
    relay: Relay, source: str, labels: Sequence[str], prefix: str | None
) -> JobResult:
    try:
        report = relay.ingest(source, labels=labels, prefix=prefix)
    except StoreBusy:
        raise
    except CRPError as error:
        # The message may contain a path, and an erasure would not find a path stored here.
        return {"error": type(error).__name__}
    return {
        "facts": len(report.facts),
        "unchanged": len(report.unchanged),
        "stale": len(report.stale),
        "skipped": len(report.skipped),
    }


def _jobs(relay: Relay) -> Jobs:
    jobs = jobs_of(relay._store)
    if jobs is None:
        raise ConfigError(
            f"store {relay._store.name} keeps no table of jobs, which workers share; "
            "open one on PostgreSQL"
        )
    return jobs


def _check_name(batch: str) -> str:
    if not 0 < len(batch) <= _MAX_NAME_CHARACTERS:
        raise RequestError(
            f"the batch's name has {len(batch)} characters, wanted 1 to {_MAX_NAME_CHARACTERS}"
        )
    return batch
