"""Tenants share the gateway's threads: what one queues delays only itself."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.gateway.worker_threads import SHARE, WorkerThreads

PATIENCE = 20


class Work:
    """Calls that note when they run and end when they are released."""

    def __init__(self, threads: int) -> None:
        self.pool = WorkerThreads(threads)
        self.began: list[str] = []
        self.now = Counter[str]()
        self.most = Counter[str]()
        self._changed = threading.Condition()
        self._allowed = 0

    def put(self, tenant: str, key: str = "k") -> Future[None]:
        def queue() -> Future[None]:
            SHARE.set((tenant, key))
            return self.pool.submit(self._run, tenant, key)

        return copy_context().run(queue)

    def release(self, count: int) -> None:
        with self._changed:
            self._allowed += count
            self._changed.notify_all()

    def until(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE)

    def _run(self, tenant: str, key: str) -> None:
        with self._changed:
            self.began.append(f"{tenant}/{key}")
            self.now[tenant] += 1
            self.most[tenant] = max(self.most[tenant], self.now[tenant])
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._allowed > 0, PATIENCE)
            self._allowed -= 1
            self.now[tenant] -= 1


@contextmanager
def working(threads: int) -> Iterator[Work]:
    work = Work(threads)
    with work.pool:
        yield work
        work.release(10_000)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_tenant_is_served_at_once_while_another_has_a_long_queue(threads: int) -> None:
    with working(threads) as work:
        queued = [work.put("noisy") for _ in range(100)]
        work.until(lambda: work.now["noisy"] == threads)
        quiet = work.put("quiet")
        # Nothing of the noisy tenant has ended.
        work.until(lambda: work.now["quiet"] == 1)
        assert work.most["noisy"] == threads
        work.release(10_000)
        assert not wait([*queued, quiet], PATIENCE).not_done


@pytest.mark.parametrize(("threads", "others", "most"), [(4, 1, 2), (4, 2, 1), (2, 1, 1)])
def test_a_tenant_has_its_share_of_the_threads_while_others_have_calls(
    threads: int, others: int, most: int
) -> None:
    with working(threads) as work:
        blocking = [work.put(f"other-{number}") for number in range(others)]
        work.until(lambda: work.now.total() == others)
        queued = [work.put("noisy") for _ in range(30)]
        work.until(lambda: work.now["noisy"] == most)
        assert not wait(queued, 0.05).done
        assert work.most["noisy"] == most
        work.release(10_000)
        assert not wait([*blocking, *queued], PATIENCE).not_done


def test_a_tenant_alone_with_calls_has_all_threads() -> None:
    with working(4) as work:
        earlier = [work.put(name) for name in ("", "x", "y", "z")]
        work.release(4)
        assert not wait(earlier, PATIENCE).not_done
        # Their requests may still wait for a model; they need no thread for that.
        queued = [work.put("") for _ in range(30)]
        work.until(lambda: work.now[""] == 4)
        work.release(10_000)
        assert not wait(queued, PATIENCE).not_done


def test_the_keys_of_a_tenant_take_turns() -> None:
    with working(1) as work:
        first = work.put("acme", "a")
        work.until(lambda: len(work.began) == 1)
        queued = [first, *(work.put("acme", "a") for _ in range(20)), work.put("acme", "b")]
        work.release(10_000)
        assert not wait(queued, PATIENCE).not_done
        assert work.began.index("acme/b") <= 2


def test_a_call_of_a_tenant_that_used_less_time_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"dear": 8.0, "first": 0.1, "second": 0.1}
    clock = threading.local()
    monkeypatch.setattr(
        "crp_integrations.gateway.worker_threads.time.perf_counter",
        lambda: getattr(clock, "now", 0.0),
    )
    order: list[str] = []

    def run(tenant: str) -> None:
        order.append(tenant)
        clock.now = getattr(clock, "now", 0.0) + seconds[tenant]

    held = threading.Event()
    with WorkerThreads(1) as pool:
        blocked = [_queued(pool, name, lambda _: held.wait(PATIENCE)) for name in ("x", "y")]
        # More tenants than threads, since each that has none at work gets a free one.
        tenants = ["dear"] * 5 + ["first", "second"] * 40
        queued = [_queued(pool, tenant, run) for tenant in tenants]
        held.set()
        assert not wait([*blocked, *queued], PATIENCE).not_done
    places = [place for place, tenant in enumerate(order) if tenant == "dear"]
    # Its second call waits while others have used less; threads report what they used late.
    assert places[1] > 20


def _queued(pool: WorkerThreads, tenant: str, run: Callable[[str], object]) -> Future[object]:
    def queue() -> Future[object]:
        SHARE.set((tenant, "k"))
        return pool.submit(run, tenant)

    return copy_context().run(queue)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=60),
)
def test_every_call_is_made_once_or_cancelled(
    threads: int, calls: list[tuple[int, int, bool]]
) -> None:
    made = Counter[int]()
    futures: list[Future[None]] = []
    with WorkerThreads(threads) as pool:
        for number, (tenant, key, cancelled) in enumerate(calls):
            SHARE.set((str(tenant), str(key)))
            futures.append(pool.submit(made.update, [number]))
            if cancelled:
                futures[-1].cancel()
    SHARE.set(("", ""))
    assert all(future.done() for future in futures)
    wanted = {number for number, future in enumerate(futures) if not future.cancelled()}
    assert set(made) == wanted and set(made.values()) <= {1}
    assert not pool._tenants


def test_an_error_is_raised_where_the_call_is_awaited() -> None:
    with WorkerThreads(1) as pool:
        failed = pool.submit(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failed.result(PATIENCE)
        # No cycle: what the call holds is freed without garbage collection.
        gone = weakref.ref(failed)
        gc.disable()
        try:
            del failed
            pool.submit(lambda: 3).result(PATIENCE)
            assert gone() is None
        finally:
            gc.enable()
        assert pool.submit(lambda: 3).result(PATIENCE) == 3
    with pytest.raises(RuntimeError):
        pool.submit(lambda: 3)
