"""The facts of one state as unit rows, and the step from one state to the next.

`VectorRows` is immutable: a base block sorted by id, rows that came later, and a mask of the rows
that still count. `ShortRows` is a shorter form of the base block: the rows along their principal
axes. What the other axes could still add to a product is at most the product of the two lengths
that are left (Cauchy-Schwarz), so a search reads less than half of the bytes and scores exactly the
few rows that may be among the nearest.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.vectors import FloatRows

_FIRST_ROOM = 64


class GrowingRows:
    """The rows behind a base block, for one snapshot; `grown` makes that of the next.

    Rows are written once, behind the last that any snapshot sees, so snapshots share one array and
    a new fact costs one row. Only the snapshot with the most rows grows in place; any other one
    copies what it sees. Growing happens under the lock of whoever makes snapshots.
    """

    __slots__ = ("_length", "_room", "_used", "ids")

    def __init__(self, dimensions: int) -> None:
        self.ids: list[str] = []
        self._room: FloatRows = np.zeros((0, dimensions), dtype=np.float32)
        self._length = 0
        # Rows of `_room` and `ids` that are taken, by any snapshot; a list, since it is shared.
        self._used = [0]

    def __len__(self) -> int:
        return self._length

    @property
    def rows(self) -> FloatRows:
        """Unit rows, shape (length, dimensions)."""
        return self._room[: self._length]

    def grown(self, ids: list[str], rows: FloatRows) -> GrowingRows:
        """The same with more rows at the end."""
        wanted = self._length + len(ids)
        made = object.__new__(GrowingRows)
        if self._used[0] == self._length and wanted <= len(self._room):
            made.ids, made._room, made._used = self.ids, self._room, self._used
        else:
            room = np.empty((max(_FIRST_ROOM, 2 * wanted), self._room.shape[1]), dtype=np.float32)
            room[: self._length] = self.rows
            made.ids, made._room, made._used = self.ids[: self._length], room, [self._length]
        made._room[self._length : wanted] = rows
        made.ids.extend(ids)
        made._used[0] = wanted
        made._length = wanted
        return made


# Below so many rows the block itself is near the processor, and reading it costs next to nothing.
_FEWEST = 4_096
# Searches after which the short form is made: it costs about as much as they did until then.
_AFTER = 32
# Rows, spread over the block, that the axes are found from.
_SAMPLE = 2_048
# The axes kept hold this share of the squared lengths, and are no more than so many of all: with
# less the bound lets too much through, with more too little is saved. Of MiniLM's 384 they are 176,
# and the bound lets 292 of 10,000 passages through for the 50 nearest, the median.
_ENERGY = 0.90
_MOST_AXES = 0.6
_STEP = 16
# A float32 product of unit vectors, summed in any order, is off by at most d × 2^-24. Two of them
# are compared; the rest is slack for the axes, and for rounding of the bounds themselves.
_ERROR_PER_DIMENSION = 8 * 2.0**-24
# What rounding may take from a squared length that is left.
_LEFT_ERROR = 1e-5


@dataclass(frozen=True, slots=True)
class ShortRows:
    """The short form of a block.

    Attributes:
        axes: shape (dimensions, kept).
        rows: the block along them, shape (n, kept).
        left: at least the length of what the axes do not hold, shape (n,).
    """

    axes: FloatRows
    rows: FloatRows
    left: npt.NDArray[np.float32]

    @classmethod
    def of(cls, block: FloatRows) -> ShortRows | None:
        """Of unit rows, shape (n, dimensions); None where a few axes hold too little of them."""
        rows, dimensions = block.shape
        sample = block[:: max(1, rows // _SAMPLE)]
        energy, axes = np.linalg.eigh((sample.T @ sample).astype(np.float64))
        held = np.cumsum(energy[::-1])
        if held[-1] <= 0:
            return None
        axis_count = int(np.searchsorted(held, _ENERGY * held[-1])) + 1
        axis_count = -(-axis_count // _STEP) * _STEP
        if axis_count > _MOST_AXES * dimensions:
            return None
        first = np.ascontiguousarray(axes[:, ::-1][:, :axis_count], dtype=np.float32)
        short = block @ first
        return cls(first, short, _left(block, short))

    def most(self, wanted: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What the exact product of each row with a vector is at most, shape (n,)."""
        short = wanted @ self.axes
        bound = self.rows @ short
        bound += self.left * _left(wanted[None], short[None])[0]
        bound += slack(len(wanted))
        return bound


class ShortRowsCache:
    """Makes the short form of one block when it was searched often; safe between threads."""

    __slots__ = ("_lock", "_made", "_searches")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches = 0
        self._made: ShortRows | None = None

    def of(self, block: FloatRows) -> ShortRows | None:
        """The short form of the block that is being searched, None while it does not pay."""
        made = self._made
        if made is not None or len(block) < _FEWEST or self._searches > _AFTER:
            return made
        with self._lock:
            self._searches += 1
            if self._searches == _AFTER:
                self._made = ShortRows.of(block)
            return self._made


def slack(dimensions: int) -> np.float32:
    """More than what a float32 product of unit vectors is off by, however it is summed."""
    return np.float32(_ERROR_PER_DIMENSION * dimensions)


def _left(block: FloatRows, short: FloatRows) -> npt.NDArray[np.float32]:
    """At least the length of what each row has beside its short form."""
    whole = np.einsum("ij,ij->i", block, block, dtype=np.float64)
    held = np.einsum("ij,ij->i", short, short, dtype=np.float64)
    left: npt.NDArray[np.float32] = np.sqrt(np.maximum(whole - held, 0.0) + _LEFT_ERROR)
    return left.astype(np.float32)


Places = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
LabelSets = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class VectorRows:
    """The retrievable facts of one state.

    A place is a position in the base block, or behind it in the tail.

    Attributes:
        generation: of the state.
        label_sets: the distinct label tuples; a later state keeps their order and adds to it.
        codes: for each place the position of its labels in `label_sets`.
        alive: for each place whether its row counts.
        base_ids: of the base block, ascending.
        base: unit rows, shape (len(base_ids), dimensions); those that no longer count included.
    """

    generation: int
    label_sets: LabelSets
    codes: npt.NDArray[np.int32]
    alive: Mask
    base_ids: tuple[str, ...]
    base: FloatRows
    _base_place: dict[str, int]
    _tail: GrowingRows
    _tail_place: dict[str, int]
    _size: int
    # Ids that count in the tail and had a row in the base.
    _moved: int
    # Of the base, shared with the states that have the same one.
    _short_rows: ShortRowsCache = field(default_factory=ShortRowsCache, compare=False, repr=False)

    # --- making ------------------------------------------------------------------------

    @classmethod
    def of(
        cls,
        generation: int,
        listed: Sequence[tuple[str, tuple[str, ...]]],
        block: FloatRows,
        label_sets: LabelSets = (),
    ) -> Self:
        """Facts without a tail."""
        sets, codes = _coded(label_sets, [labels for _, labels in listed])
        ids = tuple(id_ for id_, _ in listed)
        return cls(
            generation=generation,
            label_sets=sets,
            codes=codes,
            alive=np.ones(len(ids), dtype=np.bool_),
            base_ids=ids,
            _base_place={id_: place for place, id_ in enumerate(ids)},
            base=block,
            _tail=GrowingRows(block.shape[1]),
            _tail_place={},
            _size=len(ids),
            _moved=0,
        )

    def changed(self, facts: FactsFacet, changed: Sequence[str]) -> Self | None:
        """The next state."""
        listed = facts.retrievable(changed)
        ids = [id_ for id_, _ in listed]
        rows = facts.vectors(ids)
        if self._size == 0 and not self.base_ids and not len(self._tail):
            return self.of(facts.generation(), listed, rows, self.label_sets)
        if ids and rows.shape[1] != self.base.shape[1]:
            return None
        sets, new_codes = _coded(self.label_sets, [labels for _, labels in listed])
        alive = self.alive.copy()
        codes = self.codes.copy()

        before = {id_: place for id_ in changed if (place := self.place(id_)) is not None}
        # A fact whose vector is the same keeps its row, since labels, status and community are not
        # in it; a fact that comes back, as from the archive, takes up its row in the base again.
        known = [
            (number, place)
            for number, id_ in enumerate(ids)
            if (place := before.get(id_, self._base_place.get(id_))) is not None
        ]
        fresh = np.ones(len(ids), dtype=np.bool_)
        if known:
            numbers = np.array([number for number, _ in known], dtype=np.intp)
            places = np.array([place for _, place in known], dtype=np.intp)
            same = (self.gathered(places) == rows[numbers]).all(axis=1)
            fresh[numbers[same]] = False
            alive[places[same]] = True
            codes[places[same]] = new_codes[numbers[same]]
        unchanged = {ids[number] for number in np.flatnonzero(~fresh).tolist()}
        for id_, place in before.items():
            if id_ not in unchanged:
                alive[place] = False

        added = [ids[number] for number in np.flatnonzero(fresh).tolist()]
        tail, tail_place = self._tail, self._tail_place
        if added:
            start = len(self.base_ids) + len(tail)
            tail = tail.grown(added, rows[fresh])
            tail_place = {**tail_place, **{id_: start + n for n, id_ in enumerate(added)}}
            alive = np.concatenate([alive, np.ones(len(added), dtype=np.bool_)])
            codes = np.concatenate([codes, new_codes[fresh]])
        left = sum(
            id_ in self._base_place and place >= len(self.base_ids) and id_ not in unchanged
            for id_, place in before.items()
        )
        moved = self._moved - left + sum(id_ in self._base_place for id_ in added)
        return replace(
            self,
            generation=facts.generation(),
            label_sets=sets,
            codes=codes,
            alive=alive,
            _tail=tail,
            _tail_place=tail_place,
            _size=self._size - len(before) + len(ids),
            _moved=moved,
        )

    def strays(self) -> tuple[str, ...]:
        """Ids of which the base block alone says something else than these rows, ascending."""
        dead = np.flatnonzero(~self.alive[: len(self.base_ids)]).tolist()
        return tuple(sorted({*(self.base_ids[place] for place in dead), *self._tail.ids}))

    def merged(self) -> Self:
        """The same facts in one base block sorted by id."""
        if self._is_base():
            return self
        places = self._by_id()
        listed = [(self.id(place), self.label_sets[self.codes[place]]) for place in places]
        block = self.gathered(np.array(places, dtype=np.intp))
        return self.of(self.generation, listed, block, self.label_sets)

    # --- asking ------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._size

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all facts, ascending."""
        if self._is_base():
            return self.base_ids
        return tuple(self.id(place) for place in self._by_id())

    @property
    def dimensions(self) -> int:
        """Length of the vectors, 0 before the first."""
        return int(self.base.shape[1])

    @property
    def worn(self) -> float:
        """Facts that were added, modified or deleted since the base was made, as a share of it.

        Spec: CRP-SPEC-009 §3.3
        """
        base = len(self.base_ids)
        dead = base - int(np.count_nonzero(self.alive[:base]))
        newer = int(np.count_nonzero(self.alive[base:]))
        return (dead + newer - self._moved) / max(1, base)

    def place(self, fact_id: str) -> int | None:
        """Where a fact's row is; None for one that cannot be retrieved."""
        place = self._tail_place.get(fact_id)
        if place is None or not self.alive[place]:
            place = self._base_place.get(fact_id)
        return place if place is not None and self.alive[place] else None

    def places(self, ids: Sequence[str], allowed: Sequence[bool] | None = None) -> list[int | None]:
        """Where the rows of facts are; None for one that is not here or may not be seen."""
        places = [self.place(id_) for id_ in ids]
        if allowed is None or all(allowed):
            return places
        codes = self.codes
        return [None if at is None or not allowed[codes[at]] else at for at in places]

    def seen(self, ids: Sequence[str], allowed: Sequence[bool]) -> set[str]:
        """Those of the facts that are here and may be seen."""
        places = self.places(ids, allowed)
        return {id_ for id_, place in zip(ids, places, strict=True) if place is not None}

    def count(self, allowed: Sequence[bool]) -> int:
        """How many facts may be seen."""
        if all(allowed):
            return self._size
        return int(np.count_nonzero(self.passing(allowed)))

    @property
    def late(self) -> FloatRows:
        """The rows that came after the base block, shape (n, dimensions)."""
        return self._tail.rows

    def short_rows(self) -> ShortRows | None:
        """The short form of the base block, once searching it has paid for it."""
        return self._short_rows.of(self.base)

    def all_rows(self) -> tuple[tuple[str, ...], FloatRows]:
        """Ids, ascending, and their unit rows, shape (n, dimensions); not to be written into."""
        made = self.merged()
        return made.base_ids, made.base

    def rows(self, ids: Sequence[str], *, allowed: Sequence[bool] | None = None) -> FloatRows:
        """Unit rows in the order asked for, shape (len(ids), dimensions)."""
        places = self.places(ids, allowed)
        if None in places:
            fact = ids[places.index(None)]
            raise StoreError(f"fact {fact} is not one that can be retrieved")
        return self.gathered(np.array(places, dtype=np.intp))

    def id(self, place: int) -> str:
        """The fact at a place."""
        base = len(self.base_ids)
        return self.base_ids[place] if place < base else self._tail.ids[place - base]

    def ids_at(self, places: Places) -> list[str]:
        """The facts at places, in their order."""
        return [self.id(place) for place in places.tolist()]

    def id_order(self, places: Places) -> Places:
        """Numbers that stand in the order in which the ids of the facts at places do."""
        # Alone, the base block is in this order.
        return np.array(self.ids_at(places)).argsort().argsort() if len(self._tail) else places

    def passing(self, allowed: Sequence[bool]) -> Mask:
        """For each place whether its row counts and may be seen."""
        passing: Mask = np.array(allowed, dtype=np.bool_)[self.codes] & self.alive
        return passing

    def gathered(self, places: Places) -> FloatRows:
        """Unit rows at places, as a block of their own."""
        base = len(self.base_ids)
        if not len(self._tail):
            return np.take(self.base, places, axis=0)
        late = places >= base
        if not base or late.all():
            return np.take(self._tail.rows, places - base, axis=0)
        # One pass over what may be the whole block; late places get any row first.
        rows = np.take(self.base, np.where(late, 0, places), axis=0)
        rows[late] = self._tail.rows[places[late] - base]
        return rows

    def _is_base(self) -> bool:
        return not len(self._tail) and self._size == len(self.base_ids)

    def _by_id(self) -> list[int]:
        return sorted(np.flatnonzero(self.alive).tolist(), key=self.id)


def _coded(
    known: LabelSets, labels: Sequence[tuple[str, ...]]
) -> tuple[LabelSets, npt.NDArray[np.int32]]:
    """Label sets with new ones behind the known, and the position of each of `labels`."""
    sets = (*known, *sorted(set(labels) - set(known)))
    code = {labels: number for number, labels in enumerate(sets)}
    return sets, np.array([code[own] for own in labels], dtype=np.int32)
