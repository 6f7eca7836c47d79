"""The drop report: every candidate that was left out, with its reason."""

from __future__ import annotations

import copy
import pickle

import pytest
from pydantic import ValidationError

from crp_integrations.envelope.records import Drop, Envelope
from crp_integrations.vocabulary import DropReason
from tests.envelope.builders import candidates, fact, made


def report(count: int = 6) -> Envelope:
    facts = [fact(f"f{n}", n / 10, content=f"the secret number {n}") for n in range(count)]
    given = candidates(*facts, duplicates=[(0, 5)])
    return made(given, budget_tokens=70, k=2)


def plain(envelope: Envelope) -> tuple[Drop, ...]:
    return tuple(envelope.dropped)


def test_a_report_equals_the_tuple_of_its_records() -> None:
    envelope, again = report(), report()
    records = plain(envelope)
    assert len(records) == 4
    assert {one.reason for one in records} == {DropReason.K, DropReason.DUPLICATE}
    assert envelope.dropped == records
    assert envelope.dropped == again.dropped
    assert envelope == again
    assert hash(envelope) == hash(again)


def test_a_report_is_written_and_read_as_records() -> None:
    envelope = report()
    of_records = Envelope.model_validate({**dict(envelope), "dropped": plain(envelope)})
    assert envelope == of_records
    assert envelope.model_dump() == of_records.model_dump()
    assert envelope.model_dump_json() == of_records.model_dump_json()
    assert Envelope.model_validate_json(envelope.model_dump_json()) == envelope
    assert Envelope.model_validate(envelope.model_dump(mode="json")) == envelope
    assert envelope.changed(model="other").dropped == envelope.dropped
    schema = Envelope.model_json_schema()["properties"]["dropped"]
    assert schema == {"items": {"$ref": "#/$defs/Drop"}, "title": "Dropped", "type": "array"}


def test_a_report_of_something_else_is_refused() -> None:
    told = report().model_dump(mode="json")
    told["dropped"][0]["reason"] = "whim"
    with pytest.raises(ValidationError, match="reason"):
        Envelope.model_validate(told)


def test_a_copy_of_a_report_is_equal_and_holds_no_text() -> None:
    envelope = report()
    kept = pickle.dumps(envelope.dropped)
    assert b"secret" not in kept
    assert pickle.loads(kept) == envelope.dropped == copy.deepcopy(envelope.dropped)
    assert pickle.loads(pickle.dumps(envelope)) == envelope
