"""Worker threads that tenants share: the calls that one tenant queues wait for its own turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

Value = TypeVar("Value")

# Tenant and key for which the running request works; empty for the gateway's own work.
SHARE: Final[ContextVar[tuple[str, str]]] = ContextVar("crp_gateway_share", default=("", ""))


@dataclass(slots=True)
class _TenantQueue:
    """What waits and runs for a tenant.

    Attributes:
        tenant: may be empty, for the gateway's own work.
        waiting: by key; the first key is served next.
        seconds: time of threads that it used, counted from when it last had nothing to do.
    """

    tenant: str
    seconds: float
    waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = field(default_factory=dict)
    running: int = 0

    def take(self) -> tuple[Future[Any], Callable[[], Any]]:
        """The next key's oldest call; the key goes to the end of the line."""
        key = next(iter(self.waiting))
        calls = self.waiting.pop(key)
        call = calls.popleft()
        if calls:
            self.waiting[key] = calls
        return call


class WorkerThreads(ThreadPoolExecutor):
    """Threads whose next call is of the tenant that used the least time; its keys take turns.

    A tenant gets its share of the threads while others have calls. One thread more than `threads`
    is kept for a tenant for which none works, since a running call is not interrupted.
    """

    def __init__(self, threads: int) -> None:
        """Start no thread yet."""
        super().__init__(threads + 1, thread_name_prefix="crp-gateway")
        self._most = threads
        self._changed = threading.Condition()
        self._tenants: dict[str, _TenantQueue] = {}
        self._busy = 0
        # Seconds that the tenant served last had used; who comes back starts there.
        self._present = 0.0

    def submit(self, fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Future[Value]:
        """Queue a call for the tenant and key of `SHARE`."""
        tenant, key = SHARE.get()
        future: Future[Value] = Future()
        # Raises after `shutdown`; otherwise a thread takes one call, though not always this one.
        super().submit(self._run_next)
        with self._changed:
            queue = self._tenants.setdefault(tenant, _TenantQueue(tenant, self._present))
            queue.waiting.setdefault(key, deque()).append((future, partial(fn, *args, **kwargs)))
            self._changed.notify()
        return future

    def _run_next(self) -> None:
        with self._changed:
            queue = self._changed.wait_for(self._next)
            assert queue is not None
            future, call = queue.take()
            queue.running += 1
            self._busy += 1
            self._present = max(self._present, queue.seconds)
        began = time.perf_counter()
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)
        finally:
            with self._changed:
                queue.running -= 1
                self._busy -= 1
                queue.seconds += time.perf_counter() - began
                if not (queue.running or queue.waiting):
                    del self._tenants[queue.tenant]
                self._changed.notify_all()
            # A failed call's error refers to this frame, which must not refer to the error.
            del future, call

    def _next(self) -> _TenantQueue | None:
        """The queue whose call is next; None while every one that waits has its share."""
        most = max(1, self._most // max(1, len(self._tenants)))
        spare = self._busy < self._most
        ready = [
            queue
            for queue in self._tenants.values()
            if queue.waiting and (not queue.running or (spare and queue.running < most))
        ]
        return min(ready, key=lambda queue: (queue.seconds, queue.tenant), default=None)
