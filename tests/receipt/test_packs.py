"""Random packs are packed again to the same bytes, here and in other processes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL, NOT_RUN, ReplayTools
from crp_integrations.receipt.verify import verify
from tests.bench.receipt_packs import Words, pack, replayed
from tests.bench.receipts import run
from tests.receipt.relayed import changed

NUMBERS = st.integers(min_value=0, max_value=2**32)


@settings(max_examples=150)
@given(NUMBERS)
def test_every_pack_replays_to_its_bytes(number: int) -> None:
    receipt = pack(number)
    assert replayed(write(receipt))["broken"] == []
    found = replay(read(write(receipt)), ReplayTools(counter=Words()))
    # Parts of facts have counts of their own, which are made in proportion first.
    assert found.part("counts").state == EQUAL
    assert found.part("examination").state == NOT_RUN


@settings(max_examples=40)
@given(NUMBERS, st.data())
def test_a_copy_without_some_facts_tells_the_same_order(number: int, data: st.DataObject) -> None:
    receipt = read(write(pack(number)))
    ids = [one["id"] for one in receipt.content["candidates"]]
    gone = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    copy = read(write(redact(receipt, facts=sorted(gone), quoting=False)))
    assert verify(write(copy)).ok
    found = replay(copy)
    shown = {ids[fact["at"]] for fact in receipt.content["envelope"]["facts"]}
    if receipt.content["candidates"] and gone & shown:
        assert found.part("context").state == NOT_RUN
    else:
        assert found.part("context").state == EQUAL
    selection = found.part("selection")
    if selection.state != EQUAL:
        # Two parts of facts in the same words are shown once.
        assert "depends on texts that are not in this copy" in selection.why
        assert "excerpt@1" in receipt.content["envelope"]["algorithms"]


@settings(max_examples=60)
@given(NUMBERS, st.data())
def test_a_candidate_of_another_size_is_never_overlooked(number: int, data: st.DataObject) -> None:
    receipt = read(write(pack(number)))
    shown = receipt.content["envelope"]["facts"]
    if not shown:
        return
    at = data.draw(st.sampled_from([fact["at"] for fact in shown]))

    def heavier(content: dict[str, object]) -> None:
        candidates = content["candidates"]
        assert isinstance(candidates, list)
        candidates[at]["tokens"] += 1_000_000
        # Of a text that is cut the passages have sizes of their own, the last of seven numbers.
        cut = candidates[at].get("passages", [])
        cut[6::7] = [tokens + 1_000_000 for tokens in cut[6::7]]

    assert not replay(changed(receipt, heavier)).same


@settings(max_examples=60)
@given(NUMBERS)
def test_what_is_built_is_what_the_schema_reads(number: int) -> None:
    content = pack(number).content
    read_back = Content.model_validate(content).model_dump(mode="json", by_alias=True)
    assert _without_defaults(content, read_back)


def _without_defaults(written: object, read_back: object) -> bool:
    """Whether everything that is written is read, and what is not written is a default."""
    if isinstance(written, dict) and isinstance(read_back, dict):
        return all(
            name in read_back and _without_defaults(value, read_back[name])
            for name, value in written.items()
        ) and all(not read_back[name] for name in read_back if name not in written)
    if isinstance(written, (list, tuple)) and isinstance(read_back, (list, tuple)):
        return len(written) == len(read_back) and all(
            _without_defaults(one, other) for one, other in zip(written, read_back, strict=True)
        )
    return written == read_back


def test_packs_replay_in_other_processes_with_other_hash_seeds() -> None:
    report = run(25, pythons=[sys.executable])
    assert report["met"]
    assert [one["equal"] for one in report["runs"]] == [25, 25, 25]
    assert {one["hash_seed"] for one in report["runs"]} == {"0", "1", "4294967295"}


def test_a_pack_that_does_not_replay_is_counted() -> None:
    def other(content: dict[str, object]) -> None:
        settings = content["settings"]
        assert isinstance(settings, dict)
        ordering = settings["envelope"]["ordering"]
        settings["envelope"]["ordering"] = "rank" if ordering == "reversed" else "reversed"

    def facts(number: int) -> int:
        return len(pack(number).content["envelope"]["facts"])

    number = next(n for n in range(200) if facts(n) > 3)
    good, bad = pack(number), changed(read(write(pack(number))), other)
    found = replayed(write(good) + write(bad))
    assert (found["receipts"], found["equal"]) == (2, 1)
    assert found["broken"][0].startswith("receipt 2: selection differs envelope.")


def test_an_interpreter_that_cannot_replay_is_an_error() -> None:
    with pytest.raises((RuntimeError, OSError)):
        run(1, pythons=["/bin/false"])


def test_equal_numbers_make_equal_receipts() -> None:
    assert write(pack(7)) == write(pack(7))
    one = pack(7)
    assert replace(one).receipt_id != pack(8).receipt_id
