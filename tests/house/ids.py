"""The requirement ids that tests claim: `python -m tests.house.ids --write` notes those of now."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.requirements.marks import marks

STORED = Path(__file__).with_name("ids.json")
# Ids that no test claims any more, each with the reason.
GONE: Mapping[str, str] = {}


def claimed() -> dict[str, int]:
    """How many marks name each id."""
    return {id_: len(places) for id_, places in sorted(marks().items())}


def lost() -> list[str]:
    """Noted ids that no test claims, those with a reason left out."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    return sorted(set(stored) - set(claimed()) - set(GONE))


if __name__ == "__main__":
    if "--write" in sys.argv:
        STORED.write_text(json.dumps(claimed(), indent=0) + "\n", encoding="utf-8")
    print("\n".join(lost()) or f"{len(claimed())} ids are claimed, none is lost")
