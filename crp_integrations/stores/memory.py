"""The store in memory: the same SQLite tables in RAM, one database for each namespace.

All readers of a namespace share its committed database. A writer uses the same one if no one reads;
otherwise it writes to a copy, which replaces the original at commit. So a reader keeps the state it
began with, and a copy is made only when a reader and a writer overlap.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports.store import ClaimedJob
from crp_integrations.stores.relational.facts import RelationalFacts
from crp_integrations.stores.relational.transaction import facets
from crp_integrations.stores.rules import Executed, TransactionGate, WriterLocks, checked_name
from crp_integrations.stores.sqlite.connection import SqliteConnection, open_empty
from crp_integrations.stores.sqlite.store import SqliteTransaction

_Batch = tuple[str, str]


class _SharedConnection:
    """Runs one statement at a time on a database that can be replaced between two statements.

    Attributes:
        database: database on which the next statement runs.
    """

    def __init__(self, database: SqliteConnection, lock: threading.RLock) -> None:
        self.database = database
        self._lock = lock

    @property
    def padding(self) -> bytes:
        """Empty: nothing is written to disk, so no padding is needed."""
        return b""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Executed:
        """Run one statement."""
        with self._lock:
            return self.database.execute(statement, parameters)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        with self._lock:
            self.database.executemany(statement, rows)

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._lock:
            return self.database.rows(statement, parameters)

    def one(self, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        with self._lock:
            return self.database.one(statement, parameters)


class _MemoryNamespace:
    """The databases of one namespace: the committed one, and older ones that still have readers."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._committed = open_empty()
        self._readers: defaultdict[SqliteConnection, int] = defaultdict(int)
        self._writer: _SharedConnection | None = None
        self._closed = False
        # Whether a writer ever committed.
        self.written = False

    @contextmanager
    def reading(self) -> Iterator[_SharedConnection]:
        """The committed state, for the length of the block."""
        with self._lock:
            database, writer = self._committed, self._writer
            if writer is not None and writer.database is database:
                writer.database = database.moved()
            self._readers[database] += 1
        try:
            yield _SharedConnection(database, self._lock)
        finally:
            with self._lock:
                self._readers[database] -= 1
                self._close_unused(database)

    @contextmanager
    def writing(self) -> Iterator[_SharedConnection]:
        """A transaction that commits when the block ends; one at a time, see `WriterLocks`."""
        with self._lock:
            before = self._committed
            writer = _SharedConnection(
                before.copied() if self._readers[before] else before, self._lock
            )
            writer.execute("BEGIN")
            self._writer = writer
        try:
            yield writer
            with self._lock:
                writer.execute("COMMIT")
                self._committed, self.written = writer.database, True
        finally:
            with self._lock:
                self._writer = None
                self._committed.rollback()
                for database in {before, writer.database}:
                    self._close_unused(database)

    def close(self) -> None:
        """Close databases without transactions now, and the others when their transactions end."""
        with self._lock:
            self._closed = True
            if self._writer is None:
                self._close_unused(self._committed)

    def _close_unused(self, database: SqliteConnection) -> None:
        if self._readers[database] or (database is self._committed and not self._closed):
            return
        del self._readers[database]
        database.close()


class MemoryJobs:
    """Jobs and results in memory; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: defaultdict[_Batch, dict[str, str | None]] = defaultdict(dict)
        self._taken: set[tuple[_Batch, str]] = set()

    def put(self, namespace: str, batch: str, ids: Sequence[str]) -> int:
        """Add the jobs that do not exist yet; return how many."""
        with self._lock:
            held = self._results[namespace, batch]
            fresh = [job_id for job_id in dict.fromkeys(ids) if job_id not in held]
            held.update(dict.fromkeys(fresh))
            return len(fresh)

    @contextmanager
    def claim(self, namespace: str, batch: str) -> Iterator[ClaimedJob | None]:
        """The next job that has no result and that no other thread has claimed."""
        place = (namespace, batch)
        with self._lock:
            free = (
                job_id
                for job_id, result in self._results[place].items()
                if result is None and (place, job_id) not in self._taken
            )
            job_id = next(free, None)
            if job_id is not None:
                self._taken.add((place, job_id))
        if job_id is None:
            yield None
            return
        finished: list[str] = []
        try:
            yield ClaimedJob(job_id, finished.append)
            with self._lock:
                if finished:
                    self._results[place][job_id] = finished[-1]
        finally:
            with self._lock:
                self._taken.discard((place, job_id))

    def results(self, namespace: str, batch: str) -> dict[str, str | None]:
        """The result of each job, in the order in which the jobs were added."""
        with self._lock:
            return dict(self._results[namespace, batch])

    def forget(self, namespace: str, batch: str) -> int:
        """Remove a batch; return its number of jobs."""
        with self._lock:
            return len(self._results.pop((namespace, batch), {}))


class MemoryStore:
    """Keeps everything in the process; thread-safe."""

    def __init__(self, *, busy_seconds: float = 5.0) -> None:
        """Make an empty store."""
        self._writers = WriterLocks(busy_seconds)
        self._lock = threading.Lock()
        self._namespaces: dict[str, _MemoryNamespace] = {}
        self._closed = False
        self._jobs = MemoryJobs()

    @property
    def jobs(self) -> MemoryJobs:
        """The jobs that threads share."""
        return self._jobs

    @property
    def name(self) -> str:
        """Kind and location, for people."""
        return "memory"

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[SqliteTransaction]:
        """Open a transaction: it commits at the end of the block and is undone if that raises."""
        self._check(namespace)
        if not write:
            database = self._namespaces.get(namespace)
            reading = _read_empty() if database is None else database.reading()
            with reading as connection, _facets(connection, namespace, write=False) as transaction:
                yield transaction
            return
        with self._writers.held(namespace):
            with self._lock:
                self._check(namespace)
                database = self._namespaces.setdefault(namespace, _MemoryNamespace())
            with (
                database.writing() as connection,
                _facets(connection, namespace, write=True) as transaction,
            ):
                yield transaction

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were ever written, ascending."""
        self._refuse_closed()
        return sorted(name for name, database in [*self._namespaces.items()] if database.written)

    def cache(self, namespace: str) -> None:
        """None: there are no files."""
        self._check(namespace)

    def scrub(self, namespace: str) -> bool:
        """Do nothing: there are no files."""
        self._check(namespace)
        return True

    def compact(self, namespace: str) -> None:
        """Do nothing: there are no files."""
        self._check(namespace)

    def drop(self, namespace: str) -> bool:
        """Erase a namespace with everything in it, including its trail."""
        self._check(namespace)
        with self._writers.held(namespace), self._lock:
            database = self._namespaces.pop(namespace, None)
        if database is None:
            return False
        database.close()
        return database.written

    def check(self, namespace: str) -> list[str]:
        """Empty: there are no files that could be damaged."""
        self._check(namespace)
        return []

    def files(self, namespace: str) -> Mapping[str, int]:
        """Empty: there are no files."""
        self._check(namespace)
        return {}

    def close(self) -> None:
        """Forget everything; calling it twice does nothing."""
        with self._lock:
            self._closed = True
            databases = [*self._namespaces.values()]
            self._namespaces.clear()
        for database in databases:
            database.close()

    def _check(self, namespace: str) -> None:
        checked_name(namespace)
        self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")


@contextmanager
def _read_empty() -> Iterator[SqliteConnection]:
    """An empty database, for a namespace that was never written."""
    connection = open_empty()
    try:
        yield connection
    finally:
        connection.close()


def _facets(
    connection: SqliteConnection | _SharedConnection, namespace: str, *, write: bool
) -> AbstractContextManager[SqliteTransaction]:
    gate = TransactionGate(write=write)
    return facets(RelationalFacts(connection, gate, namespace), connection, gate)
