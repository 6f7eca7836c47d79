"""Sessions beside other processes, and processes killed while they close windows."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.records import NAMESPACE
from tests.stores import closing

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

KILLS = 25
WINDOWS = 40
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def fresh() -> ForkContext | SpawnContext:
    """Forked where that is possible, since a spawned one takes a second to start."""
    if hasattr(os, "fork"):
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_killed_while_closing_windows(tmp_path: Path, fresh: ForkContext | SpawnContext) -> None:
    chance = random.Random(7)
    acknowledged: set[str] = set()
    for run in range(KILLS):
        ours, theirs = fresh.Pipe(duplex=False)
        writer = fresh.Process(
            target=closing.close_until_killed, args=(tmp_path / "kb", run, theirs)
        )
        writer.start()
        theirs.close()
        # The first writers are killed while they make the tables.
        if run >= 5:
            acknowledged.add(ours.recv())
        time.sleep(chance.uniform(0.0, 0.06))
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        try:
            while True:
                acknowledged.add(ours.recv())
        except EOFError:
            ours.close()
        store = SqliteStore(tmp_path / "kb")
        found = closing.check(store)
        assert acknowledged <= found
        # At most the one window that was committed and not yet told of, a run.
        assert len(found) <= len(acknowledged) + run + 1
        if run % 2:
            store.close()
    assert len(acknowledged) > KILLS
    assert store.check(NAMESPACE) == []


def test_two_processes_close_windows_of_one_session(
    tmp_path: Path, fresh: ForkContext | SpawnContext
) -> None:
    """Every window is charged once, and no reader ever sees the budget rise."""
    path = tmp_path / "kb"
    start = fresh.Barrier(3)
    writers = [
        fresh.Process(target=closing.close_some, args=(path, writer, WINDOWS, start))
        for writer in range(2)
    ]
    for one in writers:
        one.start()
    start.wait()
    store = SqliteStore(path)
    seen = [1.0]
    while any(one.is_alive() for one in writers):
        with store.begin(NAMESPACE, write=False) as transaction:
            session = sessions_of(transaction).session(closing.SESSIONS[0])
            seen.append(seen[-1] if session is None else session.safety_budget)
    for one in writers:
        one.join()
    assert [one.exitcode for one in writers] == [0, 0]
    assert seen == sorted(seen, reverse=True)
    assert closing.check(store) == {
        closing.id_of(closing.SESSIONS[0], f"{writer}-{number}")
        for writer in range(2)
        for number in range(WINDOWS)
    }


def test_a_state_read_before_another_process_charged_is_refused(
    tmp_path: Path, fresh: ForkContext | SpawnContext
) -> None:
    """What was spent cannot be had back by keeping what was read earlier."""
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE) as transaction:
        closing.close_window(transaction, closing.SESSIONS[0], "first", fan=False)
    start = fresh.Barrier(2)
    ours, theirs = fresh.Pipe(duplex=False)
    other = fresh.Process(target=closing.keep_stale, args=(tmp_path / "kb", start, theirs))
    other.start()
    start.wait()
    with store.begin(NAMESPACE) as transaction:
        closing.close_window(transaction, closing.SESSIONS[0], "second", fan=False)
    start.wait()
    assert "never rises" in ours.recv()
    other.join()
    assert len(closing.check(store)) == 2
