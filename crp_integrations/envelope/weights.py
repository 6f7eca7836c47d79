"""The four ranking weights in force for one question: grounding mode first, then time."""

from __future__ import annotations

from dataclasses import dataclass

from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import GroundingMode


@dataclass(frozen=True, slots=True)
class Weights:
    """Ranking weights in fixed point; they need not sum to SCALE (decision E9).

    Attributes:
        horizon_days: age at which freshness reaches 0.
    """

    relevance: int
    importance: int
    freshness: int
    diversity: int
    horizon_days: int


def weights(settings: EnvelopeSettings, mode: GroundingMode, *, temporal: bool) -> Weights:
    """The weights for a grounding mode and a question that is temporal or not.

    Spec: CRP-SPEC-003 §6.2, §6.4, §13.1

    Args:
        temporal: whether the question asks for recent knowledge.

    Returns:
        Weights that are not renormalised; a weight never falls below 0.
    """
    relevance = to_fixed(settings.relevance_weight)
    importance = to_fixed(settings.importance_factor)
    freshness = to_fixed(settings.freshness_weight)
    if mode is GroundingMode.STRICT:
        importance = to_fixed(settings.strict_importance_factor)
    elif mode is GroundingMode.OPEN:
        relevance = to_fixed(settings.open_relevance_weight)
        importance = to_fixed(settings.open_importance_factor)
    horizon = settings.freshness_horizon_days
    if temporal:
        shift = to_fixed(settings.temporal_shift)
        relevance = max(0, relevance - shift)
        freshness += shift
        horizon = settings.temporal_horizon_days
    return Weights(relevance, importance, freshness, to_fixed(settings.diversity_weight), horizon)
