"""The connections of a store: opened when needed, and opened again after the server was lost.

One more connection listens for erasures by other processes, so that cached texts are dropped. Every
read sees the committed state, so erased facts are never retrieved; the listener is about texts that
a process keeps ready for its next question.
"""

from __future__ import annotations

import logging
import re
import selectors
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from crp_integrations.errors import ConfigError, StoreBusy, StoreError
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres.connection import PostgresConnection, Raw, adapt, translated

# The only channel; a notification contains the namespace's schema name (a hash) and nothing else.
CHANNEL = "crp_erased"
# Seconds between checks whether the store was closed, and after a lost connection.
PAUSE_SECONDS = 0.25
# Seconds after a refusal, for example by a standby, which may be promoted.
REFUSED_SECONDS = 5.0

_log = logging.getLogger(__name__)


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up a statement when its server is frozen or cut off.

    Attributes:
        patience: a statement that takes longer asks `answers`, every so many seconds.
        answers: whether the server still answers. If it does not, or if this is None, the
            connection is closed and `psycopg.OperationalError` raised.
    """

    patience: float = 10.0
    answers: Callable[[], bool] | None = None

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait for a statement as psycopg does, while the server answers."""
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: PQGen[RV]) -> PQGen[RV]:
        due = time.monotonic() + self.patience
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() >= due:
                    if self.answers is None or not self.answers():
                        self.pgconn.finish()
                        raise psycopg.OperationalError("the server does not answer")
                    due = time.monotonic() + self.patience
                state = gen.send(ready)
        except StopIteration as done:
            value: RV = done.value
            return value


class Listener:
    """Listens on its own connection while its store is open."""

    def __init__(self, address: str, forget: Callable[[bool], None]) -> None:
        """Keep the address and what clears the caches, with or without files; start nothing."""
        self._address = address
        self._forget = forget
        self._closed = threading.Event()
        self._listening = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the listening thread, once."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="crp-erased", daemon=True)
                self._thread.start()

    def listening(self, seconds: float) -> bool:
        """Wait until LISTEN was sent; return whether it was."""
        return self._listening.wait(seconds)

    def close(self) -> None:
        """Stop the thread, which closes its connection."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with WatchedConnection.connect(
                    self._address, autocommit=True, fallback_application_name="crp-erased"
                ) as raw:
                    raw.execute(f"LISTEN {CHANNEL}")
                    self._listening.set()
                    # Earlier notifications were missed.
                    self._drop(lasting=False)
                    self._take(raw)
            except psycopg.Error as error:
                self._listening.clear()
                _log.info("erasure notifications are not received: %s", type(error).__name__)
                lost = isinstance(error, psycopg.OperationalError)
                self._closed.wait(PAUSE_SECONDS if lost else REFUSED_SECONDS)

    def _take(self, raw: psycopg.Connection) -> None:
        while not self._closed.is_set():
            for _ in raw.notifies(timeout=PAUSE_SECONDS, stop_after=1):
                self._drop(lasting=True)

    def _drop(self, *, lasting: bool) -> None:
        try:
            self._forget(lasting)
        except StoreError as error:
            _log.warning("a cache was not cleared after an erasure: %s", error)


# A connection used this recently is reused without a check.
TRUSTED_SECONDS = 1.0
# Seconds that a server may take to answer a check of a connection, and how often it is asked.
CHECK_SECONDS, CHECKS = 2, 3
# libpq's options by which a connection that was cut without a word ends within a minute.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
# Login failures that waiting does not fix. libpq gives no SQLSTATE for them (classes 28 and 3D),
# only the server's message; one in another language is retried and reported at the timeout.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|is not permitted to log in"
    r'|(?:database|role) ".*" does not exist|permission denied for database'
    r"|authentication method .* not supported|pg_hba\.conf rejects"
)
# Parts of an address that differ between logins.
_LOGIN = re.compile("user|password|secret|dbname")
# How often a pooler is tried, and the seconds that it may take to answer.
_POOLER_TRIES, _POOLER_SECONDS = 3, 2.0


@dataclass(frozen=True, slots=True)
class PoolMeasures:
    """How a store's connections are used, and what failed since it was opened.

    Attributes:
        in_use: open connections that are lent.
        idle: open connections that are not.
        most: maximum of open connections.
        waiting: threads that wait for a connection now.
        wait_seconds: time that all threads waited for a connection, opening it included.
        timeouts: times that a thread got none.
        lock_timeouts: statements that waited for a lock for too long.
        errors: errors of the database by SQLSTATE class; `08` for a lost connection.
    """

    in_use: int
    idle: int
    most: int
    waiting: int
    wait_seconds: float
    timeouts: int
    lock_timeouts: int
    errors: Mapping[str, int]


class PostgresPool:
    """Connections to one database; thread-safe."""

    def __init__(
        self,
        address: str,
        busy_seconds: float,
        most: int,
        on_use: Callable[[], None] = lambda: None,
    ) -> None:
        """Check the address; no connection is opened."""
        self._on_use = on_use
        try:
            parts = conninfo_to_dict(address)
        except psycopg.ProgrammingError as error:
            # The message leaves out the address, which may contain a password.
            raise ConfigError(
                "the store's address cannot be read; wanted postgresql://user@host/database"
            ) from error
        host, port = str(parts.get("host", "local")), str(parts.get("port", ""))
        _refuse_torn(address, host, port, str(parts.get("dbname", "")))
        self.name = f"postgresql:{host}{f':{port}' if port else ''}/{parts.get('dbname', '')}"
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        # When each connection was last returned to the pool.
        self._used: dict[int, float] = {}
        self._server: schemas.Server | None = None
        self._options: dict[str, Any] = {
            "autocommit": True,
            "fallback_application_name": "crp",
            "connect_timeout": max(2, round(busy_seconds)),
            **{name: value for name, value in _KEEPALIVES.items() if name not in parts},
        }
        self._address = address
        self._errors: Counter[str] = Counter()
        self._pool: ConnectionPool[Raw] = ConnectionPool(
            address,
            kwargs=self._options,
            min_size=0,
            max_size=most,
            connection_class=WatchedConnection,
            timeout=busy_seconds,
            check=self._check,
            reconnect_timeout=busy_seconds,
            configure=self._configure,
            open=False,
        )

    @property
    def extension_schema(self) -> str:
        """Schema of pgvector; known after the first connection."""
        assert self._server is not None
        return self._server.extension_schema

    @contextmanager
    def connection(self) -> Iterator[PostgresConnection]:
        """A connection for the length of the block, not in a transaction before or after it."""
        try:
            if self._pool.closed:
                with self._lock:
                    self._pool.open()
            if self._server is None:
                self._meet(self._busy_seconds)
            raw = self._pool.getconn(timeout=self._busy_seconds)
        except PoolTimeout as error:
            # The pool gives no cause; the server does, unless every connection is in use.
            self._meet(0.0)
            raise self._no_connection() from error
        except PoolClosed as error:
            raise StoreError(f"store {self.name} is closed") from error
        try:
            self._on_use()
            yield PostgresConnection(raw, self.name, self._count)
        except BaseException:
            _undo(raw)
            raise
        finally:
            self._used[id(raw)] = time.monotonic()
            self._pool.putconn(raw)

    def address_of(self, role: str) -> str:
        """The store's address for another login, without a password."""
        with self.connection() as connection:
            database = quote(connection.raw.info.dbname, safe="")
        parts = conninfo_to_dict(self._address)
        # Also drops `sslpassword` and `oauth_client_secret`. Sockets, several hosts and IPv6
        # addresses have the same form in the query.
        own = {name: parts[name] for name in parts if not _LOGIN.search(name)}
        query = urlencode(own, safe="/:,", quote_via=quote)
        return f"postgresql://{role}@/{database}{f'?{query}' if query else ''}"

    def measures(self) -> PoolMeasures:
        """How the connections are used now, and what failed so far."""
        stats = self._pool.get_stats()
        with self._lock:
            errors = Counter(self._errors)
        classes: Counter[str] = Counter()
        for state, count in errors.items():
            classes[state[:2]] += count
        return PoolMeasures(
            in_use=stats["pool_size"] - stats["pool_available"],
            idle=stats["pool_available"],
            most=stats["pool_max"],
            waiting=stats["requests_waiting"],
            wait_seconds=stats.get("requests_wait_ms", 0) / 1000,
            timeouts=stats.get("requests_errors", 0),
            # lock_not_available
            lock_timeouts=errors["55P03"],
            errors=classes,
        )

    def _count(self, error: psycopg.Error) -> None:
        """Count an error by SQLSTATE; one without is of the connection, or else internal."""
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        with self._lock:
            self._errors[error.sqlstate or ("08000" if lost else "XX000")] += 1

    def close(self) -> None:
        """Close all connections; calling it twice does nothing."""
        self._pool.close()

    def _meet(self, seconds: float) -> None:
        """Ask for the server's properties on a new connection; a refused login raises at once."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                with (
                    WatchedConnection.connect(self._address, **self._options) as raw,
                    translated(self.name, self._count),
                ):
                    self._refuse_shared(raw)
                    self._server = schemas.look(raw, self.name)
                return
            except psycopg.OperationalError as error:
                if _REFUSED.search(str(error)):
                    self._count(error)
                    raise StoreError(
                        f"{self.name} refused the login: {_sentence(error)}; correct the user, the "
                        "password or the database in the store's address"
                    ) from error
                if time.monotonic() >= deadline:
                    self._count(error)
                    raise self._no_connection(f": {_sentence(error)}") from error
                time.sleep(min(PAUSE_SECONDS, seconds))

    def _refuse_shared(self, raw: Raw) -> None:
        """Refuse a pooler that gives each transaction any of its own connections.

        Session settings that keep tenants apart, notifications of erasures and locks would be lost.
        """
        # A pooler announces a process of its own, not the server's that answers.
        own = _process(raw)
        if own in (None, raw.info.backend_pid):
            return
        for _ in range(_POOLER_TRIES):
            with psycopg.connect(self._address, **self._options) as other:
                # In session mode another connection gets another process, or waits for one.
                # A server may answer too slowly to say which process it is.
                if own == _process(other) or _process(raw) not in (None, own):
                    raise ConfigError(
                        f"{self.name} is a pooler in transaction mode, which loses session "
                        "settings, locks and notifications of erasures; set pool_mode = session "
                        "for this database in PgBouncer, or give the server's own address"
                    )

    def _no_connection(self, cause: str = "") -> StoreBusy:
        return StoreBusy(
            f"{self.name} gave no connection; gave up after {self._busy_seconds:g} s{cause}"
        )

    def _check(self, raw: Raw) -> None:
        """Check a connection that was idle for long, so that a lost one is replaced."""
        used = self._used.get(id(raw))
        if used is None or time.monotonic() - used > TRUSTED_SECONDS:
            assert isinstance(raw, WatchedConnection)
            watch = raw.patience, raw.answers
            raw.patience, raw.answers = CHECK_SECONDS, None
            try:
                ConnectionPool.check_connection(raw)
            finally:
                raw.patience, raw.answers = watch

    def _answers(self, host: str, hostaddr: str, port: int) -> bool:
        """Whether the server of a connection answers another one, if only with a refusal."""
        place = {"host": host, "hostaddr": hostaddr or None, "port": port}
        options = {**self._options, **place, "connect_timeout": CHECK_SECONDS}
        for _ in range(CHECKS):
            try:
                psycopg.connect(self._address, **options).close()
                return True
            except psycopg.OperationalError as error:
                # So begins what a server says, and nothing that happens on the way to it.
                if "FATAL:" in str(error):
                    return True
        return False

    def _configure(self, raw: Raw) -> None:
        assert self._server is not None
        assert isinstance(raw, WatchedConnection)
        # A statement that waits for a lock ends by itself before.
        raw.patience = max(CHECK_SECONDS, self._busy_seconds + 1)
        raw.answers = partial(self._answers, raw.info.host, raw.info.hostaddr, raw.info.port)
        with translated(self.name, self._count):
            adapt(raw, self._server.vector_oid)
            schemas.set_up(raw)
            # Maximum time that a statement waits for a lock.
            raw.execute(f"SET lock_timeout = {round(1000 * self._busy_seconds)}".encode())


def _process(raw: Raw) -> int | None:
    """The server's process that answers a connection; None if none does in time."""
    raw.pgconn.send_query(b"SELECT pg_backend_pid()")
    pid = None
    with selectors.DefaultSelector() as selector:
        selector.register(raw.pgconn.socket, selectors.EVENT_READ)
        while selector.select(_POOLER_SECONDS):
            raw.pgconn.consume_input()
            while not raw.pgconn.is_busy():
                result = raw.pgconn.get_result()
                if result is None:
                    return pid
                value = result.get_value(0, 0)
                pid = int(value) if value else None
    return None


def _undo(raw: Raw) -> None:
    """Roll back after an error; a connection that cannot do that is closed."""
    try:
        raw.rollback()
    except psycopg.Error:
        raw.close()


def _refuse_torn(address: str, host: str, port: str, database: str) -> None:
    """Refuse an address split wrongly by a bare @ or / in the password: a message would show it."""
    torn = (
        any("@" in name[1:] for name in host.split(","))
        or any(number and not number.isdigit() for number in port.split(","))
        or ("://" in address and "@" in database and "%40" not in address)
    )
    if torn:
        raise ConfigError(
            "the store's address cannot be read: its host, port or database is not valid; in the "
            "user and the password write @ as %40, / as %2F and : as %3A"
        )


def _sentence(error: Exception) -> str:
    """The error's message in one line; neither libpq nor the server repeats a password."""
    return " ".join(str(error).split())
