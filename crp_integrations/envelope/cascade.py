"""Step 1.4 of Select: the memory tiers, asked in the order 0, 1, 2, 3.

| tier | what it is | how it is read |
|---|---|---|
| 0 Active | facts of the current window | handed in as values, nothing is read |
| 1 Hot | facts of the session's earlier envelopes, and those it holds in memory | by id |
| 2 Warm | communities and sources that the subject used lately | a search among these alone |
| 3 Cold | the whole fabric | the search that `gather` makes |

A search of tier 3 finds what lies in tiers 1 and 2 too. So with `cascade="all"` the early tiers
are not read by themselves: the candidates are those of tier 3, and `tier_hits` counts each where
it would have been met first. With `until_full` the early tiers are read one after the other for
each information need, until one of them has completed K hits at or above the relevance floor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from crp_integrations.envelope.candidates import Candidate, Candidates, TierHits
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.vectors import FloatRows, cosine, top
from crp_integrations.vocabulary import RETRIEVABLE

if TYPE_CHECKING:
    from crp_integrations.fabric.view import FabricView

CASCADE = "cascade@1"

ACTIVE, HOT, WARM, COLD = range(4)


@dataclass(frozen=True, slots=True)
class ActiveFacts:
    """Facts that the current window has already.

    Attributes:
        rows: their unit vectors, shape (len(facts), dimensions).
    """

    facts: tuple[Fact, ...] = ()
    rows: FloatRows = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class EarlyTierHits:
    """What the early tiers gave for one information need.

    Attributes:
        hits: facts at or above the relevance floor, best first, ties by id; at most K.
        tier: number of the last tier asked.
    """

    hits: tuple[Hit, ...]
    tier: int

    @property
    def cold(self) -> bool:
        """Whether the whole fabric is to be searched."""
        return self.tier == COLD


def ask_early_tiers(
    view: FabricView,
    vector: FloatRows,
    k: int,
    settings: EnvelopeSettings,
    *,
    active: ActiveFacts | None = None,
) -> EarlyTierHits:
    """Ask tiers 0, 1 and 2 for one information need; reads nothing with `cascade="all"`.

    Spec: CRP-SPEC-003 §5.2 step 1.4
    """
    if settings.cascade == "all":
        return EarlyTierHits((), COLD)
    floor = view.embedder.thresholds.get("relevance_floor", settings.relevant_floor)
    found: dict[str, float] = {}
    for tier, hits in _read_early_tiers(view, vector, k, active or ActiveFacts()):
        for hit in hits:
            if hit.score >= floor:
                found.setdefault(hit.fact_id, hit.score)
        if len(found) >= k:
            return EarlyTierHits(_best(found, k), tier)
    return EarlyTierHits(_best(found, k), COLD)


def deepest_tier(view: FabricView, asked: Sequence[EarlyTierHits]) -> int:
    """The largest tier number that was asked for any need (decision Fabric).

    Spec: CRP-SPEC-003 §5.2
    """
    tier = max((one.tier for one in asked), default=COLD)
    return view.memory_tier() if tier == COLD else tier


def tier_hits(
    facts: Sequence[Candidate], view: FabricView, *, active: Collection[str] = ()
) -> TierHits:
    """How many candidates each tier gave; a fact counts in the first tier that has it.

    Spec: CRP-SPEC-003 §5.2
    """
    shelf = view.shelf
    hot = shelf.facts.union(view.held())
    counts = [0, 0, 0, 0]
    for fact in facts:
        if fact.fact_id in active:
            counts[ACTIVE] += 1
        elif fact.fact_id in hot:
            counts[HOT] += 1
        elif _warm(fact, shelf.communities, shelf.sources):
            counts[WARM] += 1
        else:
            counts[COLD] += 1
    return counts[ACTIVE], counts[HOT], counts[WARM], counts[COLD]


def count_tier_hits(candidates: Candidates, view: FabricView, gathered: Candidates) -> Candidates:
    """The candidates of a window with the number that each tier gave.

    Spec: CRP-SPEC-003 §5.2
    """
    own: set[str] = set()
    if candidates is not gathered:
        read = {fact.fact_id for fact in gathered.facts}
        own = {fact.fact_id for fact in candidates.facts if fact.fact_id not in read}
    return replace(candidates, tier_hits=tier_hits(candidates.facts, view, active=own))


def _read_early_tiers(
    view: FabricView, vector: FloatRows, k: int, active: ActiveFacts
) -> Iterator[tuple[int, Sequence[Hit]]]:
    """Tiers 0, 1 and 2 with their nearest facts; a tier is read when it is asked for."""
    at_hand = [n for n, fact in enumerate(active.facts) if fact.status in RETRIEVABLE]
    yield (
        ACTIVE,
        _nearest([active.facts[n].fact_id for n in at_hand], active.rows[at_hand], vector, k),
    )
    # What may not be read any more does not come out of the view.
    ids = [fact.fact_id for fact in view.facts(sorted(view.shelf.facts.union(view.held())))]
    yield HOT, _nearest(ids, view.vectors(ids), vector, k) if ids else ()
    warm: list[Hit] = []
    if view.shelf.communities:
        warm += view.nearest(vector, k, Where(communities=tuple(sorted(view.shelf.communities))))
    if view.shelf.sources:
        warm += view.nearest(vector, k, Where(sources=tuple(sorted(view.shelf.sources))))
    yield WARM, warm


def _warm(fact: Candidate, communities: frozenset[str], sources: frozenset[str]) -> bool:
    return fact.community in communities or fact.source_id in sources


def _nearest(ids: Sequence[str], rows: FloatRows, vector: FloatRows, k: int) -> list[Hit]:
    scores = cosine(rows, vector)
    return [Hit(ids[place], float(scores[place])) for place in top(scores, ids, k)]


def _best(found: dict[str, float], k: int) -> tuple[Hit, ...]:
    hits = sorted((Hit(id_, score) for id_, score in found.items()), key=_order)
    return tuple(hits[:k])


def _order(hit: Hit) -> tuple[float, str]:
    return -hit.score, hit.fact_id
