"""`SqliteStore`: a folder with one database for each namespace."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crp_integrations.errors import ConfigError, EngineError, StoreDamaged, StoreError
from crp_integrations.seals import sha256_hex
from crp_integrations.stores.keys import NAMESPACES, make_folder
from crp_integrations.stores.locks import WriterLocks
from crp_integrations.stores.rules import Gate, checked_name
from crp_integrations.stores.sqlite.connection import Connection, open_empty
from crp_integrations.stores.sqlite.facts import SqliteFacts
from crp_integrations.stores.sqlite.journal import SqliteJournal
from crp_integrations.stores.sqlite.migrations import VERSION
from crp_integrations.stores.sqlite.pool import Pool

DATABASE = "fabric.sqlite"
# The first with `sqlite_schema`; everything else that is used is older.
OLDEST = (3, 33, 0)


@dataclass(frozen=True, slots=True)
class SqliteTransaction:
    """All facets of one namespace over one connection."""

    facts: SqliteFacts
    journal: SqliteJournal


class SqliteStore:
    """Keeps namespaces in a folder; safe under threads and beside other processes."""

    def __init__(self, path: str | Path, *, busy_seconds: float = 5.0) -> None:
        """Point at a folder; nothing is made before the first write.

        Args:
            path: the store's folder, there or not.
            busy_seconds: how long to wait for another writer of the same namespace.

        Raises:
            ConfigError: the path is that of a file, or leads through one.
            EngineError: this Python's SQLite is too old.
        """
        if sqlite3.sqlite_version_info < OLDEST:
            raise EngineError(
                f"SQLite {sqlite3.sqlite_version} of this Python is too old; "
                f"wanted at least {'.'.join(map(str, OLDEST))}",
                engine="sqlite",
                version=sqlite3.sqlite_version,
            )
        self._root = Path(path)
        for place in (self._root, *self._root.parents):
            if self._is_file(place):
                raise ConfigError(f"store {path} cannot be a folder: {place} is a file")
        self._busy_seconds = busy_seconds
        self._writers = WriterLocks(busy_seconds)
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}
        self._closed = False

    @property
    def root(self) -> Path:
        """The store's folder, which also holds its key and its crp.toml."""
        return self._root

    @property
    def name(self) -> str:
        """Kind and place for people."""
        return f"sqlite:{self._root}"

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[SqliteTransaction]:
        """Open a transaction: commits when the block ends, undoes everything when it raises.

        Raises:
            StoreBusy: another thread or process held the write lock for too long.
            StoreDamaged, StoreNewer: the namespace's file cannot be used.
            StoreError: the store is closed, or its folder cannot be made or written.
        """
        pool = self._pool(checked_name(namespace))
        if write:
            with self._writers.held(namespace):
                self._make(pool)
                with pool.connection() as connection:
                    yield from self._writing(connection, namespace)
        elif self._is_file(pool.path):
            with pool.connection() as connection:
                yield from self._reading(connection, namespace)
        else:
            yield from self._empty(namespace)

    def close(self) -> None:
        """Release files and connections; calling it twice does nothing."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
            self._pools.clear()
        for pool in pools:
            pool.close()

    def _writing(self, connection: Connection, namespace: str) -> Iterator[SqliteTransaction]:
        if connection.version() == 0:
            connection.use_write_ahead_log()
        connection.execute("BEGIN IMMEDIATE")
        if connection.version() == 0:
            connection.migrate()
            connection.execute("INSERT INTO own VALUES ('namespace', ?)", [namespace])
        connection.migrate()
        _check_owner(connection, namespace)
        yield from _transaction(connection, namespace, write=True)
        connection.execute("COMMIT")

    def _reading(self, connection: Connection, namespace: str) -> Iterator[SqliteTransaction]:
        version = connection.version()
        if version == 0:
            # Made by a writer that has not committed yet.
            yield from self._empty(namespace)
            return
        if version < VERSION:
            connection.execute("BEGIN IMMEDIATE")
            connection.migrate()
            connection.execute("COMMIT")
        connection.execute("BEGIN")
        # The first read fixes what the whole transaction sees.
        _check_owner(connection, namespace)
        yield from _transaction(connection, namespace, write=False)

    def _empty(self, namespace: str) -> Iterator[SqliteTransaction]:
        connection = open_empty()
        try:
            yield from _transaction(connection, namespace, write=False)
        finally:
            connection.close()

    def _pool(self, namespace: str) -> Pool:
        with self._lock:
            if self._closed:
                raise StoreError(f"store {self._root} is closed")
            if namespace not in self._pools:
                path = self._root / NAMESPACES / sha256_hex(namespace) / DATABASE
                self._pools[namespace] = Pool(path, self._busy_seconds)
            return self._pools[namespace]

    def _make(self, pool: Pool) -> None:
        try:
            for folder in (self._root, self._root / NAMESPACES, pool.path.parent):
                make_folder(folder)
        except OSError as error:
            raise StoreError(
                f"store folder {self._root} cannot be made or written: {error.strerror}"
            ) from error

    def _is_file(self, path: Path) -> bool:
        try:
            return not stat.S_ISDIR(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            # A name with a NUL is a ValueError, which has no message of the system's.
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"store {str(self._root)!r:.80} cannot be used: {why}") from error


def _transaction(
    connection: Connection, namespace: str, *, write: bool
) -> Iterator[SqliteTransaction]:
    gate = Gate(write=write)
    try:
        yield SqliteTransaction(
            SqliteFacts(connection, gate, namespace), SqliteJournal(connection, gate)
        )
    finally:
        gate.shut()


def _check_owner(connection: Connection, namespace: str) -> None:
    row = connection.one("SELECT value FROM own WHERE name = 'namespace'")
    if row is None or row[0] != namespace:
        raise StoreDamaged(f"the database of namespace {namespace!r} belongs to another namespace")
