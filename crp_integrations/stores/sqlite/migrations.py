"""The tables, as numbered steps. A step that was released is never changed; add another one."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from crp_integrations.fabric.records import Fact
from crp_integrations.stores.sqlite.faulted_table import FAULTED
from crp_integrations.stores.sqlite.moments import sortable
from crp_integrations.stores.sqlite.receipt_tables import PACKED_RECEIPTS, RECEIPTS
from crp_integrations.stores.sqlite.session_tables import PACKED_WINDOWS, SEALS, SESSIONS
from crp_integrations.stores.sqlite.uses_table import USES

# "CRP1" in ASCII; marks a database as ours in the header of its file.
APPLICATION_ID = 0x43525031
# What `Fact.retrievable` says. An index on a condition is used only by queries that spell the
# condition in the same way, so every query takes it from here.
RETRIEVABLE_SQL = "status IN ('ACTIVE', 'STALE') AND archived_at IS NULL"
# When a fact was last in use, as far as its own row says; without the Z, moments with and without
# microseconds sort as times.
TOUCHED_SQL = (
    "max(rtrim(coalesce(ingested_at, ''), 'Z'), rtrim(coalesce(last_accessed_at, ''), 'Z'))"
)
# Every other fact.
ASIDE_SQL = f"NOT ({RETRIEVABLE_SQL})"
# What was retrievable in the first version, which knew no archive.
_FIRST_LIVE = "status IN ('ACTIVE', 'STALE')"
# A name for one entry of the log that no other history has.
_TOKEN = "lower(hex(randomblob(8)))"


class Statements(Protocol):
    """What a step in Python may do within the transaction that is open."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        ...


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a schema version to the next.

    Attributes:
        number: the version that the step leads to.
        statements: run in order within one transaction.
        afterwards: what SQL alone cannot do, in the same transaction; None for nothing.
    """

    number: int
    name: str
    statements: tuple[str, ...]
    afterwards: Callable[[Statements], None] | None = None


FIRST = Migration(
    number=1,
    name="facts, journal and seals",
    statements=(
        # Values of the namespace as a whole: its name, `generation`, `dimensions`.
        "CREATE TABLE own (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        "INSERT INTO own VALUES ('generation', 0)",
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE sources (
            source_id TEXT PRIMARY KEY,
            schema TEXT NOT NULL,
            title TEXT NOT NULL,
            uri TEXT NOT NULL,
            document_hash TEXT NOT NULL,
            kind TEXT NOT NULL,
            ingested_at TEXT NOT NULL,
            fact_count INTEGER NOT NULL,
            status TEXT NOT NULL,
            labels TEXT NOT NULL,
            metadata TEXT NOT NULL
        )""",
        """CREATE TABLE facts (
            fact INTEGER PRIMARY KEY,
            fact_id TEXT NOT NULL UNIQUE,
            schema TEXT NOT NULL,
            content TEXT NOT NULL,
            content_hash TEXT NOT NULL,
            namespace TEXT NOT NULL,
            source_id TEXT NOT NULL,
            source_location TEXT NOT NULL,
            kind TEXT NOT NULL,
            importance_weight REAL NOT NULL,
            community_label TEXT,
            ingested_at TEXT,
            modified_at TEXT,
            access_count INTEGER NOT NULL,
            last_accessed_at TEXT,
            ttl TEXT,
            status TEXT NOT NULL,
            labels TEXT NOT NULL,
            valid_from TEXT,
            valid_to TEXT,
            supersedes TEXT,
            metadata TEXT NOT NULL
        )""",
        "CREATE INDEX facts_by_source ON facts (source_id, fact_id)",
        f"""CREATE INDEX facts_retrievable ON facts (fact_id, status, content_hash, labels)
            WHERE {_FIRST_LIVE}""",
        # Apart from the facts, so that reading a text does not page through numbers.
        """CREATE TABLE vectors (
            fact INTEGER PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
            vector BLOB NOT NULL
        )""",
        # Holds the retrievable facts alone; the triggers below keep it so.
        """CREATE VIRTUAL TABLE facts_text USING fts5 (
            content, content = 'facts', content_rowid = 'fact',
            tokenize = 'porter unicode61 remove_diacritics 2'
        )""",
        f"""CREATE TRIGGER facts_text_added AFTER INSERT ON facts WHEN new.{_FIRST_LIVE} BEGIN
            INSERT INTO facts_text (rowid, content) VALUES (new.fact, new.content);
        END""",
        f"""CREATE TRIGGER facts_text_changed AFTER UPDATE OF status, content ON facts BEGIN
            INSERT INTO facts_text (facts_text, rowid, content)
                SELECT 'delete', old.fact, old.content WHERE old.{_FIRST_LIVE};
            INSERT INTO facts_text (rowid, content)
                SELECT new.fact, new.content WHERE new.{_FIRST_LIVE};
        END""",
        f"""CREATE TRIGGER facts_text_removed AFTER DELETE ON facts WHEN old.{_FIRST_LIVE} BEGIN
            INSERT INTO facts_text (facts_text, rowid, content)
                VALUES ('delete', old.fact, old.content);
        END""",
        """CREATE TABLE token_counts (
            fact INTEGER NOT NULL REFERENCES facts (fact) ON DELETE CASCADE,
            tokenizer TEXT NOT NULL,
            tokens INTEGER NOT NULL,
            PRIMARY KEY (fact, tokenizer)
        ) WITHOUT ROWID""",
        """CREATE TABLE edges (
            source_fact TEXT NOT NULL REFERENCES facts (fact_id) ON DELETE CASCADE,
            kind TEXT NOT NULL,
            target_fact TEXT NOT NULL REFERENCES facts (fact_id) ON DELETE CASCADE,
            weight REAL NOT NULL,
            PRIMARY KEY (source_fact, kind, target_fact)
        ) WITHOUT ROWID""",
        "CREATE INDEX edges_by_target ON edges (target_fact)",
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            schema TEXT NOT NULL,
            event_type TEXT NOT NULL,
            timestamp TEXT NOT NULL,
            session_id TEXT NOT NULL,
            window_id TEXT NOT NULL,
            data TEXT NOT NULL,
            hmac TEXT NOT NULL
        )""",
        """CREATE TABLE seals (
            session_id TEXT NOT NULL,
            window_number INTEGER NOT NULL,
            schema TEXT NOT NULL,
            window_id TEXT NOT NULL,
            timestamp TEXT NOT NULL,
            response_hash TEXT NOT NULL,
            report_hash TEXT NOT NULL,
            parent_hmac TEXT NOT NULL,
            hmac TEXT NOT NULL,
            outcome TEXT NOT NULL,
            etag TEXT NOT NULL,
            risk_level TEXT NOT NULL,
            PRIMARY KEY (session_id, window_number)
        ) WITHOUT ROWID""",
        *(
            f"""CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} BEGIN
                SELECT RAISE(ABORT, '{table} are never changed or removed');
            END"""
            for table in ("events", "seals")
            for verb in ("UPDATE", "DELETE")
        ),
    ),
)


def _live(row: str) -> str:
    """Whether the old or new row of a trigger is retrievable."""
    return f"({row}.status IN ('ACTIVE', 'STALE') AND {row}.archived_at IS NULL)"


def _fill_expiry(connection: Statements) -> None:
    """Work out when the facts that have a ttl expire.

    The first version took any text as a ttl; one that is no duration never did anything, and
    would now keep its fact from being read.
    """
    found = connection.rows("SELECT fact, ttl, ingested_at FROM facts WHERE ttl IS NOT NULL")
    good, bad = [], []
    for number, ttl, ingested_at in found:
        try:
            expires = Fact(content="-", ttl=ttl, ingested_at=ingested_at).expires_at
        except ValidationError:
            bad.append((number,))
        else:
            good.append((sortable(expires), number))
    connection.executemany("UPDATE facts SET expires_at = ? WHERE fact = ?", good)
    connection.executemany("UPDATE facts SET ttl = NULL WHERE fact = ?", bad)


SECOND = Migration(
    number=2,
    name="lifecycle, log of changes, prepared vectors",
    statements=(
        "ALTER TABLE facts ADD COLUMN archived_at TEXT",
        # Derived from ttl and ingested_at; always with microseconds, so that texts sort as times.
        "ALTER TABLE facts ADD COLUMN expires_at TEXT",
        "CREATE INDEX facts_expiring ON facts (expires_at) WHERE expires_at IS NOT NULL",
        "DROP INDEX facts_retrievable",
        # Also what its own condition asks for is in it, or every row would be read for that.
        f"""CREATE INDEX facts_retrievable
            ON facts (fact_id, status, content_hash, labels, archived_at)
            WHERE {RETRIEVABLE_SQL}""",
        # One index for what is retrievable and one for the rest: an index of all statuses would be
        # chosen for queries that the first one answers in order and without reading a fact.
        f"""CREATE INDEX facts_aside ON facts (status, archived_at, modified_at)
            WHERE {ASIDE_SQL}""",
        "CREATE INDEX facts_by_hash ON facts (content_hash)",
        """CREATE INDEX facts_by_community ON facts (community_label)
            WHERE community_label IS NOT NULL""",
        # A row's number is never given to another one, also when the last row is removed.
        "INSERT INTO own SELECT 'last_number', coalesce(max(fact), 0) FROM facts",
        # The text index reads a view of what it holds, so that its own check can compare the two.
        *(f"DROP TRIGGER facts_text_{what}" for what in ("added", "changed", "removed")),
        "DROP TABLE facts_text",
        f"CREATE VIEW texts AS SELECT fact, content FROM facts WHERE {RETRIEVABLE_SQL}",
        """CREATE VIRTUAL TABLE facts_text USING fts5 (
            content, content = 'texts', content_rowid = 'fact',
            tokenize = 'porter unicode61 remove_diacritics 2'
        )""",
        "INSERT INTO facts_text (facts_text) VALUES ('rebuild')",
        f"""CREATE TRIGGER facts_text_added AFTER INSERT ON facts WHEN {_live("new")} BEGIN
            INSERT INTO facts_text (rowid, content) VALUES (new.fact, new.content);
        END""",
        f"""CREATE TRIGGER facts_text_changed AFTER UPDATE OF status, archived_at, content ON facts
            WHEN old.content <> new.content OR {_live("old")} <> {_live("new")} BEGIN
            INSERT INTO facts_text (facts_text, rowid, content)
                SELECT 'delete', old.fact, old.content WHERE {_live("old")};
            INSERT INTO facts_text (rowid, content)
                SELECT new.fact, new.content WHERE {_live("new")};
        END""",
        f"""CREATE TRIGGER facts_text_removed AFTER DELETE ON facts WHEN {_live("old")} BEGIN
            INSERT INTO facts_text (facts_text, rowid, content)
                VALUES ('delete', old.fact, old.content);
        END""",
        # Which facts changed, in order. A sequence comes again after a file was put back from a
        # copy, and a token does not.
        """CREATE TABLE changes (
            sequence INTEGER PRIMARY KEY AUTOINCREMENT,
            fact_id TEXT NOT NULL,
            token TEXT NOT NULL
        )""",
        # The log does not lead back to before it was there: its first entry has number 2.
        f"""INSERT INTO changes (sequence, fact_id, token)
            SELECT 2, fact_id, {_TOKEN} FROM facts ORDER BY fact_id LIMIT 1""",
        f"""CREATE TRIGGER changes_added AFTER INSERT ON facts BEGIN
            INSERT INTO changes (fact_id, token) VALUES (new.fact_id, {_TOKEN});
        END""",
        f"""CREATE TRIGGER changes_changed
            AFTER UPDATE OF content, status, archived_at, labels, community_label ON facts
            WHEN old.content <> new.content OR old.status <> new.status
                OR old.archived_at IS NOT new.archived_at OR old.labels <> new.labels
                OR old.community_label IS NOT new.community_label BEGIN
            INSERT INTO changes (fact_id, token) VALUES (new.fact_id, {_TOKEN});
        END""",
        f"""CREATE TRIGGER changes_vector AFTER UPDATE OF vector ON vectors
            WHEN old.vector <> new.vector BEGIN
            INSERT INTO changes (fact_id, token)
                SELECT fact_id, {_TOKEN} FROM facts WHERE fact = new.fact;
        END""",
        f"""CREATE TRIGGER changes_removed AFTER DELETE ON facts BEGIN
            INSERT INTO changes (fact_id, token) VALUES (old.fact_id, {_TOKEN});
        END""",
        # By text, since they are made before the facts are, and outlive a killed ingestion.
        """CREATE TABLE prepared_vectors (
            prepared INTEGER PRIMARY KEY,
            embedder TEXT NOT NULL,
            content_hash TEXT NOT NULL,
            vector BLOB NOT NULL,
            UNIQUE (embedder, content_hash)
        )""",
        "CREATE INDEX prepared_by_hash ON prepared_vectors (content_hash)",
    ),
    afterwards=_fill_expiry,
)

THIRD = Migration(
    number=3,
    name="facts out of use",
    statements=(
        # Maintenance asks for them whenever a store is opened, and would read every fact.
        f"CREATE INDEX facts_unused ON facts ({TOUCHED_SQL}) WHERE {RETRIEVABLE_SQL}",
    ),
)

FOURTH = Migration(
    number=4, name="sessions, seals by window", statements=(*SEALS, *SESSIONS, *FAULTED)
)

FIFTH = Migration(number=5, name="receipts and their log", statements=RECEIPTS)

SIXTH = Migration(
    number=6, name="what windows name, packed", statements=(*PACKED_WINDOWS, *PACKED_RECEIPTS)
)

SEVENTH = Migration(number=7, name="uses of facts", statements=USES)

MIGRATIONS: tuple[Migration, ...] = (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH)
VERSION = MIGRATIONS[-1].number
