"""Ingestion over executors: each job once, whoever dies."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.errors import ConfigError, EngineError, RequestError
from crp_integrations.relay.batches import forget_batch, ingest_over
from crp_integrations.vocabulary import EventType
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.stores.jobs_processes import Processes, opened, opened_to_die
from tests.stores.postgres_processes import OPTIONS, SPAWN

WORDS = ("tides", "moons", "reefs", "winds", "sands", "clouds", "rivers", "stones")


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    """Files with one passage each."""
    found = []
    for word in WORDS:
        page = tmp_path / f"{word}.md"
        page.write_text(f"# On {word}\n\nThis page tells us quite a lot about {word} at night.\n")
        found.append(page)
    return found


def stored(address: str) -> Counter[str]:
    """How often each source is in the journal's events of what was ingested."""
    with opened(address) as relay, relay.fabric.begin(write=False) as transaction:
        sources = [*transaction.facts.sources()]
        assert {source.fact_count for source in sources} == {1}
        assert len([*transaction.facts.retrievable()]) == len(sources)
        events = [*transaction.journal.events()]
        assert relay._store.check("local") == []
    told = [event.data for event in events if event.event_type is EventType.FACT_INGESTED]
    return Counter(one["source"] for one in told)


def test_workers_that_are_killed_leave_their_jobs_to_others(
    postgres_address: str,  # noqa: F811
    tmp_path: Path,
    pages: list[Path],
) -> None:
    flags = tmp_path / "flags"
    flags.mkdir()
    begin = partial(opened_to_die, postgres_address, flags, os.getpid())
    results = ingest_over(Processes(), begin, pages, batch="pages", workers=2)
    # Three processes died: two while they embedded, one with its document stored and no word said.
    assert sorted(flag.name for flag in flags.iterdir()) == ["moons", "stored", "tides"]
    again = {"facts": 0, "unchanged": 1, "stale": 0, "skipped": 0}
    once = {"facts": 1, "unchanged": 0, "stale": 0, "skipped": 0}
    assert results == [again if word == "reefs" else once for word in WORDS]
    counted = stored(postgres_address)
    assert len(counted) == len(WORDS) and {*counted.values()} == {1}
    # The batch is done: whoever asks again is told, and nobody works.
    assert ingest_over(Processes(), begin, pages, batch="pages") == results
    assert stored(postgres_address) == counted
    assert forget_batch(partial(opened, postgres_address), "pages") == len(WORDS)


def test_a_pool_that_breaks_is_said_and_another_one_goes_on(
    postgres_address: str,  # noqa: F811
    tmp_path: Path,
    pages: list[Path],
) -> None:
    flags = tmp_path / "flags"
    flags.mkdir()
    begin = partial(opened_to_die, postgres_address, flags, os.getpid())
    given = [page for page in pages if page.stem in ("sands", "tides")]
    with (
        ProcessPoolExecutor(1, mp_context=SPAWN) as pool,
        pytest.raises(EngineError, match=r"1 of 2 jobs .*BrokenProcessPool"),
    ):
        ingest_over(pool, begin, given[::-1], batch="pages", workers=1)
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        results = ingest_over(pool, begin, given[::-1], batch="pages", workers=1)
    assert [one["facts"] for one in results] == [1, 1]
    assert {*stored(postgres_address).values()} == {1}


def test_a_job_that_fails_has_an_error_and_stops_no_other(
    postgres_address: str,  # noqa: F811
    tmp_path: Path,
    pages: list[Path],
) -> None:
    begin = partial(opened, postgres_address)
    given = [pages[0], tmp_path / "nothing.md", pages[1]]
    with ThreadPoolExecutor(2) as pool:
        results = ingest_over(pool, begin, given, batch="some", workers=2)
        assert [one.get("error", one.get("facts")) for one in results] == [1, "IngestError", 1]
        with pytest.raises(RequestError, match="another name"):
            ingest_over(pool, begin, pages, batch="some")
        for batch, workers in (("", 1), ("x" * 201, 1), ("y", 0)):
            with pytest.raises(RequestError):
                ingest_over(pool, begin, pages, batch=batch, workers=workers)


def test_a_folder_keeps_no_jobs_and_says_so(tmp_path: Path, pages: list[Path]) -> None:
    begin = partial(Relay.open, tmp_path / "kb", **OPTIONS)
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConfigError, match="table of jobs"):
        ingest_over(pool, begin, pages, batch="pages")
