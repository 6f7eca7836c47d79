"""What several threads and processes may do with one store, and what a killed one leaves.

A test starts one fresh process, which makes a copy of itself for each call: a copy of the test's
own process might hold threads, locks and connections, and a fresh one takes a second to start.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.ports.store import ClaimedJob, Jobs, jobs_of
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.fixtures import NAMESPACE, OTHER
from tests.conformance import workloads
from tests.conformance.hooks import StoreHooks, run_threads

# A function of a module, called with its end of a wire and what it was given.
Work = Callable[..., None]


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """What a process says that ends with an error."""

    trace: str


class Worker:
    """A process that was started, and what it says."""

    def __init__(self, wire: Connection) -> None:
        self.wire = wire
        self.pid = int(wire.recv())

    def receive(self) -> Any:
        """The next thing that it says; waits for it.

        Raises:
            EOFError: it has ended.
            AssertionError: it failed, with what it says of that.
        """
        said = self.wire.recv()
        if isinstance(said, WorkerFailed):
            raise AssertionError(said.trace)
        return said

    def send(self, word: object) -> None:
        """Say something to it."""
        self.wire.send(word)

    def receive_rest(self) -> list[Any]:
        """Everything that it says until it ends."""
        said = []
        with suppress(EOFError):
            while True:
                said.append(self.receive())
        return said

    def kill(self) -> list[Any]:
        """Kill it as `kill -9` does; what it had said and nobody had heard."""
        os.kill(self.pid, signal.SIGKILL)
        return self.receive_rest()


class Workers:
    """Processes for the length of a block; those that are left are killed at its end."""

    def __init__(self, most: int) -> None:
        """Start the process that the others are copies of.

        Args:
            most: how many are started in all.
        """
        if not hasattr(os, "fork"):
            pytest.skip("this system makes no copies of a process")
        spawn = multiprocessing.get_context("spawn")
        self._orders, orders = spawn.Pipe()
        pairs = [spawn.Pipe() for _ in range(most)]
        self._wires = [ours for ours, _ in pairs]
        self._started: list[Worker] = []
        ends = [theirs for _, theirs in pairs]
        self._first = spawn.Process(target=_fork_workers, args=(orders, ends))
        self._first.start()
        for end in (orders, *ends):
            end.close()

    def start(self, work: Work, *given: object) -> Worker:
        """Call a function in a process of its own.

        Args:
            work: found by its name, so a function of a module.
            given: what it is called with after its end of the wire; must be picklable.
        """
        self._orders.send((work, given))
        worker = Worker(self._wires[len(self._started)])
        self._started.append(worker)
        return worker

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._started:
            # Its wire ends with it; a process that has ended takes no signal.
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        self._orders.close()
        self._first.join()
        for wire in self._wires:
            wire.close()


def _fork_workers(orders: Connection, ends: Sequence[Connection]) -> None:
    """Make a copy of this process for each order, until there are no more."""
    # Nobody waits for the copies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number, end in enumerate(ends):
        try:
            work, given = orders.recv()
        except EOFError:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (orders, *ends[number + 1 :]):
                other.close()
            _run_work(work, end, given)
        end.close()
    with suppress(EOFError):
        orders.recv()


def _run_work(work: Work, wire: Connection, given: Sequence[object]) -> None:
    try:
        wire.send(os.getpid())
        work(wire, *given)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - sent to whoever listens, then the process ends
        wire.send(WorkerFailed(traceback.format_exc()))
    finally:
        os._exit(1)


BATCH = "a batch"


def job_table(store: Store, ids: Sequence[str] = ("b", "a", "c")) -> Jobs:
    """The jobs of a store with a few of them; a store without has nothing to show here."""
    jobs = jobs_of(store)
    if jobs is None:
        pytest.skip("this store keeps no jobs")
    jobs.put(NAMESPACE, BATCH, ids)
    return jobs


def claimed(claim: ClaimedJob | None) -> ClaimedJob:
    """A claim that was expected."""
    assert claim is not None
    return claim


class JobsLaws:
    """Jobs are had by one at a time and get one result each."""

    def test_jobs_come_in_the_order_they_were_put_each_once(self, store: Store) -> None:
        jobs = job_table(store)
        assert jobs.put(NAMESPACE, BATCH, ["a", "d", "d"]) == 1
        assert jobs.results(NAMESPACE, BATCH) == dict.fromkeys("bacd")
        seen = []
        for _ in range(4):
            with jobs.claim(NAMESPACE, BATCH) as claim:
                seen.append(claimed(claim).job_id)
                claimed(claim).finish(f'"{len(seen)}"')
        assert seen == [*"bacd"]
        with jobs.claim(NAMESPACE, BATCH) as claim:
            assert claim is None
        assert jobs.put(NAMESPACE, BATCH, ["a"]) == 0
        assert jobs.results(NAMESPACE, BATCH) == {"b": '"1"', "a": '"2"', "c": '"3"', "d": '"4"'}

    def test_what_one_has_no_other_gets(self, store: Store) -> None:
        jobs = job_table(store)
        with ExitStack() as held:
            claims = [held.enter_context(jobs.claim(NAMESPACE, BATCH)) for _ in range(4)]
            assert [claim and claim.job_id for claim in claims] == ["b", "a", "c", None]

    def test_a_job_without_a_result_is_free_again(self, store: Store) -> None:
        jobs = job_table(store)
        with jobs.claim(NAMESPACE, BATCH) as claim:
            assert claimed(claim).job_id == "b"

        def failing() -> None:
            with jobs.claim(NAMESPACE, BATCH) as again:
                assert claimed(again).job_id == "b"
                claimed(again).finish("1")
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            failing()
        assert jobs.results(NAMESPACE, BATCH)["b"] is None
        with jobs.claim(NAMESPACE, BATCH) as claim:
            assert claimed(claim).job_id == "b"

    def test_batches_and_namespaces_have_their_own_jobs(self, store: Store) -> None:
        jobs = job_table(store)
        jobs.put(NAMESPACE, "other", ["a"])
        jobs.put(OTHER, BATCH, ["x"])
        assert jobs.forget(NAMESPACE, BATCH) == 3
        assert jobs.results(NAMESPACE, BATCH) == {}
        assert jobs.results(NAMESPACE, "other") == {"a": None}
        assert jobs.results(OTHER, BATCH) == {"x": None}

    def test_threads_do_each_job_once(self, store: Store) -> None:
        ids = [f"{number:03}" for number in range(40)]
        jobs = job_table(store, ids)
        done: list[str] = []

        def work() -> None:
            while True:
                with jobs.claim(NAMESPACE, BATCH) as claim:
                    if claim is None:
                        return
                    done.append(claim.job_id)
                    claim.finish("1")

        run_threads(work for _ in range(4))
        assert sorted(done) == ids
        assert {*jobs.results(NAMESPACE, BATCH).values()} == {"1"}


WRITERS, READERS = 3, 2
BATCHES = 12
WINDOWS = 20


def start_together(workers: Sequence[Worker]) -> None:
    """Let processes that are ready begin."""
    for worker in workers:
        assert worker.receive() == "ready"
    for worker in workers:
        worker.send("begin")


class ConcurrencyLaws(StoreHooks):
    """Writers take turns, and nobody sees a part of what another one does."""

    def test_processes_write_and_read_at_once(self, store: Store) -> None:
        opener = self.opener(store)
        with Workers(WRITERS + READERS) as workers:
            readers = [workers.start(workloads.read_until_stopped, opener) for _ in range(READERS)]
            writers = [
                workers.start(workloads.write_batches, opener, writer, BATCHES)
                for writer in range(WRITERS)
            ]
            start_together([*readers, *writers])
            assert [writer.receive() for writer in writers] == ["done"] * WRITERS
            for reader in readers:
                reader.send("end")
                looks, _ = reader.receive()
                assert looks
        again = opener()
        added = {
            ("add", f"{writer}-{number}") for writer in range(WRITERS) for number in range(BATCHES)
        }
        removed = {
            ("remove", f"{writer}-{number - 1}")
            for writer in range(WRITERS)
            for number in range(2, BATCHES, 3)
        }
        assert workloads.check_batches(again) == added | removed
        again.close()

    def test_processes_close_windows_of_one_session(self, store: Store) -> None:
        opener = self.opener(store)
        seen = [1.0]
        with Workers(2) as workers:
            writers = [
                workers.start(workloads.close_windows, opener, writer, WINDOWS)
                for writer in range(2)
            ]
            start_together(writers)
            again = opener()
            while not all(writer.wire.poll() for writer in writers):
                with again.begin(NAMESPACE, write=False) as transaction:
                    session = sessions_of(transaction).session(workloads.SESSIONS[0])
                    seen.append(seen[-1] if session is None else session.safety_budget)
            assert [writer.receive() for writer in writers] == ["done"] * 2
        assert seen == sorted(seen, reverse=True)
        assert workloads.check_windows(again) == {
            workloads.id_of(workloads.SESSIONS[0], f"{writer}-{number}")
            for writer in range(2)
            for number in range(WINDOWS)
        }
        again.close()

    def test_a_session_read_before_another_process_charged_it_is_refused(
        self, store: Store
    ) -> None:
        opener = self.opener(store)
        again = opener()
        with again.begin(NAMESPACE) as transaction:
            workloads.close_window(transaction, workloads.SESSIONS[0], "first", fan=False)
        with Workers(1) as workers:
            worker = workers.start(workloads.keep_stale, opener)
            assert worker.receive() == "read"
            with again.begin(NAMESPACE) as transaction:
                workloads.close_window(transaction, workloads.SESSIONS[0], "second", fan=False)
            worker.send("charged")
            assert "never rises" in worker.receive()
        assert len(workloads.check_windows(again)) == 2
        again.close()


# The longest that a process lives after it was last heard.
SECONDS = 0.08
# Acknowledgements that a killed process is waited for, apart from the first one.
ACKNOWLEDGED = 3


class CrashLaws(StoreHooks):
    """Nothing acknowledged is lost, nothing removed comes back, and no part of a batch is there."""

    def test_killed_while_facts_are_added_and_removed(self, store: Store) -> None:
        opener, chance = self.opener(store), random.Random(5)
        acknowledged: set[workloads.Deed] = set()
        with Workers(self.kills) as workers:
            for run in range(self.kills):
                worker = workers.start(workloads.write_until_killed, opener, run)
                # The first one is killed while it makes the place.
                acknowledged.update(worker.receive() for _ in range(ACKNOWLEDGED if run else 0))
                time.sleep(chance.uniform(0.0, SECONDS))
                acknowledged.update(worker.kill())
                again = opener()
                done = workloads.check_batches(again)
                assert acknowledged <= done
                # At most one deed a run was committed and not acknowledged.
                assert len(done) <= len(acknowledged) + run + 1
                if run % 2:
                    again.close()
        assert len(acknowledged) >= ACKNOWLEDGED * (self.kills - 1)

    def test_killed_while_windows_are_closed(self, store: Store) -> None:
        opener, chance = self.opener(store), random.Random(7)
        acknowledged: set[str] = set()
        with Workers(self.kills) as workers:
            for run in range(self.kills):
                worker = workers.start(workloads.close_until_killed, opener, run)
                acknowledged.update(worker.receive() for _ in range(ACKNOWLEDGED if run else 0))
                time.sleep(chance.uniform(0.0, SECONDS))
                acknowledged.update(worker.kill())
                again = opener()
                found = workloads.check_windows(again)
                assert acknowledged <= found
                assert len(found) <= len(acknowledged) + run + 1
                assert again.check(NAMESPACE) == []
                if run % 2:
                    again.close()
        assert len(acknowledged) >= ACKNOWLEDGED * (self.kills - 1)
