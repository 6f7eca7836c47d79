"""Upkeep: erase removed bytes from disk, look for damage, build the vector index."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice

from psycopg.errors import Diagnostic

from crp_integrations.errors import StoreError
from crp_integrations.language.words import stems_of
from crp_integrations.seals import sha256
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres import vector_search
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.postings import counted_stems
from crp_integrations.stores.postgres.vector_search import INDEXED, MAX_DIMENSIONS
from crp_integrations.stores.rules import FACTS_DUE, MAX_SHOWN, RETRIEVABLE_SQL, WINDOWS_DUE, pages

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

_log = logging.getLogger(__name__)

# Tables with content, by the entry that marks them as due. Rewriting one drops removed rows.
CONTENTS = {
    FACTS_DUE: (
        *("facts", "vectors", "postings", "stem_sequences", "token_counts", "edges"),
        *("prepared_vectors", "fact_findings", "fact_uses", "sources", "withdrawn_facts"),
    ),
    WINDOWS_DUE: (*("window_contents", "window_facts", "receipt_contents", "receipt_facts"),),
}
# The planner's statistics contain stems, ids and hashes, and old ones stay in the catalogue's file.
_FORGET_STATISTICS = "VACUUM (FULL, VERBOSE) pg_catalog.pg_statistic"
# Facts whose texts are read at a time.
TEXTS_PER_PAGE = 1_000
# The server's notice about rows that it copied because a transaction may still read them.
_UNREMOVED_ROWS = re.compile(r"(\d+) dead row versions? cannot be removed yet")


def due(connection: PostgresConnection) -> dict[str, int]:
    """The entries of `own` that mark removed bytes in the tables; each removal raises the value."""
    rows = connection.rows("SELECT name, value FROM own WHERE name = ANY(?)", [list(CONTENTS)])
    return {name: int(value) for name, value in rows}


def sizes(connection: PostgresConnection, schema: str) -> dict[str, int]:
    """Bytes of a schema's tables and their other indexes, and of the vector index.

    Empty for a schema that does not exist or that this login may not use.
    """
    rows = connection.rows(
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE relkind = 'r'), 0)"
        "::bigint, coalesce(sum(pg_relation_size(c.oid)) FILTER (WHERE relkind = 'i'), 0)::bigint "
        "FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = ? "
        "AND (relkind = 'r' OR relname = 'vectors_near') AND has_schema_privilege(n.oid, 'USAGE') "
        "GROUP BY n.oid",
        [schema],
    )
    if not rows:
        return {}
    ((tables, index),) = rows
    return {"tables": tables - index} | ({"index of the vectors": index} if index else {})


def rewrite(connection: PostgresConnection, schema: str, tables: Sequence[str]) -> bool:
    """Rewrite tables and their indexes, outside of a transaction; whether all old rows are gone."""
    remaining = 0

    def note_remaining(notice: Diagnostic) -> None:
        nonlocal remaining
        match = _UNREMOVED_ROWS.search(notice.message_detail or "")
        remaining += int(match[1]) if match else 0
        if notice.severity_nonlocalized == "WARNING":
            _log.warning(
                "erased words may remain; run VACUUM FULL pg_statistic as the database's owner: %s",
                notice.message_primary,
            )

    language = str(connection.rows("SHOW lc_messages")[0][0])
    foreign = bool(tables) and not language.startswith(("C", "POSIX", "en"))
    connection.raw.add_notice_handler(note_remaining)
    try:
        connection.script("SET client_min_messages = info")
        if foreign:
            # A tenant's login may need this right: GRANT SET ON PARAMETER lc_messages.
            connection.script("SET lc_messages = 'C'")
        for table in tables:
            connection.script(f"SELECT \"{schema}\".write_anew('{table}')")
        connection.script(_FORGET_STATISTICS)
    finally:
        connection.script("RESET client_min_messages")
        if foreign:
            connection.script("RESET lc_messages")
        connection.raw.remove_notice_handler(note_remaining)
    return remaining == 0


def problems(connection: PostgresConnection) -> Iterator[str]:
    """Problems of the facts, one sentence each."""
    row = connection.one("SELECT value FROM own WHERE name = 'dimensions'")
    wanted = 0 if row is None else int(row[0])
    for id, length in connection.rows(
        "SELECT fact_id, vector_dims(vector) FROM facts LEFT JOIN vectors USING (fact) "
        "WHERE vector_dims(vector) IS DISTINCT FROM ? ORDER BY fact_id LIMIT ?",
        [wanted, MAX_SHOWN],
    ):
        if length is None:
            yield f"fact {id} has no vector"
        else:
            yield f"the vector of fact {id} has {length} numbers, wanted {wanted}"
    yield from islice(_texts(connection), MAX_SHOWN)
    live = connection.one(
        f"SELECT count(*), coalesce(sum(words), 0)::bigint FROM facts WHERE {RETRIEVABLE_SQL}"
    )
    noted = connection.rows(
        "SELECT value FROM own WHERE name IN ('live_facts', 'live_words') ORDER BY name"
    )
    if live != tuple(value for (value,) in noted):
        yield "the counts of retrievable facts and words do not fit the facts"


def _texts(connection: PostgresConnection) -> Iterator[str]:
    """Texts that do not match their hash, and postings that do not match their text."""
    counted = counted_stems(connection)
    statement = (
        "SELECT facts.fact, fact_id, content, content_hash, words, coalesce(length(stems), 0) / 8, "
        f"{RETRIEVABLE_SQL} FROM facts LEFT JOIN stem_sequences USING (fact) "
        "WHERE facts.fact > ? ORDER BY facts.fact LIMIT ?"
    )
    for page in pages(connection, statement, 0, TEXTS_PER_PAGE):
        for fact, id, content, stored, words, listed, searched in page:
            indexed = words if searched else 0
            if sha256(content) != stored:
                yield f"the text of fact {id} does not match its content hash"
            elif words != len(stems_of(content)) or not (indexed == listed == counted.get(fact, 0)):
                yield f"the postings of fact {id} do not fit its text"


# A lock of the connection: when a loading process is killed, others can build again.
_KEY = "hashtextextended(? || ' loading', 0)"
_BEGIN_LOAD = f"SELECT pg_advisory_lock_shared({_KEY})"
_END_LOAD = f"SELECT pg_advisory_unlock_shared({_KEY})"
_NOBODY_LOADS = f"SELECT pg_try_advisory_xact_lock({_KEY})"
# Waits for writers of the table and blocks other writers and builders, but not readers.
LOCK_VECTORS = "LOCK TABLE vectors IN SHARE ROW EXCLUSIVE MODE"
# Maximum time that new readers of the vectors wait while an old index is about to be dropped.
DROP_MILLISECONDS = 3_000


class VectorIndexes:
    """The indexes of a store's namespaces, by their schemas."""

    def __init__(
        self,
        connection: Callable[[], AbstractContextManager[PostgresConnection]],
        within: Callable[[PostgresConnection, str], AbstractContextManager[None]],
        index_from: int,
    ) -> None:
        """Keep the functions that lend a connection and open a transaction in a schema."""
        self._connection = connection
        self._within = within
        self._index_from = index_from
        # Number of loads of each schema in this process.
        self._loading: Counter[str] = Counter()

    @contextmanager
    def loading(self, schema: str) -> Iterator[None]:
        """Keep all processes from building within the block, and build after it."""
        with self._connection() as connection:
            with self._within(connection, schema):
                connection.execute(_BEGIN_LOAD, [schema])
            self._loading[schema] += 1
            try:
                yield
            finally:
                self._loading[schema] -= 1
                connection.execute(_END_LOAD, [schema])
        self._analyze(schema)
        self.build(schema)

    def _analyze(self, schema: str) -> None:
        """Tell the planner what was loaded; otherwise it learns that only when autovacuum runs."""
        try:
            with self._connection() as connection, self._within(connection, schema):
                if schemas.is_there(connection, schema):
                    connection.script("SELECT analyze_tables()")
        except StoreError as error:
            _log.warning("the planner's statistics of %s are old: %s", schema, error)

    def build(self, schema: str) -> bool:
        """Build the index if it is due; return whether it was built.

        The change that made it due is committed, so a failure is only logged: the next addition or
        maintenance tries again, and until then rows are compared without an index.
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
        """Drop an index that is not in use; return whether a new one is to be built."""
        row = connection.one(_NOBODY_LOADS, [schema])
        if row is None or not row[0] or not schemas.is_there(connection, schema):
            return False
        if not index_due(dict(connection.rows(schemas.OWN)), self._index_from):
            return False
        if connection.one("SELECT to_regclass('vectors_near')::text") != (None,):
            # New readers queue after this lock while it waits for transactions that already read.
            connection.script(f"SET LOCAL lock_timeout = {DROP_MILLISECONDS}; {LOCK_VECTORS}")
            # Another process may have built the index meanwhile.
            if index_due(dict(connection.rows(schemas.OWN)), self._index_from):
                vector_search.drop(connection)
        return True

    def _built(self, connection: PostgresConnection, schema: str) -> bool:
        row = connection.one(_NOBODY_LOADS, [schema])
        if row is None or not row[0]:
            return False
        connection.script(LOCK_VECTORS)
        own = dict(connection.rows(schemas.OWN))
        if not index_due(own, self._index_from):
            return False
        vector_search.build(connection, own["dimensions"])
        return True


def index_due(own: Mapping[str, int], index_from: int) -> bool:
    """Whether a namespace needs an index that it does not have yet."""
    dimensions = own.get("dimensions")
    return (
        own.get(INDEXED) is None
        and dimensions is not None
        and dimensions <= MAX_DIMENSIONS
        and own.get("live_facts", 0) >= index_from
    )
