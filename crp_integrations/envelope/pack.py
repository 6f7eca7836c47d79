"""Phase 3, first half: which ranked facts go in, by a named algorithm, and why others do not.

`greedy` is the specification's loop. `patient` is the same loop, but stops after skipping too many
facts; it fills a share of a budget whose rest takes parts of facts. `in_order` stops at the first
fact that does not fit. All are deterministic and leave out near-duplicates of higher facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from crp_integrations.envelope.candidates import RankedFact, is_summary
from crp_integrations.envelope.near_duplicates import Deduplication


@dataclass(frozen=True, slots=True)
class PackItems:
    """The facts to pack, in rank order.

    Attributes:
        tokens: tokens of each fact, at least 0.
        is_original: whether the fact at a place is not a near-duplicate of a higher one.
        fetch: prepares answers of `is_original` for many places at once.
    """

    tokens: Sequence[int]
    is_original: Callable[[int], bool]
    fetch: Callable[[Sequence[int]], None]


Packer = Callable[[PackItems, int, int], list[int]]


def greedy(offer: PackItems, room: int, most: int) -> list[int]:
    """Take facts in rank order as long as they fit; skip one that does not and go on.

    Spec: CRP-SPEC-003 §7.3
    """
    # An eighth more, since near-duplicates are left out and make room for others.
    offer.fetch(_take_fitting(offer, room + room // 8, most))
    return _take_fitting(offer, room, most, offer.is_original)


def patient(offer: PackItems, room: int, most: int, *, passed_over: int) -> list[int]:
    """Take facts in rank order and skip at most `passed_over` that do not fit per fact taken.

    A short fact far down is worth less than the best sentences of the long facts skipped above
    it. A near-duplicate of a higher fact is not counted as skipped.
    """
    # The same places as in `greedy`, since this function never looks at more.
    offer.fetch(_take_fitting(offer, room + room // 8, most))
    least = min(offer.tokens, default=0)
    taken: list[int] = []
    skipped = 0
    for place, tokens in enumerate(offer.tokens):
        if room < least or len(taken) == most:
            break
        if not offer.is_original(place):
            continue
        if tokens <= room:
            taken.append(place)
            room -= tokens
        elif (skipped := skipped + 1) > passed_over * len(taken):
            break
    return taken


PACKERS: Mapping[str, Packer] = {"greedy": greedy, "in_order": partial(patient, passed_over=0)}


def _take_fitting(
    offer: PackItems,
    room: int,
    most: int,
    is_original: Callable[[int], bool] | None = None,
) -> list[int]:
    """Places of facts that fit, in order; without `is_original`, a guess at them for `fetch`."""
    taken: list[int] = []
    for place, tokens in enumerate(offer.tokens):
        if len(taken) == most:
            break
        if tokens <= room and (is_original is None or is_original(place)):
            taken.append(place)
            room -= tokens
    return taken


@dataclass(frozen=True, slots=True)
class PackResult:
    """Ranked facts sorted into those that go in and those that do not, each in rank order.

    Attributes:
        packed: facts that go into the envelope, pinned facts before all others.
        over_budget: facts that did not fit.
        over_k: facts left out because the maximum number of facts was reached.
        duplicates: near-duplicates, each with the id of the fact kept instead.
        algorithm: `name@n` of the packing algorithm.
    """

    packed: tuple[RankedFact, ...]
    over_budget: tuple[RankedFact, ...]
    over_k: tuple[RankedFact, ...]
    duplicates: tuple[tuple[RankedFact, str], ...] = ()
    algorithm: str = "greedy@1"

    def lightened(self, excess: int) -> PackResult:
        """The packing with its lowest-ranked facts, at least one, moved to `over_budget`.

        Facts are moved until their counts reach half of the excess. In the text a fact takes at
        most twice its count, so this moves no fact that moving one at a time would have kept.
        """
        count, freed = len(self.packed), 0
        while count and (2 * freed < excess):
            count -= 1
            freed += self.packed[count].candidate.tokens
        gone = sorted(
            (*self.over_budget, *self.packed[count:]),
            key=lambda fact: (-fact.composite, fact.candidate.fact_id),
        )
        return replace(self, packed=self.packed[:count], over_budget=tuple(gone))


def pack(
    ranked: Sequence[RankedFact],
    budget_tokens: int,
    k: int | None = None,
    *,
    packing: str = "greedy",
    walk: Deduplication | None = None,
    every_duplicate: bool = False,
    pinned: Collection[str] = (),
    passed_over: int | None = None,
) -> PackResult:
    """Choose the facts that go in.

    A near-duplicate of a kept fact above it never goes in. Of the facts that do not fit, only
    those that resemble a packed fact are reported as duplicates; `every_duplicate` checks all, as
    the specification is written. The chosen facts are the same either way.

    Spec: CRP-SPEC-003 §7.3 (decisions E2, E5, E11, E17)

    Args:
        k: maximum number of facts; earlier answers and their summaries are none.
    """
    pin_packer = packer = PACKERS[packing]
    if packing == "greedy" and passed_over is not None:
        packing, packer = "patient", partial(patient, passed_over=passed_over)
    walk = walk or Deduplication.without_duplicates(len(ranked))
    if every_duplicate:
        walk.all()
    first = _places(ranked, pinned) if pinned else []
    chosen = _choose(ranked, first, budget_tokens, k, pin_packer, walk) if first else []
    front, facts = len(chosen), _count_facts(ranked, chosen)
    room = budget_tokens - sum(ranked[at].candidate.tokens for at in chosen)
    rest: Sequence[int] = range(len(ranked))
    if first:
        apart = set(first)
        rest = [at for at in rest if at not in apart]
    chosen += _choose(ranked, rest, room, None if k is None else k - facts, packer, walk)
    facts += _count_facts(ranked, chosen[front:])

    alike = _known_duplicates(chosen, walk)
    taken = {*chosen, *alike}
    # If the cap was reached, no fact after the last chosen one was considered (decision E2).
    end = len(ranked)
    if k is not None and facts >= k:
        end = max(chosen[front:], default=-1) + 1
    left = tuple(ranked[at] for at in range(end) if at not in taken)
    cut = tuple(ranked[at] for at in range(end, len(ranked)) if at not in taken)
    return PackResult(
        packed=tuple(ranked[at] for at in chosen),
        over_budget=left,
        over_k=cut,
        duplicates=tuple(
            [(ranked[at], ranked[alike[at]].candidate.fact_id) for at in sorted(alike)]
        ),
        algorithm=f"{packing}@1",
    )


def _places(ranked: Sequence[RankedFact], pinned: Collection[str]) -> list[int]:
    ids = set(pinned)
    return [at for at, fact in enumerate(ranked) if fact.candidate.fact_id in ids]


def _choose(
    ranked: Sequence[RankedFact],
    places: Sequence[int],
    room: int,
    k: int | None,
    by: Packer,
    walk: Deduplication,
) -> list[int]:
    """Which of these places the packer takes, in rank order, with at most `k` facts."""
    summaries = len(places) - _count_facts(ranked, places) if k is not None else 0
    most = len(places) if k is None else k + summaries
    if room <= 0 or most <= 0:
        return []
    offer = PackItems(
        tokens=[ranked[place].candidate.tokens for place in places],
        is_original=lambda number: walk.kept_instead_of(places[number]) is None,
        fetch=lambda numbers: walk.fetch([places[number] for number in numbers]),
    )
    taken = [places[number] for number in by(offer, room, most)]
    while k is not None and _count_facts(ranked, taken) > k:
        # A summary that was counted in did not fit.
        taken.pop()
    return taken


def _count_facts(ranked: Sequence[RankedFact], places: Iterable[int]) -> int:
    """How many of these places hold facts, and no summary of an earlier answer."""
    return sum(not is_summary(ranked[place].candidate.source_id) for place in places)


def _known_duplicates(chosen: Sequence[int], walk: Deduplication) -> dict[int, int]:
    """Near-duplicates found so far, each with the place of the fact kept instead."""
    stand_ins: dict[int, int] = {}
    for place in chosen:
        for lower in walk.below(place):
            stand_ins.setdefault(lower, place)
    return {**stand_ins, **walk.duplicates()}
