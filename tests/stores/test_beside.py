"""Two processes write and three read at once: no lock error, nothing uncommitted is seen."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType
from tests.fabric.lifecycle_fixtures import ACME, events, fabric, seen

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
SECONDS = 5.0
WRITERS, READERS = 2, 3
BATCH = 5
# Batches of a writer that stay; the oldest one beyond them is deleted.
LIVE = 12
# Every so many batches one is erased, which rewrites the files.
ERASE_EVERY = 10


@pytest.fixture(scope="module")
def fresh() -> ForkContext | SpawnContext:
    if hasattr(os, "fork"):
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def beside_others() -> None:
    """Take what time the other tests of this machine leave: five processes ask for all of it."""
    if hasattr(os, "nice"):
        os.nice(10)


def batch(writer: int, number: int) -> list[Fact]:
    name = f"{writer}.{number}"
    return [
        Fact(
            fact_id=f"{name}/{part}",
            content=f"Passage {part} of batch {name} says in ten words or more what it says.",
            source_id=name,
        )
        for part in range(BATCH)
    ]


def write(path: Path, writer: int, seconds: float, start: Barrier, answer: Connection) -> None:
    beside_others()
    namespace = fabric(SqliteStore(path)).bind(ACME)
    start.wait()
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        namespace.add(batch(writer, number))
        if number >= LIVE:
            old = number - LIVE
            if old % ERASE_EVERY:
                namespace.forget(facts=[fact.fact_id for fact in batch(writer, old)])
            else:
                namespace.erase(f"{writer}.{old}")
        number += 1
    answer.send(number)


def whole(ids: Iterable[str]) -> bool:
    """Whether of each batch either all facts are there or none."""
    return set(Counter(id.partition("/")[0] for id in ids).values()) <= {BATCH}


def read(path: Path, seconds: float, start: Barrier, answer: Connection) -> None:
    beside_others()
    namespace = fabric(SqliteStore(path)).bind(ACME)
    vector = namespace.embedder.embed_query("passage")
    hashes, before, gone, turns = set(), set[str](), set[str](), 0
    start.wait()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hashes.add(namespace.state_hash())
        for ids in (
            set(namespace.find(Where())),
            {hit.fact_id for hit in namespace.nearest(vector, 10_000)},
            {hit.fact_id for hit in namespace.search_text("passage", 10_000)},
        ):
            assert whole(ids), sorted(ids)
            gone |= before - ids
            assert not gone & ids, sorted(gone & ids)
            before = ids
        turns += 1
    answer.send((turns, hashes))


@pytest.mark.requirement("009-1-1", "009-3.3-1", "009-3.3-2")
def test_two_writers_and_three_readers(tmp_path: Path, fresh: ForkContext | SpawnContext) -> None:
    path = tmp_path / "kb"
    start = fresh.Barrier(WRITERS + READERS)
    pipes = [fresh.Pipe(duplex=False) for _ in range(WRITERS + READERS)]
    working = [
        fresh.Process(target=write, args=(path, writer, SECONDS, start, pipes[writer][1]))
        for writer in range(WRITERS)
    ] + [
        fresh.Process(target=read, args=(path, SECONDS, start, pipes[WRITERS + reader][1]))
        for reader in range(READERS)
    ]
    for one in working:
        one.start()
    for _, theirs in pipes:
        theirs.close()
    # A process that failed has closed its end and said nothing.
    answers = []
    for ours, _ in pipes:
        try:
            answers.append(ours.recv())
        except EOFError:
            answers.append(None)
    for one in working:
        one.join()
    assert [one.exitcode for one in working] == [0] * (WRITERS + READERS)
    assert None not in answers

    made = fabric(SqliteStore(path))
    told = events(made)
    changes = [event for event in told if event.event_type is EventType.CKF_ETAG_CHANGED]
    committed = {state_hash([])} | {str(event.data["after"]) for event in changes}
    for before, after in pairwise(changes):
        assert after.data["before"] == before.data["after"]
    for turns, hashes in answers[WRITERS:]:
        assert turns > 0
        assert hashes <= committed
    assert len({hash_ for _, hashes in answers[WRITERS:] for hash_ in hashes}) > READERS
    kept = {
        fact.fact_id
        for writer, count in enumerate(answers[:WRITERS])
        for number in range(max(0, count - LIVE), count)
        for fact in batch(writer, number)
    }
    assert seen(made.bind(ACME)) == kept
    assert made.store.check("acme") == []
