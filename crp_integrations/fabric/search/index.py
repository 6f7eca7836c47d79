"""Vector search over one state of a namespace: exact by itself, with a graph when there is one.

The rule of the search: a fast product, or the graph, finds every row that could be among the best,
then the deterministic cosine of `vectors.py` decides, so a score depends on its own row alone and
ties go by id. What came after a graph was built lies in the tail and is searched exactly; what went
is masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite
from zlib import crc32

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import FactsFacet, GraphIndex
from crp_integrations.fabric.search.rows import Mask, Places, Rows
from crp_integrations.fabric.search.scanning import Hit, nearly, products, scanned, scored
from crp_integrations.vectors import FloatRows

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
class Selection:
    """A known part of an index.

    Attributes:
        places: of its rows, ascending.
        rows: the same rows as a block of their own; None for a large part.
    """

    places: Places
    rows: FloatRows | None


@dataclass(frozen=True, slots=True)
class Graph:
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
class Base:
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
class Index(Rows):
    """The retrievable facts of one state, to be searched.

    Attributes:
        graph: over the base block, None while there is none.
    """

    graph: Graph | None = None

    # --- making ------------------------------------------------------------------------

    @classmethod
    def read(cls, facts: FactsFacet) -> Index:
        """Read everything that a transaction sees."""
        listed = facts.retrievable()
        return cls.of(facts.generation(), listed, facts.vectors([id_ for id_, _ in listed]))

    @classmethod
    def over(
        cls, facts: FactsFacet, base: Base, changed: Sequence[str], rows: Block | None = None
    ) -> Index | None:
        """Read what a transaction sees around the base block of an earlier state.

        Args:
            base: what the graph that waits for this index was built over.
            changed: ids of all facts that may have changed since.
            rows: gives the base block as it was then, so that only what may have changed is read;
                it gives None where it cannot.

        Returns:
            None when it cannot be a base of this namespace: a fact that never changed is missing
            on either side, or the vectors have another length.
        """
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

    def advanced(self, facts: FactsFacet, changed: Sequence[str]) -> Index | None:
        """The next state, with one base again when much has changed and no graph stands on it.

        Args:
            facts: what the transaction sees.
            changed: ids of all facts that may differ from this state, each once.

        Returns:
            None when the vectors have another length now, so everything must be read again.
        """
        made = self.changed(facts, changed)
        if made is None or made.graph is not None:
            return made
        waste = 2 * len(made.alive) - len(made.base_ids) - len(made)
        return made.merged() if waste > max(_MERGE_ROWS, _MERGE_SHARE * len(made)) else made

    def with_graph(self, graph: Graph | None) -> Index:
        """The same with a graph over the base block."""
        return replace(self, graph=graph)

    # --- searching ---------------------------------------------------------------------

    def select(self, ids: Sequence[str], allowed: Sequence[bool] | None = None) -> Selection:
        """The part of the index that ids name; those that are not here or not seen are left out."""
        found = [place for id_ in ids if (place := self.place(id_)) is not None]
        places = np.array(sorted(found), dtype=np.intp)
        if allowed is not None and not all(allowed):
            places = places[np.array(allowed, dtype=np.bool_)[self.codes[places]]]
        own = places.size <= _OWN_ROWS_SHARE * self._size
        return Selection(places, self.gathered(places) if own else None)

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        allowed: Sequence[bool] | None = None,
        among: Selection | None = None,
        scan_rows: int = 65_536,
    ) -> list[Hit]:
        """The k facts of highest cosine, ties by id.

        Without a graph, and within a selection, exactly these; with one, the best of what the
        graph finds and of everything that came after it.

        Spec: CRP-SPEC-009 §3.1

        Args:
            vector: unit vector, shape (dimensions,).
            k: how many; fewer come when there are fewer.
            allowed: for each of `label_sets` whether its facts may be seen; None for all.
            among: the only facts wanted, made by this index; None for all. What its maker was
                told to leave out stays out.
            scan_rows: rows of one product.

        Raises:
            EngineError: the vector has another length than the rows, or is not finite.
        """
        if self._size == 0 or k <= 0:
            return []
        wanted = np.ascontiguousarray(vector, dtype=np.float32)
        # A unit vector's product with itself is 1, and one that is not finite has none.
        if wanted.shape != (self.dimensions,) or not isfinite(wanted.dot(wanted)):
            raise EngineError(
                f"query vector has shape {wanted.shape}, wanted ({self.dimensions},) and finite"
            )
        if allowed is not None and all(allowed):
            allowed = None
        if among is not None:
            return self._among(wanted, k, among, allowed, scan_rows)
        if self.graph is not None:
            found = self._by_graph(self.graph, wanted, k, allowed, scan_rows)
            if found is not None:
                return found
        return scanned(self, wanted, k, allowed, scan_rows)

    # --- within ------------------------------------------------------------------------

    def _among(
        self,
        wanted: npt.NDArray[np.float32],
        k: int,
        among: Selection,
        allowed: Sequence[bool] | None,
        scan_rows: int,
    ) -> list[Hit]:
        places, rows = among.places, among.rows
        if allowed is not None:
            passing = np.array(allowed, dtype=np.bool_)[self.codes[places]]
            places = places[passing]
            rows = None if rows is None else rows[passing]
        if rows is not None:
            near = nearly(rows @ wanted, k, self.dimensions)
            return scored(self, wanted, k, places[near], rows[near])
        rough = np.concatenate(
            [
                self.gathered(places[start : start + scan_rows]) @ wanted
                for start in range(0, max(1, len(places)), scan_rows)
            ]
        )
        return scored(self, wanted, k, places[nearly(rough, k, self.dimensions)])

    def _by_graph(
        self,
        graph: Graph,
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
            return scored(self, wanted, k, places[: k + _SPARE]) if places.size >= k else None
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
                places = np.concatenate([places, base + late[nearly(rough, k, self.dimensions)]])
        return scored(self, wanted, k, places)


def _stored_rows(facts: FactsFacet, base: Base, stored: Mask) -> FloatRows:
    """The base block out of the store; what is not there is only in the graph and never counts."""
    if stored.all():
        return facts.vectors(base.ids)
    rows = facts.vectors([base.ids[place] for place in np.flatnonzero(stored).tolist()])
    block = np.zeros((len(base.ids), rows.shape[1]), dtype=np.float32)
    block[stored] = rows
    return block
