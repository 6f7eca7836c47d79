"""The drop report: every candidate that is not in the envelope, with its reason."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter

from crp_integrations.envelope.pack import Packing
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.records import Candidates, Drop, RankedFact
from crp_integrations.vocabulary import DropReason

_FACT_ID, _TOKENS = attrgetter("fact_id"), attrgetter("tokens")


def drops(candidates: Candidates, ranking: Ranking, packing: Packing) -> tuple[Drop, ...]:
    """Name everything that was left out, in the order of the ranking.

    Included and dropped facts together are the candidates, each once.

    Spec: CRP-SPEC-003 §6.6, §7.3 (decisions E2, E5)
    """
    other: dict[str, Drop | None] = {
        ranked.candidate.fact_id: _dropped(ranked, DropReason.DUPLICATE, kept)
        for ranked, kept in packing.duplicates
    }
    for ranked in packing.over_k:
        other[ranked.candidate.fact_id] = _dropped(ranked, DropReason.K)
    for ranked in packing.packed:
        other[ranked.candidate.fact_id] = None
    facts = list(map(candidates.facts.__getitem__, ranking.picks))
    ids = list(map(_FACT_ID, facts))
    found: list[Drop | None] = list(map(_over_budget, ids, map(_TOKENS, facts)))
    # Nearly all are over the budget; the others are put in their places.
    for place, fact_id in enumerate(ids):
        if fact_id in other:
            found[place] = other[fact_id]
    return tuple(filter(None, found))


@lru_cache(maxsize=16_384)
def _over_budget(fact_id: str, tokens: int) -> Drop:
    # The same facts are left out question after question, by the thousand; they hold no text.
    return Drop(fact_id=fact_id, reason=DropReason.BUDGET, tokens=tokens)


def _dropped(ranked: RankedFact, reason: DropReason, kept: str | None = None) -> Drop:
    fact = ranked.candidate
    return Drop(fact_id=fact.fact_id, reason=reason, tokens=fact.tokens, kept=kept)
