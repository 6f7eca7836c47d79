"""`PostgresStore`: a schema for each namespace in one database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from crp_integrations.errors import AccessDenied, StoreBusy, StoreDamaged, StoreError
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.ports.store import ClaimedJob
from crp_integrations.governance.artifacts import storage as places
from crp_integrations.governance.artifacts.storage import ObjectStore
from crp_integrations.language import memo
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres import tables, tenants, upkeep
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.facts import (
    INDEX_FROM,
    READ,
    PostgresFacets,
    PostgresFacts,
    WriterLockGate,
    snapshot_of,
)
from crp_integrations.stores.postgres.pool import CHANNEL, Listener, PoolMeasures, PostgresPool
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.upkeep import VectorIndexes, index_due
from crp_integrations.stores.relational import receipts, sessions
from crp_integrations.stores.relational.facts import RelationalSnapshot
from crp_integrations.stores.relational.transaction import facets
from crp_integrations.stores.rules import Among, checked_name

_NEXT = (
    "SELECT job_id FROM jobs WHERE batch = ? AND result IS NULL "
    "ORDER BY place LIMIT 1 FOR UPDATE SKIP LOCKED"
)
_PUT = (
    "INSERT INTO jobs (batch, job_id) SELECT ?, job_id FROM unnest(?::text[]) "
    "WITH ORDINALITY AS given (job_id, number) ORDER BY number ON CONFLICT DO NOTHING"
)


class PostgresJobs:
    """The jobs of a store's namespaces."""

    def __init__(self, begin: Callable[[str], AbstractContextManager[PostgresConnection]]) -> None:
        """Keep the function that opens a transaction in a namespace's schema."""
        self._begin = begin

    def put(self, namespace: str, batch: str, ids: Sequence[str]) -> int:
        """Add the jobs that do not exist yet; return how many."""
        with self._begin(namespace) as connection:
            return connection.execute(_PUT, [batch, Among(dict.fromkeys(ids))]).rowcount

    @contextmanager
    def claim(self, namespace: str, batch: str) -> Iterator[ClaimedJob | None]:
        """The next job that has no result and whose row no one has locked."""
        with self._begin(namespace) as connection:
            row = connection.one(_NEXT, [batch])
            if row is None:
                yield None
                return
            job_id = str(row[0])

            def finish(result: str) -> None:
                connection.execute(
                    "UPDATE jobs SET result = ? WHERE batch = ? AND job_id = ?",
                    [result, batch, job_id],
                )

            yield ClaimedJob(job_id, finish)

    def results(self, namespace: str, batch: str) -> dict[str, str | None]:
        """The result of each job, in the order in which the jobs were added."""
        with self._begin(namespace) as connection:
            statement = "SELECT job_id, result FROM jobs WHERE batch = ? ORDER BY place"
            return dict(connection.rows(statement, [batch]))

    def forget(self, namespace: str, batch: str) -> int:
        """Remove a batch, after waiting for jobs that are claimed; return its number of jobs."""
        with self._begin(namespace) as connection:
            return connection.execute("DELETE FROM jobs WHERE batch = ?", [batch]).rowcount


# Maximum connections of one store; a thread that writes while it reads uses two.
MAX_CONNECTIONS = 16
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresStore:
    """Keeps namespaces in a database; safe with several threads and processes."""

    def __init__(
        self,
        address: str,
        *,
        busy_seconds: float = 30.0,
        connections: int = MAX_CONNECTIONS,
        index_from: int = INDEX_FROM,
    ) -> None:
        """Point at a database; it is not accessed before the first transaction."""
        self._listener = Listener(address, memo.forget)
        self._pool = PostgresPool(address, busy_seconds, connections, self._listener.start)
        self._index_from = index_from
        self._writing: set[tuple[int, str]] = set()
        # Schemas known to have the present tables.
        self._ready: set[str] = set()
        # Schemas in which the login is known to have the rights to seal.
        self._sealing: set[str] = set()
        self._empty = MemoryStore()
        self._open = True
        self._jobs = PostgresJobs(self._changing)
        self._indexing = VectorIndexes(self._connection, self._within, index_from)

    @property
    def jobs(self) -> PostgresJobs:
        """The jobs that processes share."""
        return self._jobs

    @property
    def name(self) -> str:
        """Kind and location for people; without user and password."""
        return self._pool.name

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[Transaction]:
        """Open a transaction: it commits at the end of the block and is undone if that raises.

        Raises:
            StoreBusy: the server cannot be reached, or another writer held the lock for too long.
            AccessDenied: the login role has no right to the namespace.
            StoreDamaged, StoreNewer: the namespace's tables cannot be used.
            StoreError: the store is closed, or this thread writes in the namespace already.
        """
        schema = schema_of(namespace)
        if write:
            wanted = threading.Event()
            try:
                with self._refuse_second_write(namespace), self._changing(namespace) as connection:
                    turn = WriterLockGate(connection, write=True)
                    facts = PostgresFacts(
                        connection, turn, namespace, None, self._index_from, wanted.set
                    )
                    with facets(facts, connection, turn, PostgresFacets) as transaction:
                        yield transaction
            except AccessDenied:
                # The login may have lost a right since its rights were checked.
                self._sealing.discard(schema)
                raise
            if wanted.is_set():
                self._indexing.build(schema)
            return
        with (
            self._connection() as connection,
            self._reading(connection, namespace, schema) as seen,
        ):
            if seen is not None:
                turn = WriterLockGate(connection, write=False)
                facts = PostgresFacts(connection, turn, namespace, seen, self._index_from)
                with facets(facts, connection, turn, PostgresFacets) as transaction:
                    yield transaction
        if seen is None:
            with self._empty.begin(namespace, write=False) as nothing:
                yield nothing

    def must_write(self, namespace: str) -> None:
        """Refuse if an answer could not be sealed: on a standby, or with a read-only login.

        The rights are checked once, and again after a write was refused for a missing right.

        Raises:
            StoreBusy: nothing can be written just now, or the server cannot be reached.
            AccessDenied: the login role lacks a right to it.
        """
        schema = schema_of(namespace)
        with self._connection() as connection:
            connection.must_write(namespace)
            if schema not in self._sealing:
                tenants.refuse_reader(connection, namespace, schema)
                self._sealing.add(schema)

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were written and that this login may read, ascending."""
        with self._connection() as connection:
            return schemas.names(connection)

    def ping(self) -> None:
        """Raise StoreBusy if the server does not answer."""
        with self._connection() as connection:
            connection.one("SELECT 1", [])

    def measures(self) -> PoolMeasures:
        """How the connections are used now, and what failed since the store was opened."""
        return self._pool.measures()

    def cache(self, namespace: str) -> None:
        """None: derived data is in the database."""
        self._refuse_closed()
        checked_name(namespace)

    def scrub(self, namespace: str) -> bool:
        """Erase every byte of removed data from the server's disk; cheap if nothing was removed.

        Tables are rewritten while all writers and readers of the namespace wait. The write-ahead
        log, replicas and backups are up to the operator, see docs/how-to/postgresql.md.

        Returns:
            False when a transaction still reads an old state; call it again later.

        Raises:
            StoreBusy: a reader or writer held the tables for too long.
        """
        return self._written_anew(namespace, always=False)

    def compact(self, namespace: str) -> None:
        """Rewrite the namespace's tables without free space, and scrub them.

        Raises:
            StoreBusy: a reader or writer held the tables, or still reads an old state.
        """
        if not self._written_anew(namespace, always=True):
            raise StoreBusy(
                f"namespace {namespace!r} is compacted, but a transaction may still read what was "
                "removed; try again when it has ended"
            )

    def check(self, namespace: str) -> list[str]:
        """Problems of the namespace's tables, one sentence each; empty if there are none.

        Raises:
            StoreBusy: the server cannot be reached.
        """
        schema = schema_of(namespace)
        try:
            with (
                self._connection() as connection,
                self._reading(connection, namespace, schema) as owned,
            ):
                if owned is None:
                    return []
                return [
                    *upkeep.problems(connection),
                    *sessions.problems(connection),
                    *receipts.problems(connection),
                ]
        except StoreBusy:
            raise
        except StoreError as error:
            return [str(error)]

    def files(self, namespace: str) -> Mapping[str, int]:
        """Bytes on the server's disk of the namespace's tables and of its vector index."""
        schema = schema_of(namespace)
        with self._connection() as connection:
            return upkeep.sizes(connection, schema)

    @contextmanager
    def alone(self, namespace: str, work: str) -> Iterator[bool]:
        """Take an advisory lock for a long job on a namespace, for the length of the block.

        Args:
            work: name of the job.

        Returns:
            Whether the lock was acquired; the call does not wait.

        Raises:
            StoreBusy: the server cannot be reached.
        """
        key = [f"{schema_of(namespace)} {work}"]
        with self._connection() as connection:
            row = connection.one("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", key)
            ours = row is not None and bool(row[0])
            try:
                yield ours
            finally:
                if ours:
                    connection.execute("SELECT pg_advisory_unlock(hashtextextended(?, 0))", key)

    @contextmanager
    def loading(self, namespace: str) -> Iterator[None]:
        """Write many facts within the block: their index is built once, at its end.

        Adding to an index costs several times as much as building one. Meanwhile processes compare
        all rows themselves, as with few facts. Several processes may load at once; the last builds
        the index. An existing index stays and grows as usual.

        Raises:
            StoreBusy: an index is being built and did not finish in time.
        """
        with self._indexing.loading(schema_of(namespace)):
            yield

    def settle(self, namespace: str) -> bool:
        """Build the namespace's index if one is due, for example after a process was killed.

        Returns:
            Whether it was built.

        Raises:
            AccessDenied: the login role has no right to the namespace.
        """
        schema = schema_of(namespace)
        with self._connection() as connection, self._reading(connection, namespace, schema) as seen:
            wanted = seen is not None and index_due(seen.own, self._index_from)
        return wanted and self._indexing.build(schema)

    def close(self) -> None:
        """Release connections; calling it twice does nothing."""
        self._open = False
        self._listener.close()
        self._pool.close()
        self._empty.close()

    # --- tenants --------------------------------------------------------------------------

    def drop(self, namespace: str, *, artifacts: Sequence[ObjectStore] | None = None) -> bool:
        """Erase a namespace with everything in it, including its trail, by dropping its schema.

        Artifacts are stored elsewhere: they are erased before the drop, and again after it in case
        some were added meanwhile. After an error, call it again.
        """
        return self._erase(namespace, artifacts, with_role=False)

    def _erase(
        self, namespace: str, artifacts: Sequence[ObjectStore] | None, *, with_role: bool
    ) -> bool:
        schema = schema_of(namespace)
        with self._connection() as connection:
            there = schemas.is_there(connection, schema)
            if there and artifacts is None:
                tenants.refuse_artifacts(connection, namespace, schema)
            for objects in artifacts or ():
                places.erase_tenant(objects, namespace)
            with self._within(connection, schema):
                connection.script(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
                # Other processes may have its texts cached.
                connection.execute("SELECT pg_notify(?, ?)", [CHANNEL, schema])
                if with_role:
                    with connection.translated():
                        tenants.dismiss(connection, namespace)
            upkeep.rewrite(connection, schema, ())
            for objects in artifacts or ():
                places.erase_tenant(objects, namespace)
        self._ready.discard(schema)
        memo.forget()
        return there

    def admit(self, namespace: str, password: str, *, reads: Sequence[str] = ()) -> str:
        """Make a tenant's schema and its login role, or change the role's password.

        For the operator: the address must have a login that may create schemas and roles.
        """
        schema = schema_of(namespace)
        with (
            self._connection() as connection,
            self._within(connection, schema),
            connection.translated(),
        ):
            return tenants.admit(connection, namespace, password, reads=reads)

    def dismiss(self, namespace: str, *, artifacts: Sequence[ObjectStore] | None = None) -> bool:
        """Erase a tenant: its schema with everything in it, its artifacts and its role.

        A role that this login cannot remove is left with a warning.
        """
        return self._erase(namespace, artifacts, with_role=True)

    # --- within ------------------------------------------------------------------------

    @contextmanager
    def _refuse_second_write(self, namespace: str) -> Iterator[None]:
        """Refuse a second write of the same thread, which would deadlock with the first."""
        key = (threading.get_ident(), namespace)
        if key in self._writing:
            raise StoreError(
                f"this thread already writes in namespace {namespace!r}; end that transaction first"
            )
        self._writing.add(key)
        try:
            yield
        finally:
            self._writing.discard(key)

    def _connection(self) -> AbstractContextManager[PostgresConnection]:
        self._refuse_closed()
        return self._pool.connection()

    @contextmanager
    def _changing(self, namespace: str) -> Iterator[PostgresConnection]:
        """A transaction that may write, in the namespace's schema, which is created if missing."""
        schema = schema_of(namespace)
        with self._connection() as connection:
            # One round trip; another process may have dropped the schema in the meantime.
            begun = f"{self._begin('BEGIN', schema)}; {schemas.there(schema)}"
            if not connection.at_once(begun) or schema not in self._ready:
                schemas.make(connection, namespace, schema)
            yield connection
            connection.script("COMMIT")
        self._ready.add(schema)

    @contextmanager
    def _within(
        self, connection: PostgresConnection, schema: str, begin: str = "BEGIN"
    ) -> Iterator[None]:
        connection.script(self._begin(begin, schema))
        yield
        connection.script("COMMIT")

    @contextmanager
    def _reading(
        self, connection: PostgresConnection, namespace: str, schema: str
    ) -> Iterator[RelationalSnapshot | None]:
        """A read-only transaction on one state; yields its values, None if never made."""
        if schema not in self._ready:
            with self._within(connection, schema, SNAPSHOT):
                owned = self._owned(connection, namespace, schema)
                if owned is None or schema in self._ready:
                    yield None if owned is None else RelationalSnapshot(owned)
                    return
            # An older version made the schema; a read-only transaction cannot update it.
            with self._within(connection, schema):
                schemas.make(connection, namespace, schema)
            self._ready.add(schema)
        # One round trip; the first read fixes what the whole transaction sees.
        try:
            rows = connection.at_once(f"{self._begin(SNAPSHOT, schema)}; {READ}")
        except StoreDamaged:
            connection.script("ROLLBACK")
            if schemas.is_there(connection, schema):
                raise
            # Another process dropped the namespace, so treat it as never written.
            self._ready.discard(schema)
            yield None
            return
        yield snapshot_of(rows)
        connection.script("COMMIT")

    def _begin(self, begin: str, schema: str) -> str:
        path = f'"{schema}", "{self._pool.extension_schema}", pg_temp'
        return f"{begin}; SET LOCAL search_path = {path}"

    def _owned(
        self, connection: PostgresConnection, namespace: str, schema: str
    ) -> dict[str, int] | None:
        """The values of `own`; None for a namespace that was never written.

        If the tables are of an older version, the schema is not marked as ready.
        """
        if schema not in self._ready and not schemas.is_there(connection, schema):
            return None
        owned = dict(connection.rows(schemas.OWN))
        if schema not in self._ready:
            version = owned.get(tables.VERSION_NAME)
            schemas.check(connection, namespace, version)
            if version == len(tables.STEPS):
                self._ready.add(schema)
        return owned

    def _written_anew(self, namespace: str, *, always: bool) -> bool:
        schema = schema_of(namespace)
        with self._refuse_second_write(namespace), self._connection() as connection:
            with self._reading(connection, namespace, schema) as owned:
                if owned is None:
                    return True
                due = upkeep.due(connection)
            wanted = list(upkeep.CONTENTS) if always else list(due)
            if not wanted:
                return True
            contents = [table for name in wanted for table in upkeep.CONTENTS[name]]
            clean = upkeep.rewrite(connection, schema, contents)
            if clean:
                with self._within(connection, schema):
                    # Keeps an entry whose value grew meanwhile: more was removed.
                    connection.executemany(
                        "DELETE FROM own WHERE name = ? AND value = ?", due.items()
                    )
        return clean

    def _refuse_closed(self) -> None:
        if not self._open:
            raise StoreError(f"store {self.name} is closed")
