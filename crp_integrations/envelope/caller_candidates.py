"""Select for a caller who brings the facts: `pack()` and wrapped retrievers enter here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from pydantic import ValidationError

from crp_integrations.envelope.candidates import Candidate, Candidates
from crp_integrations.envelope.near_duplicates import split_near_duplicates
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.life.lifecycle import carried
from crp_integrations.fabric.records import Fact
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.vectors import FloatRows, cosine, unit_rows
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus

# Facts that are already at hand need no retrieval: tier 0 of the memory cascade.
ACTIVE_TIER = 0


def build_candidates(
    query: str,
    facts: Sequence[Fact | str],
    *,
    embedder: Embedder,
    counter: TokenCounter,
    settings: EnvelopeSettings,
    vectors: FloatRows | None = None,
    relevance: Sequence[float] | None = None,
    sub_queries: Sequence[str] = (),
) -> Candidates:
    """Candidates from a caller's own facts, unique by id.

    Facts that are DELETED or QUARANTINED are no candidates, as in a fabric.

    Spec: CRP-SPEC-003 §5.2, §6.3
    """
    if not isinstance(facts, Iterable):
        raise RequestError(f"facts is {type(facts).__name__}, wanted a list of texts or facts")
    for name, rows in (("vectors", vectors), ("relevance", relevance)):
        if rows is not None and len(rows) != len(facts):
            raise RequestError(f"{name} has {len(rows)} entries, wanted {len(facts)}")
    whole = [_fact(number, fact) for number, fact in enumerate(facts, start=1)]
    scores = None if relevance is None else _fixed(relevance)
    places = _unique(whole, scores)
    unique = [whole[place] for place in places]
    contents = [fact.content for fact in unique]
    if vectors is None:
        rows = embedder.embed_passages(contents) if contents else _no_rows(embedder)
    else:
        # Vectors of another embedder are welcome as long as nothing is compared with ours.
        wanted = embedder.dimensions if scores is None else None
        rows = unit_rows(np.asarray(vectors)[places], dimensions=wanted) if places else vectors
    needs = tuple(sub_queries) or (query,)
    if scores is None:
        similar = score_relevance(rows, [embedder.embed_query(need) for need in needs])
    else:
        similar = [scores[place] for place in places]
    counts = counter.count_many([marker_text(content) for content in contents])
    duplicates, conflicts = split_near_duplicates(contents, rows, settings.duplicate_similarity)
    return Candidates(
        query=query,
        sub_queries=needs,
        facts=tuple(
            build_candidate(fact, score, tokens)
            for fact, score, tokens in zip(unique, similar, counts, strict=True)
        ),
        tokenizer=counter.identity,
        duplicates=duplicates,
        conflicts=conflicts,
        memory_tier_hit=ACTIVE_TIER,
        tier_hits=(len(unique), 0, 0, 0),
        relevant_floor=relevant_floor(embedder) if scores is None else None,
    )


def build_candidate(fact: Fact, relevance: int, tokens: int) -> Candidate:
    """A fact with its relevance (fixed point) and its tokens as rendered."""
    return Candidate(
        fact_id=fact.fact_id,
        content=fact.content,
        source_id=fact.source_id,
        relevance=relevance,
        importance=to_fixed(fact.importance_weight),
        tokens=max(0, tokens),
        ingested_at=fact.ingested_at,
        stale=fact.status is FactStatus.STALE,
        community=fact.community_label,
        source_location=fact.source_location,
        labels=fact.labels,
        decay=carried(fact.metadata),
    )


def score_relevance(rows: FloatRows, needs: Sequence[FloatRows]) -> list[int]:
    """Best cosine of each row to the vector of any information need, in fixed point.

    Spec: CRP-SPEC-003 §6.3
    """
    if not len(rows):
        return []
    best = np.max([cosine(rows, need) for need in needs], axis=0)
    return [to_fixed(float(score)) for score in best]


def relevant_floor(embedder: Embedder) -> int | None:
    """The relevance from which this embedder's card calls a fact relevant, in fixed point."""
    floor = embedder.thresholds.get("relevance_floor")
    return None if floor is None else to_fixed(floor)


def recount_tokens(candidates: Candidates, counter: TokenCounter) -> Candidates:
    """The same candidates with tokens as another counter counts them."""
    counts = counter.count_many([marker_text(fact.content) for fact in candidates.facts])
    facts = tuple(
        replace(fact, tokens=max(0, tokens))
        for fact, tokens in zip(candidates.facts, counts, strict=True)
    )
    return replace(candidates, facts=facts, tokenizer=counter.identity)


def _fixed(relevance: Sequence[float]) -> list[int]:
    try:
        return [to_fixed(float(score)) for score in relevance]
    except (TypeError, ValueError):
        raise RequestError("relevance holds something else than numbers, wanted [0, 1]") from None


def _fact(number: int, fact: Fact | str) -> Fact:
    if isinstance(fact, Fact):
        return fact
    if not isinstance(fact, str):
        raise FactRejected(f"fact {number} is {type(fact).__name__}, wanted a text or a fact")
    if not fact:
        raise FactRejected(f"fact {number} is empty, wanted at least one character")
    try:
        return Fact(content=fact)
    except (ValidationError, UnicodeEncodeError):
        # The library's message would quote the text.
        raise FactRejected(f"fact {number} is not text that can be encoded as UTF-8") from None


def _unique(facts: Sequence[Fact], scores: Sequence[int] | None) -> list[int]:
    """Positions of the facts to keep, by id; of copies the best, whatever their order."""
    best: dict[str, int] = {}

    def merit(place: int) -> tuple[int, float, str]:
        fact = facts[place]
        score = 0 if scores is None else scores[place]
        return score, fact.importance_weight, fact.model_dump_json()

    for place, fact in enumerate(facts):
        held = best.setdefault(fact.fact_id, place)
        if held == place:
            continue
        if facts[held].content_hash != fact.content_hash:
            raise RequestError(f"fact id {fact.fact_id} stands for two texts, wanted one each")
        if merit(place) > merit(held):
            best[fact.fact_id] = place
    shut_out = {fact.fact_id for fact in facts if fact.status not in RETRIEVABLE}
    return [best[fact_id] for fact_id in sorted(best) if fact_id not in shut_out]


def _no_rows(embedder: Embedder) -> FloatRows:
    return np.zeros((0, embedder.dimensions), dtype=np.float32)
