"""All facets of one namespace over one connection, for the length of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.postgres.facts import PostgresFacts
from crp_integrations.stores.postgres.ordering import Turn
from crp_integrations.stores.sqlite.facets import Facets

PostgresTransaction = Facets[PostgresFacts]


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
