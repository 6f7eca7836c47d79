"""The weights of the default preset: age counts where it can decide, communities do not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from crp_integrations.envelope.rank import RankWeights, differ_in_age, rank_weights
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import NOON
from tests.envelope.builders import LITERAL, SETTINGS, candidates, fact, made

OLD = NOON - timedelta(days=400)


def parts(found: RankWeights) -> tuple[int, ...]:
    return found.relevance, found.importance, found.freshness, found.diversity


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


def test_the_literal_preset_weighs_age_and_communities_always() -> None:
    for dated in (False, True):
        found = rank_weights(LITERAL, GroundingMode.PREFERRED, temporal=False, dated=dated)
        assert parts(found) == (500_000, 250_000, 150_000, 100_000)


@pytest.mark.parametrize("mode", list(GroundingMode))
@pytest.mark.parametrize("temporal", [False, True])
def test_the_sum_of_the_weights_is_that_of_the_letter(mode: GroundingMode, temporal: bool) -> None:
    literal = sum(parts(rank_weights(LITERAL, mode, temporal=temporal)))
    for dated in (False, True):
        assert sum(parts(rank_weights(SETTINGS, mode, temporal=temporal, dated=dated))) == literal


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
