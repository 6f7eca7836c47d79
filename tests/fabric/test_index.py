"""Laws of the exact search and of fact identity."""

from __future__ import annotations

import hashlib
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import EngineError, StoreError
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.vectors import unit_rows


def index(block: np.ndarray, labels: list[tuple[str, ...]] | None = None) -> VectorIndex:
    ids = [f"f{number:05d}" for number in range(len(block))]
    return VectorIndex.of(1, list(zip(ids, labels or [()] * len(ids), strict=True)), block)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(2, 40), st.integers(1, 60))
def test_search_finds_the_k_best_in_order(seed: int, rows: int, width: int, k: int) -> None:
    random = np.random.default_rng(seed)
    # Few distinct values, so that ties are common.
    block = unit_rows(random.integers(-1, 2, size=(rows, width)))
    vector = unit_rows(random.integers(-1, 2, size=(1, width)))[0]
    made = index(block)
    hits = made.nearest(vector, k, scan_rows=17)
    exact = np.einsum("ij,j->i", block, vector, dtype=np.float32)
    wanted = sorted(range(rows), key=lambda i: (-float(exact[i]), made.ids[i]))[:k]
    assert [hit.fact_id for hit in hits] == [made.ids[i] for i in wanted]
    assert [hit.score for hit in hits] == [float(exact[i]) for i in wanted]


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_a_score_does_not_depend_on_what_else_is_stored(seed: int) -> None:
    random = np.random.default_rng(seed)
    block = unit_rows(random.standard_normal((200, 384)))
    vector = unit_rows(random.standard_normal((1, 384)))[0]
    alone = {hit.fact_id: hit.score for hit in index(block[:50]).nearest(vector, 50)}
    among = {hit.fact_id: hit.score for hit in index(block).nearest(vector, 200)}
    assert all(among[name] == score for name, score in alone.items())


def test_labels_that_are_withheld_do_not_appear() -> None:
    random = np.random.default_rng(1)
    labels: list[tuple[str, ...]] = [("a",) if n % 3 else ("b",) for n in range(90)]
    made = index(unit_rows(random.standard_normal((90, 8))), labels)
    vector = unit_rows(random.standard_normal((1, 8)))[0]
    hits = made.nearest(vector, 90, allowed=[False, True])
    assert len(hits) == 30
    assert all(labels[int(hit.fact_id[1:])] == ("b",) for hit in hits)
    assert made.nearest(vector, 5, allowed=[False, False]) == []
    with pytest.raises(StoreError):
        made.rows([made.ids[1]], allowed=[False, True])


def test_a_vector_of_another_length_is_refused() -> None:
    made = index(unit_rows(np.eye(4)))
    with pytest.raises(EngineError, match=r"wanted \(4,\)"):
        made.nearest(np.ones(3, dtype=np.float32), 1)
    with pytest.raises(EngineError, match="finite"):
        made.nearest(np.array([np.nan, 0, 0, 0], dtype=np.float32), 1)


@pytest.mark.requirement("009-2-2")
@given(st.text(min_size=1, max_size=20), st.text(max_size=9), st.text(max_size=9))
def test_a_fact_id_is_a_uuid5_of_source_location_and_content(
    content: str, source: str, location: str
) -> None:
    fact = Fact(content=content, source_id=source, source_location=location)
    assert UUID(fact.fact_id).version == 5
    assert fact.fact_id == Fact(content=content, source_id=source, source_location=location).fact_id
    for other in (
        Fact(content=content + "x", source_id=source, source_location=location),
        Fact(content=content, source_id=source + "x", source_location=location),
        Fact(content=content, source_id=source, source_location=location + "x"),
    ):
        assert other.fact_id != fact.fact_id
    moved = fact.changed(content="quite another text", source_location="elsewhere")
    assert moved.fact_id == fact.fact_id


@pytest.mark.requirement("009-2-3")
@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_the_content_hash_reveals_any_change(content: str, other: str) -> None:
    fact = Fact(content=content)
    assert fact.content_hash == "sha256:" + hashlib.sha256(content.encode()).hexdigest()
    assert (fact.changed(content=other).content_hash == fact.content_hash) == (content == other)
    # A hash that is handed in is never believed.
    assert Fact(content=content, content_hash="sha256:0").content_hash == fact.content_hash
