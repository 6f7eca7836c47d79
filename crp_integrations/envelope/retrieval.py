"""Phase 1, Select: candidates for a question, read from the fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.caller_candidates import relevant_floor
from crp_integrations.envelope.candidates import Candidate, Candidates, refuse_candidates
from crp_integrations.envelope.graph import blend_reached, reach_facts
from crp_integrations.envelope.hybrid import (
    HYBRID,
    WeighedPool,
    build_pool,
    cosine_candidates,
    hybrid_candidates,
    new_names,
    score_pool,
    weigh_pool,
)
from crp_integrations.envelope.near_duplicates import (
    as_pairs,
    least_similarity,
    split_near_duplicates,
)
from crp_integrations.envelope.ports import ReachedNode, Walker
from crp_integrations.envelope.prompt import RENDER, marker_text
from crp_integrations.envelope.retriever_hits import (
    CASCADE,
    EarlyTierHits,
    RetrieverHits,
    ask_early_tiers,
    deepest_tier,
)
from crp_integrations.envelope.settings import EnvelopeSettings, HybridSettings
from crp_integrations.fabric.records import Where
from crp_integrations.guard.decisions import LabelFilter
from crp_integrations.guard.ports import REDACTION
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.vectors import FloatRows, cosine
from crp_integrations.vocabulary import DropReason

if TYPE_CHECKING:
    from crp_integrations.fabric.ports import FactBrief
    from crp_integrations.fabric.view import FabricView

EVERY = LabelFilter()


def token_count_key(counter: TokenCounter) -> str:
    """The key under which token counts of rendered facts are stored."""
    return f"{counter.identity}|{RENDER}"


def gather(
    namespace: FabricView,
    query: str,
    *,
    sub_queries: Sequence[str] = (),
    counter: TokenCounter,
    settings: EnvelopeSettings,
    k_nearest: int | None = None,
    also: Sequence[str] = (),
    walker: Walker | None = None,
    labels: LabelFilter = EVERY,
    sightings: RetrieverHits | None = None,
) -> Candidates:
    """Read the candidates for a question: nearest vectors and lexical hits, merged by id.

    Spec: CRP-SPEC-003 §5.2, §6.3
    """
    needs = tuple(sub_queries) or (query,)
    nearest = settings.k_nearest if k_nearest is None else k_nearest
    # The mixed score compares facts with the whole question, even if it has sub-queries.
    asked = needs if query in needs or not settings.hybrid.enabled else (*needs, query)
    # Embedding is the slow part, so it is done once for search and scores, outside of the
    # transaction, and not for an empty fabric.
    embedded = namespace.embedder.embed_query
    vectors: dict[str, FloatRows] = {}
    if namespace.seen_facts():
        vectors = {need: embedded(need) for need in asked}
    while True:
        with namespace.moment() as view:
            if vectors or not view.size():
                hits = RetrieverHits() if sightings is None else sightings
                selection = _Selection(view, query, needs, vectors, settings, labels, hits)
                return selection.candidates(counter, nearest, also, walker)
        vectors = {need: embedded(need) for need in asked}


@dataclass(frozen=True, slots=True)
class _Selection:
    """One question to one state of a fabric.

    Attributes:
        vectors: vectors of the needs, and of the question if scores are mixed; empty for an empty
            fabric, and then nothing is searched.
    """

    view: FabricView
    query: str
    needs: tuple[str, ...]
    vectors: Mapping[str, FloatRows]
    settings: EnvelopeSettings
    labels: LabelFilter
    sightings: RetrieverHits

    def candidates(
        self, counter: TokenCounter, k_nearest: int, also: Sequence[str], walker: Walker | None
    ) -> Candidates:
        """Search, expand, score and count; refuse candidates that fail the label filter."""
        view, settings = self.view, self.settings
        fact_ids, early = self._search(k_nearest, also)
        facts, rows = _read_facts(view, fact_ids)
        mixed = None
        if settings.hybrid.enabled and facts:
            mixed = self._weigh(facts, rows)
            if linked := _linked_ids(view, mixed, settings.hybrid) - fact_ids:
                facts, rows = _join_facts((facts, rows), _read_facts(view, linked))
                mixed = self._weigh(facts, rows)
        reached: dict[str, ReachedNode] = {}
        if walker is not None and settings.graph.hops and facts:
            vector = next(iter(self.vectors.values()))
            merits = mixed.mix if mixed is not None else cosine(rows, vector)
            reached = self._walk(facts, merits, walker)
            if new := reached.keys() - {fact.fact_id for fact in facts}:
                facts, rows = _join_facts((facts, rows), _read_facts(view, set(new)))
                if mixed is not None:
                    mixed = self._weigh(facts, rows)
        contents = [fact.content for fact in facts]
        duplicates, conflicts = split_near_duplicates(
            contents, rows, least_similarity(view.embedder, settings)
        )
        algorithms: tuple[str, ...] = (CASCADE,) if settings.cascade == "until_full" else ()
        if settings.hybrid.enabled:
            algorithms = (*algorithms, HYBRID)
        if any(view.decision(labels).redact for labels in {fact.labels for fact in facts}):
            algorithms = (*algorithms, REDACTION)
        read = Candidates(
            query=self.query,
            sub_queries=self.needs,
            facts=_with_decisions(view, self._score(facts, rows, mixed, counter)),
            tokenizer=counter.identity,
            duplicates=duplicates,
            conflicts=conflicts,
            state_hash=view.state_hash(),
            memory_tier_hit=deepest_tier(view, early),
            algorithms=algorithms,
            relevant_floor=relevant_floor(view.embedder),
        )
        if reached:
            read = blend_reached(read, reached, settings.graph)
        if self.labels:
            others = {fact.fact_id for fact in read.facts if not self.labels.passes(fact.labels)}
            read = refuse_candidates(read, dict.fromkeys(others, DropReason.LABEL))
        return read

    def _search(self, k_nearest: int, also: Sequence[str]) -> tuple[set[str], list[EarlyTierHits]]:
        """Ids of facts that are near to a need or contain its words, and the early tiers' hits."""
        view, settings = self.view, self.settings
        where = Where(labels=self.labels.require) if self.labels.require else None
        fact_ids: set[str] = set(also)
        beyond: list[tuple[FloatRows, float]] = []
        early: list[EarlyTierHits] = []
        for need, vector in self.vectors.items():
            early.append(ask_early_tiers(view, vector, k_nearest, settings))
            fact_ids.update(hit.fact_id for hit in early[-1].hits)
            if not early[-1].cold:
                continue
            # One more than wanted is read, to see whether a fact that is as near was left out.
            ranked = view.nearest(vector, k_nearest + 1, where)
            hits = ranked[:k_nearest]
            if len(ranked) > k_nearest:
                least = hits[-1].score * settings.expansion_distance
                if ranked[-1].score >= least > 0:
                    beyond.append((vector, least))
            self.sightings.note("vector", [hit.fact_id for hit in hits])
            if settings.k_lexical:
                worded = view.search_text(need, settings.k_lexical, where)
                self.sightings.note("keyword", [hit.fact_id for hit in worded])
                hits = [*hits, *worded]
            fact_ids.update(hit.fact_id for hit in hits)
        if beyond:
            fact_ids |= _expand_communities(view, beyond, fact_ids, k_nearest, settings)
        return fact_ids, early

    def _weigh(self, facts: Sequence[FactBrief], rows: FloatRows) -> WeighedPool:
        hybrid = self.settings.hybrid
        cosines = cosine(rows, self.vectors[self.query])
        return weigh_pool(build_pool(self.query, facts, cosines, hybrid), hybrid)

    def _score(
        self,
        facts: Sequence[FactBrief],
        rows: FloatRows,
        mixed: WeighedPool | None,
        counter: TokenCounter,
    ) -> tuple[Candidate, ...]:
        """Candidates with their scores and tokens."""
        counts = self.view.token_counts(
            token_count_key(counter),
            [fact.fact_id for fact in facts],
            lambda texts: counter.count_many([marker_text(text) for text in texts]),
        )
        if not facts:
            return ()
        tokens = [counts[fact.fact_id] for fact in facts]
        cosines = np.max([cosine(rows, self.vectors[need]) for need in self.needs], axis=0)
        if mixed is None:
            return cosine_candidates(facts, cosines, tokens)
        hybrid = self.settings.hybrid
        scores = score_pool(mixed, hybrid)
        return hybrid_candidates(facts, cosines, tokens, scores, mixed.profiles, hybrid)

    def _walk(
        self, facts: Sequence[FactBrief], merits: npt.NDArray[Any], walker: Walker
    ) -> dict[str, ReachedNode]:
        """The facts that the graph reaches from the best facts that pass the label filter."""
        graph = self.settings.graph
        allowed = [at for at, fact in enumerate(facts) if self.labels.passes(fact.labels)]
        best = sorted(allowed, key=lambda at: (-float(merits[at]), facts[at].fact_id))
        seeds = {
            facts[at].fact_id: to_fixed(min(1.0, max(0.0, float(merits[at]))))
            for at in best[: graph.seeds]
        }
        vector = self.vectors.get(self.query, next(iter(self.vectors.values())))
        reached = reach_facts(self.view, self.query, vector, seeds, graph, self.labels, walker)
        self.sightings.walked(reached)
        return reached


def _with_decisions(
    namespace: FabricView, candidates: tuple[Candidate, ...]
) -> tuple[Candidate, ...]:
    """Candidates with the ids of the guard's decisions that allowed reading them, if it has ids.

    Spec: Summit §Policy-as-Code Compliance Rules
    """
    classes = {fact.labels for fact in candidates}
    ids = {labels: namespace.decision(labels).id for labels in classes}
    if not any(ids.values()):
        return candidates
    return tuple(replace(fact, decision=ids[fact.labels]) for fact in candidates)


def _read_facts(namespace: FabricView, ids: set[str]) -> tuple[list[FactBrief], FloatRows]:
    """The facts with these ids that may be read, sorted by id, and their vectors."""
    facts = namespace.briefs(sorted(ids))
    return facts, namespace.vectors([fact.fact_id for fact in facts])


def _join_facts(
    left: tuple[list[FactBrief], FloatRows], right: tuple[list[FactBrief], FloatRows]
) -> tuple[list[FactBrief], FloatRows]:
    """Merge two lists of facts with their vectors, sorted by id."""
    facts = [*left[0], *right[0]]
    order = sorted(range(len(facts)), key=lambda at: facts[at].fact_id)
    rows = np.concatenate([left[1], right[1]])[order]
    return [facts[at] for at in order], rows


def _linked_ids(namespace: FabricView, mixed: WeighedPool, settings: HybridSettings) -> set[str]:
    """Ids of facts with names that the best facts contain but the question does not."""
    if not (settings.hop_hits and settings.hop_sources and settings.hop_weight):
        return set()
    names = new_names(mixed)[: settings.hop_names]
    if not names:
        return set()
    return {hit.fact_id for hit in namespace.search_text(" ".join(names), settings.hop_hits)}


def _expand_communities(
    namespace: FabricView,
    beyond: Sequence[tuple[FloatRows, float]],
    known: set[str],
    k_nearest: int,
    settings: EnvelopeSettings,
) -> set[str]:
    """More facts of communities of which few were found but many are within retrieval distance.

    Spec: CRP-SPEC-003 §5.2 (decision E16)

    Args:
        beyond: vectors of the needs with facts beyond their hits, each with its minimum cosine.
    """
    seen = Counter(fact.community_label for fact in namespace.briefs(sorted(known)))
    islands = tuple(
        sorted(label for label, count in seen.items() if label and count < settings.expansion_below)
    )
    added: set[str] = set()
    if not islands:
        return added
    for vector, least in beyond:
        # There are at most as many communities as hits, and each may add `expansion_most`.
        most = k_nearest * (1 + settings.expansion_most)
        ranked = namespace.nearest(vector, most, Where(communities=islands))
        near = namespace.briefs([hit.fact_id for hit in ranked if hit.score >= least])
        reach = Counter(fact.community_label for fact in near)
        brought: Counter[str] = Counter()
        for fact in near:
            label = fact.community_label
            if (
                label is not None
                and fact.fact_id not in known
                and reach[label] >= settings.expansion_reach
                and brought[label] < settings.expansion_most
            ):
                brought[label] += 1
                added.add(fact.fact_id)
    return added


def recount_stored(
    candidates: Candidates, namespace: FabricView, counter: TokenCounter
) -> Candidates:
    """The candidates with tokens for another model, from the counts that the fabric stores.

    Facts that were withdrawn since they were gathered are left out.

    Spec: CRP-SPEC-003 §10.1
    """
    if counter.identity == candidates.tokenizer:
        return candidates
    counts = namespace.token_counts(
        token_count_key(counter),
        [fact.fact_id for fact in candidates.facts],
        lambda texts: counter.count_many([marker_text(text) for text in texts]),
    )
    remaining = [place for place, fact in enumerate(candidates.facts) if fact.fact_id in counts]
    moved = {place: number for number, place in enumerate(remaining)}
    facts = [candidates.facts[place] for place in remaining]

    return replace(
        candidates,
        facts=tuple(replace(fact, tokens=counts[fact.fact_id]) for fact in facts),
        tokenizer=counter.identity,
        duplicates=as_pairs(candidates.duplicates).among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
    )
