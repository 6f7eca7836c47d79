"""Near-identical candidates: pairs of positions, and which fact is kept instead of duplicates.

`Candidates` has two relations, duplicates and conflicts. They are computed from vectors on
demand, since most pairs never matter: a fact that does not fit is left out in any case. Listed
pairs give the same answers, so an envelope can be replayed without vectors.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    from crp_integrations.envelope.settings import EnvelopeSettings
    from crp_integrations.language.negation import ComparedStatement
    from crp_integrations.ports import Embedder

WALK = "walk@1"

Places = npt.NDArray[np.intp]

_BLOCK = 512
_ROWS = 128
# A product of blocks may round differently from one of two rows; closer pairs are recomputed.
_SLACK = 1e-4
_SLACK_PER_DIMENSION = 1.2e-7


class PairRelation(Sequence[tuple[int, int]]):
    """Pairs of positions (i < j), sorted; equal to any other sequence of the same pairs."""

    @abstractmethod
    def of(self, position: int) -> tuple[int, ...]:
        """Positions paired with this one, ascending."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[int, int]]: ...

    def fetch(self, positions: Sequence[int]) -> None:
        """Compute many positions at once for later calls; results do not change."""

    def within(self, positions: Iterable[int]) -> list[tuple[int, int]]:
        """The pairs among these positions, sorted; no other positions are compared."""
        inside = set(positions)
        return [
            (left, right)
            for left in sorted(inside)
            for right in self.of(left)
            if right > left and right in inside
        ]

    def among(self, moved: Mapping[int, int]) -> PairRelation:
        """The pairs among the old positions in `moved`, with their new positions."""
        return _MovedPairs(self, moved)

    def asked(self) -> list[tuple[int, int]]:
        """The pairs that were computed so far, sorted; all pairs if they are listed."""
        return list(self)

    def listed(self) -> ListedPairs:
        """The relation as listed pairs, without the texts and vectors it is computed from."""
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
    """Pairs that are given as a list.

    >>> pairs = ListedPairs([(3, 1), (0, 1)])
    >>> pairs.of(1), list(pairs)
    ((0, 3), [(0, 1), (1, 3)])
    """

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._pairs = sorted({(min(pair), max(pair)) for pair in pairs})
        partners: defaultdict[int, list[int]] = defaultdict(list)
        for left, right in self._pairs:
            partners[left].append(right)
            partners[right].append(left)
        self._of = {at: tuple(sorted(own)) for at, own in partners.items()}

    def of(self, position: int) -> tuple[int, ...]:
        """Positions paired with this one, ascending."""
        return self._of.get(position, ())

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._pairs)


class _MovedPairs(PairRelation):
    """A part of another relation with other positions."""

    def __init__(self, base: PairRelation, moved: Mapping[int, int]) -> None:
        self._base = base
        self._moved = moved
        self._was = {new: old for old, new in moved.items()}

    def of(self, position: int) -> tuple[int, ...]:
        """Positions paired with this one, ascending."""
        if position not in self._was:
            return ()
        partners = self._base.of(self._was[position])
        return tuple(sorted(self._moved[other] for other in partners if other in self._moved))

    def fetch(self, positions: Sequence[int]) -> None:
        """Compute these positions in the base relation."""
        self._base.fetch([self._was[at] for at in positions if at in self._was])

    def within(self, positions: Iterable[int]) -> list[tuple[int, int]]:
        """The pairs among these positions, sorted."""
        return self._move(self._base.within([self._was[at] for at in positions if at in self._was]))

    def asked(self) -> list[tuple[int, int]]:
        """The pairs that the base relation has computed so far, sorted."""
        return self._move(self._base.asked())

    def _move(self, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        moved = self._moved
        renumbered = [(moved[i], moved[j]) for i, j in pairs if i in moved and j in moved]
        return sorted((min(pair), max(pair)) for pair in renumbered)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self._base.fetch(list(self._moved))
        for left in sorted(self._was):
            yield from ((left, right) for right in self.of(left) if right > left)


def as_pairs(pairs: Sequence[tuple[int, int]]) -> PairRelation:
    """Make a relation of a plain sequence of pairs; a relation is returned unchanged."""
    return pairs if isinstance(pairs, PairRelation) else ListedPairs(pairs)


def least_similarity(embedder: Embedder, settings: EnvelopeSettings) -> float:
    """Minimum cosine of near-duplicates; the embedder's own where its cosines are higher."""
    return max(settings.duplicate_similarity, embedder.thresholds.get("near_duplicate", 0.0))


def split_near_duplicates(
    contents: Sequence[str],
    vectors: FloatRows,
    threshold: float,
    owners: Sequence[int] | None = None,
) -> tuple[PairRelation, PairRelation]:
    """Near-identical pairs, split into those that say the same and those that do not.

    Spec: CRP-SPEC-003 §6.6 (decision E11)

    Args:
        owners: by position, the text that each candidate is a passage of; passages of one text
            are never paired. None for candidates that are texts of their own.
    """
    near_duplicates = NearDuplicates(contents, vectors, threshold)
    return _SimilarPairs(near_duplicates, 0, owners), _SimilarPairs(near_duplicates, 1, owners)


class NearDuplicates:
    """The near-identical candidates of each candidate, compared on demand."""

    def __init__(self, contents: Sequence[str], vectors: FloatRows, threshold: float) -> None:
        self._contents = contents
        self._vectors = vectors
        self._threshold = threshold
        self._near: dict[int, tuple[int, ...]] = {}
        # A copy uses its original's row; the original is the one that was compared first.
        self._original: dict[int, int] = {}
        self._split: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._statements: dict[str, ComparedStatement] = {}
        self._whole = False
        # Kept candidates may be used by several threads at once.
        self._lock = threading.RLock()

    def fetch(self, positions: Sequence[int]) -> None:
        """Compare the candidates at these positions with all, in blocks."""
        with self._lock:
            todo = [at for at in positions if at not in self._near and at not in self._original]
            if 2 * len(todo) > len(self._contents) > _ROWS:
                self.fetch_all()
                return
            for start in range(0, len(todo), _ROWS):
                block = [at for at in todo[start : start + _ROWS] if at not in self._original]
                near = self._above(block)
                self._near.update(near)
                for at in block:
                    self._share(at)

    def fetch_all(self) -> None:
        """Compare every candidate with every other, each pair once, without copies."""
        with self._lock:
            if self._whole or len(self._near) + len(self._original) >= len(self._contents):
                self._whole = True
                return
            groups = self._copies()
            first = [group[0] for group in groups]
            left, right = _all_pairs(self._vectors[first], self._threshold)
            partners: defaultdict[int, list[int]] = defaultdict(list)
            for i, j in zip(left.tolist(), right.tolist(), strict=True):
                partners[i].append(j)
                partners[j].append(i)
            for number, (original, *copies) in enumerate(groups):
                # One of its copies may have been compared first.
                self._original.pop(original, None)
                self._original.update(dict.fromkeys(copies, original))
                alike = [at for other in partners[number] for at in groups[other]]
                self._near[original] = tuple(sorted((*copies, *alike)))
            self._whole = True

    def compared(self) -> list[int]:
        """Positions that were compared with all others so far and resemble any of them."""
        with self._lock:
            near = [at for at, partners in self._near.items() if partners]
            return sorted({*near, *self._original})

    def split(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Near-identical positions that say the same, and those that differ; both ascending."""
        with self._lock:
            known = self._split.get(position)
            if known is None:
                self.fetch((position,))
                original = self._original.get(position)
                if original is None:
                    known = self._divide(position)
                else:
                    same, other = self.split(original)
                    known = tuple(sorted({*same, original} - {position})), other
                self._split[position] = known
            return known

    def within(self, positions: Iterable[int]) -> list[tuple[int, int, bool]]:
        """Near-identical pairs among these positions alone, and whether the two differ."""
        places = sorted(set(positions))
        left, right = _all_pairs(self._vectors[places], self._threshold)
        pairs = [(places[i], places[j]) for i, j in zip(left.tolist(), right.tolist(), strict=True)]
        return [(i, j, self._differ(i, j)) for i, j in pairs]

    def _divide(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        near = [(at, self._differ(position, at)) for at in self._near[position]]
        return tuple(at for at, differ in near if not differ), tuple(at for at, yes in near if yes)

    def _differ(self, left: int, right: int) -> bool:
        text, other = self._contents[left], self._contents[right]
        return text != other and self._statement(text).differs(self._statement(other))

    def _statement(self, text: str) -> ComparedStatement:
        # Cached here because the cache of `read_statement` is too small for thousands of texts.
        statement = self._statements.get(text)
        if statement is None:
            # Imported late: most envelopes have no near-duplicates, and listed pairs need none.
            from crp_integrations.language.negation import read_statement

            statement = self._statements[text] = read_statement(text)
        return statement

    def _above(self, block: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """For each position of the block, the other positions above the threshold."""
        vectors, own = self._vectors, np.array(block, dtype=np.intp)
        product = vectors[own] @ vectors.T
        rows, columns = np.nonzero(product > self._threshold - _slack(vectors))
        other = own[rows] != columns
        rows, columns = rows[other], columns[other]
        sure = _confirm_pairs(vectors, self._threshold, product[rows, columns], own[rows], columns)
        near: dict[int, list[int]] = {at: [] for at in block}
        for row, column in zip(rows[sure].tolist(), columns[sure].tolist(), strict=True):
            near[block[row]].append(column)
        return {at: tuple(partners) for at, partners in near.items()}

    def _share(self, original: int) -> None:
        """Mark copies of the original, so that a thousand copies are compared only once."""
        for at in self._near[original]:
            if at not in self._near and at not in self._original and self._copy(original, at):
                self._original[at] = original

    def _copy(self, place: int, other: int) -> bool:
        same = self._contents[place] == self._contents[other]
        return same and np.array_equal(self._vectors[place], self._vectors[other])

    def _copies(self) -> list[list[int]]:
        """All positions, grouped by equal text and vector, in order of the first in each."""
        if len({*self._contents}) == len(self._contents):
            return [[at] for at in range(len(self._contents))]
        threshold = to_fixed(self._threshold)
        groups: dict[tuple[str, bytes], list[int]] = {}
        own = np.einsum("ij,ij->i", self._vectors, self._vectors, dtype=np.float64)
        # A row that is not near to itself, such as a row of zeros, is never grouped.
        near = (np.rint(own * SCALE) > threshold).tolist()
        for at, text in enumerate(self._contents):
            key = self._vectors[at].tobytes() if near[at] else at.to_bytes(8)
            groups.setdefault((text, key), []).append(at)
        return list(groups.values())


class _SimilarPairs(PairRelation):
    """Either the duplicates (`which` 0) or the conflicts (1) among near-identical pairs."""

    def __init__(
        self, near: NearDuplicates, which: int, owners: Sequence[int] | None = None
    ) -> None:
        self._near = near
        self._which = which
        self._owners = owners

    def of(self, position: int) -> tuple[int, ...]:
        """Positions paired with this one, ascending."""
        near = self._near.split(position)[self._which]
        own = self._owners
        return near if own is None else tuple(at for at in near if own[at] != own[position])

    def fetch(self, positions: Sequence[int]) -> None:
        """Compare many candidates in one product."""
        self._near.fetch(positions)

    def within(self, positions: Iterable[int]) -> list[tuple[int, int]]:
        """The pairs among these positions, sorted; no other positions are compared."""
        pairs = self._near.within(positions)
        own = self._owners
        return [
            (left, right)
            for left, right, differs in pairs
            if differs == bool(self._which) and (own is None or own[left] != own[right])
        ]

    def asked(self) -> list[tuple[int, int]]:
        """The pairs with at least one position that was compared with all others, sorted."""
        pairs = (
            (min(place, other), max(place, other))
            for place in self._near.compared()
            for other in self.of(place)
        )
        return sorted(set(pairs))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self._near.fetch_all()
        for left in self._near.compared():
            yield from ((left, right) for right in self.of(left) if right > left)


class Deduplication:
    """Which ranked facts have a near-duplicate above them that is kept instead (`walk@1`).

    In the order of the picks, a fact is dropped when it is nearly equal to one already kept
    (decision E11). Whether a fact is kept depends only on the facts above it that resemble it, so
    a single fact can be decided without the others. Facts are identified by their places in the
    ranking.

    Spec: CRP-SPEC-003 §6.6
    """

    def __init__(self, order: Sequence[int], picks: Sequence[int], pairs: PairRelation) -> None:
        """Take positions by rank, positions in the order of the picks, and duplicate pairs."""
        self._positions = list(order)
        self._pairs = pairs
        self._place = {position: place for place, position in enumerate(self._positions)}
        self._picks = [self._place[position] for position in picks]
        self._pick = {place: number for number, place in enumerate(self._picks)}
        # By place, the place that is kept instead; None for a fact that is kept.
        self._known: dict[int, int | None] = {}

    @classmethod
    def without_duplicates(cls, facts: int) -> Deduplication:
        """A ranking of this many facts without near-duplicates."""
        return cls(range(facts), range(facts), ListedPairs())

    def fetch(self, places: Sequence[int]) -> None:
        """Compute these places at once for later calls."""
        self._pairs.fetch([self._positions[place] for place in places])

    def kept_instead_of(self, place: int) -> int | None:
        """The place of the fact that is kept instead of this one; None when this one is kept."""
        waiting = [place]
        while waiting:
            first = self._unsettled(waiting[-1])
            if first is None:
                waiting.pop()
            else:
                waiting.append(first)
        return self._known[place]

    def duplicates(self) -> dict[int, int]:
        """The near-duplicates found so far, each with the place that is kept instead."""
        return {place: stand_in for place, stand_in in self._known.items() if stand_in is not None}

    def below(self, place: int) -> list[int]:
        """Places of the near-duplicates that were picked after this fact."""
        pick = self._pick
        return [other for other in self._partners(place) if pick[other] > pick[place]]

    def all(self) -> dict[int, int]:
        """Every near-duplicate and the place kept instead of it, in the order of the picks."""
        self._pairs.fetch(range(len(self._positions)))
        pairs = ((place, self.kept_instead_of(place)) for place in self._picks)
        return {place: stand_in for place, stand_in in pairs if stand_in is not None}

    def _partners(self, place: int) -> list[int]:
        return [self._place[position] for position in self._pairs.of(self._positions[place])]

    def _unsettled(self, place: int) -> int | None:
        """A fact above that has to be decided first; None when this one is decided."""
        if place in self._known:
            return None
        pick = self._pick
        above = [other for other in self._partners(place) if pick[other] < pick[place]]
        for other in sorted(above, key=pick.__getitem__):
            if other not in self._known:
                return other
            if self._known[other] is None:
                self._known[place] = other
                return None
        self._known[place] = None
        return None


def _all_pairs(vectors: FloatRows, threshold: float) -> tuple[Places, Places]:
    """Left and right positions of all pairs above the threshold, sorted."""
    lefts, rights = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
    for start in range(0, len(vectors), _BLOCK):
        block, after = vectors[start : start + _BLOCK], vectors[start:]
        product = block @ after.T
        flat = np.flatnonzero(product > threshold - _slack(vectors))
        rows, columns = np.divmod(flat, len(after))
        upper = columns > rows
        if not upper.any():
            # Usually each row resembles only itself.
            continue
        rows, columns, flat = rows[upper] + start, columns[upper] + start, flat[upper]
        sure = _confirm_pairs(vectors, threshold, product.ravel()[flat], rows, columns)
        lefts.append(rows[sure])
        rights.append(columns[sure])
    return np.concatenate(lefts), np.concatenate(rights)


def _confirm_pairs(
    vectors: FloatRows, threshold: float, cosines: FloatRows, left: Places, right: Places
) -> Places:
    """Indices of the pairs above the threshold, computed exactly where rounding could decide."""
    least = to_fixed(threshold)
    above = np.ones(len(cosines), dtype=bool)
    close = np.flatnonzero(cosines < threshold + _slack(vectors))
    for at in range(0, len(close), 65_536):
        some = close[at : at + 65_536]
        exact = np.einsum("ij,ij->i", vectors[left[some]], vectors[right[some]], dtype=np.float64)
        above[some] = np.rint(exact * SCALE) > least
    return np.flatnonzero(above)


def _slack(vectors: FloatRows) -> float:
    return float(_SLACK + _SLACK_PER_DIMENSION * vectors.shape[1])
