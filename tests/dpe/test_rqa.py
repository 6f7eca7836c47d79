"""The quality score, and the tier that it allows."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.report_parts import Coherence, Completeness, Flow, Repetition
from crp_integrations.dpe.risk import ceiling, quality_score
from crp_integrations.dpe.settings import DpeSettings, QualitySettings
from crp_integrations.errors import ConfigError
from crp_integrations.relay.conditional_requests import cap_tier, uncapped
from crp_integrations.vocabulary import QualityTier
from tests.dpe import windows
from tests.dpe.helpers import LITERAL
from tests.headers.header_samples import envelope, report

DEFAULT = QualitySettings()
after = partial(windows.after, settings=LITERAL)
SCORE = st.floats(0, 1)


@pytest.mark.requirement("005-18.2-1")
@given(SCORE, SCORE, SCORE, st.integers(0, 20), st.integers(0, 20))
def test_the_formula(repeats: float, complete: float, flow: float, bad: int, more: int) -> None:
    compared = bad + more
    coherence = Coherence(compared=compared, contradicted=bad)
    ratio = bad / compared if compared else 0.0
    wanted = (1.0 - repeats) * 0.25 + complete * 0.35 + flow * 0.25 + (1.0 - ratio) * 0.15
    found = quality_score(
        Repetition(semantic=repeats), Completeness(score=complete), Flow(score=flow), coherence,
        DEFAULT,
    )  # fmt: skip
    assert found == pytest.approx(wanted, abs=1e-8)


@pytest.mark.requirement("005-18.2-2")
def test_it_is_neither_the_envelopes_score_nor_the_risk() -> None:
    first = after("The policy was rejected.")
    second = after("The policy was rejected.", "The policy was approved.")
    assert first.rqa_score == 1.0
    assert second.rqa_score < 1.0
    assert second.base_score == first.base_score
    assert not hasattr(first, "quality_score")
    assert not hasattr(first, "envelope_score")
    assert not hasattr(envelope(), "rqa_score")


def test_one_contradicted_claim_of_two_halves_the_coherence() -> None:
    found = after("The policy was rejected. The dome is red.",
                  "The policy was approved. The dome is red.")  # fmt: skip
    coherence = found.quality.coherence
    assert (coherence.compared, coherence.contradicted, coherence.score) == (2, 1, 0.5)


@pytest.mark.requirement("005-18.4-1", "003-8.3-5")
@pytest.mark.parametrize(
    ("score", "tier"),
    [(1.0, "S"), (0.85, "S"), (0.8499, "A"), (0.70, "A"), (0.6999, "B"), (0.50, "B"),
     (0.4999, "C"), (0.30, "C"), (0.2999, "D"), (0.0, "D")],
)  # fmt: skip
def test_the_cap(score: float, tier: str) -> None:
    assert ceiling(score, DEFAULT)[0] is QualityTier(tier)
    for own in QualityTier:
        shown = cap_tier(envelope(quality_tier=own), report(rqa_score=score), DEFAULT)
        assert shown.quality_tier is own.capped(QualityTier(tier))
        # Only lowers, and says why.
        assert len(shown.caps) == (shown.quality_tier is not own)


@pytest.mark.requirement("005-18.4-2")
def test_tier_a_with_a_score_of_062_is_b() -> None:
    before = envelope(quality_tier=QualityTier.A)
    shown = cap_tier(before, report(rqa_score=0.62), DEFAULT)
    assert shown.quality_tier is QualityTier.B
    assert shown.caps[-1].reason == "rqa_score 0.620 is below 0.70"
    assert uncapped(shown, QualityTier.A) == before
    assert uncapped(shown, None) == shown


@pytest.mark.parametrize(
    "wrong",
    [{"opening_weight": 0.5}, {"completeness_weight": 0.1}, {"minor_overlap": 0.2},
     {"partial": 0.8}, {"least_flow": 0.6}, {"tier_s": 0.6}, {"related": 0.9}],
)  # fmt: skip
def test_settings_that_contradict_themselves_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="wanted"):
        QualitySettings(**wrong)


def test_presets() -> None:
    assert DpeSettings.preset("literal").quality == QualitySettings.literal()
    assert DpeSettings().quality.in_force({}).covered == 0.70
    card = {"covered_need": 0.6, "repeated_sentence": 0.8, "opening_coherence": 0.2}
    found = DpeSettings().quality.in_force(card)
    assert (found.covered, found.repeated, found.low_opening) == (0.6, 0.8, 0.2)
    literal = QualitySettings.literal().in_force(card)
    assert (literal.covered, literal.repeated, literal.low_opening) == (0.70, 0.92, 0.40)


@pytest.mark.requirement("005-1.3-1")
def test_each_stage_finds_its_own_fault() -> None:
    first = "The port authority employs 640 people. The port opened in 1990."
    needs = ["History of the port", "Tulips in gardens"]
    good = after(
        "Building on this, the port authority trains its people each year. Tulips in gardens near "
        "the port bloom early.",
        first, sub_queries=["Tulips in gardens near the port"],
    )  # fmt: skip
    assert good.cross_window_contradictions == ()
    assert good.repetition_level.value == "NONE"
    assert good.uncovered_sub_queries == ()
    assert good.flow_remediation is None
    assert after("The port opened in 1995.", first).cross_window_contradictions
    assert after(first, first).repetition_level.value == "SEVERE"
    assert after("The history of the port is long.", first, sub_queries=needs) \
        .uncovered_sub_queries == ("Tulips in gardens",)  # fmt: skip
    assert after("Quarks have spin.", first).flow_remediation == "redispatch"
