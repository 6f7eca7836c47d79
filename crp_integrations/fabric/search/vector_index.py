"""Vector search over one state of a namespace: exact by itself, with a graph when there is one.

A fast product, or the graph, finds every row that could be among the best; then the deterministic
cosine of `vectors.py` decides, so a score depends on its own row alone and ties go by id. Rows that
came after a graph was built are searched exactly; rows that went are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import FactsFacet, GraphIndex
from crp_integrations.fabric.search.vector_rows import Mask, Places, ShortRows, VectorRows, slack
from crp_integrations.vectors import FloatRows, cosine

# Rows scored beyond the k of the highest bounds, for a lower end that rules out nearly all others.
_FIRST = 64
# Every so many-th bound is looked at to tell how high the highest are: sorting out all of them
# takes as long as computing them.
_SAMPLED = 16
# A bound that lets more than this share of the rows through saved nothing.
_LET_THROUGH = 0.25


class Hit(NamedTuple):
    """A fact that a search found.

    Attributes:
        score: cosine in [-1, 1] or BM25 above 0, as the search says; higher is better.
    """

    fact_id: str
    score: float


def scan(
    rows: VectorRows,
    wanted: npt.NDArray[np.float32],
    k: int,
    allowed: Sequence[bool] | None,
    scan_rows: int,
) -> list[Hit]:
    """The k facts of highest cosine among all that count and may be seen, ties by id."""
    places = None
    if allowed is not None or len(rows) < len(rows.alive):
        places = np.flatnonzero(rows.alive if allowed is None else rows.passing(allowed))
    narrow = rows.short_rows()
    if narrow is not None:
        hits = _by_bound(rows, narrow, wanted, k, places, scan_rows)
        if hits is not None:
            return hits
    rough = products(rows.base, wanted, scan_rows)
    if len(rows.late):
        rough = np.concatenate([rough, products(rows.late, wanted, scan_rows)])
    if places is None:
        return best_exact(rows, wanted, k, likely_best(rough, k, rows.dimensions))
    return best_exact(rows, wanted, k, places[likely_best(rough[places], k, rows.dimensions)])


def best_exact(
    rows: VectorRows,
    wanted: npt.NDArray[np.float32],
    k: int,
    places: Places,
    own: FloatRows | None = None,
) -> list[Hit]:
    """The k best of some places by the exact score, ties by id; `own` are their rows."""
    if places.size == 0:
        return []
    scores = cosine(rows.gathered(places) if own is None else own, wanted)
    # Sorting a few more costs less than finding out which they are.
    if places.size > 2 * k:
        near = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        scores, places = scores[near], places[near]
    first = np.lexsort((rows.id_order(places), -scores))[:k]
    best = zip(rows.ids_at(places[first]), scores[first].tolist(), strict=True)
    return [Hit(id_, score) for id_, score in best]


def likely_best(rough: npt.NDArray[np.float32], k: int, dimensions: int) -> Places:
    """Positions of all that may be among the k best by the exact score, from fast products."""
    if rough.size <= k:
        return np.arange(rough.size)
    kth = np.partition(rough, rough.size - k)[rough.size - k]
    return np.flatnonzero(rough >= kth - slack(dimensions))


def products(
    block: FloatRows, wanted: npt.NDArray[np.float32], scan_rows: int
) -> npt.NDArray[np.float32]:
    """Fast products of rows with a vector, shape (n,), so many rows at a time."""
    if len(block) <= scan_rows:
        return block @ wanted
    return np.concatenate(
        [block[start : start + scan_rows] @ wanted for start in range(0, len(block), scan_rows)]
    )


def _by_bound(
    rows: VectorRows,
    narrow: ShortRows,
    wanted: npt.NDArray[np.float32],
    k: int,
    places: Places | None,
    scan_rows: int,
) -> list[Hit] | None:
    """The best of some places, of which most are told apart by their short form."""
    most = narrow.most(wanted)
    if len(rows.late):
        late = products(rows.late, wanted, scan_rows) + slack(rows.dimensions)
        most = np.concatenate([most, late])
    if places is not None:
        most = most[places]
    first = k + _FIRST
    if first >= _LET_THROUGH * most.size:
        return None
    likely = _highest(most, first)
    if likely.size < k:
        likely = np.argpartition(most, most.size - first)[most.size - first :]
    best = rows.gathered(likely if places is None else places[likely])
    least = np.partition(cosine(best, wanted), -k)[-k]
    near = np.flatnonzero(most >= least)
    if near.size > _LET_THROUGH * most.size:
        return None
    return best_exact(rows, wanted, k, near if places is None else places[near])


def _highest(bounds: npt.NDArray[np.float32], about: int) -> Places:
    """Positions of about so many of the highest bounds, told from a sample of them."""
    sample = bounds[::_SAMPLED]
    rank = min(sample.size, -(-about // _SAMPLED))
    return np.flatnonzero(bounds >= np.partition(sample, sample.size - rank)[sample.size - rank])


# The tail and what is dead are merged into a new base above this many and this share of all rows.
_MERGE_ROWS = 512
_MERGE_SHARE = 0.10
# A chosen part of this share or less gets rows of its own, so that a search reads nothing else.
_OWN_ROWS_SHARE = 0.25
# A guard that lets less than this share pass makes the graph a detour.
_GRAPH_SHARE = 0.50
# Rows scored exactly beyond the k first of a graph, whose own order is off by rounding alone.
_SPARE = 16

# Gives a base block, or None where it cannot.
Block = Callable[[], FloatRows | None]


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A known part of an index.

    Attributes:
        places: of its rows, ascending.
        rows: the same rows as a block of their own; None for a large part.
    """

    places: Places
    rows: FloatRows | None


@dataclass(frozen=True, slots=True)
class IndexGraph:
    """A nearest-neighbour graph over the base block of an index.

    Attributes:
        candidates: fewest rows asked of it for one search.
        beyond: rows asked of it beyond those wanted, at least as many again; 0 for none.
    """

    index: GraphIndex
    candidates: int
    beyond: int = 0

    def asked(self, k: int) -> int:
        """How many rows a search for k asks of it."""
        return max(self.candidates, k + (max(self.beyond, k) if self.beyond else 0))


@dataclass(frozen=True, slots=True)
class GraphBase:
    """What is kept of a base block beside the graph over it.

    Attributes:
        ids: in the order of the rows.
        checksums: of the rows.
    """

    ids: tuple[str, ...]
    checksums: tuple[int, ...]
    dimensions: int


def checksum(row: npt.NDArray[np.float32]) -> int:
    """Tells whether a row is the one that a graph was built with."""
    return crc32(np.ascontiguousarray(row, dtype="<f4").data)


@dataclass(frozen=True, slots=True)
class VectorIndex(VectorRows):
    """The retrievable facts of one state, to be searched.

    Attributes:
        graph: over the base block, None while there is none.
    """

    graph: IndexGraph | None = None

    # --- making ------------------------------------------------------------------------

    @classmethod
    def read(cls, facts: FactsFacet) -> VectorIndex:
        """Read everything that a transaction sees."""
        listed = facts.retrievable()
        return cls.of(facts.generation(), listed, facts.vectors([id_ for id_, _ in listed]))

    @classmethod
    def over(
        cls, facts: FactsFacet, base: GraphBase, changed: Sequence[str], rows: Block | None = None
    ) -> VectorIndex | None:
        """Read what a transaction sees around the base block of an earlier state."""
        listed, moved = facts.retrievable(), set(changed)
        labels = dict(listed)
        if tuple(labels) == base.ids:
            stored = np.ones(len(base.ids), dtype=np.bool_)
        else:
            if set(base.ids).symmetric_difference(labels) - moved:
                return None
            stored = np.array([id_ in labels for id_ in base.ids], dtype=np.bool_)
            listed = [(id_, labels.get(id_, ())) for id_ in base.ids]
        # A label or a community may have changed and not the vector: such a row still counts.
        asked = (
            [place for place, id_ in enumerate(base.ids) if id_ in moved and id_ in labels]
            if moved
            else []
        )
        block = None if rows is None else rows()
        if block is None:
            block = _stored_rows(facts, base, stored)
            now = block[asked]
        else:
            now = facts.vectors([base.ids[place] for place in asked])
        if block.shape != (len(base.ids), base.dimensions) or now.shape[1:] != block.shape[1:]:
            return None
        alive = stored.copy()
        for place, row in zip(asked, now, strict=True):
            if checksum(row) != base.checksums[place]:
                # The graph knows another vector here, so this row must not be taken up again.
                alive[place] = False
                if block.flags.writeable:
                    block[place] = 0.0
        made = cls.of(facts.generation(), listed, block)
        made = replace(made, alive=alive, _size=int(np.count_nonzero(alive)))
        ours = made._base_place
        again = [id_ for id_ in changed if (at := ours.get(id_)) is None or not alive[at]]
        return made.changed(facts, sorted(set(again))) if again else made

    def advanced(self, facts: FactsFacet, changed: Sequence[str]) -> VectorIndex | None:
        """The next state, with one base again when much has changed and no graph stands on it."""
        made = self.changed(facts, changed)
        if made is None or made.graph is not None:
            return made
        waste = 2 * len(made.alive) - len(made.base_ids) - len(made)
        return made.merged() if waste > max(_MERGE_ROWS, _MERGE_SHARE * len(made)) else made

    def with_graph(self, graph: IndexGraph | None) -> VectorIndex:
        """The same with a graph over the base block."""
        return replace(self, graph=graph)

    # --- searching ---------------------------------------------------------------------

    def select(self, ids: Sequence[str], allowed: Sequence[bool] | None = None) -> IndexPart:
        """The part of the index that ids name, without facts that are not here or not seen."""
        known_places = [place for id_ in ids if (place := self.place(id_)) is not None]
        places = np.array(sorted(known_places), dtype=np.intp)
        if allowed is not None and not all(allowed):
            places = places[np.array(allowed, dtype=np.bool_)[self.codes[places]]]
        own = places.size <= _OWN_ROWS_SHARE * self._size
        return IndexPart(places, self.gathered(places) if own else None)

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        allowed: Sequence[bool] | None = None,
        among: IndexPart | None = None,
        scan_rows: int = 65_536,
    ) -> list[Hit]:
        """The k facts of highest cosine, ties by id.

        Spec: CRP-SPEC-009 §3.1
        """
        if self._size == 0 or k <= 0:
            return []
        wanted = np.ascontiguousarray(vector, dtype=np.float32)
        # The product with itself is 1 for a unit vector, and not finite where a number is not.
        if wanted.shape != (self.dimensions,) or not isfinite(wanted.dot(wanted)):
            raise EngineError(
                f"query vector has shape {wanted.shape}, wanted ({self.dimensions},) and finite"
            )
        if allowed is not None and all(allowed):
            allowed = None
        if among is not None:
            return self._among(wanted, k, among, allowed, scan_rows)
        if self.graph is not None:
            hits = self._by_graph(self.graph, wanted, k, allowed, scan_rows)
            if hits is not None:
                return hits
        return scan(self, wanted, k, allowed, scan_rows)

    def _among(
        self,
        wanted: npt.NDArray[np.float32],
        k: int,
        among: IndexPart,
        allowed: Sequence[bool] | None,
        scan_rows: int,
    ) -> list[Hit]:
        places, rows = among.places, among.rows
        if allowed is not None:
            passing = np.array(allowed, dtype=np.bool_)[self.codes[places]]
            places = places[passing]
            rows = None if rows is None else rows[passing]
        if rows is not None:
            near = likely_best(rows @ wanted, k, self.dimensions)
            return best_exact(self, wanted, k, places[near], rows[near])
        rough = np.concatenate(
            [
                self.gathered(places[start : start + scan_rows]) @ wanted
                for start in range(0, max(1, len(places)), scan_rows)
            ]
        )
        return best_exact(self, wanted, k, places[likely_best(rough, k, self.dimensions)])

    def _by_graph(
        self,
        graph: IndexGraph,
        wanted: npt.NDArray[np.float32],
        k: int,
        allowed: Sequence[bool] | None,
        scan_rows: int,
    ) -> list[Hit] | None:
        """The best of graph and tail; None when the graph finds too few that may be seen."""
        base = len(self.base_ids)
        if k >= base:
            return None
        if allowed is None and self._is_base():
            # As after a build: nothing to mask, and no tail.
            places = graph.index.search(wanted, min(base, graph.asked(k)))
            return best_exact(self, wanted, k, places[: k + _SPARE]) if places.size >= k else None
        passing = self.alive if allowed is None else self.passing(allowed)
        count = int(np.count_nonzero(passing[:base]))
        if count < _GRAPH_SHARE * base:
            return None
        # What may not be seen takes places among the candidates.
        asked = min(base, ceil(graph.asked(k) * base / count))
        places = graph.index.search(wanted, asked)
        places = places[passing[places]]
        if places.size < min(k, count):
            return None
        places = places[: k + _SPARE]
        if len(self._tail):
            late = np.flatnonzero(passing[base:])
            if late.size:
                rough = products(self.late, wanted, scan_rows)[late]
                places = np.concatenate(
                    [places, base + late[likely_best(rough, k, self.dimensions)]]
                )
        return best_exact(self, wanted, k, places)


def _stored_rows(facts: FactsFacet, base: GraphBase, stored: Mask) -> FloatRows:
    """The base block out of the store; what is not there is only in the graph and never counts."""
    if stored.all():
        return facts.vectors(base.ids)
    rows = facts.vectors([base.ids[place] for place in np.flatnonzero(stored).tolist()])
    block = np.zeros((len(base.ids), rows.shape[1]), dtype=np.float32)
    block[stored] = rows
    return block
