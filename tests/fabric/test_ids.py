"""Many ids in little room are the tuple of them to whoever reads them."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.fabric.records import FactIds, IngestReport

IDS = st.uuids().map(str) | st.sampled_from(["", "é", "A" * 36, str(UUID(int=10)).upper()])


@given(st.lists(IDS, max_size=8), st.integers(-9, 9), st.integers(-9, 9))
def test_they_are_read_like_a_tuple(ids: list[str], start: int, end: int) -> None:
    packed, plain = FactIds(iter(ids)), tuple(ids)
    assert packed == plain
    assert plain == packed
    assert packed == FactIds(plain)
    assert packed != (*plain, "more")
    assert (len(packed), list(packed), hash(packed)) == (len(plain), ids, hash(plain))
    assert packed[start:end:2] == plain[start:end:2]
    assert (packed + ("b",), ("b",) + packed) == ((*plain, "b"), ("b", *plain))  # noqa: RUF005
    assert [id_ in packed for id_ in ids] == [True] * len(ids)
    assert copy.deepcopy(packed) == pickle.loads(pickle.dumps(packed)) == packed
    if -len(ids) <= start < len(ids):
        assert packed[start] == plain[start]
    else:
        with pytest.raises(IndexError):
            packed[start]


@given(st.lists(IDS, max_size=5))
def test_a_report_is_written_and_read_as_before(ids: list[str]) -> None:
    report = IngestReport(facts=FactIds(ids), state_hash="sha256:0")
    assert report.model_dump()["facts"] == tuple(ids)
    assert IngestReport.model_validate_json(report.model_dump_json()) == report
    assert IngestReport.model_validate({"facts": tuple(ids), "state_hash": "sha256:0"}) == report
    schema = IngestReport.model_json_schema()["properties"]["facts"]
    assert (schema["type"], schema["items"]) == ("array", {"type": "string"})


def test_an_id_takes_sixteen_bytes() -> None:
    count = 20_000
    tracemalloc.start()
    ids = FactIds(str(UUID(int=number)) for number in range(count))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(ids) == count
    # Whatever else the interpreter keeps meanwhile is far below a text of 36 characters each.
    assert held < 16 * count + 16_384
