"""Writers take turns: those of one namespace within a process, those of one file on a machine."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

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


@contextmanager
def file_held(path: Path, busy_seconds: float) -> Iterator[None]:
    """Keep other processes and threads out of a file that has no lock itself, for the block.

    The lock is that of an empty SQLite database beside the file, which every system has and which
    goes with a process that dies.

    Raises:
        StoreBusy: another one held it for too long.
        StoreError: there can be no lock file.
    """
    name = path.with_name(path.name + ".lock")
    try:
        connection = sqlite3.connect(name, timeout=busy_seconds, isolation_level=None)
    except sqlite3.Error as error:
        raise StoreError(f"lock file {name} cannot be made: {error}") from error
    with closing(connection):
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreBusy(
                    f"file {path} is being written by another process; "
                    f"gave up after {busy_seconds:g} s"
                ) from error
            raise StoreError(f"lock file {name} cannot be used: {error}") from error
        yield
