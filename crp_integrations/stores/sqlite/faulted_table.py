"""The table of findings against facts: a part of the fourth step of the schema."""

from __future__ import annotations

from typing import Final

FAULTED: Final = (
    # Numbers alone, which go with the row of their fact.
    """CREATE TABLE fact_findings (
        fact INTEGER PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
        findings INTEGER NOT NULL,
        uses_before INTEGER NOT NULL
    )""",
)
