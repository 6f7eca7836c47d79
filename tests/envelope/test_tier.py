"""The quality tier: score, saturation ceilings, overrides."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.envelope.candidates import Candidates, RankedFact
from crp_integrations.envelope.pack import PackResult
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.envelope.tier import TierResult, classify_tier
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import GroundingMode, QualityTier
from tests.doubles import NOON
from tests.envelope.builders import LITERAL, SETTINGS, candidates, fact, ranked


def quality(
    packed: list[RankedFact],
    *,
    over_budget: list[RankedFact] | None = None,
    over_k: list[RankedFact] | None = None,
    top: RankedFact | None = None,
    saturation: Fraction = Fraction(1),
    grounding: GroundingMode = GroundingMode.PREFERRED,
    temporal: bool = False,
    settings: EnvelopeSettings = SETTINGS,
    given: Candidates | None = None,
) -> TierResult:
    budget, cap = over_budget or [], over_k or []
    everything = [*packed, *budget, *cap]
    first = [top] if top else everything[:1]
    return classify_tier(
        given or candidates(*(item.candidate for item in everything)),
        Ranking(tuple(first), (), ()),
        PackResult(tuple(packed), tuple(budget), tuple(cap)),
        saturation=saturation,
        grounding=grounding,
        temporal=temporal,
        now=NOON,
        settings=settings,
    )


def facts(count: int, relevance: float = 1.0, *, start: int = 0, **fields: Any) -> list[RankedFact]:
    return [
        ranked(f"f{n:03d}", 0.5, relevance=relevance, **fields) for n in range(start, start + count)
    ]


@pytest.mark.requirement("003-2-2")
def test_tiers_are_five() -> None:
    assert [tier.value for tier in QualityTier] == ["S", "A", "B", "C", "D"]


@pytest.mark.requirement("003-8.1-1")
def test_literal_coverage_divides_by_every_candidate() -> None:
    found = quality(facts(3), over_budget=facts(7, 0.1, start=3), settings=LITERAL)
    assert found.coverage == Fraction(3, 10)


@pytest.mark.requirement("003-8.1-2")
def test_default_coverage_divides_by_relevant_candidates() -> None:
    found = quality(
        facts(3, 0.50), over_budget=[*facts(1, 0.50, start=3), *facts(6, 0.49, start=4)]
    )
    assert found.coverage == Fraction(3, 4)
    # What is included without being relevant does not make up for it.
    found = quality([*facts(1), *facts(5, 0.1, start=1)], over_budget=facts(3, start=6))
    assert found.coverage == Fraction(1, 4)


def test_nothing_relevant_is_deficient_and_says_so() -> None:
    found = quality(facts(3, 0.49))
    assert (found.coverage, found.tier.value) == (Fraction(0), "D")
    assert [cap.reason for cap in found.caps] == ["no candidate is relevant enough to count"]


def test_the_embedders_floor_goes_before_the_setting() -> None:
    packed, rejected = facts(1, 0.4), facts(1, 0.4, start=1)
    everything = (*packed, *rejected)
    given_facts = candidates(*(item.candidate for item in everything), relevant_floor=300_000)
    assert quality(packed, over_budget=rejected, given=given_facts).coverage == Fraction(1, 2)
    assert quality(packed, over_budget=rejected).coverage == 0


def test_facts_cut_by_k_do_not_count_as_available() -> None:
    for settings in (SETTINGS, LITERAL):
        assert quality(facts(2), over_k=facts(8, start=2), settings=settings).coverage == 1


@pytest.mark.requirement("003-8.1-3", "003-8.1-4")
def test_the_score_is_the_weighted_sum() -> None:
    packed = [*facts(1, 0.9), *facts(1, 0.6, start=1)]
    found = quality(packed, over_budget=facts(2, 0.9, start=2), saturation=Fraction(8, 10))
    assert found.relevance_mean == Fraction(3, 4)
    assert found.score == Fraction(35, 100) * Fraction(1, 2) + Fraction(30, 100) * Fraction(
        8, 10
    ) + Fraction(35, 100) * Fraction(3, 4)


@pytest.mark.requirement("003-8.1-5")
def test_an_empty_envelope_is_deficient() -> None:
    assert quality([], over_budget=facts(3)).tier is QualityTier.D
    assert quality([], given=candidates()).tier is QualityTier.D


@pytest.mark.requirement("003-8.1-5", "003-8.2-6")
def test_an_empty_envelope_lists_every_cap() -> None:
    empty = quality(
        [],
        over_budget=facts(3, importance=1.0),
        saturation=Fraction(0),
        grounding=GroundingMode.STRICT,
        temporal=True,
    )
    assert [(cap.ceiling.value, cap.reason) for cap in empty.caps] == [
        ("D", "no fact is included"),
        ("C", "saturation 0.000 is below 0.85"),
        ("C", "saturation 0.000 is below 0.80 in context-strict"),
        ("B", "3 facts of importance 0.90 or more did not fit"),
        ("D", "coverage 0.000 is below 0.30"),
        ("C", "no fact of the primary community is included"),
    ]
    nothing = quality([], given=candidates(), saturation=Fraction(0), settings=LITERAL)
    assert [cap.reason for cap in nothing.caps] == [
        "no fact is included",
        "saturation 0.000 is below 0.70",
        "no candidate is relevant enough to count",
    ]


def scored(score: str, saturation: str, settings: EnvelopeSettings = SETTINGS) -> TierResult:
    """An envelope of full coverage whose relevance makes up the score."""
    weighted = Fraction(score) - Fraction(35, 100) - Fraction(30, 100) * Fraction(saturation)
    # Rounded up to the fixed-point grid, so that a bound is met and not just missed.
    relevance = math.ceil(weighted / Fraction(35, 100) * SCALE) / SCALE
    assert 0 <= relevance <= 1
    given_settings = settings.model_copy(update={"coverage_of": "all"})
    return quality(facts(2, relevance), saturation=Fraction(saturation), settings=given_settings)


@pytest.mark.requirement("003-8.2-1", "003-8.2-2", "003-8.2-3", "003-8.2-4")
@pytest.mark.parametrize(
    ("score", "saturation", "tier"),
    [
        ("0.95", "0.99", "S"),
        ("0.9499", "0.99", "A"),
        ("0.97", "0.989", "A"),
        ("0.85", "0.95", "A"),
        ("0.8499", "0.95", "B"),
        ("0.95", "0.949", "B"),
        ("0.70", "0.85", "B"),
        ("0.6999", "0.85", "C"),
        ("0.95", "0.849", "C"),
    ],
)
def test_thresholds_of_score_and_saturation(score: str, saturation: str, tier: str) -> None:
    found = scored(score, saturation)
    assert 0 <= found.score - Fraction(score) < Fraction(1, 10**6)
    assert found.tier.value == tier


@pytest.mark.requirement("003-8.2-4", "003-8.2-5")
def test_a_score_below_one_half_is_deficient() -> None:
    low = quality(facts(2, 0.5), over_budget=facts(2, 0.5, start=2), saturation=Fraction(1, 2))
    assert low.score == Fraction(50, 100)
    assert low.tier is QualityTier.C
    low = quality(facts(2, 0.5), over_budget=facts(2, 0.5, start=2), saturation=Fraction(499, 1000))
    assert low.score < Fraction(1, 2)
    assert low.tier is QualityTier.D


@pytest.mark.requirement("003-8.2-7", "003-9.3-3")
def test_a_sparse_envelope_is_marginal_and_literally_deficient() -> None:
    for saturation, default, literal in (
        (Fraction(70, 100), "C", "C"),
        (Fraction(69, 100), "C", "D"),
    ):
        assert quality(facts(3), saturation=saturation).tier.value == default
        assert quality(facts(3), saturation=saturation, settings=LITERAL).tier.value == literal


@pytest.mark.requirement("003-8.3-1")
def test_a_vital_fact_that_did_not_fit_caps_at_b() -> None:
    relevant = facts(9)
    assert quality(relevant, over_budget=facts(1, 0.1, start=9, importance=0.90)).tier.value == "B"
    assert quality(relevant, over_budget=facts(1, 0.1, start=9, importance=0.89)).tier.value == "S"
    # Cut by k is not "excluded due to budget".
    assert quality(relevant, over_k=facts(1, 0.1, start=9, importance=1.0)).tier.value == "S"


@pytest.mark.requirement("003-8.3-2")
def test_coverage_below_three_tenths_is_deficient() -> None:
    found = quality(facts(29), over_budget=facts(71, start=29))
    assert (found.coverage, found.tier.value) == (Fraction(29, 100), "D")
    found = quality(facts(30), over_budget=facts(70, start=30))
    assert (found.coverage, found.tier.value) == (Fraction(30, 100), "B")


@pytest.mark.requirement("003-8.3-3")
def test_without_the_primary_community_the_cap_is_c() -> None:
    top = ranked("top", 0.9, community="x", relevance=0.1)
    packed = facts(9, community="y")
    assert quality(packed, over_budget=[top], top=top).tier.value == "C"
    member = ranked("also-x", 0.5, community="x", relevance=1.0)
    assert quality([*packed, member], over_budget=[top], top=top).tier.value == "S"


def test_a_top_fact_without_a_community_is_its_own_primary_community() -> None:
    top = ranked("top", 0.9, relevance=0.1)
    assert quality(facts(9), over_budget=[top], top=top).tier.value == "C"
    assert quality([top, *facts(40)]).tier.value == "S"


@pytest.mark.requirement("003-8.3-4")
def test_a_temporal_question_needs_something_fresh() -> None:
    old = facts(3, ingested_at=NOON - timedelta(days=90, microseconds=1))
    assert quality(old, temporal=True).tier.value == "C"
    assert quality(old, temporal=False).tier.value == "S"
    edge = facts(1, start=3, ingested_at=NOON - timedelta(days=90))
    assert quality([*old, *edge], temporal=True).tier.value == "S"


@pytest.mark.requirement("003-13.1-3")
def test_strict_grounding_with_room_left_caps_at_c() -> None:
    lenient = SETTINGS.model_copy(
        update={"saturation_b": 0.5, "saturation_a": 0.5, "saturation_s": 0.5}
    )
    for saturation, tier in ((Fraction(80, 100), "A"), (Fraction(79, 100), "C")):
        found = quality(
            facts(3), saturation=saturation, grounding=GroundingMode.STRICT, settings=lenient
        )
        assert found.tier.value == tier
    assert quality(facts(3), saturation=Fraction(79, 100), settings=lenient).tier.value == "A"


@pytest.mark.requirement("003-8.2-6", "003-8.3-6")
def test_all_caps_apply_together_and_say_why() -> None:
    old = NOON - timedelta(days=400)
    found = quality(
        facts(1, ingested_at=old),
        over_budget=facts(9, start=1, importance=1.0),
        top=ranked("f005", 0.9),
        saturation=Fraction(1, 2),
        grounding=GroundingMode.STRICT,
        temporal=True,
    )
    assert [(cap.ceiling.value, cap.reason) for cap in found.caps] == [
        ("C", "saturation 0.500 is below 0.85"),
        ("C", "saturation 0.500 is below 0.80 in context-strict"),
        ("B", "9 facts of importance 0.90 or more did not fit"),
        ("D", "coverage 0.100 is below 0.30"),
        ("C", "no fact of the primary community is included"),
        ("C", "the question is temporal and the newest fact is older than 90 days"),
    ]
    assert found.tier is QualityTier.D
    assert quality(facts(3)).caps == ()


@given(
    count=st.integers(1, 5),
    rejected=st.integers(0, 5),
    relevance=st.sampled_from([0.2, 0.5, 0.9, 1.0]),
    hundredths=st.integers(0, 100),
    literal=st.booleans(),
)
def test_dropping_a_vital_fact_never_raises_the_tier(
    count: int, rejected: int, relevance: float, hundredths: int, literal: bool
) -> None:
    packed, out = facts(count, relevance), facts(rejected, relevance, start=10)
    using = LITERAL if literal else SETTINGS
    before = quality(packed, over_budget=out, saturation=Fraction(hundredths, 100), settings=using)
    vital = RankedFact(fact("vital", 0.1, 0.95), 1, 0, 0)
    after = quality(
        packed, over_budget=[*out, vital], saturation=Fraction(hundredths, 100), settings=using
    )
    assert after.tier.place >= before.tier.place
    assert all(after.tier.place >= cap.ceiling.place for cap in after.caps)
