"""What is given in the place of a receipt, its bytes, a key or a list is named, with the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.receipt.comparison import diff
from crp_integrations.receipt.ledger import Consistency, Inclusion, SignedHead
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.verify import verify
from crp_integrations.receipt.whatif import Supposition, whatif
from tests.receipt.relayed import asked

ONE = asked()
DATA = write(ONE)


@pytest.mark.parametrize("odd", ["answer.json", None, {}, DATA.decode()], ids=repr)
@pytest.mark.parametrize("verb", [read, verify])
def test_a_file_is_given_as_its_bytes(verb: Callable[[Any], object], odd: Any) -> None:
    with pytest.raises(RequestError, match=r"read from bytes, such as .*; got (str|NoneType|dict)"):
        verb(odd)


@pytest.mark.parametrize(
    "verb",
    [
        replay,
        write,
        lambda one: diff(ONE, one),
        lambda one: whatif(one, Supposition()),
        lambda one: redact(one, names=["answer"]),
        lambda one: verify(ONE, parents=[ONE, one]),
    ],
)
@pytest.mark.parametrize("odd", ["answer.json", None, DATA, Path("answer.json")], ids=type)
def test_a_receipt_is_given_as_one(verb: Callable[[Any], object], odd: Any) -> None:
    with pytest.raises(RequestError, match=rf"is of type {type(odd).__name__}; give a Receipt"):
        verb(odd)


@pytest.mark.parametrize("key", ["ab" * 32, ["ab" * 32], [b"k" * 32, None]], ids=repr)
def test_a_key_is_given_as_bytes(key: Any) -> None:
    with pytest.raises(RequestError, match=r"a key is of type (str|NoneType); give the 32 bytes"):
        verify(ONE, key=key)
    assert not verify(ONE, key=b"k" * 32).ok


def test_a_list_is_given_as_one() -> None:
    odd: Any = ONE
    with pytest.raises(RequestError, match="parents is one receipt, wanted a list"):
        verify(ONE, parents=odd)
    for name in ("facts", "sources", "names"):
        with pytest.raises(RequestError, match=rf"{name} is the text 'answer', wanted a list"):
            redact(ONE, **{name: "answer"})


def test_a_proof_without_a_head_is_not_passed_over() -> None:
    proof: Any = Inclusion(0, 1, ())
    with pytest.raises(RequestError, match="inclusion and head go together"):
        verify(ONE, inclusion=proof)
    with pytest.raises(RequestError, match="inclusion and head go together"):
        verify(ONE, head=proof)


@pytest.mark.parametrize(
    "kind", ["answer/1", "receipt-head/1", "receipt/2", "conversation\x1b[2J/1"], ids=ascii
)
@pytest.mark.parametrize("end", ["\n", "", "\n\n"], ids=["line", "none", "two"])
def test_a_file_of_another_kind_is_named_by_its_kind(kind: str, end: str) -> None:
    # As anything else writes JSON: with blanks, with numbers that are not whole.
    data = json.dumps({"schema": kind, "score": 0.5}, indent=2).encode() + end.encode()
    readers: tuple[tuple[Callable[[bytes], object], str, str], ...] = (
        (read, "schema", "receipt/1"),
        (Inclusion.read, "proof.schema", "receipt-proof/1"),
        (SignedHead.read, "head.schema", "receipt-head/1"),
        (Consistency.read, "proof.schema", "receipt-consistency/1"),
    )
    for reading, place, wanted in readers:
        if kind == wanted:
            continue
        with pytest.raises(ReceiptBroken) as caught:
            reading(data)
        assert caught.value.place == place
        assert caught.value.reason == f"is {kind!r}, wanted {wanted!r}"
        assert str(caught.value).isprintable()
    # One of the right kind is told by its place, as before.
    with pytest.raises(ReceiptBroken, match=r"file, byte \d+: does not end with a line feed"):
        read(DATA[:-1])
    assert isinstance(read(DATA), Receipt)
