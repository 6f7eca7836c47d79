"""Leaves as they are read, salted and put together, most of them many at once."""

from __future__ import annotations

import hmac
import json
from hashlib import shake_256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.leaves import (
    LeafEntry,
    as_json,
    composed,
    entries_of,
    salts,
    texts_as_json,
)

FACTS = [LeafEntry(f"fact/f{n}", bytes([n]) * 32, f"f{n}") for n in range(4)]
TEXT = LeafEntry("answer", b"a" * 32, of=(0, 1), follows=True, parts=("[1] ",))


def _told(*leaves: LeafEntry) -> list[dict[str, Any]]:
    # As JSON is read: lists in the place of tuples.
    found: list[dict[str, Any]] = json.loads(json.dumps([leaf.to_json() for leaf in leaves]))
    return found


@given(order=st.permutations([*FACTS, TEXT]))
def test_leaves_are_read_in_any_order(order: list[LeafEntry]) -> None:
    assert entries_of(_told(*order), "leaves") == tuple(order)


def test_parts_are_read_as_they_were_told() -> None:
    leaf = LeafEntry("context", b"c" * 32, parts=("[1] ", 0, "\n", (1, 0, 3)))
    plain = LeafEntry("shown", b"d" * 32, parts=("[1] ", 3, "\n"))
    wanted = (*FACTS, leaf, plain)
    assert entries_of(_told(*wanted), "leaves") == wanted


@pytest.mark.parametrize("number", [0, 2, 3])
@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"hash": "AB" * 32}, ".hash"),
        ({"hash": "ab" * 31 + "  "}, ".hash"),
        ({"hash": "ab" * 31}, ".hash"),
        ({"hash": "ab" * 33}, ".hash"),
        ({"hash": ["ab" * 32]}, ".hash"),
        ({"hash": None}, ".hash"),
        ({"fact": ""}, ".fact"),
        ({"fact": 7}, ".fact"),
        ({"fact": None}, ".fact"),
        ({"more": 1}, ""),
    ],
)
def test_an_odd_leaf_of_a_fact_is_named(number: int, changed: dict[str, Any], place: str) -> None:
    told = _told(*FACTS, TEXT)
    told[number] |= changed
    with pytest.raises(ReceiptBroken) as refused:
        entries_of(told, "leaves")
    assert refused.value.place == f"leaves[{number}]{place}"


@pytest.mark.parametrize("odd", [5, -1, True, None, 1.0, [0, 0], [0, 2, 1], [5, 0, 1]])
@pytest.mark.parametrize("name", ["of", "parts"])
def test_an_odd_number_of_a_leaf_is_named(name: str, odd: Any) -> None:
    told = _told(*FACTS, TEXT)
    told[4][name] = [0, odd]
    with pytest.raises(ReceiptBroken) as refused:
        entries_of(told, "leaves")
    assert refused.value.place.startswith(f"leaves[4].{name}")


@pytest.mark.parametrize("count", [0, 1, 57, 1_024, 1_025, 3_000])
def test_salts_are_drawn_from_the_secret_of_their_place(count: int) -> None:
    secret = hmac.digest(b"k" * 32, b"window", "sha256")
    found = salts(b"k" * 32, "window", count)
    assert b"".join(found) == shake_256(secret).digest(32 * count)
    assert {len(one) for one in found} <= {32}
    assert len(found) == len({*found}) == count


def test_a_text_of_whole_leaves_has_an_end() -> None:
    texts = ["ab", None, "c"]
    assert composed(["[1] ", 0, 2], texts.__getitem__) == "[1] abc"
    assert composed([0, 2], texts.__getitem__, 3) == "abc"
    assert composed([0, 2], texts.__getitem__, 2) is None
    assert composed([0, 1, 2], texts.__getitem__) is None
    assert composed([], texts.__getitem__) == ""


VALUES = st.lists(st.text(st.characters()), max_size=4) | st.dictionaries(
    st.text(st.characters(), max_size=3), st.text(st.characters()), max_size=4
)


@given(value=VALUES)
def test_texts_are_written_as_any_other_json(value: list[str] | dict[str, str]) -> None:
    assert texts_as_json(value) == as_json(value)
