"""Phase 2: score, order and deduplicate candidates, in integers alone (`composite@1`).

The diversity bonus depends only on a fact's community and on how many of its facts were picked.
So the n-th pick of a community is always its n-th best member with the n-th bonus. Both fall with
n, so sorting all facts once gives the same order as picking them one by one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from crp_integrations.envelope.candidates import Candidate, Candidates, RankedFact
from crp_integrations.envelope.near_duplicates import Deduplication, as_pairs
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.lifecycle import known
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import GroundingMode

# Number of best candidates that are checked for contradictions of different dates.
_MAX_CHECKED = 20


@dataclass(frozen=True, slots=True)
class RankWeights:
    """Ranking weights in fixed point; they need not sum to SCALE (decision E9).

    Attributes:
        horizon_days: age at which freshness reaches 0.
    """

    relevance: int
    importance: int
    freshness: int
    diversity: int
    horizon_days: int


def rank_weights(
    settings: EnvelopeSettings, mode: GroundingMode, *, temporal: bool, dated: bool = True
) -> RankWeights:
    """The weights for a grounding mode and a question that is temporal or not.

    With `adaptive` settings, age counts only where it can decide something, and communities do
    not count: in measurements both displaced evidence. Relevance gets their weight.

    Spec: CRP-SPEC-003 §6.2, §6.4, §13.1
    """
    relevance = to_fixed(settings.relevance_weight)
    importance = to_fixed(settings.importance_factor)
    freshness = to_fixed(settings.freshness_weight)
    if mode is GroundingMode.STRICT:
        importance = to_fixed(settings.strict_importance_factor)
    elif mode is GroundingMode.OPEN:
        relevance = to_fixed(settings.open_relevance_weight)
        importance = to_fixed(settings.open_importance_factor)
    horizon = settings.freshness_horizon_days
    if temporal:
        shift = to_fixed(settings.temporal_shift)
        relevance = max(0, relevance - shift)
        freshness += shift
        horizon = settings.temporal_horizon_days
    diversity = to_fixed(settings.diversity_weight)
    if settings.adaptive:
        relevance, diversity = relevance + diversity, 0
        if not (temporal or dated):
            relevance, freshness = relevance + freshness, 0
    return RankWeights(relevance, importance, freshness, diversity, horizon)


def differ_in_age(candidates: Candidates) -> bool:
    """Whether age can decide: a fact is stale or decays, or two contradicting ones differ in age.

    Only the best candidates are compared, since others are unlikely to be shown.
    """
    facts = candidates.facts
    if any(fact.stale or fact.decay is not None for fact in facts):
        return True
    # Facts are sorted by id, and the sort is stable, so ties are in the order of ids.
    best = sorted(range(len(facts)), key=lambda at: -facts[at].merit)[:_MAX_CHECKED]
    times = {at: facts[at].ingested_at for at in best}
    if len(set(times.values())) < 2:
        return False
    return any(
        times[left] != times[right] for left, right in as_pairs(candidates.conflicts).within(best)
    )


RANK = "composite@1"

_MICROSECOND = timedelta(microseconds=1)
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Ranking:
    """The result of phase 2.

    Attributes:
        every: all candidates with duplicates, highest composite first, ties by fact id.
        picks: positions in `Candidates.facts` in the order they were picked.
        walk: finds which of `every` are near-duplicates, in the order of the picks.
        communities: labels in the order in which the first fact of each was picked.
    """

    every: tuple[RankedFact, ...]
    picks: Sequence[int]
    walk: Deduplication
    communities: tuple[str, ...] = ()


def age_microseconds(candidate: Candidate, now: datetime) -> int:
    """Age of a fact in microseconds; 0 for a fact never stored or dated in the future.

    Spec: CRP-SPEC-003 §6.4
    """
    if candidate.ingested_at is None:
        return 0
    return max(0, (now - candidate.ingested_at) // _MICROSECOND)


def freshness(
    candidate: Candidate, now: datetime, horizon_days: int, max_age_seconds: int | None = None
) -> int:
    """Freshness in fixed point: 1 for a new fact, falling to 0 at the horizon.

    Spec: CRP-SPEC-003 §6.4 (decision E10)
    """
    age = age_microseconds(candidate, now)
    if candidate.stale or (max_age_seconds is not None and age > max_age_seconds * 1_000_000):
        return 0
    if candidate.decay is not None and (decay := known(candidate.decay)) is not None:
        return decay.at(age)
    # Microseconds over a horizon in seconds are already in fixed point.
    return max(0, SCALE - _rounded(age, horizon_days * _DAY_SECONDS))


def diversity(picked: int, total: int, share: int) -> int:
    """Diversity bonus of a community in fixed point.

    Spec: CRP-SPEC-003 §6.5
    """
    if picked * SCALE > share * total:
        return 0
    return _rounded((total - picked) * SCALE, total)


def rank(
    candidates: Candidates,
    weights: RankWeights,
    *,
    share: int,
    now: datetime,
    max_age_seconds: int | None = None,
) -> Ranking:
    """Order candidates by their composite score.

    Spec: CRP-SPEC-003 §6 (decisions E8, E9, E10, E11)
    """
    facts = candidates.facts
    fresh = [freshness(fact, now, weights.horizon_days, max_age_seconds) for fact in facts]
    base = [
        weights.relevance * fact.merit
        + weights.importance * fact.importance
        + weights.freshness * age
        for fact, age in zip(facts, fresh, strict=True)
    ]
    by_base = _best_first(facts, base)
    bonus = _bonuses(facts, by_base, share)
    value = [score + weights.diversity * more for score, more in zip(base, bonus, strict=True)]
    picks = _best_first(facts, value)
    composite = [min(SCALE, (score + SCALE // 2) // SCALE) for score in value]
    order = sorted(range(len(facts)), key=lambda at: (-composite[at], facts[at].fact_id))
    labels = dict.fromkeys(facts[at].community for at in picks)
    return Ranking(
        every=tuple(RankedFact(facts[at], composite[at], fresh[at], bonus[at]) for at in order),
        picks=picks,
        walk=Deduplication(order, picks, as_pairs(candidates.duplicates)),
        # Facts without a label belong to no named community.
        communities=tuple(label for label in labels if label),
    )


def _best_first(facts: Sequence[Candidate], values: Sequence[int]) -> list[int]:
    """Positions, highest value first, ties by merit and then by id."""
    places = range(len(facts))
    return sorted(places, key=lambda at: (-values[at], -facts[at].merit, facts[at].fact_id))


def _bonuses(facts: Sequence[Candidate], best_first: Sequence[int], share: int) -> list[int]:
    """The diversity bonus that each fact has when it is picked in this order."""
    # A fact without a community forms its own.
    communities = [
        at if fact.community is None else fact.community for at, fact in enumerate(facts)
    ]
    total, picked = Counter(communities), Counter[int | str]()
    bonus = [0] * len(facts)
    for at in best_first:
        own = communities[at]
        bonus[at] = diversity(picked[own], total[own], share)
        picked[own] += 1
    return bonus


def _rounded(numerator: int, denominator: int) -> int:
    """Integer division of non-negative numbers, rounding halves up."""
    return (2 * numerator + denominator) // (2 * denominator)


_WORDS = re.compile(
    r"\b(?:current|latest|now|today|recent|newest|this\s+(?:year|month|week|quarter))\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<![\w.,])([0-9]{4})(?![\w]|[.,][0-9])")


def temporal_triggers(query: str, now: datetime) -> tuple[str, ...]:
    """The words of a question that make it temporal, in their order, in lower case.

    Spec: CRP-SPEC-003 §6.4 (decision E10)

    >>> from datetime import UTC
    >>> temporal_triggers("What is the latest rule of 2026?", datetime(2026, 5, 1, tzinfo=UTC))
    ('latest', '2026')
    """
    triggers = [(match.start(), match.group().lower()) for match in _WORDS.finditer(query)]
    triggers += [
        (match.start(), match.group(1))
        for match in _YEAR.finditer(query)
        if abs(int(match.group(1)) - now.year) <= 1
    ]
    return tuple(word for _, word in sorted(triggers))


def is_temporal(query: str, now: datetime) -> bool:
    """Whether a question asks for recent knowledge.

    Spec: CRP-SPEC-003 §6.4
    """
    return bool(temporal_triggers(query, now))
