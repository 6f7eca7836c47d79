"""All facets of one namespace over one connection, for the length of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.postgres.facts import PostgresFacts
from crp_integrations.stores.postgres.ordering import Turn
from crp_integrations.stores.sqlite.faulted import SqliteFaulted
from crp_integrations.stores.sqlite.journal import SqliteJournal
from crp_integrations.stores.sqlite.receipts import SqliteReceipts
from crp_integrations.stores.sqlite.sessions import SqliteSessions


class PostgresTransaction:
    """The facets of one transaction. Most read facts alone, so the others are made when asked for.

    Attributes:
        facts: the first of them.
    """

    def __init__(self, facts: PostgresFacts, connection: Connection, turn: Turn) -> None:
        """Take the connection and whose turn it is."""
        self.facts = facts
        self._given = connection, turn

    @cached_property
    def journal(self) -> SqliteJournal:
        """Events and seals."""
        return SqliteJournal(*self._given)

    @cached_property
    def sessions(self) -> SqliteSessions:
        """Sessions with their windows."""
        return SqliteSessions(*self._given)

    @cached_property
    def faulted(self) -> SqliteFaulted:
        """Facts that answers keep going wrong with."""
        return SqliteFaulted(*self._given)

    @cached_property
    def receipts(self) -> SqliteReceipts:
        """Receipts and their log."""
        return SqliteReceipts(*self._given)


def facets(
    connection: Connection,
    namespace: str,
    index_from: int,
    owned: Mapping[str, int] | None = None,
    want_index: Callable[[], None] = lambda: None,
) -> Iterator[PostgresTransaction]:
    """Give out the facets once; they refuse everything afterwards.

    Args:
        index_from: facts from which on the vectors get an index.
        owned: the namespace's own numbers, of a transaction that only reads; None for a writer.
        want_index: called when an index is to be built once this is committed.
    """
    turn = Turn(connection, write=owned is None)
    try:
        yield PostgresTransaction(
            PostgresFacts(connection, turn, namespace, owned, index_from, want_index),
            connection,
            turn,
        )
    finally:
        turn.shut()
