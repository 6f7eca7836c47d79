from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crp_integrations.audit.journal import verify
from crp_integrations.errors import StoreBusy
from crp_integrations.stores.keys import FileKeyRing
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.records import KEY, NAMESPACE, fact, rows
from crp_integrations.vocabulary import FactStatus
from tests.stores import processes

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

KILLS = 20
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def fresh() -> ForkContext | SpawnContext:
    """Forked where that is possible, since a spawned one takes a second to start."""
    if hasattr(os, "fork"):
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def check(store: SqliteStore, acknowledged: set[str]) -> set[str]:
    """Whole batches only, all acknowledged ones among them, index and journal in step."""
    with store.begin(NAMESPACE, write=False) as transaction:
        ids = [id for id, _ in transaction.facts.retrievable()]
        found = {one.content: one for one in transaction.facts.get(ids)}
        events = list(transaction.journal.events())
        names = [event.data["source"] for event in events]
        assert verify(events, KEY) == len(names) == len(set(names))
        assert acknowledged <= set(names)
        assert set(found) == {text for name in names for text in processes.batch(name)}
        texts = sorted(found)
        vectors = transaction.facts.vectors([found[text].fact_id for text in texts])
        assert vectors.tolist() == rows([found[text] for text in texts]).tolist()
        hits = transaction.facts.search_text(["batch"], len(ids) + 1)
        assert sorted(id for id, _ in hits) == sorted(ids)
        stale = {one.content for one in found.values() if one.status is FactStatus.STALE}
        assert stale == {processes.batch(name)[0] for name in names}
        assert int(transaction.facts.setting("count") or 0) == len(names)
        return set(names)


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_killed_while_writing(tmp_path: Path, fresh: ForkContext | SpawnContext) -> None:
    chance = random.Random(5)
    acknowledged: set[str] = set()
    for run in range(KILLS):
        ours, theirs = fresh.Pipe(duplex=False)
        # The first writers are killed while they make the tables.
        writer = fresh.Process(
            target=processes.write_until_killed, args=(tmp_path / "kb", run, theirs)
        )
        writer.start()
        theirs.close()
        if run >= 5:
            acknowledged.add(f"{run}-{ours.recv()}")
        time.sleep(chance.uniform(0.0, 0.05))
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        try:
            while True:
                acknowledged.add(f"{run}-{ours.recv()}")
        except EOFError:
            ours.close()
        store = SqliteStore(tmp_path / "kb")
        check(store, acknowledged)
        if run % 2:
            store.close()
    assert len(acknowledged) > KILLS


def test_processes_that_write_at_once_take_turns(
    tmp_path: Path, fresh: ForkContext | SpawnContext
) -> None:
    start = fresh.Barrier(3)
    writers = [
        fresh.Process(target=processes.write_some, args=(tmp_path / "kb", writer, 15, start))
        for writer in range(3)
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert [one.exitcode for one in writers] == [0, 0, 0]
    every = {f"{writer}-{number}" for writer in range(3) for number in range(15)}
    assert check(SqliteStore(tmp_path / "kb"), every) == every


def test_processes_that_start_at_once_share_one_key(
    tmp_path: Path, fresh: ForkContext | SpawnContext
) -> None:
    for round_ in range(4):
        path = tmp_path / f"kb{round_}" / "keys"
        start = fresh.Barrier(4)
        pipes = [fresh.Pipe(duplex=False) for _ in range(4)]
        makers = [
            fresh.Process(target=processes.make_key, args=(path, start, theirs))
            for _, theirs in pipes
        ]
        for one in makers:
            one.start()
        keys = {ours.recv() for ours, _ in pipes}
        for one in makers:
            one.join()
        assert keys == {FileKeyRing(path).master()}
        assert [one.name for one in path.parent.iterdir()] == ["keys"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_store_may_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    processes.write_batch(store, "before")
    child = os.fork()
    if child == 0:
        try:
            processes.write_batch(store, "child")
            os._exit(0)
        finally:
            os._exit(1)
    processes.write_batch(store, "parent")
    assert os.waitpid(child, 0)[1] == 0
    processes.write_batch(store, "after")
    assert check(SqliteStore(tmp_path / "kb"), set()) == {"before", "child", "parent", "after"}


def test_another_processs_lock_ends_in_busy(tmp_path: Path) -> None:
    """A second store object stands for the other process; it shares no lock with the first."""
    one, other = SqliteStore(tmp_path / "kb"), SqliteStore(tmp_path / "kb", busy_seconds=0.05)
    processes.write_batch(one, "a")
    kept = fact("kept")
    with one.begin(NAMESPACE) as transaction:
        transaction.facts.add([kept], rows([kept]))
        with pytest.raises(StoreBusy, match="another process"), other.begin(NAMESPACE):
            raise AssertionError("a second writer was let in")
        with other.begin(NAMESPACE, write=False) as reader:
            assert reader.facts.get([kept.fact_id]) == []
    with other.begin(NAMESPACE) as transaction:
        assert transaction.facts.get([kept.fact_id]) == [kept]
