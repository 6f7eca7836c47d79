"""Ingestion over Dask's executor, in processes of which one is killed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from crp_integrations.relay.batches import ingest_over
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.stores.jobs_processes import opened_to_die
from tests.stores.test_postgres_jobs import WORDS, pages, stored  # noqa: F401 - a fixture

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def executor() -> Iterator[object]:
    """Two worker processes on this machine, which a nanny starts anew when they die."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


def test_a_worker_of_dask_that_is_killed_leaves_its_job_to_another(
    postgres_address: str,  # noqa: F811
    tmp_path: Path,
    pages: list[Path],  # noqa: F811
    executor: distributed.cfexecutor.ClientExecutor,
) -> None:
    flags = tmp_path / "flags"
    flags.mkdir()
    begin = partial(opened_to_die, postgres_address, flags, os.getpid(), embedding=False)
    results = ingest_over(executor, begin, pages, batch="pages", workers=2)
    # A process died with its document stored and no word said.
    assert [flag.name for flag in flags.iterdir()] == ["stored"]
    again = {"facts": 0, "unchanged": 1, "stale": 0, "skipped": 0}
    once = {"facts": 1, "unchanged": 0, "stale": 0, "skipped": 0}
    assert results == [again if word == "reefs" else once for word in WORDS]
    counted: Counter[str] = stored(postgres_address)
    assert len(counted) == len(WORDS)
    assert {*counted.values()} == {1}
