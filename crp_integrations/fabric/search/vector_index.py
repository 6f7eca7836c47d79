"""The retrievable facts of one state as unit rows, and vector search over them.

`VectorIndex` is immutable: a base block sorted by id, a tail of rows added later, and a mask of the
rows still valid. A fast product, or the graph, finds every row that could be among the best; then
the deterministic cosine of `vectors.py` decides, so a score depends only on its own row, and ties
go by id. Rows added after a graph was built are all compared; removed rows are masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError, StoreError
from crp_integrations.fabric.ports import FactsFacet, GraphIndex
from crp_integrations.vectors import FloatRows, cosine

Places = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
LabelSets = tuple[tuple[str, ...], ...]

# A float32 product of unit vectors, summed in any order, is off by at most d × 2^-24. Two products
# are compared; the remaining factor allows for rounding of the bounds themselves.
_ERROR_PER_DIMENSION = 8 * 2.0**-24
# Tail and masked rows are merged into a new base above this number and this share of all rows.
_MERGE_ROWS = 512
_MERGE_SHARE = 0.10
# Maximum rows gathered for one product, to bound memory when a large part of the index is searched.
_MAX_GATHERED = 65_536
# If the guard allows less than this share of the rows, exact search is faster than the graph.
_GRAPH_SHARE = 0.50
# Rows scored exactly after the first k of a graph, whose order differs only by rounding.
_EXTRA_ROWS = 16
# Capacity of a new tail, in rows.
_CAPACITY = 64


class GrowingRows:
    """The rows after a base block, for one snapshot; `grown` makes those of the next snapshot.

    Rows are written once, after the last row that any snapshot sees, so snapshots share one array
    and a new fact costs one row. Only the snapshot with the most rows grows in place; any other
    copies its rows. The caller that makes snapshots must hold its lock while growing.
    """

    __slots__ = ("_length", "_rows", "_used", "ids")

    def __init__(self, dimensions: int) -> None:
        self.ids: list[str] = []
        self._rows: FloatRows = np.zeros((0, dimensions), dtype=np.float32)
        self._length = 0
        # Rows of `_rows` and `ids` used by any snapshot; a list, since the snapshots share it.
        self._used = [0]

    def __len__(self) -> int:
        return self._length

    @property
    def rows(self) -> FloatRows:
        """Unit rows, shape (length, dimensions)."""
        return self._rows[: self._length]

    def grown(self, ids: list[str], rows: FloatRows) -> GrowingRows:
        """Return these rows with more rows at the end."""
        wanted = self._length + len(ids)
        made = object.__new__(GrowingRows)
        if self._used[0] == self._length and wanted <= len(self._rows):
            made.ids, made._rows, made._used = self.ids, self._rows, self._used
        else:
            room = np.empty((max(_CAPACITY, 2 * wanted), self._rows.shape[1]), dtype=np.float32)
            room[: self._length] = self.rows
            made.ids, made._rows, made._used = self.ids[: self._length], room, [self._length]
        made._rows[self._length : wanted] = rows
        made.ids.extend(ids)
        made._used[0] = wanted
        made._length = wanted
        return made


class Hit(NamedTuple):
    """A fact that a search found.

    Attributes:
        score: cosine in [-1, 1] or BM25 above 0, depending on the search; higher is better.
    """

    fact_id: str
    score: float


@dataclass(frozen=True, slots=True)
class IndexGraph:
    """A nearest-neighbour graph over the base block of an index.

    Attributes:
        candidates: minimum number of rows requested in one search.
        beyond: extra rows requested besides the k wanted, but at least k; 0 for none.
    """

    index: GraphIndex
    candidates: int
    beyond: int = 0

    def asked(self, k: int) -> int:
        """Number of rows to request from the graph in a search for k."""
        return max(self.candidates, k + (max(self.beyond, k) if self.beyond else 0))


@dataclass(frozen=True, slots=True)
class GraphBase:
    """The description of a base block that is saved with its graph.

    Attributes:
        ids: fact ids in the order of the rows.
        checksums: checksums of the rows.
    """

    ids: tuple[str, ...]
    checksums: tuple[int, ...]
    dimensions: int


def checksum(row: npt.NDArray[np.float32]) -> int:
    """Checksum that shows whether a row is still the one with which a graph was built."""
    return crc32(np.ascontiguousarray(row, dtype="<f4").data)


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The retrievable facts of one state as searchable unit rows; immutable.

    A place is a row number: first the base block, then the tail.

    Attributes:
        generation: generation of the state.
        label_sets: the distinct label tuples; later states keep their order and append new ones.
        codes: for each place the position of its labels in `label_sets`.
        alive: for each place whether its row is still valid.
        base_ids: ids of the base block, ascending.
        base: unit rows, shape (len(base_ids), dimensions), including rows no longer valid.
        graph: graph over the base block, None if there is none.
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
    # Number of ids with a valid row in the tail and an earlier row in the base.
    _moved: int
    graph: IndexGraph | None = None

    # --- making ------------------------------------------------------------------------

    @classmethod
    def read(cls, facts: FactsFacet) -> VectorIndex:
        """Read all facts that a transaction sees."""
        listed = facts.retrievable()
        return cls.of(facts.generation(), listed, facts.vectors([id_ for id_, _ in listed]))

    @classmethod
    def over(cls, facts: FactsFacet, base: GraphBase, changed: Sequence[str]) -> VectorIndex | None:
        """Read a transaction's facts on the base block of an earlier state; None if unsuitable."""
        listed, moved = facts.retrievable(), set(changed)
        labels = dict(listed)
        if tuple(labels) == base.ids:
            stored = np.ones(len(base.ids), dtype=np.bool_)
        else:
            if set(base.ids).symmetric_difference(labels) - moved:
                return None
            stored = np.array([id_ in labels for id_ in base.ids], dtype=np.bool_)
            listed = [(id_, labels.get(id_, ())) for id_ in base.ids]
        # If only a label or community has changed, not the vector, the row is still valid.
        asked = (
            [place for place, id_ in enumerate(base.ids) if id_ in moved and id_ in labels]
            if moved
            else []
        )
        block = _stored_rows(facts, base, stored)
        if block.shape != (len(base.ids), base.dimensions):
            return None
        alive = stored.copy()
        for place in asked:
            if checksum(block[place]) != base.checksums[place]:
                # The graph has another vector here, so this row must not become valid again.
                alive[place] = False
                block[place] = 0.0
        made = cls.of(facts.generation(), listed, block)
        made = replace(made, alive=alive, _size=int(np.count_nonzero(alive)))
        ours = made._base_place
        again = [id_ for id_ in changed if (at := ours.get(id_)) is None or not alive[at]]
        return made.changed(facts, sorted(set(again))) if again else made

    def advanced(self, facts: FactsFacet, changed: Sequence[str]) -> VectorIndex | None:
        """The next state; merged into one base if much has changed and there is no graph on it."""
        made = self.changed(facts, changed)
        if made is None or made.graph is not None:
            return made
        waste = 2 * len(made.alive) - len(made.base_ids) - len(made)
        return made.merged() if waste > max(_MERGE_ROWS, _MERGE_SHARE * len(made)) else made

    def with_graph(self, graph: IndexGraph | None) -> VectorIndex:
        """Return this index with a graph over the base block."""
        return replace(self, graph=graph)

    @classmethod
    def of(
        cls,
        generation: int,
        listed: Sequence[tuple[str, tuple[str, ...]]],
        block: FloatRows,
        label_sets: LabelSets = (),
    ) -> VectorIndex:
        """Make an index without a tail."""
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

    def changed(self, facts: FactsFacet, changed: Sequence[str]) -> VectorIndex | None:
        """The next state, after some facts changed; None if vectors have another length."""
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
        # A fact with an unchanged vector keeps its row, which does not contain labels, status or
        # community; a fact that returns, for example from the archive, gets its base row back.
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

    def merged(self) -> VectorIndex:
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
        """The place of a fact's row; None if the fact is not retrievable."""
        place = self._tail_place.get(fact_id)
        if place is None or not self.alive[place]:
            place = self._base_place.get(fact_id)
        return place if place is not None and self.alive[place] else None

    def places(self, ids: Sequence[str], allowed: Sequence[bool] | None = None) -> list[int | None]:
        """The places of facts' rows; None for a fact that is not retrievable or not allowed."""
        places = [self.place(id_) for id_ in ids]
        if allowed is None or all(allowed):
            return places
        codes = self.codes
        return [None if at is None or not allowed[codes[at]] else at for at in places]

    def seen(self, ids: Sequence[str], allowed: Sequence[bool]) -> set[str]:
        """The ids of the facts that are retrievable and allowed."""
        places = self.places(ids, allowed)
        return {id_ for id_, place in zip(ids, places, strict=True) if place is not None}

    def count(self, allowed: Sequence[bool]) -> int:
        """Number of facts that may be read, given `allowed` for each label set."""
        if all(allowed):
            return self._size
        return int(np.count_nonzero(self.passing(allowed)))

    @property
    def late(self) -> FloatRows:
        """The rows of the tail, shape (n, dimensions)."""
        return self._tail.rows

    def all_rows(self) -> tuple[tuple[str, ...], FloatRows]:
        """Ids, ascending, and their unit rows, shape (n, dimensions); read only."""
        made = self.merged()
        return made.base_ids, made.base

    def rows(self, ids: Sequence[str], *, allowed: Sequence[bool] | None = None) -> FloatRows:
        """Unit rows in the order of the ids, shape (len(ids), dimensions)."""
        places = self.places(ids, allowed)
        if None in places:
            fact = ids[places.index(None)]
            raise StoreError(f"fact {fact} cannot be retrieved")
        return self.gathered(np.array(places, dtype=np.intp))

    def id(self, place: int) -> str:
        """The id of the fact at a place."""
        base = len(self.base_ids)
        return self.base_ids[place] if place < base else self._tail.ids[place - base]

    def ids_at(self, places: Places) -> list[str]:
        """The ids of the facts at some places, in their order."""
        return [self.id(place) for place in places.tolist()]

    def id_order(self, places: Places) -> Places:
        """Sort keys that order places by the ids of their facts."""
        # Without a tail, places are in this order already.
        return np.array(self.ids_at(places)).argsort().argsort() if len(self._tail) else places

    def passing(self, allowed: Sequence[bool]) -> Mask:
        """For each place whether its row is valid and allowed."""
        passing: Mask = np.array(allowed, dtype=np.bool_)[self.codes] & self.alive
        return passing

    def gathered(self, places: Places) -> FloatRows:
        """Copy the unit rows at some places."""
        base = len(self.base_ids)
        if not len(self._tail):
            return np.take(self.base, places, axis=0)
        late = places >= base
        if not base or late.all():
            return np.take(self._tail.rows, places - base, axis=0)
        # One pass, since it may be the whole block; rows of the tail are overwritten below.
        rows = np.take(self.base, np.where(late, 0, places), axis=0)
        rows[late] = self._tail.rows[places[late] - base]
        return rows

    def _is_base(self) -> bool:
        return not len(self._tail) and self._size == len(self.base_ids)

    def _by_id(self) -> list[int]:
        return sorted(np.flatnonzero(self.alive).tolist(), key=self.id)

    # --- searching ---------------------------------------------------------------------

    def select(self, ids: Sequence[str]) -> Places:
        """The places of the given facts, ascending; facts that are not retrievable are left out."""
        places = [place for id_ in ids if (place := self.place(id_)) is not None]
        return np.array(sorted(places), dtype=np.intp)

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        allowed: Sequence[bool] | None = None,
        among: Places | None = None,
    ) -> list[Hit]:
        """The k facts of highest cosine, ties by id; with `among`, only those at these places.

        Spec: CRP-SPEC-009 §3.1
        """
        if self._size == 0 or k <= 0:
            return []
        wanted = np.ascontiguousarray(vector, dtype=np.float32)
        # The product with itself is not finite if any number of the vector is not finite.
        if wanted.shape != (self.dimensions,) or not isfinite(wanted.dot(wanted)):
            raise EngineError(
                f"query vector has shape {wanted.shape}, wanted ({self.dimensions},) and finite"
            )
        if allowed is not None and all(allowed):
            allowed = None
        if among is not None:
            if allowed is not None:
                among = among[np.array(allowed, dtype=np.bool_)[self.codes[among]]]
            parts = [
                self.gathered(among[start : start + _MAX_GATHERED]) @ wanted
                for start in range(0, max(1, len(among)), _MAX_GATHERED)
            ]
            return self._best(wanted, k, among[self._likely(np.concatenate(parts), k)])
        if self.graph is not None:
            hits = self._by_graph(self.graph, wanted, k, allowed)
            if hits is not None:
                return hits
        rough = self.base @ wanted
        if len(self._tail):
            rough = np.concatenate([rough, self.late @ wanted])
        if allowed is None and len(self) == len(self.alive):
            return self._best(wanted, k, self._likely(rough, k))
        places = np.flatnonzero(self.alive if allowed is None else self.passing(allowed))
        return self._best(wanted, k, places[self._likely(rough[places], k)])

    def _likely(self, rough: npt.NDArray[np.float32], k: int) -> Places:
        """Positions of all rows whose exact score may be among the k best, from fast products."""
        if rough.size <= k:
            return np.arange(rough.size)
        kth = np.partition(rough, rough.size - k)[rough.size - k]
        return np.flatnonzero(rough >= kth - np.float32(_ERROR_PER_DIMENSION * self.dimensions))

    def _best(self, wanted: npt.NDArray[np.float32], k: int, places: Places) -> list[Hit]:
        """The k best of some places by the exact score, ties by id."""
        if places.size == 0:
            return []
        scores = cosine(self.gathered(places), wanted)
        # For few places, sorting all of them is cheaper than selecting first.
        if places.size > 2 * k:
            near = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
            scores, places = scores[near], places[near]
        first = np.lexsort((self.id_order(places), -scores))[:k]
        best = zip(self.ids_at(places[first]), scores[first].tolist(), strict=True)
        return [Hit(id_, score) for id_, score in best]

    def _by_graph(
        self,
        graph: IndexGraph,
        wanted: npt.NDArray[np.float32],
        k: int,
        allowed: Sequence[bool] | None,
    ) -> list[Hit] | None:
        """The best of graph and tail; None if the graph finds too few allowed rows."""
        base = len(self.base_ids)
        if k >= base:
            return None
        if allowed is None and self._is_base():
            # The usual case just after a build: nothing to mask, and no tail.
            places = graph.index.search(wanted, min(base, graph.asked(k)))
            return self._best(wanted, k, places[: k + _EXTRA_ROWS]) if places.size >= k else None
        passing = self.alive if allowed is None else self.passing(allowed)
        count = int(np.count_nonzero(passing[:base]))
        if count < _GRAPH_SHARE * base:
            return None
        # Rows that are not allowed take up candidates, so request more.
        asked = min(base, ceil(graph.asked(k) * base / count))
        places = graph.index.search(wanted, asked)
        places = places[passing[places]]
        if places.size < min(k, count):
            return None
        places = places[: k + _EXTRA_ROWS]
        late = np.flatnonzero(passing[base:])
        if late.size:
            rough = (self.late @ wanted)[late]
            places = np.concatenate([places, base + late[self._likely(rough, k)]])
        return self._best(wanted, k, places)


def _stored_rows(facts: FactsFacet, base: GraphBase, stored: Mask) -> FloatRows:
    """Read the base block from the store; rows missing there are zero and never valid."""
    if stored.all():
        return facts.vectors(base.ids)
    rows = facts.vectors([base.ids[place] for place in np.flatnonzero(stored).tolist()])
    block = np.zeros((len(base.ids), rows.shape[1]), dtype=np.float32)
    block[stored] = rows
    return block


def _coded(
    known: LabelSets, labels: Sequence[tuple[str, ...]]
) -> tuple[LabelSets, npt.NDArray[np.int32]]:
    """Append new label sets to the known ones, and return the position of each of `labels`."""
    sets = (*known, *sorted(set(labels) - set(known)))
    code = {labels: number for number, labels in enumerate(sets)}
    return sets, np.array([code[own] for own in labels], dtype=np.int32)
