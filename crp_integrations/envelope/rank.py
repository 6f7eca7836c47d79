"""Phase 2: score, order and deduplicate candidates, in integers alone (`composite@1`).

The diversity bonus depends only on a fact's community and on how many of it were picked. So
the n-th pick of a community is its n-th best member with the n-th bonus, whatever happens
elsewhere. Both fall with n: putting all in order at once gives what picking one by one gives.

The four ranking weights in force for one question: grounding mode first, then time.

Whether a question asks for recent knowledge.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count

import numpy as np

from crp_integrations.envelope.candidates import (
    Candidates,
    Column,
    Columns,
    RankedFacts,
    in_id_order,
    integers,
)
from crp_integrations.envelope.near_duplicates import Deduplication, Places, as_pairs
from crp_integrations.envelope.records import Candidate, Integers, RankedFact
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.decay import known
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import GroundingMode

# Candidates among which contradictions of several dates are looked for.
_BEST = 20


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

    With `adaptive` settings age counts only where it can decide something, and communities do
    not: by measurement both cost evidence elsewhere. Their weight goes to relevance.

    Spec: CRP-SPEC-003 §6.2, §6.4, §13.1

    Args:
        temporal: whether the question asks for recent knowledge.
        dated: whether facts on one topic are of several dates, or stale.

    Returns:
        Weights that are not renormalised; a weight never falls below 0.
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
    """Whether age can decide: some are stale or fade by a function, or two that contradict differ.

    Looked for among the best alone, since nothing else is likely to be shown.
    """
    columns = candidates.columns
    if columns.stale or columns.decays:
        return True
    # Facts are sorted by id, and a stable sort keeps their order where they are equal.
    best = np.argsort(-columns.merit, kind="stable")[:_BEST].tolist()
    times = {at: columns.facts[at].ingested_at for at in best}
    if len(set(times.values())) < 2:
        return False
    return any(
        times[left] != times[right] for left, right in as_pairs(candidates.conflicts).within(best)
    )


RANK = "composite@1"

_MICROSECOND = timedelta(microseconds=1)
_DAY_SECONDS = 86_400
# Sorts by a value and then by relevance: a value is at most 5 × SCALE², so 2^63 is not reached.
_ROOM = 2**20
# Communities of fewer facts have numbers of two bytes, twice as many for those without a label.
_SMALL = 2**14


@dataclass(frozen=True, slots=True)
class Ranking:
    """What phase 2 hands on.

    Attributes:
        every: all candidates, highest composite first, ties by fact id; duplicates among them.
        picks: positions in `Candidates.facts` in the order they were picked.
        walk: tells which of `every` are near-duplicates, walking in the order of the picks.
        communities: labels in the order in which the first of each was picked.
    """

    every: RankedFacts
    picks: Places
    walk: Deduplication
    communities: tuple[str, ...] = ()

    @property
    def facts(self) -> tuple[RankedFact, ...]:
        """`every` without near-duplicates."""
        gone = self.walk.all()
        return tuple(ranked for place, ranked in enumerate(self.every) if place not in gone)

    @property
    def duplicates(self) -> tuple[tuple[RankedFact, str], ...]:
        """Each near-duplicate with the id of the one that stands for it, in order of the picks."""
        every = self.every
        gone = self.walk.all().items()
        return tuple((every[place], every[kept].candidate.fact_id) for place, kept in gone)


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
        An integer in [0, SCALE]; 0 for a stale fact. Of a fact that carries a decay function, what
        that leaves at its age (decision on the context engineering pack).
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
    weights: RankWeights,
    *,
    share: int,
    now: datetime,
    max_age_seconds: int | None = None,
) -> Ranking:
    """Order candidates by their composite score.

    Spec: CRP-SPEC-003 §6 (decisions E8, E9, E10, E11)

    Args:
        candidates: the seam; the order of its facts has no influence.
        weights: the weights in force.
        share: community share above which the diversity bonus is 0, fixed point.
        now: the current time, aware.
        max_age_seconds: age above which a fact counts as stale, None for no such age.
    """
    columns = candidates.columns
    by_id = columns.by_id
    relevance = columns.merit
    base = weights.relevance * relevance + weights.importance * columns.importance
    fresh: Column
    if weights.freshness:
        ages = _freshness(columns, now, weights.horizon_days, max_age_seconds)
        base += weights.freshness * ages
        fresh = ages
    else:
        # It decides nothing and is told of the few facts that are shown.
        fresh = _Freshness(columns.facts, now, weights.horizon_days, max_age_seconds)
    # Facts by id first: all sorts below are stable, so ties stay in that order.
    picks = by_base = in_id_order(-(base * _ROOM + relevance), by_id)
    community = _communities(columns.communities)
    bonus = _bonuses(community, by_base, share)
    value = base
    if weights.diversity:
        value = base + weights.diversity * bonus
        picks = in_id_order(-(value * _ROOM + relevance), by_id)
    composite = np.minimum(SCALE, (value + SCALE // 2) // SCALE)
    order = _by_composite(composite, picks, by_id)
    labels = columns.communities
    firsts = picks[_firsts(community[picks])]
    return Ranking(
        every=RankedFacts(columns, order, composite, fresh, bonus),
        picks=picks,
        walk=Deduplication(order, picks, as_pairs(candidates.duplicates)),
        # A fact without a label is a community without a name.
        communities=tuple(label for at in firsts.tolist() if (label := labels[at])),
    )


class _Freshness:
    """Freshness by position, worked out for one fact when it is asked for."""

    __slots__ = ("_facts", "_horizon_days", "_max_age_seconds", "_now", "_of_time")

    def __init__(
        self,
        facts: Sequence[Candidate],
        now: datetime,
        horizon_days: int,
        max_age_seconds: int | None,
    ) -> None:
        self._facts = facts
        self._now = now
        self._horizon_days = horizon_days
        self._max_age_seconds = max_age_seconds
        # Of facts that are neither stale nor carry a function; those of one ingestion share it.
        self._of_time: dict[datetime | None, int] = {}

    def __getitem__(self, at: int) -> int:
        fact = self._facts[at]
        if fact.stale or fact.decay is not None:
            return freshness(fact, self._now, self._horizon_days, self._max_age_seconds)
        known = self._of_time.get(fact.ingested_at)
        if known is None:
            known = freshness(fact, self._now, self._horizon_days, self._max_age_seconds)
            self._of_time[fact.ingested_at] = known
        return known


def _freshness(
    columns: Columns, now: datetime, horizon_days: int, max_age_seconds: int | None
) -> Integers:
    """Freshness of every fact; facts of one ingestion share their time."""
    times = columns.ingested_at
    distinct = list(set(times))
    ages = integers([0 if time is None else (now - time) // _MICROSECOND for time in distinct])
    np.maximum(ages, 0, out=ages)
    horizon = horizon_days * _DAY_SECONDS
    fresh = np.maximum(0, SCALE - (2 * ages + horizon) // (2 * horizon))
    if max_age_seconds is not None:
        fresh[ages > max_age_seconds * 1_000_000] = 0
    by_time = dict(zip(distinct, fresh.tolist(), strict=True))
    found = integers([by_time[time] for time in times])
    for at, _ in columns.decays:
        found[at] = freshness(columns.facts[at], now, horizon_days, max_age_seconds)
    found[columns.stale] = 0
    return found


def _communities(labels: Sequence[str | None]) -> Integers:
    """A number for each fact's community; a fact without one is its own, whatever its id."""
    numbers: defaultdict[str | None, int] = defaultdict(count().__next__)
    found = integers([numbers[label] for label in labels])
    if None in numbers:
        single = np.flatnonzero(found == numbers[None])
        found[single] = len(labels) + single
    return found


def _firsts(community: Integers) -> Places:
    """Places at which a community stands for the first time, ascending."""
    first = np.full(2 * len(community) + 1, -1, dtype=np.intp)
    # Written from behind, so that what stands first stays.
    first[community[::-1]] = np.arange(len(community) - 1, -1, -1)
    places = first[first >= 0]
    places.sort()
    return places


def _by_composite(composite: Integers, picks: Places, by_id: Places | None) -> Places:
    """Positions, best composite first, ties in the order of the ids.

    Composites fall along the picks, so that little is left to sort.
    """
    if by_id is not None:
        return in_id_order(-composite, by_id)
    order: Places = picks[np.argsort(picks - composite[picks] * len(picks), kind="stable")]
    return order


def _bonuses(community: Integers, best_first: Integers, share: int) -> Integers:
    """The diversity bonus that each fact has at its pick.

    Args:
        community: number of each fact's community.
        best_first: positions in the order in which the members of a community are picked.
        share: as for `diversity`.
    """
    grouped = community[best_first]
    if len(grouped) < _SMALL:
        # Numbers of two bytes are sorted in a few passes.
        grouped = grouped.astype(np.int16)
    order = best_first[np.argsort(grouped, kind="stable")]
    members = community[order]
    starts = np.flatnonzero(np.concatenate([[True], members[1:] != members[:-1]]))
    sizes = np.diff(np.append(starts, len(members)))
    total = np.repeat(sizes, sizes)
    picked = np.arange(len(members)) - np.repeat(starts, sizes)
    bonus = (2 * (total - picked) * SCALE + total) // (2 * total)
    bonus[picked * SCALE > share * total] = 0
    found = np.empty_like(community)
    found[order] = bonus
    return found


def _rounded(numerator: int, denominator: int) -> int:
    """Integer division of non-negative numbers, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)


_WORDS = re.compile(
    r"\b(?:current|latest|now|today|recent|newest|this\s+(?:year|month|week|quarter))\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<![\w.,])([0-9]{4})(?![\w]|[.,][0-9])")


def temporal_triggers(query: str, now: datetime) -> tuple[str, ...]:
    """The words of a question that make it temporal, in their order, in lower case.

    Spec: CRP-SPEC-003 §6.4 (decision E10)

    Args:
        query: the question as asked.
        now: the current time; a year within one of its year is a trigger.

    Returns:
        Empty when the question is not temporal.

    >>> from datetime import UTC
    >>> temporal_triggers("What is the latest rule of 2026?", datetime(2026, 5, 1, tzinfo=UTC))
    ('latest', '2026')
    """
    found = [(match.start(), match.group().lower()) for match in _WORDS.finditer(query)]
    found += [
        (match.start(), match.group(1))
        for match in _YEAR.finditer(query)
        if abs(int(match.group(1)) - now.year) <= 1
    ]
    return tuple(word for _, word in sorted(found))


def is_temporal(query: str, now: datetime) -> bool:
    """Whether a question asks for recent knowledge.

    Spec: CRP-SPEC-003 §6.4
    """
    return bool(temporal_triggers(query, now))
