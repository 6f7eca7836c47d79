"""The rows of the requirement tables."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
RESULTS = ROOT / ".pytest-requirements.json"
SUPPORTED = ROOT / "docs" / "evidence" / "supported.md"


@dataclass(frozen=True, slots=True)
class Row:
    """One demand: its id, where it stands, the part of the work that shows it, our wording."""

    id: str
    document: str
    section: str
    part: int
    short: str


@cache
def rows() -> dict[str, Row]:
    """Every demand by id, in the order of the documents."""
    found: dict[str, Row] = {}
    for path in sorted(FOLDER.glob("part*.csv")):
        with path.open(encoding="utf-8", newline="") as handle:
            for line in csv.DictReader(handle):
                if line["id"] in found:
                    raise ValueError(f"requirement {line['id']} stands twice in {path.name}")
                found[line["id"]] = Row(
                    line["id"],
                    line["document"],
                    line["section"],
                    int(line["part"]),
                    line["short"],
                )
    return found
