"""Phase 1, Select: read candidates from the fabric. The one file that calls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from crp_integrations.envelope.offered import candidate, relevances, relevant_floor
from crp_integrations.envelope.records import Candidates
from crp_integrations.envelope.render import RENDER, marker_text
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.envelope.similar import duplicates_and_conflicts
from crp_integrations.errors import StoreBusy, StoreError
from crp_integrations.ports import TokenCounter
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    from crp_integrations.fabric.view import View

_ATTEMPTS = 3


def counting_key(counter: TokenCounter) -> str:
    """The key under which counts of facts as rendered are stored."""
    return f"{counter.identity}|{RENDER}"


def gather(
    namespace: View,
    query: str,
    *,
    sub_queries: Sequence[str] = (),
    counter: TokenCounter,
    settings: EnvelopeSettings,
    k_nearest: int | None = None,
) -> Candidates:
    """Read the candidates for a question: nearest vectors and lexical hits, united by id.

    Spec: CRP-SPEC-003 §5.2, §6.3

    Args:
        namespace: bound to tenant, subject and guard; its embedder made the index. A view with a
            session's facts gives them as candidates too.
        query: the question as asked.
        sub_queries: information needs of the question; empty means it is one.
        counter: the target model's token counter.
        k_nearest: neighbours of each sub-query; None takes the setting.

    Raises:
        StoreBusy: the fabric changed during every one of three attempts to read it.
    """
    needs = tuple(sub_queries) or (query,)
    nearest = settings.k_nearest if k_nearest is None else k_nearest
    # Embedding is the dear part of a question, so it is done once for search and scores.
    vectors = [namespace.embedder.embed_query(need) for need in needs] if namespace.size() else []
    for attempt in range(_ATTEMPTS):
        generation = namespace.generation()
        try:
            candidates = _read(namespace, query, needs, vectors, counter, settings, nearest)
        except StoreError:
            # A fact that vanished between two reads; anything else fails again.
            if attempt + 1 == _ATTEMPTS or namespace.generation() == generation:
                raise
            continue
        if namespace.generation() == generation:
            return candidates
    raise StoreBusy(f"the fabric changed during {_ATTEMPTS} attempts to read it, wanted a pause")


def _read(
    namespace: View,
    query: str,
    needs: tuple[str, ...],
    vectors: Sequence[FloatRows],
    counter: TokenCounter,
    settings: EnvelopeSettings,
    k_nearest: int,
) -> Candidates:
    found: set[str] = set()
    beyond: list[tuple[FloatRows, float]] = []
    # Without vectors the fabric was empty, and nothing is looked for.
    for need, vector in zip(needs, vectors, strict=False):
        # One more than wanted tells whether as near a fact was left out.
        ranked = namespace.nearest(vector, k_nearest + 1)
        hits = ranked[:k_nearest]
        if len(ranked) > k_nearest and ranked[-1].score >= hits[-1].score:
            beyond.append((vector, hits[-1].score))
        if settings.k_lexical:
            hits = [*hits, *namespace.search_text(need, settings.k_lexical)]
        found.update(hit.fact_id for hit in hits)
    if beyond:
        found |= _expansion(namespace, beyond, found, k_nearest, settings)
    facts = sorted(namespace.facts(sorted(found)), key=lambda fact: fact.fact_id)
    ids = [fact.fact_id for fact in facts]
    contents = [fact.content for fact in facts]
    rows = namespace.vectors(ids)
    counts = namespace.token_counts(
        counting_key(counter),
        ids,
        lambda texts: counter.count_many([marker_text(text) for text in texts]),
    )
    if counts.keys() != set(ids):
        raise StoreBusy("a fact was withdrawn while its tokens were counted, wanted a pause")
    duplicates, conflicts = duplicates_and_conflicts(contents, rows, settings.duplicate_similarity)
    return Candidates(
        query=query,
        sub_queries=needs,
        facts=tuple(
            candidate(fact, relevance, counts[fact.fact_id])
            for fact, relevance in zip(facts, relevances(rows, vectors), strict=True)
        ),
        tokenizer=counter.identity,
        duplicates=duplicates,
        conflicts=conflicts,
        state_hash=namespace.state_hash(),
        memory_tier_hit=namespace.memory_tier(),
        relevant_floor=relevant_floor(namespace.embedder),
    )


def _expansion(
    namespace: View,
    beyond: Sequence[tuple[FloatRows, float]],
    found: set[str],
    k_nearest: int,
    settings: EnvelopeSettings,
) -> set[str]:
    """Facts of communities of which few were found although many are as near as the last hit.

    Spec: CRP-SPEC-003 §5.2 (decision E16)

    Args:
        beyond: vector of a need and score of its K-th hit, where something else is as near.
        found: ids of what was found.
    """
    held = Counter(fact.community_label for fact in namespace.facts(sorted(found)))
    added: set[str] = set()
    for vector, least in beyond:
        # Communities are at most as many as hits, and each may bring so many more.
        ranked = namespace.nearest(vector, k_nearest * (1 + settings.expansion_most))
        near = namespace.facts([hit.fact_id for hit in ranked if hit.score >= least])
        reach = Counter(fact.community_label for fact in near)
        brought: Counter[str] = Counter()
        for fact in near:
            label = fact.community_label
            if (
                label is not None
                and fact.fact_id not in found
                and 0 < held[label] < settings.expansion_below
                and reach[label] >= settings.expansion_reach
                and brought[label] < settings.expansion_most
            ):
                brought[label] += 1
                added.add(fact.fact_id)
    return added


def recount(candidates: Candidates, namespace: View, counter: TokenCounter) -> Candidates:
    """The same candidates sized for another model, from the counts that the fabric keeps.

    Facts that were withdrawn since they were gathered are candidates no more.

    Spec: CRP-SPEC-003 §10.1
    """
    if counter.identity == candidates.tokenizer:
        return candidates
    counts = namespace.token_counts(
        counting_key(counter),
        [fact.fact_id for fact in candidates.facts],
        lambda texts: counter.count_many([marker_text(text) for text in texts]),
    )
    kept = [place for place, fact in enumerate(candidates.facts) if fact.fact_id in counts]
    moved = {place: number for number, place in enumerate(kept)}
    facts = [candidates.facts[place] for place in kept]

    def still(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple((moved[i], moved[j]) for i, j in pairs if i in moved and j in moved)

    return replace(
        candidates,
        facts=tuple(replace(fact, tokens=counts[fact.fact_id]) for fact in facts),
        tokenizer=counter.identity,
        duplicates=still(candidates.duplicates),
        conflicts=still(candidates.conflicts),
    )
