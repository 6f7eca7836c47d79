"""Bytes of what was removed are taken off the disk here, and damage is looked for."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from psycopg.errors import Diagnostic

from crp_integrations.language.words import stems_of
from crp_integrations.seals import sha256
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.statements import FACTS_DUE, RETRIEVABLE_SQL, SHOWN, WINDOWS_DUE

# Tables that hold content, by what is due. Written anew, they hold only rows that are there.
CONTENTS = {
    FACTS_DUE: (
        *("facts", "vectors", "postings", "token_counts", "edges", "prepared_vectors"),
        *("fact_findings", "fact_uses", "sources", "withdrawn_facts"),
    ),
    WINDOWS_DUE: (
        *("window_contents", "window_facts", "window_sources", "receipt_contents"),
        "receipt_facts",
    ),
}
# The planner notes values of every column, and leaves the old notes in the file of its catalogue.
# Only who owns the database may write that anew; the server passes over it for a tenant's login.
FORGET_STATISTICS = "VACUUM (FULL, VERBOSE) pg_catalog.pg_statistic"
# Facts whose texts are read at a time.
SLICE = 1_000
# How the server tells of rows that it had to copy because a transaction may still read them.
_KEPT = re.compile(r"(\d+) dead row versions? cannot be removed yet")


def due(connection: PostgresConnection) -> dict[str, int]:
    """A number by name while removed bytes may be in the tables; another after each removal."""
    found = connection.rows("SELECT name, value FROM own WHERE name = ANY(?)", [list(CONTENTS)])
    return {name: int(value) for name, value in found}


def sizes(connection: PostgresConnection, schema: str) -> dict[str, int]:
    """Bytes of a schema's tables with their indexes, and of the index of the vectors alone.

    None of a schema that is not there, or that this login may not look into.
    """
    found = connection.rows(
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE relkind = 'r'), 0)"
        "::bigint, coalesce(sum(pg_relation_size(c.oid)) FILTER (WHERE relkind = 'i'), 0)::bigint "
        "FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = ? "
        "AND (relkind = 'r' OR relname = 'vectors_near') AND has_schema_privilege(n.oid, 'USAGE') "
        "GROUP BY n.oid",
        [schema],
    )
    if not found:
        return {}
    ((tables, index),) = found
    return {"tables": tables - index} | ({"index of the vectors": index} if index else {})


def rewrite(connection: PostgresConnection, schema: str, tables: Sequence[str]) -> bool:
    """Write tables and their indexes anew, outside of a transaction."""
    kept = 0

    def told(notice: Diagnostic) -> None:
        nonlocal kept
        found = _KEPT.search(notice.message_detail or "")
        kept += int(found[1]) if found else 0

    language = str(connection.rows("SHOW lc_messages")[0][0])
    foreign = not language.startswith(("C", "POSIX", "en"))
    connection.raw.add_notice_handler(told)
    try:
        connection.script("SET client_min_messages = info")
        if foreign:
            # A tenant's login may need the right to: GRANT SET ON PARAMETER lc_messages.
            connection.script("SET lc_messages = 'C'")
        for table in tables:
            connection.script(f"SELECT \"{schema}\".write_anew('{table}')")
        connection.script(FORGET_STATISTICS)
    finally:
        connection.script("RESET client_min_messages")
        if foreign:
            connection.script("RESET lc_messages")
        connection.raw.remove_notice_handler(told)
    return kept == 0


def problems(connection: PostgresConnection) -> Iterator[str]:
    """What is wrong with the facts, one sentence each."""
    found = connection.one("SELECT value FROM own WHERE name = 'dimensions'")
    wanted = 0 if found is None else int(found[0])
    for id, length in connection.rows(
        "SELECT fact_id, vector_dims(vector) FROM facts LEFT JOIN vectors USING (fact) "
        "WHERE vector_dims(vector) IS DISTINCT FROM ? ORDER BY fact_id LIMIT ?",
        [wanted, SHOWN],
    ):
        if length is None:
            yield f"fact {id} has no vector"
        else:
            yield f"the vector of fact {id} has {length} numbers, wanted {wanted}"
    yield from _texts(connection)
    live = connection.one(
        f"SELECT count(*), coalesce(sum(words), 0)::bigint FROM facts WHERE {RETRIEVABLE_SQL}"
    )
    noted = connection.rows(
        "SELECT value FROM own WHERE name IN ('live_facts', 'live_words') ORDER BY name"
    )
    if live != tuple(value for (value,) in noted):
        yield "the counts of retrievable facts and words do not fit the facts"


def _texts(connection: PostgresConnection) -> Iterator[str]:
    """Texts that are not what was stored, and postings that are not those of their text."""
    after, wrong = 0, 0
    while wrong < SHOWN:
        part = connection.rows(
            "SELECT fact, fact_id, content, content_hash, words FROM facts WHERE fact > ? "
            "ORDER BY fact LIMIT ?",
            [after, SLICE],
        )
        if not part:
            break
        counted = dict(
            connection.rows(
                "SELECT fact, sum(length(places)) / 4 FROM postings WHERE fact > ? AND fact <= ? "
                "GROUP BY fact",
                [after, part[-1][0]],
            )
        )
        after = part[-1][0]
        for fact, id, content, stored, words in part:
            if sha256(content) != stored:
                wrong += 1
                yield f"the text of fact {id} does not match its content hash"
            elif not words == len(stems_of(content)) == counted.get(fact, 0):
                wrong += 1
                yield f"the postings of fact {id} do not fit its text"
