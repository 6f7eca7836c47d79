"""The table of facts' uses: the seventh step of the schema."""

from __future__ import annotations

from typing import Final

USES: Final = (
    # A number and a moment, which go with the row of their fact.
    """CREATE TABLE fact_uses (
        fact INTEGER PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
        uses INTEGER NOT NULL,
        last_used_at TEXT NOT NULL
    )""",
)
