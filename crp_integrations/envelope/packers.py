"""Packing algorithms by name: which of the offered facts go in.

`greedy` is the specification's loop, and `patient` the same with an end, for a share of a budget
whose rest is filled with parts of facts. The others are options: `in_order` never goes past a fact
that does not fit, `density` takes most score for a token first, `knapsack` looks for the largest
total score. All are deterministic, and all leave out a near-duplicate of a fact above it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

# Steps of one search for the best filling; each costs about a microsecond.
KNAPSACK_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Offer:
    """What there is to pack, in rank order.

    Attributes:
        tokens: of each fact, at least 0.
        values: composite of the fact at a place, fixed point.
        kept: whether the fact at a place is no near-duplicate of a higher one.
        fetch: told which places will be asked about.
    """

    tokens: Sequence[int]
    values: Callable[[int], int]
    kept: Callable[[int], bool]
    fetch: Callable[[Sequence[int]], None]


Packer = Callable[[Offer, int, int], list[int]]


def greedy(offer: Offer, room: int, most: int) -> list[int]:
    """Take facts in rank order as long as they fit; skip one that does not and go on.

    Spec: CRP-SPEC-003 §7.3

    Args:
        room: tokens to fill.
        most: cap on the number of facts.

    Returns:
        Places that go in, ascending.
    """
    return _filled(offer, range(len(offer.tokens)), room, most)


def in_order(offer: Offer, room: int, most: int) -> list[int]:
    """Take facts in rank order up to the first that does not fit."""
    places = range(len(offer.tokens))
    offer.fetch(_taken(offer, places, room, most, min(offer.tokens, default=0)))
    found: list[int] = []
    for place, tokens in enumerate(offer.tokens):
        if not offer.kept(place):
            continue
        if len(found) >= most or tokens > room:
            break
        found.append(place)
        room -= tokens
    return found


def patient(offer: Offer, room: int, most: int, *, passed_over: int) -> list[int]:
    """Take facts in rank order and skip those that do not fit, but only so many of them.

    A short fact far down is worth less than the best sentences of the long ones that were skipped
    for it. A near-duplicate of a higher fact is not counted as skipped.

    Args:
        passed_over: facts that may be skipped for each one taken; one more ends the search.
    """
    # What `greedy` would ask about; this looks no further.
    places = range(len(offer.tokens))
    least = min(offer.tokens, default=0)
    offer.fetch(_taken(offer, places, room + room // 8, most, least))
    found: list[int] = []
    skipped = 0
    for place, tokens in enumerate(offer.tokens):
        if room < least or len(found) == most:
            break
        if not offer.kept(place):
            continue
        if tokens <= room:
            found.append(place)
            room -= tokens
        elif (skipped := skipped + 1) > passed_over * len(found):
            break
    return found


def density(offer: Offer, room: int, most: int) -> list[int]:
    """Take facts in the order of score for a token, ties by rank, as long as they fit."""
    return sorted(_filled(offer, _by_density(offer), room, most))


def knapsack(offer: Offer, room: int, most: int) -> list[int]:
    """Look for the facts with the largest total score; at least that of `greedy`.

    Depth first over facts by density. A branch is left when even a filling that may cut facts
    could not beat the best so far. The search ends after `KNAPSACK_STEPS` steps with the best
    that it has found.
    """
    every = [place for place, tokens in enumerate(offer.tokens) if tokens <= room]
    offer.fetch(every)
    items = [place for place in _by_density(offer) if offer.tokens[place] <= room]
    items = [place for place in items if offer.kept(place)]
    starts = [greedy(offer, room, most), density(offer, room, most)]
    best = max(starts, key=lambda places: sum(map(offer.values, places)))
    return sorted(_searched(offer, items, room, most, best))


PACKERS: Mapping[str, Packer] = {
    "greedy": greedy,
    "in_order": in_order,
    "density": density,
    "knapsack": knapsack,
}


def _filled(offer: Offer, places: Sequence[int], room: int, most: int) -> list[int]:
    # Somewhat more, since near-duplicates leave room.
    least = min(offer.tokens, default=0)
    offer.fetch(_taken(offer, places, room + room // 8, most, least))
    return _taken(offer, places, room, most, least, offer.kept)


def _taken(
    offer: Offer,
    places: Sequence[int],
    room: int,
    most: int,
    least: int,
    kept: Callable[[int], bool] | None = None,
) -> list[int]:
    """Those that fit, one after the other; without `kept`, nearly all that will be asked about.

    Args:
        least: tokens of the smallest fact: nothing is left to find once not even that fits.
    """
    found: list[int] = []
    tokens = offer.tokens
    for place in places:
        if room < least or len(found) == most:
            break
        if tokens[place] <= room and (kept is None or kept(place)):
            found.append(place)
            room -= tokens[place]
    return found


def _by_density(offer: Offer) -> list[int]:
    # Score for a token, compared exactly in integers; what costs nothing comes first.
    def key(place: int) -> tuple[int, int]:
        tokens = offer.tokens[place]
        return (-(offer.values(place) << 40) // tokens if tokens else -(1 << 80), place)

    return sorted(range(len(offer.tokens)), key=key)


def _searched(
    offer: Offer, items: Sequence[int], room: int, most: int, best: Sequence[int]
) -> list[int]:
    """The best filling that a bounded search finds, at least as good as the one given."""
    tokens = [offer.tokens[place] for place in items]
    values = [offer.values(place) for place in items]
    used = [0, *accumulate(tokens)]
    worth = [0, *accumulate(values)]
    found, record = list(best), sum(map(offer.values, best))

    def bound(at: int, left: int) -> int:
        """Most that the items from `at` on can add in this room, if the last may be cut."""
        end = bisect_right(used, used[at] + left) - 1
        total = worth[end] - worth[at]
        if end < len(items) and tokens[end]:
            total += (left - (used[end] - used[at])) * values[end] // tokens[end]
        return total

    taken: list[int] = []
    left, value, at = room, 0, 0
    for _ in range(KNAPSACK_STEPS):
        if at < len(items) and len(taken) < most and value + bound(at, left) > record:
            if tokens[at] <= left:
                taken.append(at)
                left -= tokens[at]
                value += values[at]
            at += 1
            if value > record:
                found, record = [items[place] for place in taken], value
            continue
        if not taken:
            break
        # Without the item taken last, from the one behind it.
        at = taken.pop()
        left += tokens[at]
        value -= values[at]
        at += 1
    return found
