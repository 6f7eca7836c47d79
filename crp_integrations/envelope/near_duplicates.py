"""Which candidates are near-identical: a relation between positions, listed or worked out late.

`Candidates` holds two of them, duplicates and conflicts. Both kinds answer alike, so what was
worked out from vectors can be listed, kept, and replayed without the vectors.

Near-identical candidates, found in blocks when they are asked for, decided in fixed point.

Deduplication: the walk in rank order, taken only as far as an answer needs it (`walk@1`).
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from crp_integrations.language.differences import ComparedStatement, read_statement
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vectors import FloatRows

Places = npt.NDArray[np.intp]
NONE: Places = np.zeros(0, dtype=np.intp)


class PairRelation(Sequence[tuple[int, int]]):
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

    def among(self, moved: Mapping[int, int]) -> PairRelation:
        """The pairs between the positions that stay, from old to new positions."""
        return _MovedPairs(self, moved)

    def asked(self) -> list[tuple[int, int]]:
        """The pairs that were worked out so far, sorted; of those written down, all."""
        return list(self)

    def listed(self) -> ListedPairs:
        """The same relation without what it was worked out from."""
        return ListedPairs(self)

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


class ListedPairs(PairRelation):
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


class _MovedPairs(PairRelation):
    """A part of another relation, which stays as late as that one."""

    __slots__ = ("_base", "_moved", "_was")

    def __init__(self, base: PairRelation, moved: Mapping[int, int]) -> None:
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


def as_pairs(pairs: Sequence[tuple[int, int]]) -> PairRelation:
    """The relation for a plain sequence of pairs; a relation stays as it is."""
    return pairs if isinstance(pairs, PairRelation) else ListedPairs(pairs)


_BLOCK = 512
_ROWS = 128
# Products of so many rows at once are done in half of the time.
_LANES = 16
# A product of whole blocks may round differently from a product of two rows.
_SLACK = 1e-4
_SLACK_A_DIMENSION = 1.2e-7
_NEITHER = (NONE, NONE)


def near_pairs(vectors: FloatRows, threshold: float) -> tuple[tuple[int, int], ...]:
    """Pairs of rows whose cosine is above a threshold: the plain definition, over all pairs.

    Spec: CRP-SPEC-003 §6.6

    Args:
        vectors: unit rows, shape (n, d).
        threshold: cosine in [0, 1]; a cosine equal to it in fixed point is not above it.

    Returns:
        Positions (i < j), sorted.
    """
    left, right = _all_pairs(vectors, threshold)
    return tuple(zip(left.tolist(), right.tolist(), strict=True))


def split_near_duplicates(
    contents: Sequence[str], vectors: FloatRows, threshold: float
) -> tuple[PairRelation, PairRelation]:
    """Near-identical pairs, split into those that say the same and those that do not.

    Spec: CRP-SPEC-003 §6.6 (decision E11)

    Args:
        contents: n texts.
        vectors: their unit rows, shape (n, d).
        threshold: cosine above which two facts are near-identical.

    Returns:
        Two relations between positions that are worked out when asked: duplicates, and
        conflicts whose numbers, dates, names or negation differ.
    """
    found = NearDuplicates(contents, vectors, threshold)
    return _SimilarPairs(found, 0), _SimilarPairs(found, 1)


class NearDuplicates:
    """What is near-identical to a candidate, remembered once it was asked for."""

    def __init__(self, contents: Sequence[str], vectors: FloatRows, threshold: float) -> None:
        self._contents = contents
        self._vectors = vectors
        self._threshold = threshold
        self._near: dict[int, Places] = {}
        # A copy has its original's row; the original is whichever was met first.
        self._original: dict[int, int] = {}
        self._split: dict[int, tuple[Places, Places]] = {}
        self._statements: dict[str, ComparedStatement] = {}
        self._whole = False
        # Candidates that are known are handed to several turns at once.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._contents)

    def fetch(self, positions: Sequence[int]) -> None:
        """Compare the candidates at these positions with all, in blocks."""
        with self._lock:
            self._fetch(positions)

    def fetch_all(self) -> None:
        """Compare every candidate with every other, each pair once and copies not at all."""
        with self._lock:
            self._fetch_all()

    def compared(self) -> list[int]:
        """Positions that were compared with all so far and resemble any."""
        with self._lock:
            near = [at for at, partners in self._near.items() if partners is not NONE]
            return sorted({*near, *self._original})

    def split(self, position: int) -> tuple[Places, Places]:
        """Near-identical positions that say the same, and those that do not; both ascending."""
        known = self._split.get(position)
        if known is not None:
            return known
        # Most have been compared with all and resemble none: said without waiting for anybody.
        if self._near.get(position) is NONE:
            return _NEITHER
        with self._lock:
            return self._told(position)

    def _fetch(self, positions: Sequence[int]) -> None:
        if self._whole:
            return
        todo = [at for at in positions if at not in self._near and at not in self._original]
        if 2 * len(todo) > len(self._contents) > _ROWS:
            self._fetch_all()
            return
        for start in range(0, len(todo), _ROWS):
            block = [at for at in todo[start : start + _ROWS] if at not in self._original]
            if not block:
                continue
            rows, columns = self._above(np.array(block, dtype=np.intp))
            self._near.update(dict.fromkeys(block, NONE))
            # Rows ascend, so that the partners of each stand together.
            starts = np.flatnonzero(np.diff(rows, prepend=-1)).tolist()
            for start, end in pairwise([*starts, len(rows)]):
                number = block[rows[start]]
                self._near[number] = columns[start:end]
                self._share(number)

    def _fetch_all(self) -> None:
        if len(self._near) + len(self._original) >= len(self._contents):
            # Each is one or the other, so that all were compared by and by.
            self._whole = True
        if self._whole:
            return
        groups = self._copies()
        first = np.array([group[0] for group in groups], dtype=np.intp)
        left, right = _all_pairs(self._vectors[first], self._threshold)
        at = np.concatenate([left, right])
        partner = np.concatenate([right, left])
        order = np.lexsort((partner, at))
        at, partner = at[order], partner[order]
        # Rows ascend, so that the partners of each stand together; most have none.
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        partners = dict(zip(at[starts].tolist(), np.split(partner, starts[1:]), strict=False))
        for number, group in enumerate(groups):
            # One of its copies may have been met first.
            self._original.pop(group[0], None)
            near = partners.get(number)
            if near is None and len(group) == 1:
                self._near[group[0]] = NONE
                continue
            self._original.update(dict.fromkeys(group[1:], group[0]))
            alike = group[1:]
            for other in () if near is None else near.tolist():
                alike += groups[other]
            self._near[group[0]] = np.array(sorted(alike), dtype=np.intp)
        self._whole = True

    def alone(self, positions: Sequence[int]) -> list[int]:
        """Those that were compared with all and have nothing near them."""
        with self._lock:
            return [at for at in positions if self._near.get(at) is NONE]

    def within(self, positions: Sequence[int]) -> list[tuple[int, int, bool]]:
        """Near-identical pairs among a few candidates alone, and whether the two differ."""
        kept = sorted(set(positions))
        left, right = _all_pairs(self._vectors[kept], self._threshold)
        pairs = [(kept[i], kept[j]) for i, j in zip(left.tolist(), right.tolist(), strict=True)]
        texts = self._contents
        return [(i, j, texts[i] != texts[j] and self._differ(texts[i], texts[j])) for i, j in pairs]

    def _told(self, position: int) -> tuple[Places, Places]:
        known = self._split.get(position)
        if known is None:
            if self._near.get(position) is NONE:
                return _NEITHER
            self._fetch((position,))
            original = self._original.get(position)
            if original is None:
                known = self._sorted_out(position)
            else:
                same, other = self._told(original)
                exchanged = np.where(same == position, original, same)
                known = np.sort(exchanged), other
            self._split[position] = known
        return known

    def _sorted_out(self, position: int) -> tuple[Places, Places]:
        near = self._near[position]
        if near is NONE:
            return _NEITHER
        own, contents = self._contents[position], self._contents
        same: list[int] = []
        other: list[int] = []
        for at in near.tolist():
            text = contents[at]
            (same if own == text or not self._differ(own, text) else other).append(at)
        return (
            np.array(same, dtype=np.intp) if same else NONE,
            np.array(other, dtype=np.intp) if other else NONE,
        )

    def _differ(self, left: str, right: str) -> bool:
        return self._statement(left).differs(self._statement(right))

    def _statement(self, text: str) -> ComparedStatement:
        # Here as well as there: thousands of texts would push one another out.
        found = self._statements.get(text)
        if found is None:
            found = self._statements[text] = read_statement(text)
        return found

    def _above(self, block: Places) -> tuple[Places, Places]:
        """Rows of the block and positions that are above the threshold, without each itself."""
        vectors = self._vectors
        # Many rows times few columns is the quicker way round.
        count = len(block)
        if count % _LANES > _LANES // 2:
            # A row or two too many cost less than a product of an odd shape.
            block = np.resize(block, count + _LANES - count % _LANES)
        product = vectors @ vectors[block].T
        flat = np.flatnonzero(product > self._threshold - _slack(vectors))
        columns, rows = np.divmod(flat, len(block))
        other = np.flatnonzero((block[rows] != columns) & (rows < count))
        other = other[np.argsort(rows[other], kind="stable")]
        rows, columns, flat = rows[other], columns[other], flat[other]
        sure = _confirm_pairs(vectors, self._threshold, product.ravel()[flat], block[rows], columns)
        return rows[sure], columns[sure]

    def _share(self, original: int) -> None:
        """Give the original's row to its copies, so that a thousand copies cost one row."""
        for at in self._near[original].tolist():
            if at not in self._near and at not in self._original and self._copy(original, at):
                self._original[at] = original

    def _copy(self, one: int, other: int) -> bool:
        vectors = self._vectors
        return self._contents[one] == self._contents[other] and bool(
            (vectors[one] == vectors[other]).all()
        )

    def _copies(self) -> list[list[int]]:
        """All positions in groups of the same text and vector, by their first."""
        threshold = to_fixed(self._threshold)
        groups: dict[tuple[str, bytes], list[int]] = {}
        texts: dict[str, int] = {}
        for text in self._contents:
            texts[text] = texts.get(text, 0) + 1
        for at, text in enumerate(self._contents):
            key = (text, b"")
            if texts[text] > 1:
                row = self._vectors[at]
                own = np.einsum("i,i->", row, row, dtype=np.float64)
                # A row that is not near to itself, as a row of zeros, makes no group.
                near = np.rint(own * SCALE) > threshold
                key = (text, row.tobytes() if near else at.to_bytes(8))
            groups.setdefault(key, []).append(at)
        return list(groups.values())


class _SimilarPairs(PairRelation):
    """One of the two halves of what is near-identical."""

    __slots__ = ("_found", "_which")

    def __init__(self, found: NearDuplicates, which: int) -> None:
        self._found = found
        self._which = which

    def of(self, position: int) -> Places:
        """Positions paired with this one, ascending."""
        return self._found.split(position)[self._which]

    def fetch(self, positions: Sequence[int]) -> None:
        """Compare many candidates in one product."""
        self._found.fetch(positions)

    def alone(self, positions: Sequence[int]) -> list[int]:
        """Those that are known to have nothing near them."""
        return self._found.alone(positions)

    def within(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """The pairs of which both are among these positions, sorted; nothing else is compared."""
        found = self._found.within(positions)
        return [(left, right) for left, right, differs in found if differs == bool(self._which)]

    def asked(self) -> list[tuple[int, int]]:
        """The pairs of which one was compared with all so far, sorted."""
        pairs = (
            (min(one, other), max(one, other))
            for one in self._found.compared()
            for other in self.of(one).tolist()
        )
        return sorted(set(pairs))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self._found.fetch_all()
        for left in self._found.compared():
            for right in self.of(left).tolist():
                if right > left:
                    yield left, right


def _all_pairs(vectors: FloatRows, threshold: float) -> tuple[Places, Places]:
    """Left and right positions of all pairs above the threshold, sorted."""
    lefts, rights = [NONE], [NONE]
    for start in range(0, len(vectors), _BLOCK):
        block, after = vectors[start : start + _BLOCK], vectors[start:]
        product = block @ after.T
        flat = np.flatnonzero(product > threshold - _slack(vectors))
        rows, columns = np.divmod(flat, len(after))
        upper = columns > rows
        if not upper.any():
            # Mostly none resembles any but itself.
            continue
        rows, columns, flat = rows[upper] + start, columns[upper] + start, flat[upper]
        sure = _confirm_pairs(vectors, threshold, product.ravel()[flat], rows, columns)
        lefts.append(rows[sure])
        rights.append(columns[sure])
    return np.concatenate(lefts), np.concatenate(rights)


def _confirm_pairs(
    vectors: FloatRows, threshold: float, cosines: FloatRows, left: Places, right: Places
) -> Places:
    """Places of the pairs that are above the threshold, exact where rounding could decide."""
    least = to_fixed(threshold)
    above = np.ones(len(cosines), dtype=bool)
    close = np.flatnonzero(cosines < threshold + _slack(vectors))
    for at in range(0, len(close), 65_536):
        some = close[at : at + 65_536]
        exact = np.einsum("ij,ij->i", vectors[left[some]], vectors[right[some]], dtype=np.float64)
        above[some] = np.rint(exact * SCALE) > least
    return np.flatnonzero(above)


def _slack(vectors: FloatRows) -> float:
    return float(_SLACK + _SLACK_A_DIMENSION * vectors.shape[1])


WALK = "walk@1"


class Deduplication:
    """Which ranked facts have a near-duplicate above them that stands for them.

    Walking in the order of the picks, a fact is dropped when it is nearly equal to one already
    kept (decision E11). Whether one is kept depends on those above it that resemble it and on
    nothing else, so the question can be answered for one fact alone. Facts are named by their
    places in the ranking.

    Spec: CRP-SPEC-003 §6.6
    """

    def __init__(self, order: Places, picks: Places, pairs: PairRelation) -> None:
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
    def without_duplicates(cls, facts: int) -> Deduplication:
        """A walk over so many facts of which no two are alike."""
        order = np.arange(facts)
        return cls(order, order, ListedPairs())

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
