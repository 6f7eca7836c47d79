"""Deduplication: the walk in rank order, taken only as far as an answer needs it (`walk@1`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crp_integrations.envelope.pairs import Listed, Pairs, Places

WALK = "walk@1"


class Walk:
    """Which ranked facts have a near-duplicate above them that stands for them.

    Walking in the order of the picks, a fact is dropped when it is nearly equal to one already
    kept (decision E11). Whether one is kept depends on those above it that resemble it and on
    nothing else, so the question can be answered for one fact alone. Facts are named by their
    places in the ranking.

    Spec: CRP-SPEC-003 §6.6
    """

    def __init__(self, order: Places, picks: Places, pairs: Pairs) -> None:
        """Take positions by rank, positions in the order of their picks, and what is alike."""
        self._positions = order
        self._pairs = pairs
        self._place = np.empty_like(order)
        self._place[order] = np.arange(len(order))
        self._picks = self._place[picks]
        self._pick = np.empty_like(order)
        self._pick[self._picks] = np.arange(len(order))
        paired = pairs.paired()
        # Places of facts that resemble another, where that is known; each other one is kept.
        self._alike = None if paired is None else {self._place.item(at) for at in paired}
        # The place that stands for another; -1 for one that is kept.
        self._known: dict[int, int] = {}
        # Places of which it was told at once that nothing is like them: nearly all.
        self._alone: set[int] = set()

    @classmethod
    def without_duplicates(cls, facts: int) -> Walk:
        """A walk over so many facts of which no two are alike."""
        order = np.arange(facts)
        return cls(order, order, Listed())

    def fetch(self, places: Sequence[int]) -> None:
        """Get ready for questions about these places."""
        positions = self._positions[list(places)].tolist()
        self._pairs.fetch(positions)
        if alone := set(self._pairs.alone(positions)):
            found = [place for place, at in zip(places, positions, strict=True) if at in alone]
            self._alone.update(found)
            self._known.update(dict.fromkeys(found, -1))

    def stands_for(self, place: int) -> int | None:
        """The place of the fact that stands for this one; None when it is kept."""
        if self._alike is not None and place not in self._alike:
            return None
        known = self._known.get(place)
        if known is not None:
            return None if known < 0 else known
        waiting = [place]
        while waiting:
            first = self._unsettled(waiting[-1])
            if first is None:
                waiting.pop()
            else:
                waiting.append(first)
        found = self._known[place]
        return None if found < 0 else found

    def told(self) -> dict[int, int]:
        """The near-duplicates that are known by now, each with the place that stands for it."""
        return {place: kept for place, kept in self._known.items() if kept >= 0}

    def below(self, place: int) -> list[int]:
        """Places of the near-duplicates that were picked after this fact."""
        if self._alike is not None and place not in self._alike:
            return []
        if place in self._alone:
            return []
        partners = self._partners(place)
        if not len(partners):
            return []
        lower: list[int] = partners[self._pick[partners] > self._pick[place]].tolist()
        return lower

    def all(self) -> dict[int, int]:
        """Every near-duplicate and the place that stands for it, in the order of the picks."""
        self._pairs.fetch(range(len(self._positions)))
        found = ((place, self.stands_for(place)) for place in self._picks.tolist())
        return {place: kept for place, kept in found if kept is not None}

    def _partners(self, place: int) -> Places:
        partners = self._pairs.of(self._positions.item(place))
        return self._place[partners] if len(partners) else partners

    def _unsettled(self, place: int) -> int | None:
        """A fact above that has to be settled first; None when this one is settled."""
        if place in self._known:
            return None
        partners = self._partners(place)
        if len(partners):
            partners = partners[self._pick[partners] < self._pick[place]]
        if not len(partners):
            self._known[place] = -1
            return None
        # Mostly the highest of them is kept, and no other has to be looked at.
        best = int(partners[np.argmin(self._pick[partners])])
        known = self._known.get(best)
        if known is None:
            return best
        if known < 0:
            self._known[place] = best
            return None
        for other in partners[np.argsort(self._pick[partners])].tolist():
            known = self._known.get(other)
            if known is None:
                return int(other)
            if known < 0:
                self._known[place] = other
                return None
        self._known[place] = -1
        return None
