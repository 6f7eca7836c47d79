"""Frozen receipts verify and replay.

`golden/make.py` says where the files are from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from crp_integrations.receipt.ledger import (
    Consistency,
    Inclusion,
    SignedHead,
    check_consistency,
)
from crp_integrations.receipt.merkle import root_of
from crp_integrations.receipt.predicate import OPTIONAL, Content
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.verify import verify
from tests.receipt.schemas import content_schema, published

GOLDEN = Path(__file__).parent / "golden" / "receipt-1"
DOCS = Path(__file__).parents[2] / "docs"
# SHA-256 of the public key that signed them.
KEYID = "4dcd9abdd37b8a1c81ba56f3f89ddb97537089a5bf7ddb03733ae2e97cf81330"
NAMES = ("first", "second", "redacted", "erased", "judged")


def file(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_frozen_receipt_verifies(name: str) -> None:
    found = verify(file(name))
    assert found.ok, (found.place, found.reason)
    assert found.keyid == KEYID
    assert write(read(file(name))) == file(name)


def test_frozen_copies_say_what_was_left_out() -> None:
    first, redacted, erased = (verify(file(name)) for name in ("first", "redacted", "erased"))
    assert first.receipt_id == redacted.receipt_id == erased.receipt_id
    assert (first.redacted, first.erased, first.facts_left_out) == (0, 0, 0)
    assert (redacted.erased, redacted.facts_left_out) == (0, 1)
    assert erased.facts_left_out == len(
        [leaf for leaf in read(file("first")).leaves if leaf.fact_id]
    )
    assert b"412" not in file("redacted")
    assert b"commissioned" not in file("erased")


@pytest.mark.parametrize("name", ["first", "second", "judged"])
def test_a_frozen_receipt_replays(name: str) -> None:
    found = replay(read(file(name)))
    assert [(one.name, one.place) for one in found.parts if one.state == "differs"] == []
    assert found.same
    assert found.whole


def test_frozen_receipts_are_a_chain_in_a_log() -> None:
    first, second = read(file("first")), read(file("second"))
    head, proof = SignedHead.read(file("head")), Inclusion.read(file("proof"))
    found = verify(file("second"), key=first.key, parents=[first], inclusion=proof, head=head)
    assert found.ok
    assert all(step.ok for step in found.steps)
    hashes = [first.log_hash, second.log_hash]
    before = head.head.__class__(
        head.head.log, 1, root_of(1, lambda _, place: hashes[place]), head.head.timestamp
    )
    check_consistency(Consistency.read(file("consistency")), before, head.head)


def test_the_published_schema_names_the_fields_of_the_content() -> None:
    page = (DOCS / "reference" / "receipt.md").read_text(encoding="utf-8")
    listed = re.search(r"<!-- content: begin -->(.*?)<!-- content: end -->", page, re.DOTALL)
    assert listed is not None
    names = [field.alias or name for name, field in Content.model_fields.items()]
    assert re.findall(r"`(\w+)`", listed[1]) == names
    assert list(read(file("first")).content) == sorted({*names} - OPTIONAL)


def test_the_schema_is_published_and_reads_what_is_signed() -> None:
    name = "receipt-content.schema.json"
    assert (DOCS / "schemas" / name).read_text(encoding="utf-8") == published(name)
    checker = pytest.importorskip("jsonschema").Draft202012Validator(content_schema())
    for name in NAMES:
        # As JSON, since what was read is frozen.
        content = json.loads(read(file(name)).signed.payload)["predicate"]["content"]
        assert list(checker.iter_errors(content)) == []
        assert list(checker.iter_errors({**content, "schema": "receipt-content/2"}))
        del content["seal"]
        assert list(checker.iter_errors(content))
