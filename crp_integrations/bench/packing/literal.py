"""The loops of CRP-SPEC-003 §6 and §7 written down as they are printed, in Python floats."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from crp_integrations.envelope.candidates import Candidate
from crp_integrations.envelope.prompt import render
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import from_fixed
from crp_integrations.vectors import FloatRows


@dataclass(slots=True)
class _Fact:
    candidate: Candidate
    embedding: FloatRows
    relevance: float
    composite: float = 0.0


def loops(
    facts: tuple[Candidate, ...],
    rows: FloatRows,
    *,
    token_budget: int,
    now: datetime,
    counter: TokenCounter,
) -> tuple[list[str], str]:
    """Ids in their order and the ETag; the text is rendered and counted once as ours is.

    Spec: CRP-SPEC-003 §6.2 to §6.7, §7.3 to §7.5
    """
    candidates = [
        _Fact(fact, row, from_fixed(fact.relevance)) for fact, row in zip(facts, rows, strict=True)
    ]
    candidates.sort(key=lambda fact: -fact.relevance)
    _score(candidates, now)
    ranked = sorted(candidates, key=lambda fact: (-fact.composite, fact.candidate.fact_id))
    kept: list[_Fact] = []
    for fact_a in ranked:
        for fact_b in kept:
            # Unit vectors: the cosine is the dot product.
            if float(np.dot(fact_a.embedding, fact_b.embedding)) > 0.95:
                break
        else:
            kept.append(fact_a)
    envelope: list[_Fact] = []
    tokens_used = 0
    for fact in kept:
        if tokens_used + fact.candidate.tokens <= token_budget:
            envelope.append(fact)
            tokens_used += fact.candidate.tokens
    final_order = _ordered(envelope)
    text = render([fact.candidate.content for fact in final_order])
    counter.count(text)
    sorted_ids = sorted(fact.candidate.fact_id for fact in envelope)
    etag_input = "|".join(sorted_ids) + "|" + str(len(envelope))
    etag = "sha256:" + hashlib.sha256(etag_input.encode()).hexdigest()
    return [fact.candidate.fact_id for fact in final_order], etag


def _score(candidates: list[_Fact], now: datetime) -> None:
    selected: list[_Fact] = []
    for fact in candidates:
        community = fact.candidate.community
        count = len([one for one in selected if one.candidate.community == community])
        total = len([one for one in candidates if one.candidate.community == community])
        bonus = 0.0 if count / total > 0.40 else 1.0 - count / total
        ingested = fact.candidate.ingested_at or now
        age_days = (now - ingested).total_seconds() / 86_400
        freshness = max(0.0, 1.0 - age_days / 365)
        fact.composite = (
            fact.relevance * 0.50
            + from_fixed(fact.candidate.importance) * 0.25
            + freshness * 0.15
            + bonus * 0.10
        )
        selected.append(fact)


def _ordered(envelope: list[_Fact]) -> list[_Fact]:
    critical = [fact for fact in envelope if fact.composite >= 0.80]
    important = [fact for fact in envelope if 0.50 <= fact.composite < 0.80]
    supporting = [fact for fact in envelope if fact.composite < 0.50]
    return [*critical[:1], *critical[1:][-1:], *supporting, *important, *critical[1:-1]]
