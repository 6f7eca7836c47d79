"""One value has one encoding, and it is RFC 8785's; a content is written part by part."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import (
    LARGEST,
    b64,
    dumps,
    fields,
    hex_of,
    loads,
    unb64,
)
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.signed_statement import SUBJECTS
from tests.bench.receipt_packs import pack

keys = st.text(st.characters(codec="ascii"), max_size=6)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-LARGEST, LARGEST)
    | st.text(st.characters(codec="utf-8"))
)
values = st.dictionaries(
    keys,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    ),
)


@given(value=values)
def test_the_encoding_is_that_of_rfc_8785(value: Any) -> None:
    data = dumps(value)
    assert data == rfc8785.dumps(value)
    assert loads(data, "it") == value


@pytest.mark.parametrize(
    "value",
    [
        {"a": 0.5},
        {"a": [1, 2.0]},
        {"a": 1e300},
        {"a": LARGEST + 1},
        {"a": [-LARGEST - 1]},
        {"a": 10**40},
        {"a": "\ud800"},
        {"a": object()},
        {"\U0001f600": "\U0001f600"},
    ],
)
def test_what_is_not_signed_is_refused(value: Any) -> None:
    with pytest.raises(
        ValueError, match=r"not an integer|2\^53|not valid JSON|UTF-8|ASCII|not JSON"
    ):
        dumps(value)


@given(
    value=values, number=st.floats(allow_nan=False, allow_infinity=False), text=st.text("eE.,1:[x")
)
def test_a_float_is_refused_wherever_it_stands(value: Any, number: float, text: str) -> None:
    for told in ({"a": value, "b": number}, {"a": [text, value, number]}, {"a": [number, value]}):
        with pytest.raises(ValueError, match="not an integer"):
            dumps(told)
        with pytest.raises(ReceiptBroken):
            loads(json.dumps(told, separators=(",", ":"), sort_keys=True).encode(), "it")


def test_texts_that_look_like_floats_are_texts() -> None:
    value = {"a": 'it says ":1.5, and ,2e3 [12345678901234567890', "b": [1]}
    assert loads(dumps(value), "it") == value


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1}', "it, byte 5"),
        ('{"b":1,"a":1}', "it, byte 2"),
        ('{"a":1,"a":1}', "it, byte 6"),
        ('{"a":"\\u0041"}', "it, byte 6"),
        ('{"a":"\\/"}', "it, byte 6"),
        ('{"a":"\\u00E9"}', "it, byte 6"),
        ('{"a":01}', "it, byte 6"),
        ('{"a":-0}', "it, byte 5"),
        ('{"a":1.0}', "it"),
        ('{"a":1e2}', "it"),
        ('{"a":9007199254740992}', "it"),
        ('{"a":NaN}', "it"),
        ('{"a":1}\n', "it, byte 7"),
        ('{"a":1', "it, byte 6"),
        ('{"a":"\\ud800"}', "it, byte 6"),
        ('{"\U0001f600":1}', "it"),
        ("[" * 100_000, "it"),
    ],
)
def test_every_other_writing_is_refused_at_its_place(text: str, place: str) -> None:
    with pytest.raises(ReceiptBroken) as refused:
        loads(text.encode(), "it")
    assert refused.value.place == place


def test_bytes_that_are_no_utf_8_are_refused_at_their_place() -> None:
    with pytest.raises(ReceiptBroken, match="byte 6"):
        loads(b'{"a":"\xff"}', "it")


@given(data=st.binary(max_size=40))
def test_base64_has_one_writing(data: bytes) -> None:
    text = b64(data)
    assert unb64(text, "it") == data
    for other in {text.rstrip("="), text + "=", text + "\n", text.replace("A", "A ", 1)} - {text}:
        with pytest.raises(ReceiptBroken):
            unb64(other, "it")


@given(text=st.text("ABZaz019+/= \n-_\u00e9", max_size=13) | st.binary(max_size=9).map(b64))
def test_nothing_but_what_is_written_is_read_as_base64(text: str) -> None:
    try:
        data = base64.b64decode(text, validate=True)
        wanted = data if base64.b64encode(data).decode() == text else None
    except ValueError:
        wanted = None
    if wanted is None:
        with pytest.raises(ReceiptBroken):
            unb64(text, "it")
    else:
        assert unb64(text, "it") == wanted


def test_bits_behind_the_last_byte_are_refused() -> None:
    assert unb64("AA==", "it") == b"\0"
    with pytest.raises(ReceiptBroken, match="not the canonical base64"):
        unb64("AB==", "it")
    with pytest.raises(ReceiptBroken, match="has 1 bytes, wanted 2"):
        unb64("AA==", "it", 2)


def test_hashes_have_one_writing() -> None:
    good = "0f" * 32
    assert hex_of(good, "it") == bytes.fromhex(good)
    assert hex_of("0" * 64, "it") == bytes(32)
    for bad in (good.upper(), good[:-1], good + "0", "0x" + good[2:], "g" * 64, None, "٠" * 64):
        with pytest.raises(ReceiptBroken):
            hex_of(bad, "it")


def test_keys_are_exact() -> None:
    names = frozenset({"a", "b"})
    assert fields(json.loads('{"a":1,"b":2}'), names, "it") == {"a": 1, "b": 2}
    for text in ('{"a":1}', '{"a":1,"b":2,"c":3}', "[]", '"a"'):
        with pytest.raises(ReceiptBroken):
            fields(json.loads(text), names, "it")


@pytest.mark.parametrize("number", range(12))
def test_the_payload_is_what_rfc_8785_makes_of_it(number: int) -> None:
    receipt = pack(number)
    told = receipt.statement
    wanted = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicate": {
            "chain": told.chain.to_json(),
            "content": receipt.content,
            "digest": told.digest,
            "texts": {
                "leaves": [
                    {**one, "of": [*one["of"]], "parts": [*one["parts"]]} if "of" in one else one
                    for one in (leaf.to_json() for leaf in told.leaves)
                ],
                "root": told.root.hex(),
            },
        },
        "predicateType": "https://crp-integrations.dev/receipt/v1",
        "subject": [
            {"digest": {"sha256": told.subjects[name].hex()}, "name": name} for name in SUBJECTS
        ],
    }
    assert receipt.signed.payload == rfc8785.dumps(wanted)
    assert receipt == read(write(receipt))
