"""`PostgresStore`: a schema for each namespace in one database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from crp_integrations.errors import ConfigError, StoreBusy, StoreError
from crp_integrations.fabric.ports import Transaction
from crp_integrations.language import memo
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres import tenants, upkeep
from crp_integrations.stores.postgres.connection import Connection, Raw, translated
from crp_integrations.stores.postgres.dialect import adapt
from crp_integrations.stores.postgres.facts import INDEX_FROM
from crp_integrations.stores.postgres.migrations import VERSION_NAME
from crp_integrations.stores.postgres.notices import Listener
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.transaction import facets
from crp_integrations.stores.rules import checked_name
from crp_integrations.stores.sqlite import receipts, sessions

# Connections of one store; a thread that writes while it reads uses two.
MOST_CONNECTIONS = 16
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A connection that was in use so lately is taken without a question to the server.
TRUSTED_SECONDS = 1.0


class PostgresStore:
    """Keeps namespaces in a database; safe under threads and beside other processes."""

    def __init__(
        self,
        address: str,
        *,
        busy_seconds: float = 5.0,
        connections: int = MOST_CONNECTIONS,
        index_from: int = INDEX_FROM,
    ) -> None:
        """Point at a database; nothing is asked of it before the first transaction.

        Args:
            address: such as `postgresql://user@host:5432/database`.
            busy_seconds: how long to wait for a server, a connection, or another writer.
            connections: the most that are open at once.
            index_from: facts from which on a namespace gets an index of its vectors.

        Raises:
            ConfigError: the address cannot be read.
        """
        try:
            parts = conninfo_to_dict(address)
        except psycopg.ProgrammingError as error:
            # The address may hold a password.
            raise ConfigError(
                "the store's address cannot be read; wanted postgresql://user@host/database"
            ) from error
        host, port = parts.get("host", "local"), parts.get("port")
        self._place = f"{host}{f':{port}' if port else ''}/{parts.get('dbname', '')}"
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._index_from = index_from
        self._writing: set[tuple[int, str]] = set()
        # Schemas that were seen to have today's tables.
        self._ready: set[str] = set()
        # When each connection was last given back.
        self._used: dict[int, float] = {}
        self._server: schemas.Server | None = None
        self._empty = MemoryStore()
        self._pool: ConnectionPool[Raw] = ConnectionPool(
            address,
            kwargs={"autocommit": True, "connect_timeout": max(2, round(busy_seconds))},
            min_size=0,
            max_size=connections,
            timeout=busy_seconds,
            check=self._check,
            reconnect_timeout=busy_seconds,
            configure=self._configure,
            open=False,
        )
        self._listener = Listener(address, memo.forget)
        self._open = True

    @property
    def name(self) -> str:
        """Kind and place for people; without user and password."""
        return f"postgresql:{self._place}"

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[Transaction]:
        """Open a transaction: commits when the block ends, undoes everything when it raises.

        Raises:
            StoreBusy: the server cannot be reached, or another writer held the lock for too long.
            AccessDenied: the login role has no right to the namespace.
            StoreDamaged, StoreNewer: the namespace's tables cannot be used.
            StoreError: the store is closed, or this thread writes in the namespace already.
        """
        schema = schema_of(namespace)
        if write:
            with (
                self._once(namespace),
                self._connection() as connection,
                self._within(connection, schema, "BEGIN"),
            ):
                if schema not in self._ready:
                    schemas.make(connection, namespace, schema)
                yield from facets(connection, namespace, self._index_from)
            self._ready.add(schema)
            return
        with (
            self._connection() as connection,
            self._reading(connection, namespace, schema) as owned,
        ):
            if owned is not None:
                yield from facets(connection, namespace, self._index_from, owned)
        if owned is None:
            with self._empty.begin(namespace, write=False) as nothing:
                yield nothing

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were ever written and this login may read, ascending."""
        with self._connection() as connection:
            return schemas.names(connection)

    def cache(self, namespace: str) -> None:
        """None: what is derived lies in the database."""
        self._refuse_closed()
        checked_name(namespace)

    def scrub(self, namespace: str) -> bool:
        """Take every byte of what was removed off the server's disk; cheap when nothing was.

        Tables are written anew, with every writer and reader of the namespace waiting. The
        write-ahead log, replicas and backups are the operator's, see docs/scaling.md.

        Returns:
            False when a transaction still reads an old state; call it again later.

        Raises:
            StoreBusy: a reader or writer held the tables for too long.
        """
        return self._written_anew(namespace, always=False)

    def compact(self, namespace: str) -> None:
        """Write the namespace's tables anew without free space, scrubbed.

        Raises:
            StoreBusy: a reader or writer held the tables, or still reads an old state.
        """
        if not self._written_anew(namespace, always=True):
            raise StoreBusy(
                f"namespace {namespace!r} is compacted, but a transaction may still read what was "
                "removed; try again when it has ended"
            )

    def check(self, namespace: str) -> list[str]:
        """What is wrong with the namespace's tables, one sentence each; empty when nothing is.

        Raises:
            StoreBusy: the server cannot be reached.
        """
        schema = schema_of(namespace)
        try:
            with (
                self._connection() as connection,
                self._within(connection, schema, SNAPSHOT),
            ):
                if self._owned(connection, namespace, schema) is None:
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
        """None: the files are the server's."""
        self._refuse_closed()
        checked_name(namespace)
        return {}

    def drop(self, namespace: str) -> bool:
        """Erase a namespace with everything in it, its trail included: its schema is dropped.

        Returns:
            Whether there was one.
        """
        schema = schema_of(namespace)
        with self._connection() as connection:
            there = schemas.is_there(connection, schema)
            with self._within(connection, schema, "BEGIN"):
                connection.script(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        self._ready.discard(schema)
        return there

    def admit(self, namespace: str, password: str, *, reads: Sequence[str] = ()) -> str:
        """Make a tenant's schema and its login role, or give the role another password.

        For the operator: the address must be that of a login that may make schemas and roles.

        Args:
            reads: namespaces, such as shared ones, that the role may read and not write.

        Returns:
            The role's name, for the address that the tenant's processes open.

        Raises:
            AccessDenied: this login may not make roles.
            StoreError: the password is empty, or a namespace to read was never written.
        """
        schema = schema_of(namespace)
        with (
            self._connection() as connection,
            self._within(connection, schema, "BEGIN"),
            translated(self.name),
        ):
            return tenants.admit(connection, namespace, password, reads=reads)

    def dismiss(self, namespace: str) -> bool:
        """Erase a tenant: its role, and its schema with everything in it.

        Returns:
            Whether there was a schema.
        """
        there = self.drop(namespace)
        with (
            self._connection() as connection,
            self._within(connection, "public", "BEGIN"),
            translated(self.name),
        ):
            tenants.dismiss(connection, namespace)
        return there

    def close(self) -> None:
        """Release connections; calling it twice does nothing."""
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            self._listener.close()
            self._pool.close()
            self._empty.close()

    # --- within ------------------------------------------------------------------------

    @contextmanager
    def _once(self, namespace: str) -> Iterator[None]:
        """Refuse a second write of one thread, which would wait for its own first."""
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

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        self._refuse_closed()
        try:
            with self._lock:
                self._pool.open()
            raw = self._pool.getconn()
            self._listener.start()
        except PoolTimeout as error:
            raise StoreBusy(
                f"{self.name} gave no connection; gave up after {self._busy_seconds:g} s"
            ) from error
        except PoolClosed as error:
            raise StoreError(f"store {self.name} is closed") from error
        try:
            yield Connection(raw, self.name)
        except BaseException:
            _undo(raw)
            raise
        finally:
            self._used[id(raw)] = time.monotonic()
            self._pool.putconn(raw)

    @contextmanager
    def _within(self, connection: Connection, schema: str, begin: str) -> Iterator[None]:
        connection.script(self._begin(begin, schema))
        yield
        connection.script("COMMIT")

    @contextmanager
    def _reading(
        self, connection: Connection, namespace: str, schema: str
    ) -> Iterator[dict[str, int] | None]:
        """A transaction that sees one state; the namespace's own numbers, None for none."""
        if schema not in self._ready:
            with self._within(connection, schema, SNAPSHOT):
                yield self._owned(connection, namespace, schema)
            return
        # One round trip; the first read fixes what the whole transaction sees.
        owned = connection.script_rows(f"{self._begin(SNAPSHOT, schema)}; {schemas.OWN}")
        yield dict(owned)
        connection.script("COMMIT")

    def _begin(self, begin: str, schema: str) -> str:
        assert self._server is not None
        return (
            f"{begin}; "
            f'SET LOCAL search_path = "{schema}", "{self._server.extension_schema}"; '
            f"SET LOCAL lock_timeout = {round(1000 * self._busy_seconds)}"
        )

    def _owned(self, connection: Connection, namespace: str, schema: str) -> dict[str, int] | None:
        """The namespace's own numbers; None for one that was never written."""
        if schema not in self._ready and not schemas.is_there(connection, schema):
            return None
        owned = dict(connection.rows(schemas.OWN))
        if schema not in self._ready:
            schemas.check(connection, namespace, owned.get(VERSION_NAME))
            self._ready.add(schema)
        return owned

    def _written_anew(self, namespace: str, *, always: bool) -> bool:
        schema = schema_of(namespace)
        with self._once(namespace), self._connection() as connection:
            with self._within(connection, schema, "BEGIN READ ONLY"):
                if self._owned(connection, namespace, schema) is None:
                    return True
                due = upkeep.due(connection)
            wanted = list(upkeep.CONTENTS) if always else list(due)
            if not wanted:
                return True
            connection.script(f"SET lock_timeout = {round(1000 * self._busy_seconds)}")
            tables = [table for name in wanted for table in upkeep.CONTENTS[name]]
            clean = upkeep.rewrite(connection, schema, tables)
            connection.script("RESET lock_timeout")
            if clean:
                with self._within(connection, schema, "BEGIN"):
                    # Unless more came to it meanwhile.
                    connection.executemany(
                        "DELETE FROM own WHERE name = ? AND value = ?", due.items()
                    )
        return clean

    def _check(self, raw: Raw) -> None:
        """Meet a server that was started anew with a new connection, not with a lost one."""
        used = self._used.get(id(raw))
        if used is None or time.monotonic() - used > TRUSTED_SECONDS:
            ConnectionPool.check_connection(raw)

    def _configure(self, raw: Raw) -> None:
        with translated(self.name):
            if self._server is None:
                self._server = schemas.look(raw, self.name)
            adapt(raw, self._server.vector_oid)
            schemas.set_up(raw)

    def _refuse_closed(self) -> None:
        if not self._open:
            raise StoreError(f"store {self.name} is closed")


def _undo(raw: Raw) -> None:
    """End what an error left half done; a connection that cannot do that is closed."""
    try:
        raw.rollback()
    except psycopg.Error:
        raw.close()
