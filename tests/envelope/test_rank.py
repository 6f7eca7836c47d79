"""Phase 2: weights, scores, the sequential diversity bonus, deduplication.

The weights of the specification are those of the `literal` preset; under `default` age counts
where it can decide, and communities do not.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.envelope.candidates import Candidates, RankedFact
from crp_integrations.envelope.rank import (
    Ranking,
    RankWeights,
    differ_in_age,
    diversity,
    freshness,
    rank,
    rank_weights,
)
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import NOON
from tests.envelope.builders import LITERAL, SETTINGS, candidates, fact, made, originals

DAY = timedelta(days=1)
SHARE = to_fixed(0.40)


def ranking(
    given: Candidates,
    mode: GroundingMode = GroundingMode.PREFERRED,
    *,
    temporal: bool = False,
    using: EnvelopeSettings = LITERAL,
    now: datetime = NOON,
    max_age_seconds: int | None = None,
) -> Ranking:
    return rank(
        given,
        rank_weights(using, mode, temporal=temporal),
        share=to_fixed(using.diversity_share),
        now=now,
        max_age_seconds=max_age_seconds,
    )


def duplicates_of(result: Ranking) -> list[tuple[RankedFact, str]]:
    """Each near-duplicate with the id of the fact that stands for it."""
    every, gone = result.every, result.walk.all().items()
    return [(every[place], every[stand_in].candidate.fact_id) for place, stand_in in gone]


def composites(result: Ranking) -> dict[str, float]:
    return {item.candidate.fact_id: item.composite / SCALE for item in originals(result)}


@pytest.mark.requirement("003-6.2-1", "003-6.1-1")
def test_the_composite_is_the_weighted_sum() -> None:
    half_a_year = NOON - timedelta(days=182.5)
    result = ranking(
        candidates(
            fact("a", 0.8, 0.6, ingested_at=half_a_year),
            fact("b", 0.9, 0.6, ingested_at=half_a_year),
        )
    )
    # 0.8×0.5 + 0.6×0.25 + 0.5×0.15 + 1×0.1
    assert composites(result) == {"a": 0.725, "b": 0.775}
    assert originals(result)[0].candidate.fact_id == "b"


@pytest.mark.requirement("003-6.2-6")
@pytest.mark.parametrize(
    ("field", "score"),
    [
        ("relevance_weight", 0.2),
        ("importance_factor", 0.4),
        ("freshness_weight", 1.0),
        ("diversity_weight", 1.0),
    ],
)
def test_every_weight_is_a_setting(field: str, score: float) -> None:
    zero = dict.fromkeys(
        ("relevance_weight", "importance_factor", "freshness_weight", "diversity_weight"), 0.0
    )
    using = EnvelopeSettings(adaptive=False, **{**zero, field: 1.0})
    assert composites(ranking(candidates(fact("a", 0.2, 0.4)), using=using)) == {"a": score}


@pytest.mark.requirement("003-6.2-7", "003-3-5")
def test_the_composite_is_clamped_and_weights_stay_as_they_are() -> None:
    result = ranking(candidates(fact("a", 1.0, 1.0)), GroundingMode.STRICT)
    assert composites(result) == {"a": 1.0}
    result = ranking(candidates(fact("a", 1.0, 1.0)), GroundingMode.OPEN)
    assert composites(result) == {"a": 0.75}


def parts(weights: RankWeights) -> tuple[int, ...]:
    return weights.relevance, weights.importance, weights.freshness, weights.diversity


@pytest.mark.requirement("003-6.2-2", "003-6.2-3", "003-6.2-4", "003-6.2-5", "003-6.4-5", "003-6.4-9", "003-13.1-2", "003-13.1-4", "003-13.1-5", "003-13.1-7")  # fmt: skip
@pytest.mark.parametrize(
    ("mode", "temporal", "weights"),
    [
        (GroundingMode.PREFERRED, False, (500_000, 250_000, 150_000, 100_000)),
        (GroundingMode.STRICT, False, (500_000, 350_000, 150_000, 100_000)),
        (GroundingMode.OPEN, False, (350_000, 150_000, 150_000, 100_000)),
        (GroundingMode.PREFERRED, True, (400_000, 250_000, 250_000, 100_000)),
        # The mode comes before the temporal shift.
        (GroundingMode.OPEN, True, (250_000, 150_000, 250_000, 100_000)),
    ],
)
def test_mode_and_time_change_the_weights(
    mode: GroundingMode, temporal: bool, weights: tuple[int, ...]
) -> None:
    found = rank_weights(LITERAL, mode, temporal=temporal)
    assert parts(found) == weights
    assert found.horizon_days == (90 if temporal else 365)


@pytest.mark.requirement("003-6.4-1", "003-6.4-2", "003-6.4-3")
def test_freshness_falls_to_zero_at_the_horizon() -> None:
    def score(age: timedelta, horizon: int = LITERAL.freshness_horizon_days) -> int:
        return freshness(fact("a", ingested_at=NOON - age), NOON, horizon)

    assert score(timedelta(0)) == SCALE
    assert score(73 * DAY) == 800_000
    assert score(0.5 * DAY, 1) == 500_000
    assert score(365 * DAY) == 0
    assert score(364 * DAY) > 0
    assert score(4000 * DAY) == 0
    assert score(-30 * DAY) == SCALE


@pytest.mark.requirement("003-6.4-4")
def test_a_fact_older_than_the_horizon_stays_eligible() -> None:
    result = ranking(candidates(fact("old", 0.9, ingested_at=NOON - 4000 * DAY), fact("new", 0.1)))
    assert [item.candidate.fact_id for item in originals(result)] == ["old", "new"]
    assert originals(result)[0].freshness == 0


@pytest.mark.requirement("003-6.4-7")
def test_the_time_is_an_argument() -> None:
    given_facts = candidates(fact("a", ingested_at=NOON))
    later = ranking(given_facts, now=NOON + 365 * DAY)
    assert originals(later)[0].freshness == 0
    assert originals(ranking(given_facts))[0].freshness == SCALE
    source = inspect.getsource(inspect.getmodule(rank))  # type: ignore[arg-type]
    assert "now()" not in source and "import time" not in source


@pytest.mark.requirement("003-6.4-8")
def test_stale_facts_and_those_above_max_age_are_not_fresh() -> None:
    hour_old = NOON - timedelta(hours=1)
    assert freshness(fact("a", stale=True), NOON, 365) == 0
    assert freshness(fact("a", ingested_at=hour_old), NOON, 365, 3599) == 0
    assert freshness(fact("a", ingested_at=hour_old), NOON, 365, 3600) > 0
    result = ranking(candidates(fact("a", ingested_at=hour_old)), max_age_seconds=60)
    assert originals(result)[0].freshness == 0


@pytest.mark.requirement("003-6.5-1", "003-6.5-2", "003-6.5-3")
def test_the_diversity_bonus() -> None:
    assert diversity(0, 5, SHARE) == SCALE
    assert diversity(1, 5, SHARE) == 800_000
    assert diversity(2, 5, SHARE) == 600_000
    assert diversity(3, 5, SHARE) == 0
    assert diversity(41, 100, SHARE) == 0


@pytest.mark.requirement("003-6.5-4")
def test_picks_are_sequential_and_frozen() -> None:
    crowd = [fact(f"x{n}", 0.60 - n / 1000, 0.5, community="x") for n in range(5)]
    other = fact("y", 0.58, 0.5, community="y")
    result = ranking(candidates(*crowd, other))
    order = [item.candidate.fact_id for item in originals(result)]
    bonuses = {item.candidate.fact_id: item.diversity for item in originals(result)}
    # y is less relevant than three of x, but x has spent part of its bonus by then.
    assert order == ["x0", "y", "x1", "x2", "x3", "x4"]
    assert bonuses == {"x0": SCALE, "y": SCALE, "x1": 800_000, "x2": 600_000, "x3": 0, "x4": 0}


@pytest.mark.requirement("003-6.5-5", "003-6.7-1")
def test_ties_break_by_relevance_and_then_by_id() -> None:
    # Importance makes up for relevance: 0.5×0.2 = 0.25×0.4.
    facts = (fact("a", 0.4, 0.8), fact("b", 0.6, 0.4), fact("c", 0.6, 0.4))
    result = ranking(candidates(*facts))
    assert len({item.composite for item in originals(result)}) == 1
    ordered = sorted(facts, key=lambda item: item.fact_id)
    assert [ordered[place].fact_id for place in result.picks] == ["b", "c", "a"]
    # The list that is handed on breaks its ties by id alone.
    assert [item.candidate.fact_id for item in originals(result)] == ["a", "b", "c"]


@pytest.mark.requirement("003-6.5-6")
def test_a_fact_without_a_community_is_its_own() -> None:
    result = ranking(candidates(*(fact(f"f{n}", 0.5) for n in range(6))))
    assert {item.diversity for item in originals(result)} == {SCALE}
    # A community that happens to bear a fact's id is another one.
    result = ranking(candidates(fact("f", 0.5), fact("g", 0.5, community="f")))
    assert {item.diversity for item in originals(result)} == {SCALE}


@pytest.mark.requirement("003-6.6-2")
def test_of_near_duplicates_the_higher_composite_stays() -> None:
    facts = (fact("a", 0.5), fact("b", 0.9), fact("c", 0.4))
    result = ranking(candidates(*facts, duplicates=((0, 1),)))
    assert [item.candidate.fact_id for item in originals(result)] == ["b", "c"]
    assert [(item.candidate.fact_id, kept) for item, kept in duplicates_of(result)] == [("a", "b")]


def test_a_chain_of_near_duplicates_keeps_both_ends() -> None:
    facts = (fact("a", 0.9), fact("b", 0.8), fact("c", 0.7))
    result = ranking(candidates(*facts, duplicates=((0, 1), (1, 2))))
    # c resembles only b, which is not kept.
    assert [item.candidate.fact_id for item in originals(result)] == ["a", "c"]


@pytest.mark.requirement("003-6.7-1")
def test_output_descends_by_composite_with_ties_by_id() -> None:
    facts = [fact(f"f{n}", (n % 3) / 3, community=f"c{n % 2}") for n in range(12)]
    result = ranking(candidates(*facts, duplicates=((0, 3), (1, 4))))
    keys = [(-item.composite, item.candidate.fact_id) for item in originals(result)]
    assert keys == sorted(keys)
    assert len({key[1] for key in keys}) == len(keys) == 10


def literally(given: Candidates, using: EnvelopeSettings) -> list[tuple[str, int]]:
    """The specification's loops, written down naively and in exact integers."""
    force = rank_weights(using, GroundingMode.PREFERRED, temporal=False)
    left = list(given.facts)
    seen: list[Any] = []
    result = []
    while left:
        best = None
        for item in left:
            group = [other for other in given.facts if other.community == item.community]
            total = 1 if item.community is None else len(group)
            count = (
                0 if item.community is None else sum(o.community == item.community for o in seen)
            )
            bonus = 0 if count * SCALE > SHARE * total else diversity(count, total, SCALE)
            value = (
                force.relevance * item.relevance
                + force.importance * item.importance
                + force.freshness * freshness(item, NOON, force.horizon_days)
                + force.diversity * bonus
            )
            key = (-value, -item.relevance, item.fact_id)
            if best is None or key < best[0]:
                best = (key, item)
        assert best is not None
        left.remove(best[1])
        seen.append(best[1])
        result.append((best[1].fact_id, min(SCALE, (-best[0][0] + SCALE // 2) // SCALE)))
    return result


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 4), st.sampled_from([None, "x", "y", "z"])),
        max_size=16,
    )
)
def test_the_heap_picks_what_the_literal_loops_pick(rows: list[tuple[int, int, Any]]) -> None:
    facts = candidates(
        *(fact(f"f{n:02d}", r / 8, i / 4, community=c) for n, (r, i, c) in enumerate(rows))
    )
    result = ranking(facts)
    expected = literally(facts, LITERAL)
    assert [facts.facts[place].fact_id for place in result.picks] == [id for id, _ in expected]
    assert {i.candidate.fact_id: i.composite for i in originals(result)} == dict(expected)


OLD = NOON - timedelta(days=400)


@pytest.mark.parametrize(
    ("mode", "temporal", "dated", "expected"),
    [
        (GroundingMode.PREFERRED, False, False, (750_000, 250_000, 0, 0)),
        (GroundingMode.PREFERRED, False, True, (600_000, 250_000, 150_000, 0)),
        (GroundingMode.PREFERRED, True, False, (500_000, 250_000, 250_000, 0)),
        (GroundingMode.STRICT, False, False, (750_000, 350_000, 0, 0)),
        (GroundingMode.STRICT, True, True, (500_000, 350_000, 250_000, 0)),
        (GroundingMode.OPEN, False, False, (600_000, 150_000, 0, 0)),
        (GroundingMode.OPEN, True, False, (350_000, 150_000, 250_000, 0)),
    ],
)
def test_what_does_not_count_is_relevances(
    mode: GroundingMode, temporal: bool, dated: bool, expected: tuple[int, ...]
) -> None:
    assert parts(rank_weights(SETTINGS, mode, temporal=temporal, dated=dated)) == expected


def test_age_decides_between_stale_and_fresh_and_between_dates_that_contradict() -> None:
    old, new, third = fact("a", ingested_at=OLD), fact("b"), fact("c")
    assert not differ_in_age(candidates(old, new))
    assert differ_in_age(candidates(old, new, conflicts=((0, 1),)))
    # Both sides of the contradiction are of one date; the old fact is not in it.
    assert not differ_in_age(candidates(old, new, third, conflicts=((1, 2),)))
    assert differ_in_age(candidates(fact("a", stale=True), new))
    assert not differ_in_age(candidates())


def test_contradictions_are_looked_for_among_the_best_alone() -> None:
    crowd = [fact(f"f{n:02d}", 0.9 - n / 100) for n in range(24)]
    last = fact("z", 0.1, ingested_at=OLD)
    assert differ_in_age(candidates(*crowd[:19], last, conflicts=((18, 19),)))
    assert not differ_in_age(candidates(*crowd[:20], last, conflicts=((0, 20),)))
    # Best by what they are ranked by.
    risen = replace(last, score=SCALE)
    assert differ_in_age(candidates(*crowd[:20], risen, conflicts=((0, 20),)))


def test_an_old_fact_that_is_more_relevant_comes_first_unless_time_is_asked_for() -> None:
    old, new = fact("old", 0.80, ingested_at=OLD), fact("new", 0.72)

    def best(query: str, settings: EnvelopeSettings = SETTINGS, **fields: object) -> str:
        made_of = candidates(old, new, query=query, **fields)
        return made(made_of, k=1, settings=settings).facts[0].fact_id

    assert best("the rule") == "old"
    assert best("the latest rule") == "new"
    # The newer of two that contradict each other, whatever is asked.
    assert best("the rule", conflicts=((0, 1),)) == "new"
    assert best("the rule", LITERAL) == "new"


def test_a_crowd_of_one_community_is_not_pushed_back() -> None:
    crowd = [fact(f"x{n}", 0.60 - n / 1000, community="x") for n in range(5)]
    given = candidates(*crowd, fact("y", 0.58, community="y"))
    shown = sorted(made(given).facts, key=lambda one: (-one.composite_score, one.fact_id))
    assert [one.fact_id for one in shown] == ["x0", "x1", "x2", "x3", "x4", "y"]
    assert all(a.composite_score > b.composite_score for a, b in pairwise(shown))
    assert {one.community for one in made(given, k=2, settings=LITERAL).facts} == {"x", "y"}
