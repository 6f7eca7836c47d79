"""One connection of the pool: SQLite's statements in PostgreSQL's words, its errors as ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np
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
# What SQLite calls otherwise, and hints to its planner.
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
    """A statement of `stores/sqlite` as PostgreSQL reads it.

    >>> spelled("SELECT 1 FROM facts WHERE fact_id = ?")
    'SELECT 1 FROM facts WHERE fact_id = %s'
    """
    for theirs, ours in _SPELLINGS:
        statement = statement.replace(theirs, ours)
    return statement


def escaped(text: str) -> str:
    """A text without NUL; equal ones stay equal."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, f"{ESCAPE}1").replace("\0", f"{ESCAPE}0")
    return text


def unescaped(text: str) -> str:
    """What `escaped` was given."""
    if ESCAPE in text:
        return text.replace(f"{ESCAPE}0", "\0").replace(f"{ESCAPE}1", ESCAPE)
    return text


class _Unknown(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _Text(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _BinaryText(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


class _BinaryTextLoader(_TextLoader):
    format = Format.BINARY


def vector_sent(packed: bytes) -> bytes:
    """Little-endian bytes of a row as a `vector`: its length, two zero bytes, big-endian rows."""
    row = np.frombuffer(packed, dtype="<f4")
    return len(row).to_bytes(2, "big") + b"\0\0" + row.astype(">f4").tobytes()


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> Buffer | None:
        return vector_sent(obj)


class _VectorLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return np.frombuffer(data, dtype=">f4", offset=4).astype("<f4").tobytes()


def adapt(connection: RawConnection[Any], vector_oid: int) -> None:
    """Teach a connection how texts, lists and vectors travel."""
    adapters = connection.adapters
    for dumper in (_BinaryText, _Text, _Unknown):
        adapters.register_dumper(str, dumper)
    for kind in ("text", "name"):
        adapters.register_loader(kind, _TextLoader)
        adapters.register_loader(kind, _BinaryTextLoader)
    adapters.register_dumper(Among, ListBinaryDumper)
    adapters.register_dumper(Among, TextListDumper)
    if vector_oid:
        vectors = type("VectorDumper", (_VectorDumper,), {"oid": vector_oid})
        adapters.register_dumper(PackedVector, vectors)
        adapters.register_loader(vector_oid, _VectorLoader)
        adapters.types.add(TypeInfo("vector", vector_oid, 0))


Raw = psycopg.Connection[tuple[Any, ...]]
# What a server tells each connection of how it stands, and the question whether it still does.
_TOLD = ("in_hot_standby", "default_transaction_read_only")
_ONLY_READS = (
    "SELECT pg_is_in_recovery() WHERE pg_is_in_recovery() "
    "OR current_setting('default_transaction_read_only')::boolean"
)
_BUSY = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
    errors.CannotConnectNow,
    errors.AdminShutdown,
)
_DAMAGED = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.DataCorrupted,
    errors.IndexCorrupted,
)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a statement did."""

    rowcount: int
    raw: Raw
    place: str

    @property
    def lastrowid(self) -> int | None:
        """The number that the row it added was given."""
        with translated(self.place):
            row = self.raw.execute("SELECT lastval()").fetchone()
        return None if row is None else int(row[0])


class PostgresConnection:
    """A connection within one transaction, for statements spelled as SQLite reads them."""

    def __init__(self, raw: Raw, place: str) -> None:
        """Take a connection."""
        self.raw = raw
        self.place = place

    @property
    def padding(self) -> bytes:
        """None is needed: what is erased is erased by writing tables anew."""
        return b""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Ran:
        """Run one statement."""
        with translated(self.place):
            done = self.raw.execute(_query(spelled(statement)), parameters)
            return Ran(done.rowcount, self.raw, self.place)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        with translated(self.place), self.raw.cursor() as cursor:
            cursor.executemany(_query(spelled(statement)), list(rows))

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with translated(self.place), self.raw.cursor(binary=True) as cursor:
            return cursor.execute(_query(spelled(statement)), parameters).fetchall()

    def one(self, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, None when there is none."""
        with translated(self.place), self.raw.cursor(binary=True) as cursor:
            return cursor.execute(_query(spelled(statement)), parameters).fetchone()

    def copy(self, into: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add rows with COPY in PostgreSQL's binary form."""
        statement = _query(f"COPY {into} FROM STDIN (FORMAT BINARY)")
        with (
            translated(self.place),
            self.raw.cursor() as cursor,
            cursor.copy(statement) as copying,
        ):
            copying.set_types(types)
            for row in rows:
                copying.write_row(row)

    def at_once(self, statements: str) -> list[tuple[Any, ...]]:
        """Run statements of ours without parameters in one round trip; the rows of the last."""
        with translated(self.place), self.raw.cursor() as cursor:
            cursor.execute(_query(statements))
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def must_write(self, namespace: str) -> None:
        """Refuse a server, or a login, whose transactions only read."""
        reported = [self.raw.info.parameter_status(name) for name in _TOLD]
        # The server reports these by itself, but a change of them only with its next answer.
        row = self.one(_ONLY_READS) if "on" in reported else None
        if row is not None:
            error = only_reads(self.place) if row[0] else begun_read_only(self.place)
            raise StoreBusy(f"no answer in namespace {namespace!r:.80} could be sealed: {error}")

    def script(self, statements: str) -> None:
        """Run statements of ours without parameters in one round trip."""
        with translated(self.place):
            self.raw.execute(_query(statements))


def _query(statement: str) -> bytes:
    """Every statement is of ours and every value a parameter, whatever the type checker says."""
    return statement.encode()


class _Translated(AbstractContextManager[None]):
    """As a class, since a search goes through several and a generator costs more."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and (ours := _ours(error, self._place)) is not None:
            raise ours from error


def translated(place: str) -> AbstractContextManager[None]:
    """PostgreSQL's errors as ours. A message of the server may quote a text, so none is shown."""
    return _Translated(place)


def _ours(error: BaseException, place: str) -> OwnError | None:
    """The error of ours in the place of another one; None where that stays as it is."""
    if isinstance(error, OwnError):
        return None
    if isinstance(error, _BUSY):
        return StoreBusy(f"{place} is busy ({_name(error)}); try again")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        # What is written by the way, such as counts and upkeep, is left for another time.
        return only_reads(place)
    if isinstance(error, errors.InsufficientPrivilege):
        return refused(place)
    if isinstance(error, _DAMAGED):
        return StoreDamaged(f"{place} is damaged or not a CRP store: {_name(error)}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreBusy(f"{place} cannot be reached ({_name(error)}); try again")
    if isinstance(error, psycopg.Error):
        return StoreError(f"{place} refused a statement: {_name(error)}")
    if isinstance(error, UnicodeEncodeError):
        return StoreError(f"{place} cannot keep a text that is not UTF-8")
    return None


def only_reads(place: str) -> StoreBusy:
    """What is said to who would write where nothing can be written."""
    return StoreBusy(
        f"{place} only reads, as a standby does; write to the primary, or when it was promoted"
    )


def begun_read_only(place: str) -> StoreBusy:
    """What is said where a setting, and no standby, lets nothing be written."""
    return StoreBusy(
        f"{place} only reads, as a standby does, since default_transaction_read_only is on for "
        "this login, the database or the server; turn it off there (ALTER ROLE or DATABASE … SET "
        "default_transaction_read_only = off) or in the address, or use a login that writes"
    )


def refused(place: str) -> AccessDenied:
    """What is said to a login without the right to a namespace."""
    return AccessDenied(
        f"the login of {place} may not use this namespace; its role has no right to it"
    )


def _name(error: psycopg.Error) -> str:
    return f"{type(error).__name__} {error.sqlstate or ''}".strip()
