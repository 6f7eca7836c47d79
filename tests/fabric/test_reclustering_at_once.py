"""Two that find communities at once: one does, the other is told and writes nothing."""

from __future__ import annotations

from multiprocessing.connection import Connection

import pytest

from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.ports import Store, work_lock
from crp_integrations.stores.postgres import PostgresStore
from tests.fabric.test_communities import (
    ACME,
    Interrupted,
    fabric,
    filled,
    store,  # noqa: F401 - a fixture
    told,
)
from tests.forking import BEGUN
from tests.postgres import postgres_address  # noqa: F401 - a fixture


def test_an_erasure_meanwhile_is_no_other_reclustering(store: Store) -> None:  # noqa: F811
    other = fabric(store).bind(ACME)
    held = filled(other)
    engine = Interrupted(lambda: other.forget(facts=held["raw milk"][:1]))
    assert fabric(store, leiden=engine).bind(ACME).recluster().communities == 3


def test_of_two_processes_one_finds_the_communities(postgres_address: str) -> None:  # noqa: F811
    with_lock = PostgresStore(postgres_address)
    namespace = fabric(with_lock).bind(ACME)
    filled(namespace)
    ours, theirs = BEGUN.Pipe()
    process = BEGUN.Process(target=recluster_slowly, args=(postgres_address, theirs))
    process.start()
    assert ours.recv() == "computing"
    with pytest.raises(StoreBusy, match="being found"):
        namespace.recluster()
    assert told(namespace) == []
    ours.send("go on")
    assert ours.recv() == 3
    process.join()
    # The lock went with who had it.
    assert namespace.recluster().communities == 3
    with_lock.close()


def test_a_lock_goes_with_a_process_that_is_killed(postgres_address: str) -> None:  # noqa: F811
    with_lock = PostgresStore(postgres_address)
    namespace = fabric(with_lock).bind(ACME)
    filled(namespace)
    ours, theirs = BEGUN.Pipe()
    process = BEGUN.Process(target=recluster_slowly, args=(postgres_address, theirs))
    process.start()
    assert ours.recv() == "computing"
    with work_lock(with_lock, "acme", "recluster") as free:
        assert not free
    with work_lock(with_lock, "other", "recluster") as free:
        assert free
    process.kill()
    process.join()
    while True:
        # The server notices that the connection is gone.
        with work_lock(with_lock, "acme", "recluster") as free:
            if free:
                break
    assert namespace.recluster().communities == 3
    with_lock.close()


def recluster_slowly(address: str, wire: Connection) -> None:
    def happens() -> None:
        wire.send("computing")
        wire.recv()

    kept = PostgresStore(address)
    engine = Interrupted(happens)
    wire.send(fabric(kept, leiden=engine).bind(ACME).recluster().communities)
    kept.close()
