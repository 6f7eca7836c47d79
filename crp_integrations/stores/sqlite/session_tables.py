"""The tables of sessions, and the seals as they are since then: the fourth step of the schema."""

from __future__ import annotations

_SEAL_COLUMNS = """
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
    risk_level TEXT NOT NULL"""

SEALS = (
    # Windows of one fan-out share a number, so the id belongs to the key. A key cannot be changed
    # in place. Dropping a table fires none of its triggers, and takes them with it.
    f"""CREATE TABLE seals_by_id ({_SEAL_COLUMNS},
        PRIMARY KEY (session_id, window_number, window_id)
    ) WITHOUT ROWID""",
    """INSERT INTO seals_by_id SELECT session_id, window_number, schema, window_id, timestamp,
        response_hash, report_hash, parent_hmac, hmac, outcome, etag, risk_level FROM seals""",
    "DROP TABLE seals",
    "ALTER TABLE seals_by_id RENAME TO seals",
    *(
        f"""CREATE TRIGGER seals_{verb.lower()} BEFORE {verb} ON seals BEGIN
            SELECT RAISE(ABORT, 'seals are never changed or removed');
        END"""
        for verb in ("UPDATE", "DELETE")
    ),
)

SESSIONS = (
    # Records as JSON that bears its schema: ids, hashes, numbers and words from closed lists.
    # Beside them stands what they are found by.
    """CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY,
        parent_session TEXT NOT NULL,
        modified_at TEXT NOT NULL,
        record TEXT NOT NULL
    )""",
    "CREATE INDEX sessions_by_parent ON sessions (parent_session) WHERE parent_session <> ''",
    "CREATE INDEX sessions_idle ON sessions (modified_at, session_id)",
    """CREATE TABLE windows (
        window INTEGER PRIMARY KEY,
        window_id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
        window_number INTEGER NOT NULL,
        continuation_id TEXT NOT NULL,
        closed_at TEXT NOT NULL,
        emptied INTEGER NOT NULL DEFAULT 0,
        record TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX windows_by_session ON windows (session_id, window_number, window_id)",
    """CREATE UNIQUE INDEX windows_continued ON windows (continuation_id)
        WHERE continuation_id <> ''""",
    # What a window said holds words of facts; with the first of them it goes. SQLite keeps the
    # beginning of a row in a page whose rows it moves about, leaving copies behind, and the rest in
    # pages of the row's own, which it overwrites when the row is removed. The padding is a page of
    # zeros: no text is in the beginning, so none is left, and the file need not be rewritten.
    """CREATE TABLE window_contents (
        window INTEGER PRIMARY KEY REFERENCES windows (window) ON DELETE CASCADE,
        padding BLOB NOT NULL,
        prior TEXT,
        report TEXT
    )""",
    *(
        statement
        for table, column in (("window_facts", "fact_id"), ("window_sources", "source_id"))
        for statement in (
            f"""CREATE TABLE {table} (
                window INTEGER NOT NULL REFERENCES window_contents (window) ON DELETE CASCADE,
                {column} TEXT NOT NULL,
                PRIMARY KEY (window, {column})
            ) WITHOUT ROWID""",
            f"CREATE INDEX {table}_by_id ON {table} ({column})",
        )
    ),
    # Facts that went while windows were under way, which may show them still.
    """CREATE TABLE withdrawn_facts (
        fact_id TEXT PRIMARY KEY,
        withdrawn_at TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX withdrawn_by_moment ON withdrawn_facts (withdrawn_at)",
)

PACKED_WINDOWS = (
    # What an erasure has not put into `window_facts` and `window_sources` yet, as lists in JSON.
    """CREATE TABLE window_packed (
        window INTEGER PRIMARY KEY REFERENCES window_contents (window) ON DELETE CASCADE,
        facts TEXT NOT NULL,
        sources TEXT NOT NULL
    )""",
)
