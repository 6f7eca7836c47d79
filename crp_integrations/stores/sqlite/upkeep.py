"""Bytes of what was removed are taken off the disk here, and damage is looked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from crp_integrations.errors import StoreDamaged
from crp_integrations.seals import sha256
from crp_integrations.stores.relational.rows import STATUSES, bogus_status, number
from crp_integrations.stores.sqlite.connection import PAUSE_SECONDS, SqliteConnection
from crp_integrations.stores.statements import AMONG, FACTS_DUE, SHOWN, WINDOWS_DUE, among

# Facts whose texts are read at a time.
SLICE = 1_000


def scrub_due(connection: SqliteConnection) -> dict[str, int]:
    """A number by name while removed bytes may be in the files; another one after each removal."""
    return {
        name: number(value, name)
        for name, value in connection.rows(
            "SELECT name, value FROM own WHERE name IN (?, ?)", [FACTS_DUE, WINDOWS_DUE]
        )
    }


def scrubbed(connection: SqliteConnection, due: Mapping[str, int]) -> None:
    """Note that what was due is done, unless more came to it meanwhile."""
    connection.in_turn("BEGIN IMMEDIATE")
    connection.executemany("DELETE FROM own WHERE name = ? AND value = ?", due.items())
    connection.execute("COMMIT")


def rewrite(connection: SqliteConnection) -> None:
    """Write the whole database anew, without what is free and without what was removed.

    SQLite overwrites what is deleted, but not the copies that stay behind in a page when its rows
    move to another one; and the text index keeps words until its parts are merged.
    """
    connection.in_turn("INSERT INTO facts_text (facts_text) VALUES ('optimize')")
    connection.in_turn("VACUUM")


def truncate_log(connection: SqliteConnection, seconds: float) -> bool:
    """Move the write-ahead log into the database and cut it to nothing."""
    deadline = time.monotonic() + seconds
    # SQLite would hold the write lock while it waits for readers, and keep every writer out.
    with connection.impatient():
        while True:
            busy = connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
            if not busy:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_SECONDS)


def problems(connection: SqliteConnection) -> Iterator[str]:
    """What is wrong with a database, one sentence each; ids alone, never a text.

    Each look reads what it needs, so that no lock is held throughout.
    """
    for (sentence,) in connection.rows(f"PRAGMA integrity_check({SHOWN})"):
        if sentence != "ok":
            yield f"the database is damaged: {sentence}"
    for table, row, parent, _ in connection.rows("PRAGMA foreign_key_check")[:SHOWN]:
        yield f"row {row} of {table} belongs to nothing in {parent}"
    yield from _text_index(connection)
    yield from _vectors(connection)
    yield from _statuses(connection)
    yield from _contents(connection)


def _text_index(connection: SqliteConnection) -> Iterator[str]:
    try:
        # With rank 1 the index is compared with the texts that it should hold.
        connection.in_turn(
            "INSERT INTO facts_text (facts_text, rank) VALUES ('integrity-check', 1)"
        )
    except StoreDamaged:
        yield "the text index does not fit the texts"


def _vectors(connection: SqliteConnection) -> Iterator[str]:
    found = connection.one("SELECT value FROM own WHERE name = 'dimensions'")
    wanted = 0 if found is None else 4 * number(found[0], "dimensions")
    for id, length in connection.rows(
        "SELECT fact_id, length(vector) FROM facts LEFT JOIN vectors USING (fact) "
        "WHERE length(vector) IS NOT ? ORDER BY fact_id LIMIT ?",
        [wanted, SHOWN],
    ):
        if length is None:
            yield f"fact {id} has no vector"
        else:
            yield f"the vector of fact {id} has {length} bytes, wanted {wanted}"


def _statuses(connection: SqliteConnection) -> Iterator[str]:
    for id, word in connection.rows(
        f"SELECT fact_id, status FROM facts WHERE status NOT {AMONG} "  # noqa: S608
        "ORDER BY fact_id LIMIT ?",
        [among(list(STATUSES)), SHOWN],
    ):
        yield bogus_status(word, id)


def _contents(connection: SqliteConnection) -> Iterator[str]:
    after, wrong = 0, 0
    while wrong < SHOWN:
        # A text that is no UTF-8 cannot be had as a text.
        part = connection.rows(
            "SELECT fact, fact_id, CAST(content AS BLOB), content_hash FROM facts WHERE fact > ? "
            "ORDER BY fact LIMIT ?",
            [after, SLICE],
        )
        if not part:
            return
        after = part[-1][0]
        for _, id, content, stored in part:
            if sha256(content) != stored:
                wrong += 1
                yield f"the text of fact {id} does not match its content hash"
