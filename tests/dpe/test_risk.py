"""Stage 5: fidelity, signals, composite and level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.risk import Counts, assess, fidelity_score, level, signals
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.vocabulary import GroundingMode, RiskLevel
from tests.dpe.helpers import check_literally as check
from tests.dpe.helpers import kinds, literal
from tests.dpe.texts import HARBOUR, SENTENCES, TEXTS

SETTINGS = DpeSettings()
MODES = (GroundingMode.OPEN, GroundingMode.PREFERRED, GroundingMode.STRICT)


@pytest.mark.requirement("005-5.5-1", "005-5.5-2")
@pytest.mark.parametrize(
    ("fabrications", "distortions", "contradictions", "factual", "wanted"),
    [
        (0, 1, 0, 9, 0.978),
        (0, 0, 0, 0, 1.0),
        (1, 0, 0, 0, 0.7),
        (1, 1, 1, 10, 0.935),
        (4, 0, 0, 1, 0.0),
        (0, 0, 3, 1, 0.55),
    ],
)
def test_fidelity(
    fabrications: int, distortions: int, contradictions: int, factual: int, wanted: float
) -> None:
    score = fidelity_score(
        fabrications=fabrications,
        distortions=distortions,
        contradictions=contradictions,
        factual=factual,
        settings=SETTINGS,
    )
    assert score == pytest.approx(wanted, abs=0.0005)


@pytest.mark.requirement("005-5.5-1", "005-5.5-2")
def test_fidelity_of_a_report() -> None:
    answer = HARBOUR.replace("640", "460")
    report = check(answer, [HARBOUR])
    factual = report.claims_by_type["FACTUAL"]
    assert report.fidelity_score == pytest.approx(1 - 0.2 / factual)
    invented = check("Doctor Quill of Narvik sold 99 yachts to Count Orlov in 1954.", [HARBOUR])
    assert invented.fabrication_count >= 4
    assert invented.fidelity_score == 0.0


@pytest.mark.requirement("005-7.2-1", "005-7.2-2", "005-7.2-3")
@pytest.mark.parametrize(
    "answer",
    [
        HARBOUR,
        HARBOUR.replace("640", "460"),
        "Whales sing. The port authority employs 640 people.",
        "Doctor Quill sold 99 yachts to Monaco in 1954. The port authority employs 640 people.",
        "",
    ],
)
def test_signals_and_composite_of_a_report(answer: str) -> None:
    report = check(answer, TEXTS)
    factual = report.claims_by_type["FACTUAL"]
    unverifiable = report.attribution_breakdown["UNVERIFIABLE"]
    assert report.unverifiable_pct == unverifiable / max(1, factual)
    wanted = {
        "attribution": 1.0 - report.grounding_pct,
        "fidelity": 1.0 - report.fidelity_score,
        "entailment": 1.0 - report.entailment_score,
        "specificity": report.unverifiable_pct,
    }
    assert report.signals == pytest.approx(wanted)
    total = 0.35 * wanted["attribution"] + 0.25 * wanted["fidelity"]
    total += 0.25 * wanted["entailment"] + 0.15 * wanted["specificity"]
    assert report.base_score == pytest.approx(total)
    assert report.risk_level is level(report.composite_score)


@pytest.mark.requirement("005-7.4-1")
@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (1.0, RiskLevel.CRITICAL),
        (0.70, RiskLevel.CRITICAL),
        (0.6999, RiskLevel.HIGH),
        (0.45, RiskLevel.HIGH),
        (0.4499, RiskLevel.MEDIUM),
        (0.20, RiskLevel.MEDIUM),
        (0.1999, RiskLevel.LOW),
        (0.0, RiskLevel.LOW),
    ],
)
def test_levels(score: float, wanted: RiskLevel) -> None:
    assert level(score) is wanted


@st.composite
def counts(draw: st.DrawFn) -> Counts:
    factual = draw(st.integers(0, 20))
    grounded = draw(st.integers(0, factual))
    parametric = draw(st.integers(0, factual - grounded))
    unverifiable = draw(st.integers(0, factual - grounded - parametric))
    share = st.floats(0, 1)
    return Counts(factual, grounded, parametric, unverifiable, draw(share), draw(share))


@given(counts())
def test_one_state_scores_open_at_most_preferred_at_most_strict(state: Counts) -> None:
    open_, preferred, strict = (assess(state, mode, SETTINGS)[1] for mode in MODES)
    assert 0.0 <= open_ <= preferred <= strict <= 1.0
    assert all(0.0 <= value <= 1.0 for mode in MODES for value in signals(state, mode).values())


POOL = [*HARBOUR.split(". "), "Whales sing", "Doctor Quill sold 99 boats", "I think so", "It is so"]


@pytest.mark.requirement("003-13.2-4", "005-4.2-2")
@given(places=st.lists(st.integers(0, len(POOL) - 1), max_size=6))
def test_one_answer_scores_open_at_most_preferred_at_most_strict(places: list[int]) -> None:
    answer = ". ".join(POOL[place] for place in places)
    scores = [check(answer, [HARBOUR], grounding=mode).composite_score for mode in MODES]
    assert scores == sorted(scores)


@pytest.mark.requirement("003-13.2-2", "003-13.2-3")
def test_a_parametric_claim_under_each_mode() -> None:
    answer = "Whales sing."
    open_, preferred, strict = (check(answer, [HARBOUR], grounding=mode) for mode in MODES)
    assert open_.composite_score == 0.0
    assert open_.composite_score < preferred.composite_score < strict.composite_score
    assert kinds(open_) == kinds(preferred) == []
    assert kinds(strict) == ["parametric"]
    assert strict.fabrication_count == strict.distortion_count == 0


def test_risk_means_something() -> None:
    assert check(HARBOUR, SENTENCES).risk_level is RiskLevel.LOW
    changed = check("The port authority employs 460 people.", SENTENCES)
    assert changed.composite_score >= 0.20
    one_in_many = check(HARBOUR.replace("640", "460"), SENTENCES)
    assert one_in_many.composite_score >= 0.20
    assert one_in_many.base_score < changed.base_score
    invented = check("Doctor Quill sold 99 yachts to Monaco in 1954.", SENTENCES)
    assert invented.risk_level is RiskLevel.CRITICAL
    worse = check(
        HARBOUR.replace("640", "460") + " Doctor Quill sold 99 yachts in 1954.", SENTENCES
    )
    assert worse.composite_score > one_in_many.composite_score


@pytest.mark.requirement("005-21.3-1")
def test_an_operator_gives_weights_of_its_own() -> None:
    own = literal(
        attribution_weight=0.4, fidelity_weight=0.3, entailment_weight=0.2, specificity_weight=0.1
    )
    answer = "Doctor Quill sold 99 yachts. The port authority employs 460 people."
    report, usual = check(answer, SENTENCES, settings=own), check(answer, SENTENCES)
    total = sum(own.weights[name] * value for name, value in report.signals.items())
    assert report.base_score == pytest.approx(total) != usual.base_score
