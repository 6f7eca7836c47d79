"""Amplifiers: which apply, in which order they weigh, and that each applies once."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crp_integrations.dpe import derivation
from crp_integrations.dpe.dossier import Dossier, System
from crp_integrations.dpe.records import Classification, PersonalData, PersonalDatum, Report
from crp_integrations.dpe.report_parts import Coherence, CrossContradiction, Repetition
from crp_integrations.dpe.risk import Circumstances, amplified, applicable, level
from crp_integrations.dpe.settings import Amplifier, AmplifierSettings, DpeSettings
from crp_integrations.dpe.stages.report import write_report
from crp_integrations.dpe.state import StageTools, State
from crp_integrations.dpe.verifier.context import PassageContext
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import (
    AiActClass,
    PersonalCategory,
    RepetitionLevel,
    RiskLevel,
    Sector,
    Severity,
)

DEFAULTS = AmplifierSettings()
ALONE = {
    Amplifier.PERSONAL: Circumstances(personal=True),
    Amplifier.HIGH_RISK: Circumstances(ai_act_class=AiActClass.HIGH),
    Amplifier.SECTOR: Circumstances(sector=Sector.MEDICAL),
    Amplifier.LOOP_DEPTH: Circumstances(loop_depth=3),
    Amplifier.CROSS_WINDOW: Circumstances(contradictions=1),
    Amplifier.REPETITION: Circumstances(repetition=RepetitionLevel.SEVERE),
}
EVERYTHING = Circumstances(True, AiActClass.HIGH, Sector.FINANCIAL, 4, 7, RepetitionLevel.SEVERE)


@pytest.mark.requirement("005-7.3-1", "005-17-1")
@pytest.mark.parametrize("name", list(Amplifier))
def test_each_condition_has_its_own_amplifier(name: Amplifier) -> None:
    assert applicable(ALONE[name], DEFAULTS) == (name,)
    assert amplified(0.3, [name], DEFAULTS) == pytest.approx(0.3 * DEFAULTS.factors[name])
    assert amplified(0.3, [name], DEFAULTS) > 0.3


@pytest.mark.requirement("005-7.3-1")
def test_nothing_applies_without_a_condition() -> None:
    assert applicable(Circumstances(), DEFAULTS) == ()
    assert amplified(0.3, (), DEFAULTS) == 0.3
    quiet = Circumstances(
        ai_act_class=AiActClass.LIMITED, loop_depth=2, repetition=RepetitionLevel.SIGNIFICANT
    )
    assert applicable(quiet, DEFAULTS) == ()


@pytest.mark.requirement("005-17-1", "005-17-3")
def test_the_uplifts_have_the_documents_order() -> None:
    pii, high, sector, depth, cross, repetition = DEFAULTS.factors.values()
    assert pii > high > sector >= depth >= cross > repetition > 1.0
    assert list(DEFAULTS.factors) == list(Amplifier)


@pytest.mark.requirement("005-17-2")
def test_the_depth_counts_above_two() -> None:
    said = [bool(applicable(Circumstances(loop_depth=depth), DEFAULTS)) for depth in range(6)]
    assert said == [False, False, False, True, True, True]


@pytest.mark.requirement("005-7.3-2", "005-17-3")
@given(st.lists(st.sampled_from([1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0]), min_size=6, max_size=6))
def test_factors_out_of_order_are_refused(factors: list[float]) -> None:
    pii, high, sector, depth, cross, repetition = factors
    given_ = dict(zip(("personal", "high_risk", "sector", "loop_depth", "cross_window", "repetition"), factors, strict=True))  # fmt: skip
    if pii > high > sector >= depth >= cross > repetition > 1.0:
        assert list(AmplifierSettings(**given_).factors.values()) == factors
    else:
        with pytest.raises(ConfigError, match="amplifier"):
            AmplifierSettings(**given_)


@pytest.mark.requirement("005-7.3-2")
def test_depths_out_of_order_and_shrinking_factors_are_refused() -> None:
    with pytest.raises(ConfigError, match="deep_above"):
        AmplifierSettings(deep_above=6)
    with pytest.raises(ValidationError):
        AmplifierSettings(repetition=0.9)


@pytest.mark.requirement("005-16.1-1", "005-16.1-3")
@given(
    st.floats(0.0, 1.0),
    st.sets(st.sampled_from(Amplifier)).map(lambda names: sorted(names, key=list(Amplifier).index)),
)
def test_the_composite_is_the_product_and_at_most_one(base: float, names: list[Amplifier]) -> None:
    wanted = base
    for name in names:
        wanted *= DEFAULTS.factors[name]
    score = amplified(base, names, DEFAULTS)
    assert score == pytest.approx(min(1.0, wanted), abs=1e-8)
    assert round(base, 9) <= score <= 1.0
    for other in names:
        assert amplified(base, [n for n in names if n is not other], DEFAULTS) <= score


def _report(about: Circumstances, base: float) -> Report:
    """The report on an answer of this base risk, in which the stages found these circumstances."""
    crossing = CrossContradiction(
        claim_id="c1", claim="a", prior_claim="b", prior_window_id="w", kind="numeric",
        severity=Severity.CRITICAL, probability=0.9,
    )  # fmt: skip
    datum = PersonalDatum(
        category=PersonalCategory.DIRECT, kind="email", where="answer", start=0, end=1,
        recogniser="email@1", score=1.0,
    )  # fmt: skip
    count = about.contradictions
    state = State(
        Dossier("", "x", (), system=System(sector=about.sector), loop_depth=about.loop_depth),
        StageTools(None, None, DpeSettings.preset("literal")),
        lambda: PassageContext([]),
        coherence=Coherence(contradictions=(crossing,) * count, compared=count, contradicted=count),
        repetition=Repetition(level=about.repetition),
        personal=PersonalData(found=(datum,) if about.personal else ()),
        classification=Classification(eu_ai_act_class=about.ai_act_class),
    )
    with patch.object(derivation, "assess", return_value=({}, base)):
        return write_report(state)


@pytest.mark.requirement("005-2-2", "005-16.1-1")
@pytest.mark.parametrize(
    "names",
    [c for n in range(3) for c in itertools.combinations(Amplifier, n)] + [tuple(Amplifier)],
)
def test_stage_13_applies_what_other_stages_found_and_names_the_level(
    names: tuple[Amplifier, ...],
) -> None:
    blank = Circumstances()
    fields = {
        field: getattr(ALONE[name], field)
        for name in names
        for field in Circumstances.__slots__
        if getattr(ALONE[name], field) != getattr(blank, field)
    }
    report = _report(Circumstances(**fields), 0.18)
    assert report.base_score == 0.18
    assert report.amplifiers_applied == tuple(name.value for name in names)
    wanted = 0.18
    for name in names:
        wanted *= DEFAULTS.factors[name]
    assert report.composite_score == pytest.approx(wanted)
    assert report.risk_level is level(wanted)


@pytest.mark.requirement("005-8.3-1", "005-16.1-2")
@given(st.integers(1, 50))
def test_contradictions_and_repetition_count_once(count: int) -> None:
    both = Circumstances(contradictions=count, repetition=RepetitionLevel.SEVERE)
    report = _report(both, 0.30)
    factors = DEFAULTS.factors
    wanted = 0.30 * factors[Amplifier.CROSS_WINDOW] * factors[Amplifier.REPETITION]
    assert report.composite_score == pytest.approx(wanted)
    assert report.amplifiers_applied == ("cross-window-contradiction", "severe-repetition")
    assert report.contradiction_count == count
    assert report.contradiction_scope == "cross-window"


@pytest.mark.requirement("005-16.1-3")
@pytest.mark.parametrize(
    ("base", "wanted"),
    [(0.9, RiskLevel.CRITICAL), (0.3, RiskLevel.CRITICAL), (0.21, RiskLevel.CRITICAL), (0.2, RiskLevel.HIGH), (0.1, RiskLevel.MEDIUM), (0.05, RiskLevel.LOW), (0.0, RiskLevel.LOW)],
)  # fmt: skip
def test_levels_follow_the_amplified_score(base: float, wanted: RiskLevel) -> None:
    report = _report(EVERYTHING, base)
    assert report.composite_score <= 1.0
    assert report.risk_level is level(report.composite_score) is wanted


def test_the_report_names_every_factor() -> None:
    thresholds = _report(Circumstances(), 0.1).thresholds
    assert thresholds["amplifiers.personal"] == DEFAULTS.personal
    assert thresholds["amplifiers.deep_above"] == 2.0
