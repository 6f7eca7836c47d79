"""From candidates to an envelope: Rank, Pack, order, render, recount, tier.

Select has happened before, in `gather` or `offered`. Everything here is integer arithmetic
in a total order, so an envelope can be rebuilt from its candidates byte for byte.
"""

from __future__ import annotations

from datetime import UTC, datetime

from crp_integrations.envelope.drops import drops
from crp_integrations.envelope.etag import ETAG, etag
from crp_integrations.envelope.offered import recounted
from crp_integrations.envelope.order import Ordering, order
from crp_integrations.envelope.pack import GREEDY, Packing, greedy
from crp_integrations.envelope.rank import RANK, rank
from crp_integrations.envelope.records import (
    Candidates,
    Conflict,
    Envelope,
    EnvelopePreview,
    PackedFact,
)
from crp_integrations.envelope.render import RENDER, render
from crp_integrations.envelope.saturation import label, saturation
from crp_integrations.envelope.sections import knowledge
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.envelope.temporal import is_temporal
from crp_integrations.envelope.tier import TIER, classify
from crp_integrations.envelope.weights import weights
from crp_integrations.errors import RequestError
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import GroundingMode, Strategy


def assemble(
    candidates: Candidates,
    *,
    budget_tokens: int,
    counter: TokenCounter,
    grounding: GroundingMode,
    settings: EnvelopeSettings,
    now: datetime,
    k: int | None = None,
    model: str = "",
    session_id: str = "",
    window_number: int = 1,
    strategy: Strategy = Strategy.PUSH,
    settings_digest: str = "",
    max_age_seconds: int | None = None,
) -> Envelope:
    """Make the envelope of one model call.

    Spec: CRP-SPEC-003 §4, §6, §7, §8

    Args:
        candidates: what was selected; counted again when another counter is given.
        budget_tokens: tokens that the rendered text may have; below 0 counts as 0.
        counter: the target model's token counter.
        now: the current time, aware; it enters the freshness and `created_at` alone.
        k: cap on the number of facts, None for no cap.
        max_age_seconds: age above which a fact counts as stale, None for no such age.

    Returns:
        An envelope whose text never exceeds the budget under the counter.

    Raises:
        RequestError: `now` has no time zone, or k is below 1.
    """
    if now.tzinfo is None:
        raise RequestError(f"the time {now.isoformat()} has no time zone, wanted an aware one")
    if k is not None and k < 1:
        raise RequestError(f"k is {k}, wanted at least 1")
    now = now.astimezone(UTC)
    budget_tokens = max(0, budget_tokens)
    if candidates.tokenizer != counter.identity:
        candidates = recounted(candidates, counter)

    temporal = is_temporal(candidates.query, now)
    ranking = rank(
        candidates,
        weights(settings, grounding, temporal=temporal),
        share=to_fixed(settings.diversity_share),
        now=now,
        max_age_seconds=max_age_seconds,
    )
    packing = greedy(ranking.facts, budget_tokens, k)
    packing, ordering, text, token_count = _fitted(packing, budget_tokens, counter, settings)

    used = saturation(token_count, budget_tokens)
    quality = classify(
        candidates,
        ranking,
        packing,
        saturation=used,
        grounding=grounding,
        temporal=temporal,
        now=now,
        settings=settings,
    )
    facts = tuple(PackedFact.of(ranked, n) for n, ranked in enumerate(ordering.facts, start=1))
    picked = [candidates.facts[position] for position in ranking.picks]
    return Envelope(
        session_id=session_id,
        window_number=window_number,
        query=candidates.query,
        sub_queries=candidates.sub_queries,
        text=text,
        facts=facts,
        sections=knowledge(len(facts), token_budget=budget_tokens, token_count=token_count),
        dropped=drops(candidates, ranking, packing),
        conflicts=_conflicts(candidates, ordering),
        total_facts_available=len(candidates.facts) - len(packing.over_k),
        total_facts_included=len(facts),
        token_count=token_count,
        token_budget=budget_tokens,
        saturation=float(used),
        saturation_label=label(used, settings),
        quality_tier=quality.tier,
        envelope_score=round(float(quality.score), 6),
        coverage_score=round(float(quality.coverage), 6),
        relevance_mean=round(float(quality.relevance_mean), 6),
        caps=quality.caps,
        promoted=ordering.promoted,
        etag=etag(fact.fact_id for fact in facts),
        state_hash=candidates.state_hash,
        strategy=strategy,
        grounding_mode=grounding,
        created_at=now,
        ckf_communities=tuple(dict.fromkeys(c.community for c in picked if c.community)),
        memory_tier_hit=candidates.memory_tier_hit,
        model=model,
        tokenizer=counter.identity,
        token_exactness=counter.exactness,
        algorithms=(RANK, GREEDY, ordering.algorithm, RENDER, ETAG, TIER),
        settings_digest=settings_digest,
    )


def preview(envelope: Envelope) -> EnvelopePreview:
    """What an envelope will be, without its facts.

    Spec: CRP-SPEC-003 §12.2
    """
    return EnvelopePreview(
        facts_available=envelope.total_facts_available,
        facts_included=envelope.total_facts_included,
        estimated_tokens=envelope.token_count,
        token_budget=envelope.token_budget,
        quality_tier=envelope.quality_tier,
        saturation=envelope.saturation,
        etag=envelope.etag,
        communities=envelope.ckf_communities,
        memory_tier_hit=envelope.memory_tier_hit,
        caps=envelope.caps,
    )


def _fitted(
    packing: Packing, budget_tokens: int, counter: TokenCounter, settings: EnvelopeSettings
) -> tuple[Packing, Ordering, str, int]:
    """Order, render and count as a whole; drop the lowest-ranked facts until the text fits (E17).

    Counts of parts need not add up to the count of the whole, under any tokenizer.
    """
    while True:
        ordering = order(packing.packed, settings)
        text = render([ranked.candidate.content for ranked in ordering.facts])
        token_count = max(0, counter.count(text)) if text else 0
        if token_count <= budget_tokens or not packing.packed:
            return packing, ordering, text, token_count
        packing = packing.lightened(token_count - budget_tokens)


def _conflicts(candidates: Candidates, ordering: Ordering) -> tuple[Conflict, ...]:
    shown = {ranked.candidate.fact_id for ranked in ordering.facts}
    pairs = (
        (candidates.facts[left].fact_id, candidates.facts[right].fact_id)
        for left, right in candidates.conflicts
    )
    return tuple(
        Conflict(left=left, right=right) for left, right in pairs if {left, right} <= shown
    )
