"""Envelopes, reports, answers and receipts have the bytes that they had."""

from __future__ import annotations

from tests.house import frozen


def test_what_is_frozen_has_the_same_bytes() -> None:
    changed = frozen.differing()
    assert changed == [], (
        "see one with: python -m tests.house.frozen --show KEY; "
        "where the change is meant: python -m tests.house.frozen --write"
    )
