"""Idle connections of one namespace's file, kept for the next transaction."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crp_integrations.stores.sqlite.connection import Connection, Inode, inode

# Opening a file costs about as much as a small commit; more idle ones than this are closed.
IDLE = 4
# Every pool of the process. An open connection must not be taken into a child of fork: the child
# would believe in locks that only its parent holds. So idle ones are closed before a fork.
_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """Hands a connection to one transaction at a time."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        _POOLS.add(self)

    @property
    def path(self) -> Path:
        """The namespace's file."""
        return self._path

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the length of the block; without a transaction before and after."""
        connection = self.take(inode(self._path))
        try:
            yield connection
        except BaseException as error:
            self.end(connection, error)
            raise
        self.end(connection, None)

    def take(self, present: Inode | None) -> Connection:
        """A connection without a transaction, which goes back by `end`.

        Args:
            present: the file that lies at the path.
        """
        return self._idle_of(present) or Connection(self._path, self._busy_seconds)

    def close(self) -> None:
        """Close what is idle now and, later, what is in use."""
        with self._lock:
            self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close what no transaction uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _idle_of(self, present: Inode | None) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            # Somebody may have put another file in the place of the one that was opened.
            if connection.inode == present:
                return connection
            connection.close()

    def end(self, connection: Connection, error: BaseException | None) -> None:
        """Take back a connection; what its transaction has not committed is undone.

        Args:
            error: what went wrong with it; then it is closed.
        """
        if error is not None:
            # Also what its error left half done ends with it.
            connection.close()
            return
        try:
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if not self._closed and len(self._idle) < IDLE:
                self._idle.append(connection)
                return
        connection.close()


def _close_all_idle() -> None:
    for pool in list(_POOLS):
        pool.close_idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_all_idle)
