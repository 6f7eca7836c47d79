"""Which candidates count as relevant to their question."""

from __future__ import annotations

from collections.abc import Collection

from crp_integrations.envelope.records import Candidates
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import to_fixed


def least_relevance(candidates: Candidates, settings: EnvelopeSettings) -> int:
    """The relevance from which a fact is relevant, in fixed point.

    Spec: CRP-SPEC-009 §7.1 (decisions E2, E23)
    """
    floor = candidates.relevant_floor
    # The letter counts every candidate and knows one floor for all embedders (decision E2).
    if floor is None or settings.coverage_of == "all":
        return to_fixed(settings.relevant_floor)
    return floor


def holds_relevant(
    candidates: Candidates, settings: EnvelopeSettings, aside: Collection[str] = ()
) -> bool:
    """Whether any candidate is relevant.

    Args:
        aside: ids that do not count.
    """
    least = least_relevance(candidates, settings)
    return any(
        fact.relevance >= least and fact.refused is None and fact.fact_id not in aside
        for fact in candidates.facts
    )
