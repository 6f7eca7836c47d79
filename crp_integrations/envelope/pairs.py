"""Which candidates are near-identical: a relation between positions, listed or worked out late.

`Candidates` holds two of them, duplicates and conflicts. Both kinds answer alike, so what was
worked out from vectors can be listed, kept, and replayed without the vectors.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.intp]
NONE: Places = np.zeros(0, dtype=np.intp)


class Pairs(Sequence[tuple[int, int]]):
    """Pairs of positions (i < j), sorted; equal to any other sequence of the same pairs."""

    __slots__ = ()

    @abstractmethod
    def of(self, position: int) -> Places:
        """Positions paired with this one, ascending."""

    def fetch(self, positions: Sequence[int]) -> None:
        """Get ready to answer for many positions at once; no answer changes."""

    def paired(self) -> Collection[int] | None:
        """Positions that are in a pair, where that is known without working anything out."""
        return None

    def alone(self, positions: Sequence[int]) -> Collection[int]:
        """Those of the positions that are known to be in no pair; nothing is worked out."""
        return ()

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[int, int]]: ...

    def within(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """The pairs of which both are among these positions, sorted; nothing else is compared."""
        inside = set(positions)
        return [
            (left, right)
            for left in sorted(inside)
            for right in self.of(left).tolist()
            if right > left and right in inside
        ]

    def among(self, moved: Mapping[int, int]) -> Pairs:
        """The pairs between the positions that stay, from old to new positions."""
        return _Among(self, moved)

    def asked(self) -> list[tuple[int, int]]:
        """The pairs that were worked out so far, sorted; of those written down, all."""
        return list(self)

    def listed(self) -> Listed:
        """The same relation without what it was worked out from."""
        return Listed(self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[int, int], ...]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Sequence):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r:.200})"


class Listed(Pairs):
    """Pairs that are written down.

    >>> pairs = Listed([(3, 1), (0, 1)])
    >>> pairs.of(1).tolist(), list(pairs)
    ([0, 3], [(0, 1), (1, 3)])
    """

    __slots__ = ("_of", "_pairs")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        unique = {(min(pair), max(pair)) for pair in pairs}
        self._pairs = tuple(sorted(unique))
        partners: dict[int, list[int]] = {}
        for left, right in self._pairs:
            partners.setdefault(left, []).append(right)
            partners.setdefault(right, []).append(left)
        self._of = {at: np.array(sorted(own), dtype=np.intp) for at, own in partners.items()}

    def of(self, position: int) -> Places:
        """Positions paired with this one, ascending."""
        return self._of.get(position, NONE)

    def paired(self) -> Collection[int]:
        """Positions that are in a pair."""
        return self._of.keys()

    def within(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """The pairs of which both are among these positions, sorted."""
        inside = set(positions) if self._pairs else set()
        return [(left, right) for left, right in self._pairs if left in inside and right in inside]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


class _Among(Pairs):
    """A part of another relation, which stays as late as that one."""

    __slots__ = ("_base", "_moved", "_was")

    def __init__(self, base: Pairs, moved: Mapping[int, int]) -> None:
        self._base = base
        self._moved = moved
        self._was = {new: old for old, new in moved.items()}

    def of(self, position: int) -> Places:
        """Positions paired with this one, ascending."""
        was = self._was.get(position)
        if was is None:
            return NONE
        partners = self._base.of(was).tolist()
        own = sorted(self._moved[other] for other in partners if other in self._moved)
        return np.array(own, dtype=np.intp)

    def fetch(self, positions: Sequence[int]) -> None:
        """Make the relation below ready."""
        self._base.fetch([self._was[at] for at in positions if at in self._was])

    def within(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """The pairs of which both are among these positions, sorted."""
        found = self._base.within([self._was[at] for at in positions if at in self._was])
        moved = ((self._moved[left], self._moved[right]) for left, right in found)
        return sorted((min(pair), max(pair)) for pair in moved)

    def asked(self) -> list[tuple[int, int]]:
        """The pairs that the relation below has worked out so far, sorted."""
        moved = self._moved
        found = [(moved[i], moved[j]) for i, j in self._base.asked() if i in moved and j in moved]
        return sorted((min(pair), max(pair)) for pair in found)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self._base.fetch(list(self._moved))
        for left in sorted(self._was):
            yield from ((left, right) for right in self.of(left).tolist() if right > left)


def as_pairs(pairs: Sequence[tuple[int, int]]) -> Pairs:
    """The relation for a plain sequence of pairs; a relation stays as it is."""
    return pairs if isinstance(pairs, Pairs) else Listed(pairs)
