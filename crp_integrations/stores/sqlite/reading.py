"""A reading transaction of one namespace's file, and whose file it is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from crp_integrations.errors import StoreDamaged
from crp_integrations.seals import sha256_hex
from crp_integrations.stores.rules import Gate
from crp_integrations.stores.sqlite.base import Seen
from crp_integrations.stores.sqlite.connection import Connection, Inode, open_empty
from crp_integrations.stores.sqlite.facets import Facets
from crp_integrations.stores.sqlite.facts import SqliteFacts
from crp_integrations.stores.sqlite.migrations import VERSION
from crp_integrations.stores.sqlite.pool import Pool

SqliteTransaction = Facets[SqliteFacts]


class Reading(AbstractContextManager[SqliteTransaction]):
    """A transaction that sees one state of a namespace and writes nothing.

    A class, since every read goes through it and a generator costs more.

    Args:
        present: the file that was just seen at the pool's path; None where there was none.
    """

    __slots__ = ("_connection", "_gate", "_namespace", "_pool", "_present")

    def __init__(self, pool: Pool, present: Inode | None, namespace: str) -> None:
        self._pool: Pool | None = pool
        self._present = present
        self._namespace = namespace
        self._gate = Gate(write=False)

    def __enter__(self) -> SqliteTransaction:
        seen = self._begun()
        if seen is None:
            self._connection, self._pool = open_empty(), None
        facts = SqliteFacts(self._connection, self._gate, self._namespace, seen)
        return SqliteTransaction(facts, self._connection, self._gate)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.shut()
        if self._pool is None:
            self._connection.close()
        else:
            self._pool.end(self._connection, error)

    def _begun(self) -> Seen | None:
        """Begin; None, and nothing begun, where nobody has written yet."""
        pool = self._pool
        if self._present is None or pool is None:
            return None
        self._connection = connection = pool.take(self._present)
        try:
            connection.execute("BEGIN")
            # The first read fixes what is seen, and takes the locks of all others.
            seen: Seen | None = connection.remembered() or _read(connection)
            if seen is not None:
                checked_owner(seen.own.get("namespace"), pool.path, self._namespace)
                return seen
        except BaseException as error:
            pool.end(connection, error)
            raise
        # Made by a writer that has not committed yet.
        pool.end(connection, None)
        return None


def owner(connection: Connection, path: Path, wanted: str | None = None) -> str:
    """The namespace that a database belongs to.

    Raises:
        StoreDamaged: it belongs to none, to another than the one wanted, or lies elsewhere.
    """
    row = connection.one("SELECT value FROM own WHERE name = 'namespace'")
    return checked_owner(None if row is None else row[0], path, wanted)


def checked_owner(found: Any, path: Path, wanted: str | None) -> str:
    """The owner that a database names.

    Raises:
        StoreDamaged: as of `owner`.
    """
    if found is None or (wanted is not None and found != wanted):
        raise StoreDamaged(f"the database of namespace {wanted!r} belongs to another namespace")
    # Of a namespace that is wanted, the path was made from its name.
    if wanted is None and path.parent.name != sha256_hex(str(found)):
        raise StoreDamaged(f"{path} belongs to another namespace")
    return str(found)


def _read(connection: Connection) -> Seen | None:
    """What the transaction that is open sees of the whole namespace; None without tables."""
    version = connection.version()
    if version < VERSION:
        connection.rollback()
        if version == 0:
            return None
        connection.in_turn("BEGIN IMMEDIATE")
        connection.migrate()
        connection.execute("COMMIT")
        connection.execute("BEGIN")
    seen = Seen.read(connection)
    connection.remember(seen)
    return seen
