"""When the vectors get their index: after the transaction that made it due, in one of its own.

The index is derived from rows that are committed, so that nothing is lost with it. Who builds it
holds the table of the vectors and not the writers' turn: a writer may then have rows in the table
and wait for its turn without either waiting for the other. While a bulk load is under way nobody
builds, as plain SQL copies before it makes an index. An index of vectors that are not in use any
more is taken away first, in a transaction of its own, since readers wait for that.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from crp_integrations.errors import StoreError
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres import vector_search
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.vector_search import INDEXED, MOST_DIMENSIONS

# A load goes with its connection, so one that was killed keeps nobody from building.
_KEY = "hashtextextended(? || ' loading', 0)"
_BEGIN_LOAD = f"SELECT pg_advisory_lock_shared({_KEY})"
_END_LOAD = f"SELECT pg_advisory_unlock_shared({_KEY})"
_NOBODY_LOADS = f"SELECT pg_try_advisory_xact_lock({_KEY})"
# Waits for writers with rows in the table, and keeps others and a second builder away; not readers.
HOLD = "LOCK TABLE vectors IN SHARE ROW EXCLUSIVE MODE"
# The longest that readers are kept from the vectors while an old index waits to be taken away.
DROP_MILLISECONDS = 3_000

_log = logging.getLogger(__name__)


class VectorIndexes:
    """The indexes of a store's namespaces, by their schemas."""

    def __init__(
        self,
        connection: Callable[[], AbstractContextManager[PostgresConnection]],
        within: Callable[[PostgresConnection, str], AbstractContextManager[None]],
        index_from: int,
    ) -> None:
        """Take what lends a connection, and what opens a transaction in a schema on it."""
        self._connection = connection
        self._within = within
        self._index_from = index_from
        # How many loads of each schema are under way here.
        self._loading: Counter[str] = Counter()

    @contextmanager
    def loading(self, schema: str) -> Iterator[None]:
        """Keep everybody from building within the block, and build after it."""
        with self._connection() as connection:
            with self._within(connection, schema):
                connection.execute(_BEGIN_LOAD, [schema])
            self._loading[schema] += 1
            try:
                yield
            finally:
                self._loading[schema] -= 1
                connection.execute(_END_LOAD, [schema])
        self.build(schema)

    def build(self, schema: str) -> bool:
        """Build the index if it is due; whether it was built.

        What made it due is committed, so nobody is told of a failure: the next who adds facts or
        maintains tries again, and until then rows are compared without an index.
        """
        if self._loading[schema] > 0:
            return False
        try:
            with self._connection() as connection:
                with self._within(connection, schema):
                    if not self._old_dropped(connection, schema):
                        return False
                with self._within(connection, schema):
                    return self._built(connection, schema)
        except StoreError as error:
            _log.warning("the index of %s is not built: %s", schema, error)
            return False

    def _old_dropped(self, connection: PostgresConnection, schema: str) -> bool:
        """Take away an index that is not in use; whether one is to be built."""
        found = connection.one(_NOBODY_LOADS, [schema])
        if found is None or not found[0] or not schemas.is_there(connection, schema):
            return False
        if not due(dict(connection.rows(schemas.OWN)), self._index_from):
            return False
        if connection.one("SELECT to_regclass('vectors_near')::text") != (None,):
            # Who begins to read waits behind this one while it waits for who reads already.
            connection.script(f"SET LOCAL lock_timeout = {DROP_MILLISECONDS}; {HOLD}")
            # Another process may have built it meanwhile.
            if due(dict(connection.rows(schemas.OWN)), self._index_from):
                vector_search.drop(connection)
        return True

    def _built(self, connection: PostgresConnection, schema: str) -> bool:
        found = connection.one(_NOBODY_LOADS, [schema])
        if found is None or not found[0]:
            return False
        connection.script(HOLD)
        own = dict(connection.rows(schemas.OWN))
        if not due(own, self._index_from):
            return False
        vector_search.build(connection, own["dimensions"])
        return True


def due(own: Mapping[str, int], index_from: int) -> bool:
    """Whether a namespace is to get an index that it has not."""
    dimensions = own.get("dimensions")
    return (
        own.get(INDEXED) is None
        and dimensions is not None
        and dimensions <= MOST_DIMENSIONS
        and own.get("live_facts", 0) >= index_from
    )
