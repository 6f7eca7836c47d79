"""Phase 1, Select: candidates for a question, read from the fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from crp_integrations.envelope.near_duplicates import as_pairs, split_near_duplicates
from crp_integrations.envelope.ports import Reached, Walker
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
    """The key under which counts of facts as rendered are stored."""
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
    """Read the candidates for a question: nearest vectors and lexical hits, united by id.

    Spec: CRP-SPEC-003 §5.2, §6.3
    """
    needs = tuple(sub_queries) or (query,)
    nearest = settings.k_nearest if k_nearest is None else k_nearest
    # The mix compares with the question as a whole, whatever it was taken apart into.
    asked = needs if query in needs or not settings.hybrid.enabled else (*needs, query)
    # Embedding is the costly part of a question, so it is done once for search and scores, outside
    # of the transaction, and not for a fabric that holds nothing.
    embedded = namespace.embedder.embed_query
    vectors: dict[str, FloatRows] = {}
    if namespace.seen_facts():
        vectors = {need: embedded(need) for need in asked}
    while True:
        with namespace.moment() as view:
            if vectors or not view.size():
                return _read_candidates(
                    view, query, needs, vectors, counter, settings, nearest, also, walker, labels,
                    RetrieverHits() if sightings is None else sightings,
                )  # fmt: skip
        vectors = {need: embedded(need) for need in asked}


def _read_candidates(
    namespace: FabricView,
    query: str,
    needs: tuple[str, ...],
    vectors: Mapping[str, FloatRows],
    counter: TokenCounter,
    settings: EnvelopeSettings,
    k_nearest: int,
    also: Sequence[str],
    walker: Walker | None,
    labels: LabelFilter,
    sightings: RetrieverHits,
) -> Candidates:
    where = Where(labels=labels.require) if labels.require else None
    fact_ids: set[str] = set(also)
    beyond: list[tuple[FloatRows, float]] = []
    early: list[EarlyTierHits] = []
    # Without vectors the fabric was empty, and nothing is looked for.
    for need, vector in vectors.items():
        early.append(ask_early_tiers(namespace, vector, k_nearest, settings))
        fact_ids.update(hit.fact_id for hit in early[-1].hits)
        if not early[-1].cold:
            continue
        # Asking for one more than wanted tells whether a fact that is as near was left out.
        ranked = namespace.nearest(vector, k_nearest + 1, where)
        hits = ranked[:k_nearest]
        if len(ranked) > k_nearest:
            least = hits[-1].score * settings.expansion_distance
            if ranked[-1].score >= least > 0:
                beyond.append((vector, least))
        sightings.note("vector", [hit.fact_id for hit in hits])
        if settings.k_lexical:
            worded = namespace.search_text(need, settings.k_lexical, where)
            sightings.note("keyword", [hit.fact_id for hit in worded])
            hits = [*hits, *worded]
        fact_ids.update(hit.fact_id for hit in hits)
    if beyond:
        fact_ids |= _expand_communities(namespace, beyond, fact_ids, k_nearest, settings)
    facts, rows = _read_facts(namespace, fact_ids)

    def weigh() -> WeighedPool:
        cosines = cosine(rows, vectors[query])
        return weigh_pool(build_pool(query, facts, cosines, settings.hybrid), settings.hybrid)

    mixed = None
    if settings.hybrid.enabled and facts:
        mixed = weigh()
        if linked := _linked_ids(namespace, mixed, settings.hybrid) - fact_ids:
            facts, rows = _join_facts((facts, rows), _read_facts(namespace, linked))
            mixed = weigh()
    reached: dict[str, Reached] = {}
    if walker is not None and settings.graph.hops and facts:
        merits = mixed.mix if mixed is not None else cosine(rows, next(iter(vectors.values())))
        reached = _walk_graph(namespace, query, vectors, facts, merits, settings, labels, walker)
        sightings.walked(reached)
        if new := reached.keys() - {fact.fact_id for fact in facts}:
            facts, rows = _join_facts((facts, rows), _read_facts(namespace, set(new)))
            if mixed is not None:
                mixed = weigh()
    ids = [fact.fact_id for fact in facts]
    contents = [fact.content for fact in facts]
    counts = namespace.token_counts(
        token_count_key(counter),
        ids,
        lambda texts: counter.count_many([marker_text(text) for text in texts]),
    )
    tokens = [counts[id_] for id_ in ids]
    duplicates, conflicts = split_near_duplicates(contents, rows, settings.duplicate_similarity)
    candidates: tuple[Candidate, ...] = ()
    if facts:
        cosines = np.max([cosine(rows, vectors[need]) for need in needs], axis=0)
        if mixed is None:
            candidates = cosine_candidates(facts, cosines, tokens)
        else:
            found_scores = score_pool(mixed, settings.hybrid)
            candidates = hybrid_candidates(
                facts, cosines, tokens, found_scores, mixed.profiles, settings.hybrid
            )
    algorithms: tuple[str, ...] = (CASCADE,) if settings.cascade == "until_full" else ()
    if settings.hybrid.enabled:
        algorithms = (*algorithms, HYBRID)
    if any(namespace.decision(labels).redact for labels in {fact.labels for fact in facts}):
        algorithms = (*algorithms, REDACTION)
    read = Candidates(
        query=query,
        sub_queries=needs,
        facts=_with_decisions(namespace, candidates),
        tokenizer=counter.identity,
        duplicates=duplicates,
        conflicts=conflicts,
        state_hash=namespace.state_hash(),
        memory_tier_hit=deepest_tier(namespace, early),
        algorithms=algorithms,
        relevant_floor=relevant_floor(namespace.embedder),
    )
    if reached:
        read = blend_reached(read, reached, settings.graph)
    if labels:
        others = {fact.fact_id for fact in read.facts if not labels.passes(fact.labels)}
        read = refuse_candidates(read, dict.fromkeys(others, DropReason.LABEL))
    return read


def _walk_graph(
    namespace: FabricView,
    query: str,
    vectors: Mapping[str, FloatRows],
    facts: Sequence[FactBrief],
    merits: npt.NDArray[Any],
    settings: EnvelopeSettings,
    labels: LabelFilter,
    walker: Walker,
) -> dict[str, Reached]:
    """What the graph reaches from the best facts that policy lets in."""
    open_ = [at for at, fact in enumerate(facts) if labels.passes(fact.labels)]
    best = sorted(open_, key=lambda at: (-float(merits[at]), facts[at].fact_id))
    seeds = {
        facts[at].fact_id: to_fixed(min(1.0, max(0.0, float(merits[at]))))
        for at in best[: settings.graph.seeds]
    }
    vector = vectors[query] if query in vectors else next(iter(vectors.values()))
    return reach_facts(namespace, query, vector, seeds, settings.graph, labels, walker)


def _with_decisions(
    namespace: FabricView, candidates: tuple[Candidate, ...]
) -> tuple[Candidate, ...]:
    """Candidates with the ids of the decisions that let them be read, where the guard has ids.

    Spec: Summit §Policy-as-Code Compliance Rules
    """
    classes = {fact.labels for fact in candidates}
    ids = {labels: namespace.decision(labels).id for labels in classes}
    if not any(ids.values()):
        return candidates
    return tuple(replace(fact, decision=ids[fact.labels]) for fact in candidates)


def _read_facts(namespace: FabricView, ids: set[str]) -> tuple[list[FactBrief], FloatRows]:
    """The facts of these ids that may be read, by id, and their vectors."""
    facts = namespace.briefs(sorted(ids))
    return facts, namespace.vectors([fact.fact_id for fact in facts])


def _join_facts(
    left: tuple[list[FactBrief], FloatRows], right: tuple[list[FactBrief], FloatRows]
) -> tuple[list[FactBrief], FloatRows]:
    """Two lots of facts with their vectors as one, by id."""
    facts = [*left[0], *right[0]]
    order = sorted(range(len(facts)), key=lambda at: facts[at].fact_id)
    rows = np.concatenate([left[1], right[1]])[order]
    return [facts[at] for at in order], rows


def _linked_ids(namespace: FabricView, mixed: WeighedPool, settings: HybridSettings) -> set[str]:
    """Facts that hold names which the best facts bring up and the question does not."""
    if not (settings.hop_hits and settings.hop_sources and settings.hop_weight):
        return set()
    names = new_names(mixed)[: settings.hop_names]
    if not names:
        return set()
    return {hit.fact_id for hit in namespace.search_text(" ".join(names), settings.hop_hits)}


def _expand_communities(
    namespace: FabricView,
    beyond: Sequence[tuple[FloatRows, float]],
    found: set[str],
    k_nearest: int,
    settings: EnvelopeSettings,
) -> set[str]:
    """Facts of communities of which few were found although many are within retrieval distance.

    Spec: CRP-SPEC-003 §5.2 (decision E16)

    Args:
        beyond: vectors of the needs with facts beyond their hits, and the least cosine of each.
    """
    held = Counter(fact.community_label for fact in namespace.briefs(sorted(found)))
    islands = tuple(
        sorted(label for label, count in held.items() if label and count < settings.expansion_below)
    )
    added: set[str] = set()
    if not islands:
        return added
    for vector, least in beyond:
        # Communities are at most as many as hits, and each may bring so many more.
        most = k_nearest * (1 + settings.expansion_most)
        ranked = namespace.nearest(vector, most, Where(communities=islands))
        near = namespace.briefs([hit.fact_id for hit in ranked if hit.score >= least])
        reach = Counter(fact.community_label for fact in near)
        brought: Counter[str] = Counter()
        for fact in near:
            label = fact.community_label
            if (
                label is not None
                and fact.fact_id not in found
                and reach[label] >= settings.expansion_reach
                and brought[label] < settings.expansion_most
            ):
                brought[label] += 1
                added.add(fact.fact_id)
    return added


def recount_stored(
    candidates: Candidates, namespace: FabricView, counter: TokenCounter
) -> Candidates:
    """The same candidates sized for another model, from the counts that the fabric keeps.

    Facts that were withdrawn since they were gathered are no longer candidates.

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
