"""Phase 3, first half: which ranked facts go in, by a named algorithm, and why others do not.

`greedy` is the specification's loop, and `patient` the same with an end, for a share of a budget
whose rest is filled with parts of facts. `in_order` is an option that never goes past a fact that
does not fit. All are deterministic, and all leave out a near-duplicate of a fact above it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from crp_integrations.envelope.candidates import RankedFact
from crp_integrations.envelope.near_duplicates import Deduplication


@dataclass(frozen=True, slots=True)
class PackItems:
    """What there is to pack, in rank order.

    Attributes:
        tokens: of each fact, at least 0.
        is_original: whether the fact at a place is no near-duplicate of a higher one.
        fetch: told which places will be asked about.
    """

    tokens: Sequence[int]
    is_original: Callable[[int], bool]
    fetch: Callable[[Sequence[int]], None]


Packer = Callable[[PackItems, int, int], list[int]]


def greedy(offer: PackItems, room: int, most: int) -> list[int]:
    """Take facts in rank order as long as they fit; skip one that does not and go on.

    Spec: CRP-SPEC-003 §7.3
    """
    # Somewhat more, since near-duplicates leave room.
    offer.fetch(_take_fitting(offer, room + room // 8, most))
    return _take_fitting(offer, room, most, offer.is_original)


def patient(offer: PackItems, room: int, most: int, *, passed_over: int) -> list[int]:
    """Take facts in rank order and skip those that do not fit, but only so many of them.

    A short fact far down is worth less than the best sentences of the long ones that were skipped
    for it. A near-duplicate of a higher fact is not counted as skipped.
    """
    # What `greedy` would ask about; this looks no further.
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
    """Places that fit, one after the other; without `is_original`, nearly all looked at later."""
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
        packed: what goes into the envelope, pinned facts before all others.
        over_budget: what did not fit.
        over_k: what was left out because the cap on the number of facts was reached.
        duplicates: near-duplicates, each with the id of the fact that stands for it.
        algorithm: `name@n` of the rule.
    """

    packed: tuple[RankedFact, ...]
    over_budget: tuple[RankedFact, ...]
    over_k: tuple[RankedFact, ...]
    duplicates: tuple[tuple[RankedFact, str], ...] = ()
    algorithm: str = "greedy@1"

    def lightened(self, excess: int) -> PackResult:
        """The same packing with its lowest-ranked facts moved over the budget, at least one.

        Facts are moved until they come to half of the excess. A fact takes at most twice the tokens
        it was counted as, so no fact is moved that moving one at a time would have kept.
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

    A near-duplicate of a kept fact above it never goes in. Of the facts that do not fit, those
    are called duplicates that resemble one that is packed; with `every_duplicate` all are
    looked at, as the specification is printed. What goes in is the same.

    Spec: CRP-SPEC-003 §7.3 (decisions E2, E5, E11, E17)
    """
    pins = by = PACKERS[packing]
    if packing == "greedy" and passed_over is not None:
        packing, by = "patient", partial(patient, passed_over=passed_over)
    walk = walk or Deduplication.without_duplicates(len(ranked))
    if every_duplicate:
        walk.all()
    first = _places(ranked, pinned) if pinned else []
    most = len(ranked) if k is None else k
    chosen = _choose(ranked, first, budget_tokens, most, pins, walk) if first else []
    front = len(chosen)
    room = budget_tokens - sum(ranked[at].candidate.tokens for at in chosen)
    rest: Sequence[int] = range(len(ranked))
    if first:
        apart = set(first)
        rest = [at for at in rest if at not in apart]
    chosen += _choose(ranked, rest, room, most - front, by, walk)

    alike = _known_duplicates(chosen, walk)
    taken = {*chosen, *alike}
    # Where the cap is reached, no fact behind the last one was looked at (decision E2).
    end = len(ranked)
    if k is not None and len(chosen) >= k:
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
    most: int,
    by: Packer,
    walk: Deduplication,
) -> list[int]:
    """Places that the algorithm takes out of these, in rank order."""
    if room <= 0 or most <= 0:
        return []
    offer = PackItems(
        tokens=[ranked[place].candidate.tokens for place in places],
        is_original=lambda number: walk.stands_for(places[number]) is None,
        fetch=lambda numbers: walk.fetch([places[number] for number in numbers]),
    )
    return [places[number] for number in by(offer, room, most)]


def _known_duplicates(chosen: Sequence[int], walk: Deduplication) -> dict[int, int]:
    """Near-duplicates that are known by now, each with the place that stands for it."""
    stand_ins: dict[int, int] = {}
    for place in chosen:
        for lower in walk.below(place):
            stand_ins.setdefault(lower, place)
    return {**stand_ins, **walk.duplicates()}
