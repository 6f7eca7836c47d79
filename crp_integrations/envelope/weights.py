"""The four ranking weights in force for one question: grounding mode first, then time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crp_integrations.envelope.pairs import as_pairs
from crp_integrations.envelope.records import Candidates
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import GroundingMode

# Candidates among which contradictions of several dates are looked for.
_BEST = 20


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


def weights(
    settings: EnvelopeSettings, mode: GroundingMode, *, temporal: bool, dated: bool = True
) -> Weights:
    """The weights for a grounding mode and a question that is temporal or not.

    With `adaptive` settings age counts only where it can decide something, and communities do
    not: by measurement both cost evidence elsewhere. Their weight goes to relevance.

    Spec: CRP-SPEC-003 §6.2, §6.4, §13.1

    Args:
        temporal: whether the question asks for recent knowledge.
        dated: whether facts on one topic are of several dates, or stale.

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
    diversity = to_fixed(settings.diversity_weight)
    if settings.adaptive:
        relevance, diversity = relevance + diversity, 0
        if not (temporal or dated):
            relevance, freshness = relevance + freshness, 0
    return Weights(relevance, importance, freshness, diversity, horizon)


def differ_in_age(candidates: Candidates) -> bool:
    """Whether age can decide: some are stale or fade by a function, or two that contradict differ.

    Looked for among the best alone, since nothing else is likely to be shown.
    """
    columns = candidates.columns
    if columns.stale or columns.decays:
        return True
    # Facts are sorted by id, and a stable sort keeps their order where they are equal.
    best = np.argsort(-columns.merit, kind="stable")[:_BEST].tolist()
    times = {at: columns.facts[at].ingested_at for at in best}
    if len(set(times.values())) < 2:
        return False
    return any(
        times[left] != times[right] for left, right in as_pairs(candidates.conflicts).within(best)
    )
