"""What a facet asks of the database under it, so that its statements are written once.

SQLite and PostgreSQL share most statements. They are spelled as SQLite reads them, with `?` for a
parameter and `AMONG` for a list; `postgres/dialect.py` spells them for PostgreSQL. Conditions that
an index bears stand here, since only a query that spells the condition in the same way uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

# One statement for any number of values; SQLite reads the list out of one parameter.
AMONG = "IN (SELECT value FROM json_each(?))"
# What `Fact.retrievable` says, and every other fact.
RETRIEVABLE_SQL = "status IN ('ACTIVE', 'STALE') AND archived_at IS NULL"
ASIDE_SQL = f"NOT ({RETRIEVABLE_SQL})"
# When a fact was last in use, as far as its own row says; without the Z, moments with and without
# microseconds sort as times.
TOUCHED_SQL = (
    "max(rtrim(coalesce(ingested_at, ''), 'Z'), rtrim(coalesce(last_accessed_at, ''), 'Z'))"
)
# Noted in `own` while bytes of removed facts, or of what windows said, may be left. For facts the
# files are rewritten; what windows said is in SQLite's log alone.
FACTS_DUE = "scrub_due"
WINDOWS_DUE = "scrub_windows_due"
# How many sentences on one kind of damage are worth reading.
SHOWN = 20


class Among(list[Any]):
    """A list as the one parameter of `AMONG`; each database takes it in its own way."""

    __slots__ = ()


class PackedVector(bytes):
    """A unit row as little-endian float32 bytes; each database keeps it in its own type."""

    __slots__ = ()


def among(values: Iterable[str]) -> Among:
    """Texts as the one parameter of `AMONG`.

    SQLite ends a text out of JSON at its first NUL, which would make another id of it; no fact
    id holds one.
    """
    return Among([value for value in values if "\0" not in value])


class Done(Protocol):
    """What a statement did."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        ...

    @property
    def lastrowid(self) -> int | None:
        """The number that the row it added was given."""
        ...


class Statements(Protocol):
    """A connection with a transaction that is open."""

    @property
    def packs_references(self) -> bool:
        """Whether the ids that a window or a receipt names are written as one row at first."""
        ...

    @property
    def padding(self) -> bytes:
        """Zeros that lie in front of a text, so that no copy of it stays in a page of others."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Done:
        """Run one statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        ...

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        ...

    def one(self, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, None when there is none."""
        ...


def note_due(connection: Statements, name: str) -> None:
    """Note in the open transaction that bytes are left which `scrub` has to take off the disk."""
    connection.execute(
        "INSERT INTO own (name, value) VALUES (?, 1) "
        "ON CONFLICT (name) DO UPDATE SET value = own.value + 1",
        [name],
    )
