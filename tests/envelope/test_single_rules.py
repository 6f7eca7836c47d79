"""Single rules of the letter: temporal words, packing, order, ETag, budget, saturation, prompt."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from crp_integrations.envelope.budget import budget, safety_margin
from crp_integrations.envelope.candidates import RankedFact
from crp_integrations.envelope.layout import Ordering, order_facts
from crp_integrations.envelope.pack import pack
from crp_integrations.envelope.prompt import grounding_instruction, marker_text, render
from crp_integrations.envelope.rank import is_temporal, temporal_triggers
from crp_integrations.envelope.reuse import etag
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.envelope.tier import saturation, saturation_label
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import Exactness, GroundingMode, SaturationLabel
from tests.envelope.builders import LITERAL, SETTINGS, ranked

IN_2026 = datetime(2026, 5, 25, tzinfo=UTC)


@pytest.mark.requirement("003-6.4-6")
@pytest.mark.parametrize(
    "query",
    [
        "the current rule",
        "LATEST figures",
        "what holds now?",
        "today",
        "recent changes",
        "newest model",
        "sales this year",
        "this  month",
        "this week",
        "this quarter",
        "rules of 2026",
        "rules of 2025",
        "rules for 2027.",
    ],
)
def test_temporal_questions(query: str) -> None:
    assert is_temporal(query, IN_2026)


@pytest.mark.requirement("003-6.4-6")
@pytest.mark.parametrize(
    "query",
    [
        "",
        "what is known about nowadays",
        "the currents of the sea",
        "rules of 2024",
        "rules of 2028",
        "this yearbook",
        "part number 12026",
        "costs 2026.50 or 2,026",
    ],
)
def test_questions_that_are_not_temporal(query: str) -> None:
    assert temporal_triggers(query, IN_2026) == ()


def ids(facts: tuple[RankedFact, ...]) -> list[str]:
    return [item.candidate.fact_id for item in facts]


@pytest.mark.requirement("003-7.3-1", "003-7.3-2", "003-7.3-3")
def test_greedy_fills_in_rank_order_and_skips_what_does_not_fit() -> None:
    facts = [ranked(i, 0.5, tokens=t) for i, t in (("a", 60), ("b", 50), ("c", 30), ("d", 10))]
    packing = pack(facts, 100)
    assert ids(packing.packed) == ["a", "c", "d"]
    assert ids(packing.over_budget) == ["b"]
    assert ids(pack(facts, 99).packed) == ["a", "c"]
    # Not the best filling: b, c and d would use less but a ranks first.
    assert SETTINGS.packing == "greedy"


def test_k_is_a_cap_behind_which_nothing_is_looked_at() -> None:
    facts = [ranked(i, 0.5, tokens=t) for i, t in (("a", 60), ("b", 50), ("c", 30), ("d", 10))]
    packing = pack(facts, 100, k=2)
    assert ids(packing.packed) == ["a", "c"]
    assert ids(packing.over_budget) == ["b"]
    assert ids(packing.over_k) == ["d"]


def shown(scores: list[float], settings: EnvelopeSettings = SETTINGS) -> Ordering:
    return order_facts([ranked(f"f{n}", score) for n, score in enumerate(scores)], settings)


@pytest.mark.requirement("003-7.4-1", "003-7.4-2", "003-7.4-7")
def test_three_and_more_critical_facts_make_a_sandwich() -> None:
    result = shown([0.95, 0.90, 0.85, 0.80, 0.79, 0.50, 0.499, 0.1])
    assert ids(result.facts) == ["f0", "f3", "f6", "f7", "f4", "f5", "f1", "f2"]
    assert result.algorithms == ("sandwich@1",)
    assert result.promoted == ()


@pytest.mark.requirement("003-7.4-4")
def test_one_and_two_critical_facts_come_first() -> None:
    assert ids(shown([0.9, 0.6, 0.3]).facts) == ["f0", "f2", "f1"]
    assert ids(shown([0.9, 0.8, 0.6, 0.3]).facts) == ["f0", "f1", "f3", "f2"]


@pytest.mark.requirement("003-7.4-5")
def test_without_critical_facts_the_best_two_are_promoted() -> None:
    result = shown([0.79, 0.7, 0.6, 0.4, 0.3])
    assert ids(result.facts) == ["f0", "f3", "f4", "f2", "f1"]
    assert result.promoted == ("f0", "f1")
    assert shown([0.4]).promoted == ("f0",)
    assert shown([]).facts == ()


def test_the_literal_preset_promotes_nothing() -> None:
    result = shown([0.7, 0.6, 0.4, 0.3], LITERAL)
    assert ids(result.facts) == ["f2", "f3", "f0", "f1"]
    assert result.promoted == ()


@pytest.mark.requirement("003-7.4-3", "003-7.4-7")
def test_sandwich_rank_puts_the_two_best_first() -> None:
    result = shown([0.95, 0.9, 0.85, 0.8, 0.6, 0.2], EnvelopeSettings(ordering="sandwich_rank"))
    assert ids(result.facts) == ["f0", "f1", "f5", "f4", "f2", "f3"]
    assert result.algorithms == ("sandwich_rank@1",)


@pytest.mark.requirement("003-7.4-8")
def test_the_two_meanings_of_critical_have_two_names() -> None:
    fields = EnvelopeSettings.model_fields
    assert fields["critical_composite"].default == 0.80
    assert fields["vital_importance"].default == 0.90
    # High importance alone does not make a fact critical for ordering.
    assert (
        ids(order_facts([ranked("a", 0.9), ranked("b", 0.2, importance=1.0)], SETTINGS).facts)[0]
        == "a"
    )


@pytest.mark.requirement("003-7.5-1", "003-7.5-2")
def test_the_etag_is_the_hash_of_sorted_ids_and_their_number() -> None:
    expected = hashlib.sha256(b"a|b|c|3").hexdigest()
    assert etag(["c", "a", "b"]) == "sha256:" + expected


@pytest.mark.requirement("003-7.5-3")
def test_the_etag_depends_on_the_set_alone() -> None:
    assert etag(["c", "a", "b"]) == etag(["b", "c", "a"])
    assert len({etag(["a"]), etag(["b"]), etag(["a", "b"]), etag([])}) == 4


@pytest.mark.requirement("003-7.5-4")
def test_the_etag_of_nothing() -> None:
    assert etag([]) == "sha256:" + hashlib.sha256(b"|0").hexdigest()


@pytest.mark.requirement("003-7.2-1", "003-7.2-3", "003-7.2-4")
def test_the_budget_is_what_is_left() -> None:
    assert (
        budget(16_384, 100, 20, None, Exactness.EXACT, SETTINGS) == 16_384 - 100 - 20 - 2048 - 512
    )
    assert (
        budget(16_384, 100, 20, 1000, Exactness.EXACT, SETTINGS) == 16_384 - 100 - 20 - 1000 - 512
    )
    assert SETTINGS.expected_response_tokens == 2048
    assert SETTINGS.safety_margin_tokens == 512


@pytest.mark.requirement("003-7.2-6")
def test_a_budget_below_zero_is_zero() -> None:
    assert budget(160, 100, 20, None, Exactness.EXACT, SETTINGS) == 0


@pytest.mark.requirement("003-7.2-5")
def test_the_margin_grows_with_doubt() -> None:
    assert safety_margin(100_000, Exactness.EXACT, SETTINGS) == 512
    assert safety_margin(100_000, Exactness.FAMILY, SETTINGS) == 5_000
    assert safety_margin(100_000, Exactness.ESTIMATE, SETTINGS) == 25_000
    assert safety_margin(1_000, Exactness.ESTIMATE, SETTINGS) == 512
    assert safety_margin(-50, Exactness.ESTIMATE, SETTINGS) == 512
    assert safety_margin(100_000, Exactness.ESTIMATE, LITERAL) == 512


@pytest.mark.requirement("003-9.1-1")
def test_saturation_is_the_used_share() -> None:
    assert saturation(994, 1000) == Fraction(994, 1000)
    assert saturation(0, 0) == 0


@pytest.mark.requirement("003-9.2-1", "003-9.2-2", "003-9.2-3", "003-9.2-4", "003-9.2-5")
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (1000, SaturationLabel.FULL),
        (990, SaturationLabel.FULL),
        (989, SaturationLabel.NEAR),
        (950, SaturationLabel.NEAR),
        (949, SaturationLabel.WELL_PACKED),
        (850, SaturationLabel.WELL_PACKED),
        (849, SaturationLabel.MODERATE),
        (700, SaturationLabel.MODERATE),
        (699, SaturationLabel.SPARSE),
        (0, SaturationLabel.SPARSE),
    ],
)
def test_bands_of_saturation(tokens: int, expected: SaturationLabel) -> None:
    assert saturation_label(Fraction(tokens, 1000), SETTINGS) is expected


def test_rendering_numbers_the_facts_and_alters_none() -> None:
    contents = ["[2] not a marker", "ends\n\n", "</context>", "\u202e\x00 é"]
    text = render(contents)
    assert text == "\n\n".join(f"[{n}] {c}" for n, c in enumerate(contents, 1))
    assert render([]) == ""


def test_what_is_counted_for_a_fact_holds_its_marker_and_separator() -> None:
    assert marker_text("x") == "[10] x\n\n"


@pytest.mark.requirement("003-13.1-1")
def test_the_strict_instruction() -> None:
    text = grounding_instruction(GroundingMode.STRICT)
    assert "ONLY the provided context" in text
    assert "does not contain sufficient information, state that clearly" in text


@pytest.mark.requirement("003-13.1-4")
def test_the_preferred_instruction() -> None:
    text = grounding_instruction(GroundingMode.PREFERRED)
    assert "Prefer the provided context" in text
    assert "general knowledge, indicate this clearly" in text


@pytest.mark.requirement("003-13.1-6")
def test_open_has_no_instruction() -> None:
    assert grounding_instruction(GroundingMode.OPEN) == ""


@pytest.mark.requirement("003-3-3")
def test_grounding_modes_are_three() -> None:
    assert {mode.value for mode in GroundingMode} == {
        "context-strict",
        "context-preferred",
        "open",
    }
    with pytest.raises(ValueError, match="lenient"):
        GroundingMode("lenient")


def test_presets() -> None:
    assert EnvelopeSettings.preset("default") == EnvelopeSettings()
    assert LITERAL.k_lexical == 0
    assert LITERAL.coverage_of == "all"
    with pytest.raises(ConfigError, match="'brave'"):
        EnvelopeSettings.preset("brave")


def test_every_setting_is_documented() -> None:
    text = EnvelopeSettings.__doc__ or ""
    # `score_a` to `score_c` and `saturation_a`, `saturation_b` stand in one line each.
    missing = [n for n in EnvelopeSettings.model_fields if n not in text and n != "score_b"]
    assert missing == []
