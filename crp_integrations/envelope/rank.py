"""Phase 2: score, order and deduplicate candidates, in integers alone (`composite@1`).

The diversity bonus depends only on a fact's community and on how many of it were picked. So
the n-th pick of a community is its n-th best member with the n-th bonus, whatever happens
elsewhere. Both fall with n: putting all in order at once gives what picking one by one gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.pairs import as_pairs
from crp_integrations.envelope.ranked import RankedFacts, merits
from crp_integrations.envelope.records import Candidate, Candidates, RankedFact
from crp_integrations.envelope.walk import Walk
from crp_integrations.envelope.weights import Weights
from crp_integrations.scores import SCALE

RANK = "composite@1"

Integers = npt.NDArray[np.int64]

_MICROSECOND = timedelta(microseconds=1)
_IMPORTANCE = attrgetter("importance")
_FACT_ID, _COMMUNITY = attrgetter("fact_id"), attrgetter("community")
_INGESTED_AT, _STALE = attrgetter("ingested_at"), attrgetter("stale")
_DAY_SECONDS = 86_400
# Sorts by a value and then by relevance: a value is at most 5 × SCALE², so 2^63 is not reached.
_ROOM = 2**20


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
    picks: tuple[int, ...]
    walk: Walk
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
        An integer in [0, SCALE]; 0 for a stale fact.
    """
    age = age_microseconds(candidate, now)
    if candidate.stale or (max_age_seconds is not None and age > max_age_seconds * 1_000_000):
        return 0
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
    weights: Weights,
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
    facts = candidates.facts
    relevance = merits(facts)
    importance = _integers(list(map(_IMPORTANCE, facts)))
    fresh = _freshness(facts, now, weights.horizon_days, max_age_seconds)
    by_id = _by_id(facts)
    base = (
        weights.relevance * relevance + weights.importance * importance + weights.freshness * fresh
    )
    # Facts by id first: all sorts below are stable, so ties stay in that order.
    by_base = by_id[np.argsort(-(base * _ROOM + relevance)[by_id], kind="stable")]
    community = _communities(facts)
    bonus = _bonuses(community, by_base, share)
    value = base + weights.diversity * bonus
    picks = by_id[np.argsort(-(value * _ROOM + relevance)[by_id], kind="stable")]
    composite = np.minimum(SCALE, (value + SCALE // 2) // SCALE)
    order = by_id[np.argsort(-composite[by_id], kind="stable")]
    every = RankedFacts(
        list(map(facts.__getitem__, order.tolist())),
        composite[order].tolist(),
        fresh[order].tolist(),
        bonus[order].tolist(),
    )
    # The first pick of each community, which has a label or is a fact without one.
    firsts = picks[np.sort(np.unique(community[picks], return_index=True)[1])]
    labels = (facts[at].community for at in firsts.tolist())
    return Ranking(
        every=every,
        picks=tuple(picks.tolist()),
        walk=Walk(order, picks, as_pairs(candidates.duplicates)),
        communities=tuple(label for label in labels if label),
    )


def _freshness(
    facts: Sequence[Candidate], now: datetime, horizon_days: int, max_age_seconds: int | None
) -> Integers:
    """Freshness of every fact; facts of one ingestion share their time."""
    times = list(map(_INGESTED_AT, facts))
    distinct = list(set(times))
    ages = _integers([0 if time is None else (now - time) // _MICROSECOND for time in distinct])
    np.maximum(ages, 0, out=ages)
    horizon = horizon_days * _DAY_SECONDS
    fresh = np.maximum(0, SCALE - (2 * ages + horizon) // (2 * horizon))
    if max_age_seconds is not None:
        fresh[ages > max_age_seconds * 1_000_000] = 0
    known = dict(zip(distinct, fresh.tolist(), strict=True))
    found = _integers(list(map(known.__getitem__, times)))
    if any(map(_STALE, facts)):
        found[list(map(_STALE, facts))] = 0
    return found


def _by_id(facts: Sequence[Candidate]) -> Integers:
    """The positions of the facts by their ids."""
    ids = list(map(_FACT_ID, facts))
    if ids == sorted(ids):
        return np.arange(len(ids), dtype=np.int64)
    return _integers(sorted(range(len(ids)), key=ids.__getitem__))


def _communities(facts: Sequence[Candidate]) -> Integers:
    """A number for each fact's community; a fact without one is its own, whatever its id."""
    labels = list(map(_COMMUNITY, facts))
    numbers: dict[str | None, int] = {label: at for at, label in enumerate(dict.fromkeys(labels))}
    alone = numbers.pop(None, -1)
    numbers[None] = -1
    found = _integers(list(map(numbers.__getitem__, labels)))
    if alone >= 0:
        single = np.flatnonzero(found < 0)
        found[single] = len(labels) + single
    return found


def _bonuses(community: Integers, best_first: Integers, share: int) -> Integers:
    """The diversity bonus that each fact has at its pick.

    Args:
        community: number of each fact's community.
        best_first: positions in the order in which the members of a community are picked.
        share: as for `diversity`.
    """
    order = best_first[np.argsort(community[best_first], kind="stable")]
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


def _integers(values: Sequence[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _rounded(numerator: int, denominator: int) -> int:
    """Integer division of non-negative numbers, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)
