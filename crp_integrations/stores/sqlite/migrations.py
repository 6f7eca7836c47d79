"""The tables, as numbered steps. A step that was released is never changed; add another one."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from dataclasses import dataclass

# "CRP1" in ASCII; marks a database as ours in the header of its file.
APPLICATION_ID = 0x43525031
# The statuses of `vocabulary.RETRIEVABLE`. An index on a condition is used only by queries that
# spell the condition in the same way, so every query takes it from here.
RETRIEVABLE_SQL = "status IN ('ACTIVE', 'STALE')"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a schema version to the next.

    Attributes:
        number: the version that the step leads to.
        statements: run in order within one transaction.
    """

    number: int
    name: str
    statements: tuple[str, ...]


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
            WHERE {RETRIEVABLE_SQL}""",
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
        f"""CREATE TRIGGER facts_text_added AFTER INSERT ON facts WHEN new.{RETRIEVABLE_SQL} BEGIN
            INSERT INTO facts_text (rowid, content) VALUES (new.fact, new.content);
        END""",
        f"""CREATE TRIGGER facts_text_changed AFTER UPDATE OF status, content ON facts BEGIN
            INSERT INTO facts_text (facts_text, rowid, content)
                SELECT 'delete', old.fact, old.content WHERE old.{RETRIEVABLE_SQL};
            INSERT INTO facts_text (rowid, content)
                SELECT new.fact, new.content WHERE new.{RETRIEVABLE_SQL};
        END""",
        f"""CREATE TRIGGER facts_text_removed AFTER DELETE ON facts WHEN old.{RETRIEVABLE_SQL} BEGIN
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

MIGRATIONS: tuple[Migration, ...] = (FIRST,)
VERSION = MIGRATIONS[-1].number
