"""Writers of one namespace take turns within a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from crp_integrations.errors import StoreBusy, StoreError


class WriterLocks:
    """One lock for each namespace, waited for no longer than a given time."""

    def __init__(self, busy_seconds: float) -> None:
        self._seconds = busy_seconds
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._owners: dict[str, int] = {}

    @contextmanager
    def held(self, namespace: str) -> Iterator[None]:
        """Hold a namespace's lock for the length of the block.

        Raises:
            StoreBusy: another thread held it for too long.
            StoreError: this thread holds it already and would wait for itself.
        """
        thread = threading.get_ident()
        with self._guard:
            lock = self._locks.setdefault(namespace, threading.Lock())
        if self._owners.get(namespace) == thread:
            raise StoreError(
                f"this thread already writes in namespace {namespace!r}; end that transaction first"
            )
        if not lock.acquire(timeout=self._seconds):
            raise StoreBusy(
                f"namespace {namespace!r} is being written by another thread; "
                f"gave up after {self._seconds:g} s"
            )
        self._owners[namespace] = thread
        try:
            yield
        finally:
            del self._owners[namespace]
            lock.release()
