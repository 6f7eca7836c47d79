"""The tables of one namespace's database, as numbered steps.

A released step is never changed; a new one is added after it.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from typing import Final

from crp_integrations.stores.rules import ASIDE_SQL, RETRIEVABLE_SQL, TOUCHED_SQL

# "CRP1" in ASCII; marks a database as a CRP store in the header of its file.
APPLICATION_ID = 0x43525031
# A random name for a log entry, which no other history of the database has.
_TOKEN = "lower(hex(randomblob(8)))"


def _is_live(row: str) -> str:
    """Whether the old or new row of a trigger is retrievable."""
    return f"({row}.status IN ('ACTIVE', 'STALE') AND {row}.archived_at IS NULL)"


def _sealed(*tables: str) -> tuple[str, ...]:
    """Triggers that refuse changes and removals."""
    return tuple(
        f"""CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} BEGIN
            SELECT RAISE(ABORT, '{table} are never changed or removed');
        END"""
        for table in tables
        for verb in ("UPDATE", "DELETE")
    )


_FACTS: Final = (
    # Values of the whole namespace: its name, `generation`, `dimensions`, and `last_number`,
    # because a removed row's number is never reused.
    "CREATE TABLE own (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "INSERT INTO own VALUES ('generation', 0), ('last_number', 0)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE sources (
        source_id TEXT PRIMARY KEY, schema TEXT NOT NULL, title TEXT NOT NULL, uri TEXT NOT NULL,
        document_hash TEXT NOT NULL, kind TEXT NOT NULL, ingested_at TEXT NOT NULL,
        fact_count INTEGER NOT NULL, status TEXT NOT NULL, labels TEXT NOT NULL,
        metadata TEXT NOT NULL
    )""",
    # `expires_at` is derived from ttl and age, always with microseconds, so that the texts
    # sort as times.
    """CREATE TABLE facts (
        fact INTEGER PRIMARY KEY, fact_id TEXT NOT NULL UNIQUE, schema TEXT NOT NULL,
        content TEXT NOT NULL, content_hash TEXT NOT NULL, namespace TEXT NOT NULL,
        source_id TEXT NOT NULL, source_location TEXT NOT NULL, kind TEXT NOT NULL,
        importance_weight REAL NOT NULL, community_label TEXT, ingested_at TEXT, modified_at TEXT,
        access_count INTEGER NOT NULL, last_accessed_at TEXT, ttl TEXT, status TEXT NOT NULL,
        labels TEXT NOT NULL, valid_from TEXT, valid_to TEXT, supersedes TEXT,
        metadata TEXT NOT NULL, archived_at TEXT, expires_at TEXT
    )""",
    "CREATE INDEX facts_by_source ON facts (source_id, fact_id)",
    # One index for retrievable facts and one for the rest: SQLite would choose an index of all
    # statuses for queries that the first one answers in order and without reading a fact. It also
    # contains the columns of its own condition, or every row would be read to check them.
    f"""CREATE INDEX facts_retrievable
        ON facts (fact_id, status, content_hash, labels, archived_at) WHERE {RETRIEVABLE_SQL}""",
    f"CREATE INDEX facts_aside ON facts (status, archived_at, modified_at) WHERE {ASIDE_SQL}",
    "CREATE INDEX facts_expiring ON facts (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX facts_by_hash ON facts (content_hash)",
    """CREATE INDEX facts_by_community ON facts (community_label)
        WHERE community_label IS NOT NULL""",
    f"CREATE INDEX facts_unused ON facts ({TOUCHED_SQL}) WHERE {RETRIEVABLE_SQL}",
    # Separate from the facts, so that reading a text does not load pages of vectors.
    """CREATE TABLE vectors (
        fact INTEGER PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE, vector BLOB NOT NULL
    )""",
    """CREATE TABLE token_counts (
        fact INTEGER NOT NULL REFERENCES facts (fact) ON DELETE CASCADE, tokenizer TEXT NOT NULL,
        tokens INTEGER NOT NULL, PRIMARY KEY (fact, tokenizer)
    ) WITHOUT ROWID""",
    """CREATE TABLE edges (
        source_fact TEXT NOT NULL REFERENCES facts (fact_id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        target_fact TEXT NOT NULL REFERENCES facts (fact_id) ON DELETE CASCADE,
        weight REAL NOT NULL, PRIMARY KEY (source_fact, kind, target_fact)
    ) WITHOUT ROWID""",
    "CREATE INDEX edges_by_target ON edges (target_fact)",
    # By content hash: they are made before their facts and survive an ingestion that was killed.
    """CREATE TABLE prepared_vectors (
        prepared INTEGER PRIMARY KEY, embedder TEXT NOT NULL, content_hash TEXT NOT NULL,
        vector BLOB NOT NULL, UNIQUE (embedder, content_hash)
    )""",
    "CREATE INDEX prepared_by_hash ON prepared_vectors (content_hash)",
    # Counters and a time, removed with their fact.
    """CREATE TABLE fact_findings (
        fact INTEGER PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
        findings INTEGER NOT NULL, uses_before INTEGER NOT NULL
    )""",
    """CREATE TABLE fact_uses (
        fact INTEGER PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
        uses INTEGER NOT NULL, last_used_at TEXT NOT NULL
    )""",
)
# The text index contains only retrievable facts. It reads a view of them, so that FTS5's own
# integrity check can compare the two.
_TEXT_INDEX: Final = (
    f"CREATE VIEW texts AS SELECT fact, content FROM facts WHERE {RETRIEVABLE_SQL}",
    """CREATE VIRTUAL TABLE facts_text USING fts5 (
        content, content = 'texts', content_rowid = 'fact',
        tokenize = 'porter unicode61 remove_diacritics 2'
    )""",
    f"""CREATE TRIGGER facts_text_added AFTER INSERT ON facts WHEN {_is_live("new")} BEGIN
        INSERT INTO facts_text (rowid, content) VALUES (new.fact, new.content);
    END""",
    f"""CREATE TRIGGER facts_text_changed AFTER UPDATE OF status, archived_at, content ON facts
        WHEN old.content <> new.content OR {_is_live("old")} <> {_is_live("new")} BEGIN
        INSERT INTO facts_text (facts_text, rowid, content)
            SELECT 'delete', old.fact, old.content WHERE {_is_live("old")};
        INSERT INTO facts_text (rowid, content)
            SELECT new.fact, new.content WHERE {_is_live("new")};
    END""",
    f"""CREATE TRIGGER facts_text_removed AFTER DELETE ON facts WHEN {_is_live("old")} BEGIN
        INSERT INTO facts_text (facts_text, rowid, content)
            VALUES ('delete', old.fact, old.content);
    END""",
)
# Log of changed facts, in order. After a file was restored from a copy, a sequence number may occur
# again, but a token does not.
_CHANGES: Final = (
    """CREATE TABLE changes (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, fact_id TEXT NOT NULL, token TEXT NOT NULL
    )""",
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
)
_JOURNAL: Final = (
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY, schema TEXT NOT NULL, event_type TEXT NOT NULL,
        timestamp TEXT NOT NULL, session_id TEXT NOT NULL, window_id TEXT NOT NULL,
        data TEXT NOT NULL, hmac TEXT NOT NULL
    )""",
    # The windows of one fan-out share a number, so the id is part of the key.
    """CREATE TABLE seals (
        session_id TEXT NOT NULL, window_number INTEGER NOT NULL, schema TEXT NOT NULL,
        window_id TEXT NOT NULL, timestamp TEXT NOT NULL, response_hash TEXT NOT NULL,
        report_hash TEXT NOT NULL, parent_hmac TEXT NOT NULL, hmac TEXT NOT NULL,
        outcome TEXT NOT NULL, etag TEXT NOT NULL, risk_level TEXT NOT NULL,
        PRIMARY KEY (session_id, window_number, window_id)
    ) WITHOUT ROWID""",
    *_sealed("events", "seals"),
)
_SESSIONS: Final = (
    # Records as JSON with their schema tag: only ids, hashes, numbers and enum values. The other
    # columns are those that queries search by.
    """CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY, parent_session TEXT NOT NULL, modified_at TEXT NOT NULL,
        record TEXT NOT NULL
    )""",
    "CREATE INDEX sessions_by_parent ON sessions (parent_session) WHERE parent_session <> ''",
    "CREATE INDEX sessions_idle ON sessions (modified_at, session_id)",
    """CREATE TABLE windows (
        window INTEGER PRIMARY KEY, window_id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
        window_number INTEGER NOT NULL, continuation_id TEXT NOT NULL, closed_at TEXT NOT NULL,
        emptied INTEGER NOT NULL DEFAULT 0, record TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX windows_by_session ON windows (session_id, window_number, window_id)",
    """CREATE UNIQUE INDEX windows_continued ON windows (continuation_id)
        WHERE continuation_id <> ''""",
    # A window's content quotes facts and is removed with the first of them. SQLite keeps the start
    # of a row in a shared page, which leaves copies when its rows move, and the rest in pages of
    # the row's own, which it overwrites at removal. The padding is a page of zeros: no text is in
    # the shared part, so no copy is left, and the file need not be rewritten.
    """CREATE TABLE window_contents (
        window INTEGER PRIMARY KEY REFERENCES windows (window) ON DELETE CASCADE,
        padding BLOB NOT NULL, prior TEXT, report TEXT
    )""",
    # Keys of the facts and sources that a window's content names (`rows.keys_of`).
    """CREATE TABLE window_facts (
        window INTEGER PRIMARY KEY REFERENCES window_contents (window) ON DELETE CASCADE,
        keys BLOB NOT NULL
    )""",
    # Facts that were withdrawn while windows were running, which may still show them.
    """CREATE TABLE withdrawn_facts (
        fact_id TEXT PRIMARY KEY, withdrawn_at TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX withdrawn_by_moment ON withdrawn_facts (withdrawn_at)",
    # What judges spent in their last period; the session is empty for a tenant or a whole store.
    """CREATE TABLE judge_spending (
        session_id TEXT NOT NULL, judge TEXT NOT NULL, period TEXT NOT NULL,
        calls INTEGER NOT NULL, tokens INTEGER NOT NULL, usd REAL NOT NULL,
        PRIMARY KEY (session_id, judge)
    ) WITHOUT ROWID""",
)
_RECEIPTS: Final = (
    # The signed data: ids, numbers, enum values and salted hashes. `place` counts from 0.
    """CREATE TABLE receipts (
        place INTEGER PRIMARY KEY, receipt_id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL,
        window_id TEXT NOT NULL, payload BLOB NOT NULL, signature BLOB NOT NULL, key BLOB NOT NULL
    )""",
    "CREATE INDEX receipts_by_session ON receipts (session_id, place)",
    "CREATE INDEX receipts_by_window ON receipts (window_id)",
    # Roots of complete subtrees, in the order in which they are completed (`merkle.position`).
    "CREATE TABLE receipt_log (position INTEGER PRIMARY KEY, hash BLOB NOT NULL)",
    *_sealed("receipts", "receipt_log"),
    # The texts, after a page of zeros for the same reason as window contents.
    """CREATE TABLE receipt_contents (
        place INTEGER PRIMARY KEY REFERENCES receipts (place), padding BLOB NOT NULL,
        texts TEXT NOT NULL
    )""",
    # The facts whose text is in a receipt: for each its key and that of its source.
    """CREATE TABLE receipt_facts (
        place INTEGER PRIMARY KEY REFERENCES receipt_contents (place) ON DELETE CASCADE,
        keys BLOB NOT NULL
    )""",
)
STEPS: tuple[tuple[str, ...], ...] = (
    (*_FACTS, *_TEXT_INDEX, *_CHANGES, *_JOURNAL, *_SESSIONS, *_RECEIPTS),
)
