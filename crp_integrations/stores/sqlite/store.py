"""`SqliteStore`: a folder with one database for each namespace, and its upkeep."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from crp_integrations.errors import ConfigError, EngineError, StoreBusy, StoreDamaged, StoreError
from crp_integrations.language import memo
from crp_integrations.seals import sha256, sha256_hex
from crp_integrations.stores.files import (
    empty_folder,
    make_folder,
    refuse_unwritable,
    remove_folder,
)
from crp_integrations.stores.keys import NAMESPACES
from crp_integrations.stores.relational import receipts, sessions
from crp_integrations.stores.relational.facts import RelationalFacts, RelationalSnapshot
from crp_integrations.stores.relational.rows import STATUSES, bogus_status, number
from crp_integrations.stores.relational.transaction import Facets, facets
from crp_integrations.stores.rules import (
    AMONG,
    FACTS_DUE,
    MAX_SHOWN,
    WINDOWS_DUE,
    TransactionGate,
    WriterLocks,
    among,
    checked_name,
    pages,
)
from crp_integrations.stores.sqlite import schema
from crp_integrations.stores.sqlite.cache import FOLDER as CACHE
from crp_integrations.stores.sqlite.cache import FileCache
from crp_integrations.stores.sqlite.connection import (
    PAUSE_SECONDS,
    Inode,
    SqliteConnection,
    SqlitePool,
    inode,
    open_empty,
)

# Facts whose texts are read at a time.
TEXTS_PER_PAGE = 1_000


def scrub_due(connection: SqliteConnection) -> dict[str, int]:
    """The entries of `own` that mark removed bytes in the files; each removal raises the value."""
    return {
        name: number(value, name)
        for name, value in connection.rows(
            "SELECT name, value FROM own WHERE name IN (?, ?)", [FACTS_DUE, WINDOWS_DUE]
        )
    }


def remove_due(connection: SqliteConnection, due: Mapping[str, int]) -> None:
    """Remove the entries that were due, unless their values have grown meanwhile."""
    connection.in_turn("BEGIN IMMEDIATE")
    connection.executemany("DELETE FROM own WHERE name = ? AND value = ?", due.items())
    connection.execute("COMMIT")


def rewrite(connection: SqliteConnection) -> None:
    """Rewrite the whole database without free pages and removed bytes.

    SQLite overwrites deleted rows, but not the copies that are left in a page when its rows move to
    another one; and the text index keeps removed words until its segments are merged.
    """
    connection.in_turn("INSERT INTO facts_text (facts_text) VALUES ('optimize')")
    connection.in_turn("VACUUM")


def truncate_log(connection: SqliteConnection, seconds: float) -> bool:
    """Move the write-ahead log into the database and truncate it; whether that was possible."""
    deadline = time.monotonic() + seconds
    # SQLite would hold the write lock while it waits for readers, which blocks every writer.
    with connection.impatient():
        while True:
            busy = connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
            if not busy:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_SECONDS)


def problems(connection: SqliteConnection) -> Iterator[str]:
    """Problems of a database, one sentence each; only ids, never a text.

    Each check reads what it needs, so that no lock is held throughout.
    """
    for (sentence,) in connection.rows(f"PRAGMA integrity_check({MAX_SHOWN})"):
        if sentence != "ok":
            yield f"the database is damaged: {sentence}"
    for table, row, parent, _ in connection.rows("PRAGMA foreign_key_check")[:MAX_SHOWN]:
        yield f"row {row} of {table} belongs to nothing in {parent}"
    yield from _text_index(connection)
    yield from _vectors(connection)
    yield from _statuses(connection)
    yield from islice(_contents(connection), MAX_SHOWN)


def _text_index(connection: SqliteConnection) -> Iterator[str]:
    try:
        # With rank 1 FTS5 compares the index with the texts that it should contain.
        connection.in_turn(
            "INSERT INTO facts_text (facts_text, rank) VALUES ('integrity-check', 1)"
        )
    except StoreDamaged:
        yield "the text index does not fit the texts"


def _vectors(connection: SqliteConnection) -> Iterator[str]:
    row = connection.one("SELECT value FROM own WHERE name = 'dimensions'")
    wanted = 0 if row is None else 4 * number(row[0], "dimensions")
    for id, length in connection.rows(
        "SELECT fact_id, length(vector) FROM facts LEFT JOIN vectors USING (fact) "
        "WHERE length(vector) IS NOT ? ORDER BY fact_id LIMIT ?",
        [wanted, MAX_SHOWN],
    ):
        if length is None:
            yield f"fact {id} has no vector"
        else:
            yield f"the vector of fact {id} has {length} bytes, wanted {wanted}"


def _statuses(connection: SqliteConnection) -> Iterator[str]:
    for id, word in connection.rows(
        f"SELECT fact_id, status FROM facts WHERE status NOT {AMONG} "  # noqa: S608
        "ORDER BY fact_id LIMIT ?",
        [among(list(STATUSES)), MAX_SHOWN],
    ):
        yield bogus_status(word, id)


def _contents(connection: SqliteConnection) -> Iterator[str]:
    # As bytes, because reading a text that is not valid UTF-8 would fail.
    statement = (
        "SELECT fact, fact_id, CAST(content AS BLOB), content_hash FROM facts WHERE fact > ? "
        "ORDER BY fact LIMIT ?"
    )
    for page in pages(connection, statement, 0, TEXTS_PER_PAGE):
        for _, id, content, stored in page:
            if sha256(content) != stored:
                yield f"the text of fact {id} does not match its content hash"


SqliteTransaction = Facets[RelationalFacts]
DATABASE = "fabric.sqlite"
REMOVED = "removed"
# Maximum number of namespaces with idle connections; those used last are kept. An idle connection
# has three open files, and many systems allow a process a thousand.
MAX_IDLE_POOLS = 64
# The first version with `sqlite_schema`; every other feature that is used is older.
OLDEST = (3, 33, 0)


class SqliteStore:
    """Keeps namespaces in a folder; safe with several threads and processes."""

    def __init__(self, path: str | Path, *, busy_seconds: float = 30.0) -> None:
        """Point at a folder; nothing is created before the first write."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise EngineError(
                f"SQLite {sqlite3.sqlite_version} of this Python is too old; "
                f"wanted at least {'.'.join(map(str, OLDEST))}",
                engine="sqlite",
                version=sqlite3.sqlite_version,
            )
        self._root = Path(path)
        for place in (self._root, *self._root.parents):
            if self._present(place) is not None:
                raise ConfigError(f"store {path} cannot be a folder: {place} is a file")
        empty_folder(self._root / REMOVED, strict=False)
        self._busy_seconds = busy_seconds
        self._writers = WriterLocks(busy_seconds)
        self._lock = threading.Lock()
        self._pools: dict[str, SqlitePool] = {}
        self._closed = False
        self._was_read = False

    @property
    def root(self) -> Path:
        """The store's folder, which also contains its key and its crp.toml."""
        return self._root

    @property
    def name(self) -> str:
        """Kind and location, for people."""
        return f"sqlite:{self._root}"

    def begin(
        self, namespace: str, *, write: bool = True
    ) -> AbstractContextManager[SqliteTransaction]:
        """Open a transaction: it commits at the end of the block and is undone if that raises."""
        pool = self._pool(checked_name(namespace))
        if write:
            return self._writing(pool, namespace)
        return self._reading(pool, namespace)

    def must_write(self, namespace: str) -> None:
        """Refuse if an answer could not be sealed: the file is read-only, or the disk is full."""
        pool = self._pool(checked_name(namespace))
        try:
            refuse_unwritable(pool.path, namespace, there=self._present(pool.path) is not None)
        except StoreError:
            # A connection opened read-only stays so even after the file becomes writable.
            pool.close_idle()
            raise

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were ever written, ascending."""
        self._refuse_closed()
        names = []
        for path in sorted((self._root / NAMESPACES).glob(f"*/{DATABASE}")):
            connection = SqliteConnection(path, self._busy_seconds)
            try:
                # Version 0 was made by a writer that never committed.
                if connection.version():
                    names.append(owner(connection, path))
            finally:
                connection.close()
        return sorted(names)

    def ping(self) -> None:
        """Read one database; raise StoreError if that fails, or if all were removed since."""
        self._refuse_closed()
        path = None
        with suppress(FileNotFoundError), os.scandir(self._root / NAMESPACES) as folders:
            paths = (Path(folder.path) / DATABASE for folder in folders)
            path = next((path for path in paths if self._present(path) is not None), None)
        if path is not None:
            with closing(SqliteConnection(path, self._busy_seconds)) as connection:
                if connection.version():
                    owner(connection, path)
            self._was_read = True
        elif self._was_read:
            raise StoreDamaged(f"the databases of store {self._root} were removed")

    def cache(self, namespace: str) -> FileCache:
        """The cache for the derived files of a namespace."""
        folder = self._pool(checked_name(namespace)).path.parent / CACHE
        return FileCache(folder, namespace, lambda: self._over_tables(namespace))

    def scrub(self, namespace: str) -> bool:
        """Erase every byte of removed data from disk; cheap if nothing was removed."""
        with self._alone(namespace) as connection:
            return connection is None or self._scrub(connection, namespace, always=False)

    def compact(self, namespace: str) -> None:
        """Rewrite the namespace's files without free space, scrubbed."""
        with self._alone(namespace) as connection:
            if connection is not None and not self._scrub(connection, namespace, always=True):
                raise StoreBusy(
                    f"namespace {namespace!r} is compacted, but a reader keeps the old files; "
                    f"gave up after {self._busy_seconds:g} s"
                )

    def drop(self, namespace: str) -> bool:
        """Erase a namespace with everything in it, including its trail, by removing its folder."""
        path = self._pool(checked_name(namespace)).path
        there = self._present(path) is not None
        with self._alone(namespace) as connection:
            if connection is not None:
                # Waits for a writer of another process.
                connection.in_turn("BEGIN EXCLUSIVE")
            if path.parent.exists():
                remove_folder(path.parent, self._root / REMOVED)
        memo.forget()
        return there

    def check(self, namespace: str) -> list[str]:
        """Problems of the namespace's files, one sentence each; empty if there are none."""
        try:
            with self._alone(namespace) as connection:
                if connection is None:
                    return self._lost(namespace)
                findings = [
                    *problems(connection),
                    *sessions.problems(connection),
                    *receipts.problems(connection),
                ]
        except StoreBusy:
            raise
        except StoreError as error:
            return [str(error)]
        return findings + self.cache(namespace).check()

    def files(self, namespace: str) -> Mapping[str, int]:
        """Bytes by file name, including caches."""
        folder = self._pool(checked_name(namespace)).path.parent
        sizes = {}
        for path in sorted(folder.rglob("*")):
            # Another process may remove a file at any time.
            with suppress(OSError):
                if path.is_file():
                    sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
        return sizes

    def close(self) -> None:
        """Release files and connections; calling it twice does nothing."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
            self._pools.clear()
        for pool in pools:
            pool.close()

    @contextmanager
    def _reading(self, pool: SqlitePool, namespace: str) -> Iterator[SqliteTransaction]:
        with ExitStack() as opened:
            snapshot = None
            if self._present(pool.path) is not None:
                connection = opened.enter_context(pool.connection())
                snapshot = _begin_reading(connection, pool, namespace)
            if snapshot is None:
                connection = opened.enter_context(closing(open_empty()))
            gate = TransactionGate(write=False)
            facts = RelationalFacts(connection, gate, namespace, snapshot)
            yield opened.enter_context(facets(facts, connection, gate))

    @contextmanager
    def _writing(self, pool: SqlitePool, namespace: str) -> Iterator[SqliteTransaction]:
        with self._writers.held(namespace):
            self._make(pool)
            with pool.connection() as connection:
                _begin_writing(connection, pool, namespace)
                gate = TransactionGate(write=True)
                with facets(
                    RelationalFacts(connection, gate, namespace), connection, gate
                ) as transaction:
                    yield transaction
                connection.execute("COMMIT")

    @contextmanager
    def _over_tables(self, namespace: str) -> Iterator[SqliteTransaction]:
        """A writing transaction of a namespace whose tables exist even if it is undone.

        A manifest gets its name before the transaction ends. If the process is killed between the
        two, a manifest next to a database without tables would mean that the tables were lost.
        """
        with self._alone(namespace) as connection:
            there = connection is not None
        if not there:
            with self.begin(namespace):
                pass
        with self.begin(namespace) as transaction:
            yield transaction

    @contextmanager
    def _alone(self, namespace: str) -> Iterator[SqliteConnection | None]:
        """A connection without a transaction, while no other thread of this store writes.

        None for a namespace that was never written.
        """
        pool = self._pool(checked_name(namespace))
        if self._present(pool.path) is None:
            yield None
            return
        with self._writers.held(namespace), pool.connection() as connection:
            if connection.version() == 0:
                yield None
                return
            _bring_up(connection)
            owner(connection, pool.path, namespace)
            yield connection

    def _scrub(self, connection: SqliteConnection, namespace: str, *, always: bool) -> bool:
        due = scrub_due(connection)
        if not due and not always:
            return True
        if FACTS_DUE in due:
            # Files derived from the removed facts contain their vectors.
            self.cache(namespace).drop()
        if FACTS_DUE in due or always:
            rewrite(connection)
        clean = truncate_log(connection, self._busy_seconds)
        if clean:
            remove_due(connection, due)
        return clean

    def _lost(self, namespace: str) -> list[str]:
        """A sentence if a namespace without tables has traces of having had some."""
        cached = self._pool(namespace).path.parent / CACHE
        # Only a manifest counts: it is written after the first writer's tables exist, but its file
        # before, see `_over_tables`.
        if not any(cached.glob("*.json")):
            return []
        sentence = (
            f"the database of namespace {namespace!r} is gone or empty, and files that were made "
            f"from it are there; put {DATABASE} back from a backup, beside its -wal file if it "
            "has one"
        )
        return [sentence]

    def _pool(self, namespace: str) -> SqlitePool:
        cold = None
        with self._lock:
            self._refuse_closed()
            pool = self._pools.pop(namespace, None)
            if pool is None:
                path = self._root / NAMESPACES / sha256_hex(namespace) / DATABASE
                pool = SqlitePool(path, self._busy_seconds)
            # Inserted again, so that the first entry is the one that was used longest ago.
            self._pools[namespace] = pool
            if len(self._pools) > MAX_IDLE_POOLS:
                cold = self._pools.pop(next(iter(self._pools)))
        if cold is not None:
            # A connection that is still in use is closed when its transaction ends.
            cold.close()
        return pool

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError(f"store {self._root} is closed")

    def _make(self, pool: SqlitePool) -> None:
        if inode(pool.path) is not None:
            return
        try:
            for folder in (self._root, self._root / NAMESPACES, pool.path.parent):
                make_folder(folder)
        except OSError as error:
            raise StoreError(
                f"store folder {self._root} cannot be made or written: {error.strerror}"
            ) from error

    def _present(self, path: Path) -> Inode | None:
        """Device and number of a file; None if it does not exist."""
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            # A name with a NUL raises a ValueError, which has no `strerror`.
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"store {str(self._root)!r:.80} cannot be used: {why}") from error
        return None if stat.S_ISDIR(status.st_mode) else (status.st_dev, status.st_ino)


def _bring_up(connection: SqliteConnection) -> None:
    """Apply the steps that an older version's tables lack, in a separate transaction."""
    if connection.version() < len(schema.STEPS):
        connection.in_turn("BEGIN IMMEDIATE")
        connection.migrate()
        connection.execute("COMMIT")


def _begin_reading(
    connection: SqliteConnection, pool: SqlitePool, namespace: str
) -> RelationalSnapshot | None:
    """Begin to read; None if a writer created the file and has not committed yet."""
    if not connection.version():
        return None
    _bring_up(connection)
    connection.execute("BEGIN")
    # The first read fixes the state that is seen, so it also reads the namespace's values.
    snapshot = RelationalSnapshot.read(connection)
    checked_owner(snapshot.own.get("namespace"), pool.path, namespace)
    return snapshot


def _begin_writing(connection: SqliteConnection, pool: SqlitePool, namespace: str) -> None:
    if not connection.is_ours and connection.version() == 0:
        # Permanent, and not possible within a transaction.
        connection.in_turn("PRAGMA journal_mode = WAL")
    connection.in_turn("BEGIN IMMEDIATE")
    # Checked again: another process may have created or migrated the tables meanwhile.
    is_new = connection.version() == 0
    connection.migrate()
    if is_new:
        connection.execute("INSERT INTO own VALUES ('namespace', ?)", [namespace])
    owner(connection, pool.path, namespace)


def owner(connection: SqliteConnection, path: Path, wanted: str | None = None) -> str:
    """The namespace that a database belongs to, checked."""
    row = connection.one("SELECT value FROM own WHERE name = 'namespace'")
    return checked_owner(None if row is None else row[0], path, wanted)


def checked_owner(owner_name: Any, path: Path, wanted: str | None) -> str:
    """Return the owner that a database names if it is the wanted one, else raise."""
    if owner_name is None or (wanted is not None and owner_name != wanted):
        raise StoreDamaged(f"the database of namespace {wanted!r} belongs to another namespace")
    # If a namespace is wanted, the path was made from its name and need not be checked.
    if wanted is None and path.parent.name != sha256_hex(str(owner_name)):
        raise StoreDamaged(f"{path} belongs to another namespace")
    return str(owner_name)
