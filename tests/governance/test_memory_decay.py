"""Decay functions, and that they stand in the place of freshness."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.envelope.candidates import Candidate, Candidates
from crp_integrations.envelope.rank import RankWeights, differ_in_age, freshness, rank
from crp_integrations.fabric.lifecycle import CURVES, decay, known
from crp_integrations.governance.memory_writer import MemoryWriter
from crp_integrations.scores import SCALE
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite.store import SqliteStore
from tests.doubles import NOON, HashEmbedder
from tests.fabric.lifecycle_fixtures import fabric
from tests.governance.memories import ANNA, CONTEXT, bound, fields, item, writer

DAY = 86_400 * 1_000_000
WEIGHTS = RankWeights(relevance=0, importance=0, freshness=SCALE, diversity=0, horizon_days=365)


@given(
    st.sampled_from(sorted(CURVES)),
    st.integers(1, 4_000),
    st.lists(st.integers(0, 10**17), min_size=2, max_size=8),
)
def test_what_is_left_never_rises_and_stays_within_bounds(
    name: str, days: int, ages: list[int]
) -> None:
    found = [decay(f"{name}:P{days}D").at(age) for age in sorted(ages)]
    assert found == sorted(found, reverse=True)
    assert all(0 <= left <= SCALE for left in found)
    assert decay(f"{name}:P{days}D").at(-5) == SCALE


@given(st.integers(1, 3650), st.floats(0, 12))
def test_half_lives_are_powers_of_a_half(days: int, lives: float) -> None:
    age = int(days * DAY * lives)
    assert decay(f"half-life@1:P{days}D").at(age) == pytest.approx(SCALE * 0.5**lives, abs=80)


def test_the_named_points() -> None:
    def at(written: str, days: float) -> int:
        return decay(written).at(int(days * DAY))

    assert [at("half-life@1:P30D", d) for d in (0, 30, 60, 4_000)] == [SCALE, 500_000, 250_000, 0]
    assert [at("linear@1:P10D", d) for d in (0, 5, 10, 11)] == [SCALE, 500_000, 0, 0]
    assert [at("step@1:P2D", d) for d in (0, 1.99, 2)] == [SCALE, SCALE, 0]
    assert [at("plateau@1:P2D", d) for d in (2, 3, 4)] == [SCALE, 500_000, 0]


@pytest.mark.parametrize("written", ["", "half-life:P1D", "half-life@2:P1D", "linear@1:9", "x"])
def test_what_is_no_function_is_named(written: str) -> None:
    assert known(written) is None
    with pytest.raises(ValueError, match=r"half-life@1, linear@1, plateau@1, step@1"):
        decay(written)


def _candidate(id_: str, days: float, **more: Any) -> Candidate:
    when = NOON - timedelta(days=days)
    return Candidate(id_, "text", "s", 0, 0, 1, ingested_at=when, **more)


@pytest.mark.requirement("SUM-item-5")
def test_a_decay_function_stands_in_the_place_of_freshness() -> None:
    facts = (
        _candidate("a", 30),
        _candidate("b", 30, decay="half-life@1:P1D"),
        _candidate("c", 30, decay="plateau@1:P60D"),
        _candidate("d", 30, decay="plateau@1:P60D", stale=True),
    )
    ranking = rank(Candidates("q", ("q",), facts, "t"), WEIGHTS, share=SCALE, now=NOON)
    fresh = {one.candidate.fact_id: one.freshness for one in ranking.every}
    plain = freshness(facts[0], NOON, 365)
    assert fresh == {"a": plain, "b": 0, "c": SCALE, "d": 0}
    assert 0 < plain < SCALE
    # The ttl has run out for d, so that it is stale: nothing is left of it.
    assert [one.candidate.fact_id for one in ranking.every] == ["c", "a", "b", "d"]
    assert freshness(facts[2], NOON, 365, max_age_seconds=60) == 0
    for one, left in zip(facts, (plain, 0, SCALE, 0), strict=True):
        assert freshness(one, NOON, 365) == left


def test_where_something_fades_age_counts_in_the_default_weights_too() -> None:
    def ages(*facts: Candidate) -> bool:
        return differ_in_age(Candidates("q", ("q",), facts, "t"))

    assert not ages(_candidate("a", 1), _candidate("b", 2))
    assert ages(_candidate("a", 1), _candidate("b", 2, decay="step@1:P1D"))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_stored_memory_brings_its_function_to_selection(kind: str, tmp_path: Any) -> None:
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "kb")
    made = fabric(store)
    door = writer(made)
    door.write(item(fields(1, decay_fn="half-life@1:P3D")), CONTEXT)
    door.write(item(fields(2, content=str(fields()["content"]) + " Twice.")), CONTEXT)
    ids = [one.fact_id for one in door.items()]
    found = {one.fact_id: one.decay for one in bound(made).briefs(ids)}
    assert sorted(found.values(), key=str) == [None, "half-life@1:P3D"]


@pytest.mark.requirement("SUM-item-1", "SUM-item-5")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_memorys_age_counts_from_its_creation(kind: str, tmp_path: Any) -> None:
    """It does not count from the moment at which an old memory is stored."""
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "kb")
    with Relay.open(store, embedder=HashEmbedder(), clock=NOON, subject=ANNA) as relay:
        door = MemoryWriter(relay.fabric)
        born = (NOON - timedelta(days=3)).isoformat()
        for number, more in enumerate(
            ({"decay_fn": "half-life@1:P3D"}, {}, {"ttl": "P2D"}, {"ttl": "P4D"}), start=1
        ):
            text = f"Pump number {number} of hall four was replaced after the spring inspection."
            aged = fields(number, content=text, created_at=born, **more)
            door.write(item(aged), CONTEXT)
        facts = relay.preview("Which pump was replaced after the inspection in spring?").facts
        fresh = {fact.content[12]: fact.freshness_score for fact in facts}
        assert fresh["1"] == 0.5
        assert fresh["2"] == fresh["4"] == pytest.approx(1 - 3 / 365, abs=1e-4)
        assert fresh["3"] == 0.0
        # They were stored now, so that none counts as long unused.
        stored = relay.fabric.facts([fact.fact_id for fact in facts])
        assert {fact.ingested_at for fact in stored} == {NOON}
