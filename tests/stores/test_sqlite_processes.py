from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crp_integrations.errors import StoreBusy
from crp_integrations.stores.keys import FileKeyRing
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.fixtures import NAMESPACE, fact, rows
from tests.conformance.workloads import apply_deed, check_batches
from tests.stores import processes

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def fresh() -> ForkContext | SpawnContext:
    """Forked where that is possible, since a spawned one takes a second to start."""
    if hasattr(os, "fork"):
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


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
    apply_deed(store, ("add", "before"))
    child = os.fork()
    if child == 0:
        try:
            apply_deed(store, ("add", "child"))
            os._exit(0)
        finally:
            os._exit(1)
    apply_deed(store, ("add", "parent"))
    assert os.waitpid(child, 0)[1] == 0
    apply_deed(store, ("add", "after"))
    names = ("before", "child", "parent", "after")
    assert check_batches(SqliteStore(tmp_path / "kb")) == {("add", name) for name in names}


def test_another_processs_lock_ends_in_busy(tmp_path: Path) -> None:
    """A second store object stands for the other process; it shares no lock with the first."""
    one, other = SqliteStore(tmp_path / "kb"), SqliteStore(tmp_path / "kb", busy_seconds=0.05)
    apply_deed(one, ("add", "a"))
    kept = fact("kept")
    with one.begin(NAMESPACE) as transaction:
        transaction.facts.add([kept], rows([kept]))
        with pytest.raises(StoreBusy, match="another process"), other.begin(NAMESPACE):
            raise AssertionError("a second writer was let in")
        with other.begin(NAMESPACE, write=False) as reader:
            assert reader.facts.get([kept.fact_id]) == []
    with other.begin(NAMESPACE) as transaction:
        assert transaction.facts.get([kept.fact_id]) == [kept]
