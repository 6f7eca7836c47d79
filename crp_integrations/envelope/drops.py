"""The drop report: every candidate that is not in the envelope, with its reason."""

from __future__ import annotations

from functools import lru_cache

from crp_integrations.envelope.pack import Packing
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.records import Candidates, Drop
from crp_integrations.vocabulary import DropReason


def drops(candidates: Candidates, ranking: Ranking, packing: Packing) -> tuple[Drop, ...]:
    """Name everything that was left out, in the order of the ranking.

    Included and dropped facts together are the candidates, each once.

    Spec: CRP-SPEC-003 §6.6, §7.3 (decisions E2, E5)
    """
    packed = {ranked.candidate.fact_id for ranked in packing.packed}
    kept = {ranked.candidate.fact_id: instead for ranked, instead in packing.duplicates}
    over_k = {ranked.candidate.fact_id for ranked in packing.over_k}
    found: list[Drop] = []
    for position in ranking.picks:
        fact = candidates.facts[position]
        fact_id = fact.fact_id
        if fact_id in kept:
            found.append(_drop(fact_id, DropReason.DUPLICATE, fact.tokens, kept[fact_id]))
        elif fact_id in over_k:
            found.append(_drop(fact_id, DropReason.K, fact.tokens))
        elif fact_id not in packed:
            found.append(_drop(fact_id, DropReason.BUDGET, fact.tokens))
    return tuple(found)


@lru_cache(maxsize=16_384)
def _drop(fact_id: str, reason: DropReason, tokens: int, kept: str | None = None) -> Drop:
    # The same facts are left out question after question, by the thousand; they hold no text.
    return Drop(fact_id=fact_id, reason=reason, tokens=tokens, kept=kept)
