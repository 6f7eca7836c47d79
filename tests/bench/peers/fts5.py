"""SQLite's FTS5 by itself, in memory: no facts beside it, no other condition than the words."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence


class RawFts5:
    """BM25 over stems, the same tokenizer as the store's."""

    name = f"SQLite FTS5 {sqlite3.sqlite_version}"

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self._ids = list(ids)
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            "CREATE VIRTUAL TABLE texts USING fts5 "
            "(content, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        self._connection.executemany(
            "INSERT INTO texts (rowid, content) VALUES (?, ?)", enumerate(texts)
        )
        self._connection.commit()

    def search(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Ids and BM25 scores of the k best that hold any of the terms."""
        quoted = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
        found = self._connection.execute(
            "SELECT rowid, rank FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?", [quoted, k]
        )
        return [(self._ids[row], -rank) for row, rank in found]

    def change(self, ids: Sequence[str], texts: Sequence[str], gone: Sequence[str]) -> None:
        """Take texts out and put others in."""
        leaving = set(gone)
        place = {id_: row for row, id_ in enumerate(self._ids) if id_ in leaving}
        self._connection.executemany(
            "DELETE FROM texts WHERE rowid = ?", ((place[id_],) for id_ in gone)
        )
        first = len(self._ids)
        self._ids.extend(ids)
        self._connection.executemany(
            "INSERT INTO texts (rowid, content) VALUES (?, ?)", enumerate(texts, start=first)
        )
        self._connection.commit()
