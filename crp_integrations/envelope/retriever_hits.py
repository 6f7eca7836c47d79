"""Results of retrievers and memory tiers for a question: hits by fact, and tiers 0 to 3."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from crp_integrations.envelope.candidates import Candidate, Candidates, TierHits
from crp_integrations.envelope.ports import ReachedNode
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.records import Part
from crp_integrations.scores import from_fixed
from crp_integrations.vectors import FloatRows, cosine, top
from crp_integrations.vocabulary import RETRIEVABLE

if TYPE_CHECKING:
    from crp_integrations.fabric.view import FabricView

Retriever = Literal["keyword", "vector", "graph"]


class RetrieverHit(Part):
    """Rank and score that one retriever gave a fact.

    Attributes:
        rank: best rank among this retriever's results for any information need, from 1; 0 if
            only other retrievers found the fact.
        score: cosine, word score relative to the best, or strength of the path, [0, 1].
        hop: number of steps from fact to fact on the path; 0 for a retriever other than `graph`.
        via: kinds of the links on the path.
    """

    retriever: Retriever
    rank: int = Field(ge=0)
    score: float = Field(ge=0.0, le=1.0)
    hop: int = Field(default=0, ge=0)
    via: tuple[str, ...] = ()


class RetrieverHits:
    """The results of retrievers for one question; filled while the candidates are read."""

    def __init__(self) -> None:
        self._ranks: dict[Retriever, dict[str, int]] = {"keyword": {}, "vector": {}, "graph": {}}
        self._ways: dict[str, ReachedNode] = {}

    def note(self, retriever: Retriever, ids: Sequence[str]) -> None:
        """Record a retriever's results for one information need, best first."""
        ranks = self._ranks[retriever]
        for rank, id_ in enumerate(ids, start=1):
            ranks[id_] = min(rank, ranks.get(id_, rank))

    def walked(self, ways: Mapping[str, ReachedNode]) -> None:
        """Record the paths by which the graph reached facts."""
        self._ways = dict(ways)
        best = sorted(ways, key=lambda id_: (-ways[id_].strength, id_))
        self.note("graph", best)

    def of(self, fact: Candidate) -> tuple[RetrieverHit, ...]:
        """Each retriever's hit for a candidate, highest score first, ties by name."""
        scores: dict[Retriever, int] = {"vector": fact.relevance, "keyword": fact.lexical}
        way = self._ways.get(fact.fact_id)
        if way is None and fact.hop:
            # The mix's second hop gave it a score: it has a name that one of the best facts has.
            way = ReachedNode(hop=1, strength=fact.hop, via=("entity",))
        hits = [
            RetrieverHit(
                retriever=name,
                rank=self._ranks[name].get(fact.fact_id, 0),
                score=from_fixed(max(0, score)),
            )
            for name, score in scores.items()
            if score > 0 or fact.fact_id in self._ranks[name]
        ]
        if way is not None:
            rank = self._ranks["graph"].get(fact.fact_id, 0)
            strength = from_fixed(way.strength)
            hits.append(
                RetrieverHit(retriever="graph", rank=rank, score=strength, hop=way.hop, via=way.via)
            )
        return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.retriever)))


CASCADE = "cascade@1"

ACTIVE, HOT, WARM, COLD = range(4)


@dataclass(frozen=True, slots=True)
class ActiveFacts:
    """Facts that the current window already contains.

    Attributes:
        rows: unit vectors of the facts, shape (len(facts), dimensions).
    """

    facts: tuple[Fact, ...] = ()
    rows: FloatRows = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class EarlyTierHits:
    """Results of tiers 0 to 2 for one information need.

    Attributes:
        hits: facts at or above the relevance floor, best first, ties by id; at most K.
        tier: number of the last tier to search; 3 if tiers 0 to 2 were not enough.
    """

    hits: tuple[Hit, ...]
    tier: int

    @property
    def cold(self) -> bool:
        """Whether the whole fabric has to be searched."""
        return self.tier == COLD


def ask_early_tiers(
    view: FabricView,
    vector: FloatRows,
    k: int,
    settings: EnvelopeSettings,
    *,
    active: ActiveFacts | None = None,
) -> EarlyTierHits:
    """Search tiers 0, 1 and 2 for one information need; reads nothing with `cascade="all"`.

    Spec: CRP-SPEC-003 §5.2 step 1.4
    """
    if settings.cascade == "all":
        return EarlyTierHits((), COLD)
    floor = view.embedder.thresholds.get("relevance_floor", settings.relevant_floor)
    scores: dict[str, float] = {}
    for tier, hits in _read_early_tiers(view, vector, k, active or ActiveFacts()):
        for hit in hits:
            if hit.score >= floor:
                scores.setdefault(hit.fact_id, hit.score)
        if len(scores) >= k:
            return EarlyTierHits(_best(scores, k), tier)
    return EarlyTierHits(_best(scores, k), COLD)


def deepest_tier(view: FabricView, asked: Sequence[EarlyTierHits]) -> int:
    """The highest tier number that was searched for any need.

    Spec: CRP-SPEC-003 §5.2
    """
    tier = max((need.tier for need in asked), default=COLD)
    return view.memory_tier() if tier == COLD else tier


def tier_hits(
    facts: Sequence[Candidate], view: FabricView, *, active: Collection[str] = ()
) -> TierHits:
    """The number of candidates from each tier; a fact counts in the first tier that has it.

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
        elif fact.community in shelf.communities or fact.source_id in shelf.sources:
            counts[WARM] += 1
        else:
            counts[COLD] += 1
    return counts[ACTIVE], counts[HOT], counts[WARM], counts[COLD]


def count_tier_hits(candidates: Candidates, view: FabricView, gathered: Candidates) -> Candidates:
    """The candidates of a window with `tier_hits` set; those not in `gathered` count in tier 0.

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
    """Tiers 0, 1 and 2 with their nearest facts; each tier is read only when iterated."""
    at_hand = [n for n, fact in enumerate(active.facts) if fact.status in RETRIEVABLE]
    yield (
        ACTIVE,
        _nearest([active.facts[n].fact_id for n in at_hand], active.rows[at_hand], vector, k),
    )
    # The view returns only facts that may still be read.
    ids = [fact.fact_id for fact in view.facts(sorted(view.shelf.facts.union(view.held())))]
    yield HOT, _nearest(ids, view.vectors(ids), vector, k) if ids else ()
    warm: list[Hit] = []
    if view.shelf.communities:
        warm += view.nearest(vector, k, Where(communities=tuple(sorted(view.shelf.communities))))
    if view.shelf.sources:
        warm += view.nearest(vector, k, Where(sources=tuple(sorted(view.shelf.sources))))
    yield WARM, warm


def _nearest(ids: Sequence[str], rows: FloatRows, vector: FloatRows, k: int) -> list[Hit]:
    scores = cosine(rows, vector)
    return [Hit(ids[place], float(scores[place])) for place in top(scores, ids, k)]


def _best(scores: dict[str, float], k: int) -> tuple[Hit, ...]:
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Hit(id_, score) for id_, score in best[:k])
