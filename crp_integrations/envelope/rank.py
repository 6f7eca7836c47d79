"""Phase 2: score, order and deduplicate candidates, in integers alone (`composite@1`).

The diversity bonus depends only on a fact's community and on how many of it were picked,
so at every step only the best remaining member of each community can win. A heap over
these heads gives the sequential result exactly, in O(n log n).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from crp_integrations.envelope.records import Candidate, Candidates, RankedFact
from crp_integrations.envelope.weights import Weights
from crp_integrations.scores import SCALE

RANK = "composite@1"

_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class Ranking:
    """What phase 2 hands on.

    Attributes:
        facts: without near-duplicates, highest composite first, ties by fact id.
        duplicates: each fact that was dropped with the id of the one that stands for it, in
            the order of the picks.
        picks: positions in `Candidates.facts` in the order they were picked, duplicates too.
    """

    facts: tuple[RankedFact, ...]
    duplicates: tuple[tuple[RankedFact, str], ...]
    picks: tuple[int, ...]


def age_microseconds(candidate: Candidate, now: datetime) -> int:
    """Age of a fact in microseconds; 0 for one that was never stored or lies in the future.

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

    Args:
        now: the current time, aware.
        horizon_days: age at which freshness reaches 0.
        max_age_seconds: age above which a fact counts as stale, None for no such age.

    Returns:
        An integer in [0, SCALE]; 0 for a stale fact.
    """
    age = age_microseconds(candidate, now)
    if candidate.stale or (max_age_seconds is not None and age > max_age_seconds * 1_000_000):
        return 0
    horizon = horizon_days * _DAY
    return max(0, SCALE - _rounded(age * SCALE, horizon))


def diversity(picked: int, total: int, share: int) -> int:
    """Diversity bonus of a community in fixed point.

    Spec: CRP-SPEC-003 §6.5

    Args:
        picked: facts of the community that were picked already.
        total: candidates of the community, at least 1.
        share: the share above which the bonus is 0, fixed point.
    """
    if picked * SCALE > share * total:
        return 0
    return _rounded((total - picked) * SCALE, total)


def rank(
    candidates: Candidates,
    weights: Weights,
    *,
    share: int,
    now: datetime,
    max_age_seconds: int | None = None,
) -> Ranking:
    """Order candidates by their composite score and drop near-duplicates.

    Spec: CRP-SPEC-003 §6 (decisions E8, E9, E10, E11)

    Args:
        candidates: the seam; the order of its facts has no influence.
        weights: the weights in force.
        share: community share above which the diversity bonus is 0, fixed point.
        now: the current time, aware.
        max_age_seconds: age above which a fact counts as stale, None for no such age.
    """
    facts = candidates.facts
    fresh = [freshness(fact, now, weights.horizon_days, max_age_seconds) for fact in facts]
    base = [
        weights.relevance * fact.relevance
        + weights.importance * fact.importance
        + weights.freshness * fresh[position]
        for position, fact in enumerate(facts)
    ]

    # A key of (0, label) or (1, id): a fact without a community is its own, whatever its id.
    members: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for position, fact in enumerate(facts):
        key = (1, fact.fact_id) if fact.community is None else (0, fact.community)
        members[key].append(position)
    for queue in members.values():
        # Worst first, so that the head is popped from the end.
        queue.sort(key=lambda i: (-base[i], -facts[i].relevance, facts[i].fact_id), reverse=True)
    totals = {key: len(queue) for key, queue in members.items()}
    picked: Counter[tuple[int, str]] = Counter()

    heap: list[tuple[int, int, str, int, int, tuple[int, str]]] = []

    def offer(key: tuple[int, str]) -> None:
        if members[key]:
            head = members[key].pop()
            bonus = diversity(picked[key], totals[key], share)
            value = base[head] + weights.diversity * bonus
            entry = (-value, -facts[head].relevance, facts[head].fact_id, head, bonus, key)
            heapq.heappush(heap, entry)

    for key in sorted(members):
        offer(key)
    order: list[RankedFact] = []
    picks: list[int] = []
    while heap:
        negative, _, _, head, bonus, key = heapq.heappop(heap)
        picked[key] += 1
        composite = min(SCALE, _rounded(-negative, SCALE))
        order.append(RankedFact(facts[head], composite, fresh[head], bonus))
        picks.append(head)
        offer(key)
    kept, dropped = _deduplicated(order, picks, candidates.duplicates)
    kept.sort(key=lambda ranked: (-ranked.composite, ranked.candidate.fact_id))
    return Ranking(tuple(kept), tuple(dropped), tuple(picks))


def _deduplicated(
    order: list[RankedFact], picks: list[int], pairs: tuple[tuple[int, int], ...]
) -> tuple[list[RankedFact], list[tuple[RankedFact, str]]]:
    """Walk in rank order and drop what is nearly equal to a fact already kept (E11)."""
    twins: defaultdict[int, list[int]] = defaultdict(list)
    for left, right in pairs:
        twins[left].append(right)
        twins[right].append(left)
    stands_for: dict[int, str] = {}
    kept: list[RankedFact] = []
    dropped: list[tuple[RankedFact, str]] = []
    for ranked, position in zip(order, picks, strict=True):
        if position in stands_for:
            dropped.append((ranked, stands_for[position]))
            continue
        kept.append(ranked)
        for twin in twins[position]:
            # The first kept fact to claim a twin ranks highest of all that could.
            stands_for.setdefault(twin, ranked.candidate.fact_id)
    return kept, dropped


def _rounded(numerator: int, denominator: int) -> int:
    """Integer division of non-negative numbers, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)
