"""The connections of a store: opened when they are needed, met again when the server was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from crp_integrations.errors import ConfigError, StoreBusy, StoreError
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.connection import Connection, Raw, translated
from crp_integrations.stores.postgres.dialect import adapt

# A connection that was in use so lately is taken without a question to the server.
TRUSTED_SECONDS = 1.0


class Pool:
    """Connections to one database; safe under threads."""

    def __init__(self, address: str, busy_seconds: float, most: int) -> None:
        """Open nothing yet.

        Args:
            address: such as `postgresql://user@host:5432/database`.
            busy_seconds: how long to wait for a server or a connection.
            most: connections that are open at once.

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
        self.name = f"postgresql:{host}{f':{port}' if port else ''}/{parts.get('dbname', '')}"
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        # When each connection was last given back.
        self._used: dict[int, float] = {}
        self._server: schemas.Server | None = None
        self._pool: ConnectionPool[Raw] = ConnectionPool(
            address,
            kwargs={"autocommit": True, "connect_timeout": max(2, round(busy_seconds))},
            min_size=0,
            max_size=most,
            timeout=busy_seconds,
            check=self._check,
            reconnect_timeout=busy_seconds,
            configure=self._configure,
            open=False,
        )

    @property
    def extension_schema(self) -> str:
        """Where pgvector is; known from the first connection on."""
        assert self._server is not None
        return self._server.extension_schema

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the length of the block, without a transaction before and after.

        Raises:
            StoreBusy: the server cannot be reached, or gave none in time.
            StoreError: the store is closed.
        """
        try:
            with self._lock:
                self._pool.open()
            raw = self._pool.getconn()
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

    def close(self) -> None:
        """Close them; calling it twice does nothing."""
        self._pool.close()

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


def _undo(raw: Raw) -> None:
    """End what an error left half done; a connection that cannot do that is closed."""
    try:
        raw.rollback()
    except psycopg.Error:
        raw.close()
