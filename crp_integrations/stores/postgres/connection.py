"""One connection of the pool: translates SQLite's statements and PostgreSQL's errors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import Connection as RawConnection
from psycopg import errors
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo
from psycopg.types.array import ListBinaryDumper
from psycopg.types.array import ListDumper as TextListDumper
from psycopg.types.string import StrBinaryDumper, StrDumper, StrDumperUnknown

from crp_integrations.errors import AccessDenied, StoreBusy, StoreDamaged, StoreError
from crp_integrations.errors import CRPError as OwnError
from crp_integrations.stores.rules import AMONG, Among, PackedVector
from crp_integrations.stores.rules import TOUCHED_SQL as SQLITE_TOUCHED_SQL

ESCAPE = "\x1a"
TOUCHED_SQL = SQLITE_TOUCHED_SQL.replace("max(", "greatest(", 1)
# SQLite spellings and planner hints with their PostgreSQL replacements, in the order applied.
_SPELLINGS = (
    (AMONG, "= ANY(?)"),
    (SQLITE_TOUCHED_SQL, TOUCHED_SQL),
    ("instr(", "strpos("),
    ("CROSS JOIN", "JOIN"),
    (" INDEXED BY facts_retrievable", ""),
    (" NOT INDEXED", ""),
    ("%", "%%"),
    ("?", "%s"),
)


@lru_cache(maxsize=512)
def spelled(statement: str) -> str:
    """A statement of `stores/sqlite` in PostgreSQL's syntax.

    >>> spelled("SELECT 1 FROM facts WHERE fact_id = ?")
    'SELECT 1 FROM facts WHERE fact_id = %s'
    """
    for theirs, ours in _SPELLINGS:
        statement = statement.replace(theirs, ours)
    return statement


def escaped(text: str) -> str:
    """A text without NUL, which PostgreSQL cannot store; different texts stay different."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, f"{ESCAPE}1").replace("\0", f"{ESCAPE}0")
    return text


def unescaped(text: str) -> str:
    """The original text of an `escaped` one."""
    if ESCAPE in text:
        return text.replace(f"{ESCAPE}0", "\0").replace(f"{ESCAPE}1", ESCAPE)
    return text


class _UnknownDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextDumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _BinaryTextDumper(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


class _BinaryTextLoader(_TextLoader):
    format = Format.BINARY


def vector_sent(packed: bytes) -> bytes:
    """A row in pgvector's binary form: its length, two zero bytes, big-endian float32 numbers."""
    row = np.frombuffer(packed, dtype="<f4")
    return len(row).to_bytes(2, "big") + b"\0\0" + row.astype(">f4").tobytes()


_INT8 = psycopg.adapters.types["int8"]


class _NumbersDumper(Dumper):
    """Sends an array of int64 as bigint[]; psycopg would send each number of a list as text."""

    format = Format.BINARY
    oid = _INT8.array_oid

    def dump(self, obj: npt.NDArray[np.int64]) -> Buffer | None:
        # One dimension, no NULL, the type of the elements, their number, the first one's place.
        head = struct.pack(">5i", 1, 0, _INT8.oid, len(obj), 1)
        packed = np.empty(len(obj), dtype=[("size", ">i4"), ("number", ">i8")])
        packed["size"], packed["number"] = 8, obj
        return head + packed.tobytes()


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> Buffer | None:
        return vector_sent(obj)


class _VectorLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return np.frombuffer(data, dtype=">f4", offset=4).astype("<f4").tobytes()


def adapt(connection: RawConnection[Any], vector_oid: int) -> None:
    """Register how a connection sends and reads texts, lists and vectors."""
    adapters = connection.adapters
    for dumper in (_BinaryTextDumper, _TextDumper, _UnknownDumper):
        adapters.register_dumper(str, dumper)
    for kind in ("text", "name"):
        adapters.register_loader(kind, _TextLoader)
        adapters.register_loader(kind, _BinaryTextLoader)
    adapters.register_dumper(np.ndarray, _NumbersDumper)
    adapters.register_dumper(Among, ListBinaryDumper)
    adapters.register_dumper(Among, TextListDumper)
    if vector_oid:
        vectors = type("VectorDumper", (_VectorDumper,), {"oid": vector_oid})
        adapters.register_dumper(PackedVector, vectors)
        adapters.register_loader(vector_oid, _VectorLoader)
        adapters.types.add(TypeInfo("vector", vector_oid, 0))


Raw = psycopg.Connection[tuple[Any, ...]]
CountError = Callable[[psycopg.Error], None]
# Settings that a server reports to each connection, and the query that reads their present values.
_REPORTED = ("in_hot_standby", "default_transaction_read_only")
_ONLY_READS = (
    "SELECT pg_is_in_recovery() WHERE pg_is_in_recovery() "
    "OR current_setting('default_transaction_read_only')::boolean"
)
_ENDED = "ended the connection, since it stops or starts; try again"
_IDLE = "ended a connection that was idle for longer than its timeout; try again"
# The error and its words by SQLSTATE, or by the first two characters of one. Class 08, and an error
# without a SQLSTATE, is of the connection.
_CAUSES: Mapping[str, tuple[type[StoreError], str]] = {
    "25P03": (StoreBusy, _IDLE),
    "28": (StoreError, "refused the login; correct user and password in the store's address"),
    "3D": (StoreError, "has no such database; correct the store's address"),
    "40": (StoreBusy, "is busy; try again"),
    "42P01": (StoreDamaged, "is damaged or not a CRP store"),
    "42703": (StoreDamaged, "is damaged or not a CRP store"),
    "42883": (StoreDamaged, "is damaged or not a CRP store"),
    "53100": (StoreBusy, "has no room left on its disk; make room there"),
    "53200": (StoreBusy, "has too little memory; lower work_mem or the number of connections"),
    "53300": (StoreBusy, "has no connection left; raise max_connections or use fewer processes"),
    "53": (StoreBusy, "reached one of its limits; raise it"),
    "55P03": (StoreBusy, "is busy; try again"),
    "57014": (
        StoreBusy,
        "stopped a statement, whose statement_timeout is too short or which somebody cancelled",
    ),
    "57P04": (StoreError, "has no such database; correct the store's address"),
    "57P05": (StoreBusy, _IDLE),
    "57": (StoreBusy, _ENDED),
    "58": (StoreBusy, "could not read or write a file; its log says which"),
    "XX001": (StoreDamaged, "is damaged or not a CRP store"),
    "XX002": (StoreDamaged, "is damaged or not a CRP store"),
}
# Spills a megabyte to the disk of the database, without a table or its log; the least work_mem is
# 64 kB.
_SPILL = (
    "BEGIN; SET LOCAL work_mem = 64; SET LOCAL temp_tablespaces = ''; "
    "WITH spilled AS MATERIALIZED "
    "(SELECT repeat(number::text, 2048) FROM generate_series(1, 200) AS number) "
    "SELECT count(*) FROM spilled; COMMIT"
)


@dataclass(frozen=True, slots=True)
class PostgresResult:
    """The result of a statement."""

    rowcount: int
    connection: PostgresConnection

    @property
    def lastrowid(self) -> int | None:
        """The number that was assigned to the added row."""
        with self.connection.translated():
            row = self.connection.raw.execute("SELECT lastval()").fetchone()
        return None if row is None else int(row[0])


class PostgresConnection:
    """A connection within one transaction, for statements in SQLite's spelling."""

    def __init__(self, raw: Raw, place: str, count: CountError | None = None) -> None:
        """Keep the connection, and what counts its errors."""
        self.raw = raw
        self.place = place
        self._count = count

    def translated(self) -> AbstractContextManager[None]:
        """Raise PostgreSQL's errors as ours, and count them."""
        return _ErrorTranslation(self.place, self._count)

    @property
    def padding(self) -> bytes:
        """Empty: removed bytes are erased by rewriting the tables, so no padding is needed."""
        return b""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> PostgresResult:
        """Run one statement."""
        with self.translated():
            done = self.raw.execute(_query(spelled(statement)), parameters)
            return PostgresResult(done.rowcount, self)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        with self.translated(), self.raw.cursor() as cursor:
            cursor.executemany(_query(spelled(statement)), list(rows))

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.translated(), self.raw.cursor(binary=True) as cursor:
            return cursor.execute(_query(spelled(statement)), parameters).fetchall()

    def one(self, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        with self.translated(), self.raw.cursor(binary=True) as cursor:
            return cursor.execute(_query(spelled(statement)), parameters).fetchone()

    def copy(self, into: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add rows with COPY in PostgreSQL's binary form."""
        statement = _query(f"COPY {into} FROM STDIN (FORMAT BINARY)")
        with (
            self.translated(),
            self.raw.cursor() as cursor,
            cursor.copy(statement) as copying,
        ):
            copying.set_types(types)
            for row in rows:
                copying.write_row(row)

    def at_once(self, statements: str) -> list[tuple[Any, ...]]:
        """Run our own statements, without parameters, in one round trip; return the last's rows."""
        with self.translated(), self.raw.cursor() as cursor:
            cursor.execute(_query(statements))
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def must_write(self, namespace: str) -> None:
        """Refuse a server or login whose transactions are read-only, and a server's full disk."""
        reported = [self.raw.info.parameter_status(name) for name in _REPORTED]
        # The server reports a change only with its next answer, so ask for the present value.
        row = self.one(_ONLY_READS) if "on" in reported else None
        if row is not None:
            error = only_reads(self.place) if row[0] else begun_read_only(self.place)
            raise StoreBusy(f"no answer in namespace {namespace!r:.80} could be sealed: {error}")
        self.at_once(_SPILL)

    def script(self, statements: str) -> None:
        """Run our own statements, without parameters, in one round trip."""
        with self.translated():
            self.raw.execute(_query(statements))


def _query(statement: str) -> bytes:
    """Encode a statement; the type checker would otherwise demand a literal string."""
    return statement.encode()


class _ErrorTranslation(AbstractContextManager[None]):
    """Translates errors. A class, because a search enters several and a generator is slower."""

    __slots__ = ("_count", "_place")

    def __init__(self, place: str, count: CountError | None = None) -> None:
        self._place = place
        self._count = count

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._count is not None and isinstance(error, psycopg.Error):
            self._count(error)
        if error is not None and (ours := _ours(error, self._place)) is not None:
            raise ours from error


def translated(place: str, count: CountError | None = None) -> AbstractContextManager[None]:
    """Raise PostgreSQL's errors as ours, without the server's message, which may quote a text."""
    return _ErrorTranslation(place, count)


def _ours(error: BaseException, place: str) -> OwnError | None:
    """Our error that replaces another one; None if the other one is to propagate."""
    if isinstance(error, OwnError):
        return None
    if isinstance(error, errors.ReadOnlySqlTransaction):
        # Callers skip secondary writes, such as counts and upkeep, on this error.
        return only_reads(place)
    if isinstance(error, errors.InsufficientPrivilege):
        return refused(place)
    state = (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""
    cause = _CAUSES.get(state) or _CAUSES.get(state[:2])
    if cause is not None:
        return cause[0](f"{place} {cause[1]} ({_name(error)})")
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if lost and state[:2] in ("", "08"):
        return StoreBusy(f"{place} cannot be reached ({_name(error)}); try again")
    if isinstance(error, psycopg.Error):
        return StoreError(f"{place} refused a statement: {_name(error)}")
    if isinstance(error, UnicodeEncodeError):
        return StoreError(f"{place} cannot keep a text that is not UTF-8")
    return None


def only_reads(place: str) -> StoreBusy:
    """The error for a write on a server that is read-only."""
    return StoreBusy(
        f"{place} is read-only, like a standby; write to the primary, or after it was promoted"
    )


def begun_read_only(place: str) -> StoreBusy:
    """The error for a server that is not a standby but read-only by a setting."""
    return StoreBusy(
        f"{place} is read-only, like a standby, because default_transaction_read_only is on for "
        "this login, the database or the server; turn it off there (ALTER ROLE or DATABASE … SET "
        "default_transaction_read_only = off) or in the address, or use a login that writes"
    )


def refused(place: str) -> AccessDenied:
    """The error for a login without a right to a namespace."""
    return AccessDenied(
        f"the login of {place} may not use this namespace; its role has no right to it, or not to "
        "make it (`crp fabric init --tenant` makes one for the writer)"
    )


def _name(error: BaseException) -> str:
    return f"{type(error).__name__} {getattr(error, 'sqlstate', None) or ''}".strip()
