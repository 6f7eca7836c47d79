"""From candidates to an envelope: Rank, Pack, order, render, recount, tier.

Select runs before this, in `retrieval` or `caller_candidates`. This module uses only integer
arithmetic and a total order, so an envelope can be rebuilt from its candidates byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import index
from typing import NamedTuple

from crp_integrations.envelope.budget import NEED, needed_places, needed_tokens
from crp_integrations.envelope.caller_candidates import recount_tokens
from crp_integrations.envelope.candidates import Candidate, Candidates, split_refused
from crp_integrations.envelope.continuation import assess_pressure
from crp_integrations.envelope.layout import (
    Ordering,
    PreviousEnvelope,
    arrange_facts,
    knowledge_section,
    opening_ids,
    reusable_prefix,
)
from crp_integrations.envelope.near_duplicates import WALK
from crp_integrations.envelope.pack import PackResult, pack
from crp_integrations.envelope.passages import (
    EXCERPT,
    CutTexts,
    add_parts,
    choose_parts,
    count_parts,
    whole_budget,
)
from crp_integrations.envelope.prompt import RENDER, render
from crp_integrations.envelope.rank import (
    RANK,
    Ranking,
    differ_in_age,
    is_temporal,
    rank,
    rank_weights,
)
from crp_integrations.envelope.records import (
    Drop,
    Envelope,
    EnvelopePreview,
    PackedFact,
    refused_drops,
)
from crp_integrations.envelope.reuse import ETAG, SALTED_ETAG, etag
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.envelope.tier import (
    TIER,
    NeedShown,
    classify_tier,
    saturation,
    saturation_label,
)
from crp_integrations.errors import RequestError
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import DropReason, GroundingMode, QualityTier, Strategy


def build_drop_report(
    candidates: Candidates,
    ranking: Ranking,
    packing: PackResult,
    refused: Sequence[Candidate] = (),
) -> tuple[Drop, ...]:
    """List everything left out: first in the order of the ranking, then what was refused.

    Each candidate is either included or dropped, exactly once.

    Spec: CRP-SPEC-003 §6.6, §7.3 (decisions E2, E5)
    """
    packed = {ranked.candidate.fact_id for ranked in packing.packed}
    over_k = {ranked.candidate.fact_id for ranked in packing.over_k}
    kept_ids = {ranked.candidate.fact_id: kept_id for ranked, kept_id in packing.duplicates}
    drops: list[Drop] = []
    for fact in (candidates.facts[at] for at in ranking.picks):
        id_ = fact.fact_id
        if id_ in kept_ids:
            reason = DropReason.DUPLICATE
        elif id_ in packed:
            continue
        else:
            reason = DropReason.K if id_ in over_k else DropReason.BUDGET
        drops.append(Drop(fact_id=id_, reason=reason, tokens=fact.tokens, kept=kept_ids.get(id_)))
    return (*drops, *refused_drops(refused))


class FittedText(NamedTuple):
    """A text that fits its budget, with the packing and ordering it was made from."""

    packing: PackResult
    ordering: Ordering
    text: str
    token_count: int


@dataclass(frozen=True, slots=True)
class _Assembly:
    """The inputs that packing and fitting share while one envelope is made.

    Attributes:
        cut: passages of the caller's texts, and the texts they belong to.
        opening: ids of the facts that the text begins with; `first` has their passages' ids too.
        k: maximum number of facts, None for no maximum.
    """

    ranking: Ranking
    cut: CutTexts
    opening: Sequence[str]
    first: Collection[str]
    k: int | None
    counter: TokenCounter
    settings: EnvelopeSettings

    def fill(self, budget_tokens: int) -> tuple[FittedText, bool]:
        """Fit whole facts, then parts of the others; also returns whether parts were tried."""
        hybrid = self.settings.hybrid
        packing = self._packed(budget_tokens)
        # A cap on the number of facts counts whole facts, so it excludes parts, but not passages.
        whole = whole_budget(budget_tokens, hybrid, None if self.cut.owners else self.k)
        # Parts only help if a fact that did not fit has more than one stretch.
        divisible = any(len(fact.candidate.stretches) > 1 for fact in packing.over_budget)
        if whole >= budget_tokens or not divisible:
            return self._fit(packing, budget_tokens), False
        fitted = self._fit(self._packed(whole, hybrid.passed_over), whole)
        fitted = self._with_excerpts(fitted, budget_tokens)
        idle = budget_tokens - fitted.token_count
        if 2 * idle > budget_tokens - whole:
            # Parts left over half of their share unused, so whole facts get the unused tokens.
            room = min(budget_tokens, whole + idle)
            # With no parts at all, lower-ranked facts are better than an unused budget.
            passed_over = hybrid.passed_over if room < budget_tokens else None
            fitted = self._fit(self._packed(room, passed_over), budget_tokens)
            fitted = self._with_excerpts(fitted, budget_tokens)
        return fitted, True

    def _packed(self, room: int, passed_over: int | None = None) -> PackResult:
        def pack_most(most: int | None) -> PackResult:
            return pack(
                self.ranking.every,
                room,
                most,
                packing=self.settings.packing,
                walk=self.ranking.walk,
                every_duplicate=self.settings.duplicates_told == "all",
                pinned=self.first,
                passed_over=passed_over,
            )

        return self.cut.packed(pack_most, self.k)

    def _fit(self, packing: PackResult, budget_tokens: int) -> FittedText:
        """Order, render and count as a whole; drop the lowest-ranked facts until it fits (E17).

        With any tokenizer, the counts of parts may not add up to the count of the whole.
        """
        while True:
            fitted = self._rendered(packing)
            if fitted.token_count <= budget_tokens or not packing.packed:
                return fitted
            packing = packing.lightened(fitted.token_count - budget_tokens)

    def _with_excerpts(self, fitted: FittedText, budget_tokens: int) -> FittedText:
        """Add parts of the facts that were left out, within the budget."""
        packing = fitted.packing
        room = budget_tokens - fitted.token_count
        filling = choose_parts(packing.over_budget, room, self.settings.hybrid, self.counter)
        while filling.chosen:
            full = self._rendered(add_parts(packing, filling.shown()))
            if full.token_count <= budget_tokens:
                counted = count_parts(full.packing, self.counter)
                return full._replace(packing=counted, ordering=self._ordered(counted))
            filling = filling.lightened(full.token_count - budget_tokens)
        return fitted

    def _ordered(self, packing: PackResult) -> Ordering:
        return arrange_facts(self.cut.joined(packing.packed), self.opening, self.settings)

    def _rendered(self, packing: PackResult) -> FittedText:
        ordering = self._ordered(packing)
        text = render([ranked.candidate.content for ranked in ordering.facts])
        token_count = max(0, self.counter.count(text)) if text else 0
        return FittedText(packing, ordering, text, token_count)


def assemble(
    candidates: Candidates,
    *,
    budget_tokens: int,
    automatic: bool = False,
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
    tiers_before: Sequence[QualityTier] = (),
    salt: str = "",
    pinned: Collection[str] = (),
    previous: Envelope | PreviousEnvelope | None = None,
) -> Envelope:
    """Make the envelope of one model call.

    Spec: CRP-SPEC-003 §4, §6, §7, §8

    Args:
        candidates: the selected candidates; counted again if another counter counted them.
        budget_tokens: maximum tokens of the rendered text; below 0 counts as 0.
        automatic: use as many tokens as the question needs, at most `budget_tokens`.
        counter: the target model's token counter.
        now: the current time, aware; only freshness, age limits and `created_at` depend on it.
        k: maximum number of facts, None for no maximum.
        max_age_seconds: age above which a fact counts as stale, None for no such age.
        tiers_before: quality tiers of the session's earlier windows, oldest first.
        salt: secret of the session that salts the ETag, empty for an unsalted one.
        pinned: ids of candidates that a cache-stable envelope begins with.
        previous: the session's previous envelope, whose beginning is reused if possible.
    """
    if now.tzinfo is None:
        raise RequestError(f"the time {now.isoformat()} has no time zone, wanted an aware one")
    k = None if k is None else _whole_number("k", k)
    if k is not None and k < 1:
        raise RequestError(f"k is {k}, wanted at least 1")
    now = now.astimezone(UTC)
    budget_tokens = max(0, _whole_number("budget_tokens", budget_tokens))
    if candidates.tokenizer != counter.identity:
        candidates = recount_tokens(candidates, counter)
    candidates, refused = split_refused(candidates)

    temporal = is_temporal(candidates.query, now)
    cut = CutTexts.of(candidates)
    dated = settings.adaptive and not temporal and differ_in_age(cut.passages)
    ranking = rank(
        cut.passages,
        rank_weights(settings, grounding, temporal=temporal, dated=dated),
        share=to_fixed(settings.diversity_share),
        now=now,
        max_age_seconds=max_age_seconds,
    )
    before = PreviousEnvelope.of(previous)
    opening = opening_ids(pinned, before.ids, settings)

    first = cut.pinned(opening)
    if automatic:
        budget_tokens = min(
            budget_tokens, needed_tokens(ranking, len(candidates.sub_queries), settings, first)
        )

    assembly = _Assembly(ranking, cut, opening, first, k, counter, settings)
    fitted, with_excerpts = assembly.fill(budget_tokens)
    packing, ordering, text, token_count = fitted
    conflicts = cut.conflicts(packing.packed)
    parts = any(ranked.candidate.spans for ranked in packing.packed)
    if automatic and packing.packed and not (packing.over_budget or parts):
        # Every candidate is included whole, so the question needs no more than this.
        budget_tokens = token_count
    need = NeedShown.of(ranking, packing, token_count, settings)
    if cut.owners:
        packing = count_parts(cut.packing(packing, k), counter)
        ranking = cut.ranking(ranking)
        ordering = arrange_facts(packing.packed, opening, settings)

    used = saturation(token_count, budget_tokens)
    quality = classify_tier(
        candidates,
        ranking,
        packing,
        saturation=used,
        grounding=grounding,
        temporal=temporal,
        now=now,
        settings=settings,
        refused=refused,
        need=need,
    )
    left = packing.over_budget
    if automatic:
        # Facts that the question does not need are not deferred to another window.
        places = needed_places((*packing.packed, *left), settings)
        left = tuple(left[at - len(packing.packed)] for at in places if at >= len(packing.packed))
    pressed = assess_pressure(
        candidates,
        replace(packing, over_budget=left),
        saturation=used,
        grounding=grounding,
        settings=settings,
        tiers=(*tiers_before, quality.tier),
    )
    prefix = reusable_prefix([fact.candidate.content for fact in ordering.facts], before.text)
    prefix_tokens = max(0, counter.count(prefix)) if prefix else 0
    facts = tuple(PackedFact.of(ranked, n) for n, ranked in enumerate(ordering.facts, start=1))
    named = SALTED_ETAG if salt else ETAG
    return Envelope(
        session_id=session_id,
        window_number=window_number,
        query=candidates.query,
        sub_queries=candidates.sub_queries,
        text=text,
        facts=facts,
        sections=knowledge_section(len(facts), token_budget=budget_tokens, token_count=token_count),
        dropped=build_drop_report(candidates, ranking, packing, refused),
        conflicts=conflicts,
        total_facts_available=len(candidates.facts) - len(packing.over_k),
        total_facts_included=len(facts),
        token_count=token_count,
        token_budget=budget_tokens,
        saturation=float(used),
        saturation_label=saturation_label(used, settings),
        quality_tier=quality.tier,
        envelope_score=round(float(quality.score), 6),
        coverage_score=round(float(quality.coverage), 6),
        relevance_mean=round(float(quality.relevance_mean), 6),
        caps=quality.caps,
        advice=pressed.advice,
        deferred=pressed.deferred,
        promoted=ordering.promoted,
        layout=settings.layout,
        prefix_tokens=prefix_tokens,
        prefix_characters=len(prefix),
        etag=etag((fact.fact_id for fact in facts), salt),
        state_hash=candidates.state_hash,
        strategy=strategy,
        grounding_mode=grounding,
        created_at=now,
        ckf_communities=ranking.communities,
        memory_tier_hit=candidates.memory_tier_hit,
        tier_hits=candidates.tier_hits,
        model=model,
        tokenizer=counter.identity,
        token_exactness=counter.exactness,
        algorithms=(
            *candidates.algorithms,
            RANK,
            WALK,
            *((NEED,) if automatic else ()),
            packing.algorithm,
            *((EXCERPT,) if with_excerpts else ()),
            *ordering.algorithms,
            RENDER,
            named,
            TIER,
        ),
        settings_digest=settings_digest,
    )


def preview(envelope: Envelope, awaits: Sequence[str] = ()) -> EnvelopePreview:
    """The preview of an envelope.

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
        advice=envelope.advice,
        facts=envelope.facts,
        text=envelope.text,
        awaits=tuple(awaits),
    )


def _whole_number(name: str, value: object) -> int:
    """Return an integer of any type, such as NumPy's; raise for a bool or anything else."""
    try:
        # Python accepts True as 1, but a caller of these arguments never means that.
        return index(None if isinstance(value, bool) else value)  # type: ignore[arg-type]
    except TypeError:
        raise RequestError(f"{name} is {value!r:.40}, wanted a whole number") from None
