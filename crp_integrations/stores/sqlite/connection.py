"""Connections to databases: pragmas, a pool of idle ones, and SQLite's errors as ours."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from crp_integrations.errors import StoreBusy, StoreDamaged, StoreError, StoreNewer
from crp_integrations.stores.files import describe_full
from crp_integrations.stores.rules import Among
from crp_integrations.stores.sqlite import schema

Parameters = Sequence[Any]
# Device and number of a file.
Inode = tuple[int, int]
sqlite3.register_adapter(Among, json.dumps)
MEMORY = Path(":memory:")
# How long to wait between two tries for a lock. SQLite's own waits grow to 100 ms; next to a
# process that writes without a pause it would then find the lock free too rarely.
PAUSE_SECONDS = 0.002
# Idle connections kept for each file, because opening one costs about as much as a small commit.
MAX_IDLE = 4
# Every pool of the process. A forked child must not inherit an open connection: it would rely on
# locks that only its parent has. So idle connections are closed before a fork.
_POOLS: weakref.WeakSet[SqlitePool] = weakref.WeakSet()
# Each thread's own empty namespace: creating the tables takes much longer than copying them, and
# the lock of a shared one might be held at the moment of a fork.
_OF_THREAD = threading.local()

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_SCHEMA,
    # Our statement does not fit the tables: a table or column is missing.
    sqlite3.SQLITE_ERROR,
}
_SENTENCES = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_READONLY: (
        "cannot be written, and reading it needs lock files next to it, which are written too; "
        "copy the store to where it can be"
    ),
    sqlite3.SQLITE_PERM: "may not be used by this user",
    sqlite3.SQLITE_FULL: "has no room left on its disk",
    sqlite3.SQLITE_IOERR: "could not be read or written by the system",
}


class SqliteConnection:
    """A connection without implicit transactions.

    Attributes:
        inode: device and number of the file that was opened; None in memory.
    """

    def __init__(self, path: Path, busy_seconds: float) -> None:
        """Open a database, and set the options of the connection."""
        self._path = path
        self._busy_seconds = busy_seconds
        # Whether the file is known to be one of ours with the present tables.
        self._is_ours = False
        self._padding = b""
        with self._translated():
            self._raw = sqlite3.connect(
                path,
                timeout=busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
        try:
            with self._translated():
                self._raw.execute("PRAGMA foreign_keys = ON")
                self._raw.execute("PRAGMA synchronous = FULL")
                self._raw.execute("PRAGMA secure_delete = ON")
            self.version()
            self._check_length()
            self.inode = inode(path)
        except BaseException:
            self._raw.close()
            raise

    @property
    def is_ours(self) -> bool:
        """Whether the file is known to be one of ours with the present tables."""
        return self._is_ours

    @property
    def padding(self) -> bytes:
        """A page of zeros."""
        if not self._padding:
            self._padding = bytes(self.rows("PRAGMA page_size")[0][0])
        return self._padding

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run one statement."""
        # Not as a context manager: entering one takes longer than many a statement.
        try:
            return self._raw.execute(statement, parameters)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self._translate(error) from error

    def executemany(self, statement: str, rows: Iterable[Parameters]) -> None:
        """Run one statement for each row."""
        try:
            self._raw.executemany(statement, rows)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self._translate(error) from error

    def rows(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            return self._raw.execute(statement, parameters).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self._translate(error) from error

    def one(self, statement: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        try:
            row: tuple[Any, ...] | None = self._raw.execute(statement, parameters).fetchone()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self._translate(error) from error
        return row

    def version(self) -> int:
        """The schema version; 0 for a database without tables."""
        if self._is_ours:
            # Only the version can have changed since, and it is read from the file's header.
            version = int(self.rows("PRAGMA user_version")[0][0])
            if version == len(schema.STEPS):
                return version
            self._is_ours = False
        # One statement, because another process may create the tables between two.
        version, owner, tables = self.rows(
            "SELECT (SELECT user_version FROM pragma_user_version), "
            "(SELECT application_id FROM pragma_application_id), "
            "EXISTS (SELECT 1 FROM sqlite_schema)"
        )[0]
        if owner != schema.APPLICATION_ID and tables:
            raise StoreDamaged(f"{self._path} is an SQLite database, but not one of a CRP store")
        if version > len(schema.STEPS):
            raise StoreNewer(
                f"{self._path} has schema version {version}; this version of the package reads "
                f"up to {len(schema.STEPS)}"
            )
        self._is_ours = bool(tables) and version == len(schema.STEPS)
        return int(version)

    def migrate(self) -> None:
        """Bring the tables to the present version within the open transaction."""
        steps = schema.STEPS[self.version() :]
        for statement in chain.from_iterable(steps):
            self.execute(statement)
        if steps:
            self.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            self.execute(f"PRAGMA user_version = {len(schema.STEPS)}")

    def in_turn(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement that needs the write lock, retrying until the time limit."""
        deadline = time.monotonic() + self._busy_seconds
        with self.impatient():
            while True:
                try:
                    return self.rows(statement)
                except StoreBusy:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(PAUSE_SECONDS)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Make SQLite fail at once on a lock, for the length of the block."""
        self.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            self.execute(f"PRAGMA busy_timeout = {round(1000 * self._busy_seconds)}")

    def copied(self) -> SqliteConnection:
        """A copy of this database in memory."""
        copy = SqliteConnection(MEMORY, self._busy_seconds)
        with self._translated():
            self._raw.backup(copy._raw)
        return copy

    def moved(self) -> SqliteConnection:
        """Move the open transaction of this in-memory database to a copy, and undo it here."""
        # A savepoint makes the text index write what it buffers until the commit.
        self.execute("SAVEPOINT moved")
        self.execute("RELEASE moved")
        image = SqliteConnection(MEMORY, self._busy_seconds)
        try:
            with self._translated():
                # `backup` would leave out uncommitted changes.
                image._raw.deserialize(self._raw.serialize())
            copy = image.copied()
        finally:
            image.close()
        self.rollback()
        copy.execute("BEGIN")
        return copy

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        if self._raw.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _check_length(self) -> None:
        """Refuse a file whose last page was cut; SQLite would read the missing part as zeros."""
        if inode(self._path) is None:
            return
        page = self.rows("PRAGMA page_size")[0][0]
        log = self._path.with_name(f"{self._path.name}-wal")
        # With a log, an incomplete last page is valid: the log contains it too.
        if self._path.stat().st_size % page and not (log.is_file() and log.stat().st_size):
            raise StoreDamaged(f"{self._path} is damaged: its last page is cut")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.Error | UnicodeEncodeError) -> StoreError:
        if isinstance(error, UnicodeEncodeError):
            return StoreError(f"{self._path} cannot keep a text that is not UTF-8")
        # The low byte is the primary error code, the rest a more specific one.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if "no such module" in str(error):
            return StoreError(
                f"SQLite {sqlite3.sqlite_version} of this Python was built without FTS5, "
                "which the store's text index needs"
            )
        if code in _BUSY:
            return StoreBusy(
                f"{self._path} is being written by another process; "
                f"gave up after {self._busy_seconds:g} s"
            )
        # Without room for its lock file, SQLite reports an error of reading.
        full = describe_full(self._path.parent) if code in _NO_ROOM else ""
        if full and self._path != MEMORY:
            return StoreBusy(f"{full}; make room, or move the store: {error}")
        # Python's own error for a stored text that is not UTF-8 has no code.
        if code in _DAMAGED or "decode" in str(error):
            return StoreDamaged(f"{self._path} is damaged or not a CRP store: {error}")
        if code in _SENTENCES:
            return StoreError(f"{self._path} {_SENTENCES[code]}: {error}")
        return StoreError(f"{self._path} refused a statement: {error}")


def inode(path: Path) -> Inode | None:
    """Device and number of a file; None if it does not exist."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def open_empty() -> SqliteConnection:
    """An empty namespace in memory, to read one that was never written."""
    if not hasattr(_OF_THREAD, "empty"):
        made = SqliteConnection(MEMORY, 0.0)
        made.migrate()
        _OF_THREAD.empty = made
    empty: SqliteConnection = _OF_THREAD.empty
    return empty.copied()


class SqlitePool:
    """Lends a connection to one transaction at a time."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._idle: list[SqliteConnection] = []
        self._closed = False
        _POOLS.add(self)

    @property
    def path(self) -> Path:
        """The namespace's file."""
        return self._path

    @contextmanager
    def connection(self) -> Iterator[SqliteConnection]:
        """A connection for the length of the block, not in a transaction before or after it.

        After an error the connection is closed, which also ends an open transaction.
        """
        connection = self._idle_of(inode(self._path)) or SqliteConnection(
            self._path, self._busy_seconds
        )
        try:
            yield connection
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if not self._closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close idle connections now, and those in use when they are returned."""
        with self._lock:
            self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that no transaction uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _idle_of(self, present: Inode | None) -> SqliteConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            # The file may have been replaced since the connection was opened.
            if connection.inode == present:
                return connection
            connection.close()


def _close_all_idle() -> None:
    for pool in list(_POOLS):
        pool.close_idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_all_idle)
