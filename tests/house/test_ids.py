"""Every requirement id that was claimed is claimed still."""

from __future__ import annotations

from tests.house import ids


def test_no_claimed_requirement_is_lost() -> None:
    assert ids.lost() == [], "a test must claim them, or ids.GONE say why they went"


def test_an_id_that_went_is_claimed_by_no_test() -> None:
    assert sorted(set(ids.GONE) & set(ids.claimed())) == []
    assert all(reason.strip() for reason in ids.GONE.values())
