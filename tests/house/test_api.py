"""The public names, signatures, commands and options are those that are written down."""

from __future__ import annotations

import json

from tests.house import api


def test_the_public_names_are_those_that_are_written_down() -> None:
    stored = json.loads(api.STORED.read_text(encoding="utf-8"))
    assert api.differences(stored, api.surface()) == [], (
        "where meant: python -m tests.house.api --write"
    )
