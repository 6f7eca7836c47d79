"""The drop report: every candidate that is not in the envelope, with its reason."""

from __future__ import annotations

from crp_integrations.envelope.pack import Packing
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.records import Candidates, Drop, RankedFact
from crp_integrations.vocabulary import DropReason


def drops(candidates: Candidates, ranking: Ranking, packing: Packing) -> tuple[Drop, ...]:
    """Name everything that was left out, in the order of the ranking.

    Included and dropped facts together are the candidates, each once.

    Spec: CRP-SPEC-003 §6.6, §7.3 (decisions E2, E5)
    """
    named = [
        *(_drop(ranked, DropReason.DUPLICATE, kept) for ranked, kept in ranking.duplicates),
        *(_drop(ranked, DropReason.BUDGET) for ranked in packing.over_budget),
        *(_drop(ranked, DropReason.K) for ranked in packing.over_k),
    ]
    place = {
        candidates.facts[position].fact_id: number for number, position in enumerate(ranking.picks)
    }
    return tuple(sorted(named, key=lambda drop: place[drop.fact_id]))


def _drop(ranked: RankedFact, reason: DropReason, kept: str | None = None) -> Drop:
    fact = ranked.candidate
    return Drop(fact_id=fact.fact_id, reason=reason, tokens=fact.tokens, kept=kept)
