"""The connections of a store: opened when they are needed, met again when the server was lost.

One more listens to what other processes erased, so that memory lets go of it. Every read asks for
the state that is committed, so nothing erased is ever retrieved; that is about texts which a
process keeps ready for its next question.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from crp_integrations.errors import ConfigError, StoreBusy, StoreError
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.connection import PostgresConnection, Raw, adapt, translated

# The one channel: a note bears the schema of the namespace, a hash, and nothing else.
CHANNEL = "crp_erased"
# How long to wait before asking again whether the store was closed, and after a lost connection.
PAUSE_SECONDS = 0.25
# And after a refusal, as of a standby, which may be promoted.
REFUSED_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Listener:
    """Listens on a connection of its own for as long as its store is open."""

    def __init__(self, address: str, forget: Callable[[], None]) -> None:
        """Do nothing yet."""
        self._address = address
        self._forget = forget
        self._closed = threading.Event()
        self._listening = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen, once."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="crp-erased", daemon=True)
                self._thread.start()

    def listening(self, seconds: float) -> bool:
        """Wait until the server was told; whether it was."""
        return self._listening.wait(seconds)

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with psycopg.connect(self._address, autocommit=True) as raw:
                    raw.execute(f"LISTEN {CHANNEL}")
                    self._listening.set()
                    # Whatever was told before is not known here.
                    self._forget()
                    self._take(raw)
            except psycopg.Error as error:
                self._listening.clear()
                _log.info("the server's notes are not heard: %s", type(error).__name__)
                lost = isinstance(error, psycopg.OperationalError)
                self._closed.wait(PAUSE_SECONDS if lost else REFUSED_SECONDS)

    def _take(self, raw: psycopg.Connection) -> None:
        while not self._closed.is_set():
            for _ in raw.notifies(timeout=PAUSE_SECONDS, stop_after=1):
                self._forget()


# A connection that was in use so lately is taken without a question to the server.
TRUSTED_SECONDS = 1.0
# What waiting does not mend. libpq tells no SQLSTATE of a login that fails (classes 28 and 3D),
# only the server's sentence; one in another language is waited for, and said at the end.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|is not permitted to log in"
    r'|(?:database|role) ".*" does not exist|permission denied for database'
    r"|authentication method .* not supported|pg_hba\.conf rejects"
)


class PostgresPool:
    """Connections to one database; safe under threads."""

    def __init__(
        self,
        address: str,
        busy_seconds: float,
        most: int,
        on_use: Callable[[], None] = lambda: None,
    ) -> None:
        """Open nothing yet."""
        self._on_use = on_use
        try:
            parts = conninfo_to_dict(address)
        except psycopg.ProgrammingError as error:
            # The address may hold a password.
            raise ConfigError(
                "the store's address cannot be read; wanted postgresql://user@host/database"
            ) from error
        host, port = str(parts.get("host", "local")), str(parts.get("port", ""))
        _refuse_torn(address, host, port, str(parts.get("dbname", "")))
        self.name = f"postgresql:{host}{f':{port}' if port else ''}/{parts.get('dbname', '')}"
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        # When each connection was last given back.
        self._used: dict[int, float] = {}
        self._server: schemas.Server | None = None
        self._options: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": max(2, round(busy_seconds)),
        }
        self._address = address
        self._pool: ConnectionPool[Raw] = ConnectionPool(
            address,
            kwargs=self._options,
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
    def connection(self) -> Iterator[PostgresConnection]:
        """A connection for the length of the block, without a transaction before and after."""
        try:
            if self._pool.closed:
                with self._lock:
                    self._pool.open()
            if self._server is None:
                self._meet(self._busy_seconds)
            raw = self._pool.getconn(timeout=self._busy_seconds)
        except PoolTimeout as error:
            # The pool says not why; the server does, unless every connection is in use.
            self._meet(0.0)
            raise self._no_connection() from error
        except PoolClosed as error:
            raise StoreError(f"store {self.name} is closed") from error
        try:
            self._on_use()
            yield PostgresConnection(raw, self.name)
        except BaseException:
            _undo(raw)
            raise
        finally:
            self._used[id(raw)] = time.monotonic()
            self._pool.putconn(raw)

    def close(self) -> None:
        """Close them; calling it twice does nothing."""
        self._pool.close()

    def _meet(self, seconds: float) -> None:
        """Ask the server what it is, on a connection of its own, whose refusal is told at once."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                with psycopg.connect(self._address, **self._options) as raw, translated(self.name):
                    self._server = schemas.look(raw, self.name)
                return
            except psycopg.OperationalError as error:
                if _REFUSED.search(str(error)):
                    raise StoreError(
                        f"{self.name} refused the login: {_sentence(error)}; correct the user, the "
                        "password or the database in the store's address"
                    ) from error
                if time.monotonic() >= deadline:
                    raise self._no_connection(f": {_sentence(error)}") from error
                time.sleep(min(PAUSE_SECONDS, seconds))

    def _no_connection(self, cause: str = "") -> StoreBusy:
        return StoreBusy(
            f"{self.name} gave no connection; gave up after {self._busy_seconds:g} s{cause}"
        )

    def _check(self, raw: Raw) -> None:
        """Meet a server that was started anew with a new connection, not with a lost one."""
        used = self._used.get(id(raw))
        if used is None or time.monotonic() - used > TRUSTED_SECONDS:
            ConnectionPool.check_connection(raw)

    def _configure(self, raw: Raw) -> None:
        assert self._server is not None
        with translated(self.name):
            adapt(raw, self._server.vector_oid)
            schemas.set_up(raw)
            # How long a statement waits for what another one holds.
            raw.execute(f"SET lock_timeout = {round(1000 * self._busy_seconds)}".encode())


def _undo(raw: Raw) -> None:
    """End what an error left half done; a connection that cannot do that is closed."""
    try:
        raw.rollback()
    except psycopg.Error:
        raw.close()


def _refuse_torn(address: str, host: str, port: str, database: str) -> None:
    """Refuse an address that a bare @ or / in the password tears apart: a part would be shown."""
    torn = (
        any("@" in name[1:] for name in host.split(","))
        or any(number and not number.isdigit() for number in port.split(","))
        or ("://" in address and "@" in database and "%40" not in address)
    )
    if torn:
        raise ConfigError(
            "the store's address cannot be read: its host, port or database is none; in the user "
            "and the password write @ as %40, / as %2F and : as %3A"
        )


def _sentence(error: Exception) -> str:
    """What went wrong, in one line; neither libpq nor the server repeats a password."""
    return " ".join(str(error).split())
