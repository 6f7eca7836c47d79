"""Risk: the composite of four signals, its amplifiers and its level; an answer's quality score.

Each amplifier counts once, even if the specification names it twice: a contradiction across
windows and severe repetition are amplifiers in §17 and penalties in §16.1 (decision D4).

Spec: CRP-SPEC-005 §7, §16.1, §17
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.report_parts import Coherence, Completeness, Flow, Repetition
from crp_integrations.dpe.settings import (
    LEVEL_CUTS,
    Amplifier,
    AmplifierSettings,
    DpeSettings,
    QualitySettings,
)
from crp_integrations.vocabulary import (
    AiActClass,
    GroundingMode,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    Sector,
)


@dataclass(frozen=True, slots=True)
class Counts:
    """The input of the signals."""

    factual: int
    grounded: int
    parametric: int
    unverifiable: int
    fidelity: float
    entailment: float


def fidelity_score(
    *, fabrications: int, distortions: int, contradictions: int, factual: int, settings: DpeSettings
) -> float:
    """One minus the penalties per factual claim, clamped to [0, 1].

    Spec: CRP-SPEC-005 §5.5 (decision D1)

    >>> round(fidelity_score(fabrications=0, distortions=1, contradictions=0, factual=9,
    ...     settings=DpeSettings()), 3)
    0.978
    """
    penalties = (
        fabrications * settings.fabrication_penalty
        + distortions * settings.distortion_penalty
        + contradictions * settings.contradiction_penalty
    )
    return min(1.0, max(0.0, 1.0 - penalties / max(1, factual)))


def grounding_pct(grounded: int, factual: int) -> float:
    """Grounded over factual claims, 1.0 when there are none.

    Spec: CRP-SPEC-005 §4.4 (decision D3)
    """
    return grounded / factual if factual else 1.0


def signals(counts: Counts, mode: GroundingMode) -> dict[str, float]:
    """The four signals of an answer, each in [0, 1].

    Under `context-preferred` they are the formulas of §7.2. Under `open` a PARAMETRIC claim
    does not count as ungrounded; under `context-strict` it also counts as unverifiable
    (decision E21), so that one answer scores open ≤ preferred ≤ strict.

    Spec: CRP-SPEC-005 §7.2, CRP-SPEC-003 §13.2
    """
    grounded, unverifiable = counts.grounded, counts.unverifiable
    if mode is GroundingMode.OPEN:
        grounded += counts.parametric
    elif mode is GroundingMode.STRICT:
        unverifiable += counts.parametric
    return {
        "attribution": 1.0 - grounding_pct(grounded, counts.factual),
        "fidelity": 1.0 - counts.fidelity,
        "entailment": 1.0 - counts.entailment,
        "specificity": unverifiable / max(1, counts.factual),
    }


def composite(values: Mapping[str, float], settings: DpeSettings) -> float:
    """The weighted sum of the signals, [0, 1].

    Spec: CRP-SPEC-005 §7.2
    """
    total = sum(weight * values[name] for name, weight in settings.weights.items())
    # Nine decimals: float error must not move a score across a level's bound.
    return round(min(1.0, max(0.0, total)), 9)


def level(score: float) -> RiskLevel:
    """The level of a composite; lower bounds are included.

    Spec: CRP-SPEC-005 §7.4

    >>> level(0.45).value, level(0.1999).value
    ('HIGH', 'LOW')
    """
    return next((name for cut, name in LEVEL_CUTS if score >= cut), RiskLevel.LOW)


def assess(
    counts: Counts, mode: GroundingMode, settings: DpeSettings
) -> tuple[dict[str, float], float]:
    """The signals and the composite of an answer, before amplifiers (decision D8)."""
    values = signals(counts, mode)
    return values, composite(values, settings)


# A forbidden use counts at least as much as a high-risk one.
_HIGH_RISK: Final = frozenset({AiActClass.HIGH, AiActClass.UNACCEPTABLE})


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The input of the amplifiers."""

    personal: bool = False
    ai_act_class: AiActClass = AiActClass.UNKNOWN
    sector: Sector | None = None
    loop_depth: int = 0
    contradictions: int = 0
    repetition: RepetitionLevel = RepetitionLevel.NONE


def applicable(about: Circumstances, settings: AmplifierSettings) -> tuple[Amplifier, ...]:
    """The amplifiers that apply, strongest first, each once.

    Spec: CRP-SPEC-005 §7.3, §17
    """
    applies = {
        Amplifier.PERSONAL: about.personal,
        Amplifier.HIGH_RISK: about.ai_act_class in _HIGH_RISK,
        Amplifier.SECTOR: about.sector is not None,
        Amplifier.LOOP_DEPTH: about.loop_depth > settings.deep_above,
        Amplifier.CROSS_WINDOW: about.contradictions > 0,
        Amplifier.REPETITION: about.repetition is RepetitionLevel.SEVERE,
    }
    return tuple(name for name in Amplifier if applies[name])


def amplified(base: float, names: Sequence[Amplifier], settings: AmplifierSettings) -> float:
    """The base score times the factor of every amplifier that applies, at most 1.

    Spec: CRP-SPEC-005 §16.1

    Args:
        base: the composite of stage 5, [0, 1].
    """
    score = base
    for name in names:
        score *= settings.factors[name]
    # Nine decimals as in the base score: float error must not move it across a bound.
    return round(min(1.0, max(0.0, score)), 9)


def quality_score(
    repetition: Repetition,
    completeness: Completeness,
    flow: Flow,
    coherence: Coherence,
    settings: QualitySettings,
) -> float:
    """The weighted sum of the results of stages 6 to 9, [0, 1], higher is better.

    The repetition ratio is that of sentences (decision D21). If completeness was not checked, it
    is left out and the other weights are scaled up.

    Spec: CRP-SPEC-005 §18.2
    """
    total = (
        (1.0 - repetition.semantic) * settings.repetition_weight
        + flow.score * settings.flow_weight
        + coherence.score * settings.coherence_weight
    )
    if completeness.score is None:
        total /= 1.0 - settings.completeness_weight
    else:
        total += completeness.score * settings.completeness_weight
    # Nine decimals: float error must not move a score across a bound.
    return round(min(1.0, max(0.0, total)), 9)


def ceiling(score: float, settings: QualitySettings) -> tuple[QualityTier, float]:
    """The best tier that a quality score allows, and the bound that it missed.

    Spec: CRP-SPEC-005 §18.4

    Returns:
        The tier, and the lower bound of the next better tier; 0 for S, the best tier.
    """
    bound = 0.0
    for tier, least in (
        (QualityTier.S, settings.tier_s),
        (QualityTier.A, settings.tier_a),
        (QualityTier.B, settings.tier_b),
        (QualityTier.C, settings.tier_c),
    ):
        if score >= least:
            return tier, bound
        bound = least
    return QualityTier.D, bound
