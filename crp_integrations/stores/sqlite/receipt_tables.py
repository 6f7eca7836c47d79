"""The tables of receipts and of their log: the fifth step of the schema."""

from __future__ import annotations

from typing import Final

RECEIPTS: Final = (
    # What was signed: ids, numbers, closed words and salted hashes. `place` counts from 0.
    """CREATE TABLE receipts (
        place INTEGER PRIMARY KEY,
        receipt_id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL,
        window_id TEXT NOT NULL,
        payload BLOB NOT NULL,
        signature BLOB NOT NULL,
        key BLOB NOT NULL
    )""",
    "CREATE INDEX receipts_by_session ON receipts (session_id, place)",
    "CREATE INDEX receipts_by_window ON receipts (window_id)",
    # Roots of complete subtrees in the order in which they come about (`merkle.position`).
    """CREATE TABLE receipt_log (
        position INTEGER PRIMARY KEY,
        hash BLOB NOT NULL
    )""",
    *(
        f"""CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} BEGIN
            SELECT RAISE(ABORT, '{table} are never changed or removed');
        END"""
        for table in ("receipts", "receipt_log")
        for verb in ("UPDATE", "DELETE")
    ),
    # The texts, behind a page of zeros for the same reason as those of windows.
    """CREATE TABLE receipt_contents (
        place INTEGER PRIMARY KEY REFERENCES receipts (place),
        padding BLOB NOT NULL,
        texts TEXT NOT NULL
    )""",
    # Facts whose text is in a receipt.
    """CREATE TABLE receipt_facts (
        fact_id TEXT NOT NULL,
        place INTEGER NOT NULL REFERENCES receipt_contents (place) ON DELETE CASCADE,
        source_id TEXT NOT NULL,
        PRIMARY KEY (fact_id, place)
    ) WITHOUT ROWID""",
    "CREATE INDEX receipt_facts_by_source ON receipt_facts (source_id) WHERE source_id <> ''",
    "CREATE INDEX receipt_facts_by_place ON receipt_facts (place)",
)

PACKED_RECEIPTS: Final = (
    # What an erasure has not put into `receipt_facts` yet, as lists in JSON of equal length.
    """CREATE TABLE receipt_packed (
        place INTEGER PRIMARY KEY REFERENCES receipt_contents (place) ON DELETE CASCADE,
        facts TEXT NOT NULL,
        sources TEXT NOT NULL
    )""",
)
