"""One connection of the pool: PostgreSQL's errors become ours here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors

from crp_integrations.errors import AccessDenied, StoreBusy, StoreDamaged, StoreError
from crp_integrations.errors import CRPError as OwnError
from crp_integrations.stores.postgres.dialect import numbered, spelled
from crp_integrations.stores.postgres.session import Session

Raw = psycopg.Connection[tuple[Any, ...]]
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
    raw: Session

    @property
    def lastrowid(self) -> int | None:
        """The number that the row it added was given."""
        found = self.raw.execute("SELECT lastval()").fetchone()
        return None if found is None else int(found[0])


class Connection:
    """A connection within one transaction, for statements spelled as SQLite reads them."""

    def __init__(self, raw: Session, place: str) -> None:
        """Take a connection.

        Args:
            place: server and database, for messages.
        """
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
            return Ran(done.rowcount, self.raw)

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
        """Add rows with COPY in PostgreSQL's binary form.

        Args:
            into: table and columns, such as `facts (fact, fact_id)`.
            types: of the columns.
        """
        statement = _query(f"COPY {into} FROM STDIN (FORMAT BINARY)")
        with (
            translated(self.place),
            self.raw.cursor() as cursor,
            cursor.copy(statement) as copying,
        ):
            copying.set_types(types)
            for row in rows:
                copying.write_row(row)

    def at_once(self, statements: str) -> list[tuple[str, ...]]:
        """Run short statements of ours without parameters; the rows of the last one, as texts.

        libpq waits for the server itself, which costs less than a cursor does. Nothing that
        may take long is asked for so, since no signal is heard meanwhile.
        """
        with translated(self.place):
            result = self.raw.checked(self.raw.pgconn.exec_(_query(statements)))
            return [
                tuple(
                    (result.get_value(row, column) or b"").decode()
                    for column in range(result.nfields)
                )
                for row in range(result.ntuples)
            ]

    def sent(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """All rows of a search within a reading transaction, see `session`."""
        with translated(self.place):
            return self.raw.sent(numbered(statement), parameters)

    def script(self, statements: str) -> None:
        """Run statements of ours without parameters in one round trip."""
        with translated(self.place):
            self.raw.execute(_query(statements))


def _query(statement: str) -> bytes:
    """Every statement is of ours and every value a parameter, whatever the type checker says."""
    return statement.encode()


@contextmanager
def translated(place: str) -> Iterator[None]:
    """PostgreSQL's errors as ours. A message of the server may quote a text, so none is shown."""
    try:
        yield
    except OwnError:
        raise
    except _BUSY as error:
        raise StoreBusy(f"{place} is busy ({_name(error)}); try again") from error
    except errors.ReadOnlySqlTransaction as error:
        # What is written by the way, such as counts and upkeep, is left for another time.
        raise StoreBusy(
            f"{place} only reads, as a standby does; write to the primary, or when it was promoted"
        ) from error
    except errors.InsufficientPrivilege as error:
        raise refused(place) from error
    except _DAMAGED as error:
        raise StoreDamaged(f"{place} is damaged or not a CRP store: {_name(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise StoreBusy(f"{place} cannot be reached ({_name(error)}); try again") from error
    except psycopg.Error as error:
        raise StoreError(f"{place} refused a statement: {_name(error)}") from error
    except UnicodeEncodeError as error:
        raise StoreError(f"{place} cannot keep a text that is not UTF-8") from error


def refused(place: str) -> AccessDenied:
    """What is said to a login without the right to a namespace."""
    return AccessDenied(
        f"the login of {place} may not use this namespace; its role has no right to it"
    )


def _name(error: psycopg.Error) -> str:
    return f"{type(error).__name__} {error.sqlstate or ''}".strip()
