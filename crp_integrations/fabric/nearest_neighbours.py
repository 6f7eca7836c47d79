"""K nearest neighbours of every fact, and the graph contracted around changed facts.

Scores are cosines in millionths, computed in double precision, so that rounding affects neither
the choice of neighbours nor the weight of edges; ties go by place, which is by id. A list contains
only neighbours with at least the threshold score, so a list with fewer than K is complete even
after it loses a member. Only a full list that loses a member is searched again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.vectors import FloatRows, unit_rows

Places = npt.NDArray[np.int64]

MILLION = 1_000_000
# Place and score of an empty entry of a list; no cosine in millionths is as low.
NO_FACT = -1
LOWEST = -2 * MILLION
# A float32 dot product of unit vectors, summed in any order, is off by at most d × 2^-24. Two
# products are compared; the remaining factor allows for rounding of bound and score.
_ERROR_PER_DIMENSION = 4 * 2.0**-24
_ROUNDING = 1e-6
# Rows and columns of one tile of products, and number of columns sampled for a first bound.
_BLOCK_ROWS = 1_024
_TILE = 2_048
_SAMPLE = 8_192
# Above the limit of exact search: mean and maximum rows of a cell, nearest cells that a row is
# compared with, sampled rows of a cell and rounds by which its centre is found, rows that are
# searched at a time, those compared with a cell at a time, and lists of others that a new row is
# offered to, as a multiple of K.
_CELL_ROWS = 64
_CELL_MOST = 1_024
_CELLS = 96
_CELL_SAMPLE = 32
_CELL_ROUNDS = 5
_SLICE = 32_768
_ASKING = 4_096
_OFFERED = 3
# Number of pairs whose rows are gathered for one exact product.
_BLOCK_PAIRS = 1 << 15


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest facts of each of n facts, best first.

    Attributes:
        places: places of the neighbours, shape (n, K), int32; `NO_FACT` after a list's end.
        scores: cosines in millionths, shape (n, K), int32; `LOWEST` after a list's end.
        threshold: minimum score of an entry, in millionths.
    """

    places: npt.NDArray[np.int32]
    scores: npt.NDArray[np.int32]
    threshold: int

    @classmethod
    def empty(cls, facts: int, k: int, threshold: int) -> Neighbours:
        """Make lists without entries."""
        return cls(
            np.full((facts, k), NO_FACT, dtype=np.int32),
            np.full((facts, k), LOWEST, dtype=np.int32),
            threshold,
        )

    def edges(self) -> tuple[Places, Places, npt.NDArray[np.float64]]:
        """Each undirected edge once: the lower place, the higher place, the cosine; sorted.

        Spec: CRP-SPEC-009 §5.2
        """
        rows, columns = np.nonzero(self.places != NO_FACT)
        other = self.places[rows, columns].astype(np.int64)
        keys = np.minimum(rows, other) * len(self.places) + np.maximum(rows, other)
        # A pair has the same score in both lists.
        unique, first = np.unique(keys, return_index=True)
        weights = self.scores[rows[first], columns[first]] / MILLION
        low, high = np.divmod(unique, max(1, len(self.places)))
        return low, high, weights

    def moved(self, to: Places, facts: int) -> tuple[Neighbours, Places]:
        """Return the lists with changed facts removed, and the places of lists to search again."""
        remaining = np.flatnonzero(to != NO_FACT)
        old, scores = self.places[remaining], self.scores[remaining]
        places = np.where(old == NO_FACT, NO_FACT, to[old])
        lost = (old != NO_FACT) & (places == NO_FACT)
        touched = np.flatnonzero(lost.any(axis=1))
        scores = np.where(places == NO_FACT, LOWEST, scores)
        # The order within a list stays, since moving preserves the order of places.
        order = np.argsort(places[touched] == NO_FACT, axis=1, kind="stable")
        places[touched] = np.take_along_axis(places[touched], order, axis=1)
        scores[touched] = np.take_along_axis(scores[touched], order, axis=1)
        neighbours = Neighbours.empty(facts, self.places.shape[1], self.threshold)
        neighbours.places[to[remaining]], neighbours.scores[to[remaining]] = places, scores
        was_full = old[touched, -1] != NO_FACT
        return neighbours, to[remaining][touched[was_full]]

    def changed(self, before: Neighbours, to: Places) -> Places:
        """Return the places of facts whose edges changed, and of new facts' neighbours."""
        facts = len(self.places)
        remaining = np.flatnonzero(to != NO_FACT)
        old = before.places[remaining]
        was = np.where(old == NO_FACT, NO_FACT, to[old])
        there = to[remaining]
        differs = ((was != self.places[there]) | ((old != NO_FACT) & (was == NO_FACT))).any(axis=1)
        touched = np.ones(facts, dtype=np.bool_)
        touched[there] = differs
        # Both ends of an added or removed edge, even if only one end's list contains it.
        hosts = there[differs]
        turned = np.setxor1d(
            _pairs(hosts, was[differs], facts), _pairs(hosts, self.places[hosts], facts)
        )
        new = np.setdiff1d(np.arange(facts), there, assume_unique=True)
        robbed = before.places[to == NO_FACT].reshape(-1)
        near = np.where(robbed == NO_FACT, NO_FACT, to[robbed]), self.places[new].reshape(-1)
        others = np.concatenate([turned % (facts + 1) - 1, *near])
        touched[others[others != NO_FACT]] = True
        return np.flatnonzero(touched)


def search_neighbours(
    known: Neighbours, rows: FloatRows, missing: Places, new: Places, exact_up_to: int | None = None
) -> Neighbours:
    """Search the missing lists, and add new facts to the lists of others where they belong.

    Every missing list is compared with all rows, unless that is more than `exact_up_to` squared
    pairs. Then a row is compared with the rows of its nearest cells; its scores are exact, but it
    may lack a few neighbours. To find the cells, each row is compared with every centre, one for 64
    rows, so work grows with the square of the number of rows, and memory with the number.
    Equal rows give equal lists on one machine in both cases, whatever the store.
    """
    facts, k = known.places.shape
    neighbours = Neighbours(known.places.copy(), known.scores.copy(), known.threshold)
    neighbours.places[missing], neighbours.scores[missing] = NO_FACT, LOWEST
    if facts < 2 or not missing.size:
        return neighbours
    margin = np.float32(_ERROR_PER_DIMENSION * rows.shape[1] + _ROUNDING)
    floor = np.float32(known.threshold / MILLION) - margin
    # Minimum score at which a new fact may enter the list of a fact that is not searched.
    bar = np.maximum(floor, (known.scores[:, -1] / MILLION).astype(np.float32) - margin)
    bar[missing] = np.inf
    is_new = np.zeros(facts, dtype=np.bool_)
    is_new[new] = True
    if exact_up_to is None or len(missing) * facts <= exact_up_to**2:
        pairs = _in_all_rows(rows, missing, k, floor, margin, bar, is_new)
    else:
        # A new fact is offered to more facts than its own list has places for.
        wanted = k if len(missing) == facts else _OFFERED * k
        pairs = _in_nearest_cells(rows, missing, wanted, floor)
    offers: list[tuple[Places, Places, Places]] = []
    for owners, others in pairs:
        scores = _exact(rows, owners, others)
        good = scores >= known.threshold
        owners, others, scores = owners[good], others[good], scores[good]
        _keep_best(neighbours, owners, others, scores)
        open_to = is_new[owners] & np.isfinite(bar[others])
        offers.append((others[open_to], owners[open_to], scores[open_to]))
    hosts, guests, scores = (np.concatenate(part) for part in zip(*offers, strict=True))
    _admit(neighbours, hosts, guests, scores)
    return neighbours


def _in_all_rows(
    rows: FloatRows,
    missing: Places,
    k: int,
    floor: np.float32,
    margin: np.float32,
    bar: npt.NDArray[np.float32],
    is_new: npt.NDArray[np.bool_],
) -> Iterator[tuple[Places, Places]]:
    """Yield all pairs of a missing place and another that may matter, block by block."""
    for start in range(0, len(missing), _BLOCK_ROWS):
        block = missing[start : start + _BLOCK_ROWS]
        left, right = _near(rows, block, k, floor, margin, bar, is_new[block])
        yield block[left], right


def _in_nearest_cells(
    rows: FloatRows, missing: Places, k: int, floor: np.float32
) -> Iterator[tuple[Places, Places]]:
    """Yield the pairs of a missing place and its k nearest in its nearest cells, in slices."""
    centres, owner = _cells(rows)
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=len(centres))
    cells = np.split(order, np.cumsum(sizes)[:-1])
    starts = np.cumsum(sizes) - sizes
    rank = np.empty(len(rows), dtype=np.int64)
    rank[order] = np.arange(len(rows)) - np.repeat(starts, sizes)
    for start in range(0, len(missing), _SLICE):
        block = missing[start : start + _SLICE]
        scores = np.full((len(block), k), floor, dtype=np.float32)
        places = np.full((len(block), k), NO_FACT, dtype=np.int64)
        nearest = _nearest_centres(rows[block], centres, _CELLS)
        flat = nearest.reshape(-1)
        ends = np.cumsum(np.bincount(flat, minlength=len(centres)))
        asking = np.split(np.argsort(flat, kind="stable") // nearest.shape[1], ends[:-1])
        for number, (cell, asked) in enumerate(zip(cells, asking, strict=True)):
            # A cell of very many rows, such as copies of one text, is compared in windows.
            own = owner[block[asked]] == number
            window = np.where(own, rank[block[asked]] // _CELL_MOST, 0)
            for first in range(0, len(cell), _CELL_MOST):
                here = np.flatnonzero(window == first // _CELL_MOST)
                part = cell[first : first + _CELL_MOST]
                for at in range(0, len(here), _ASKING):
                    chosen = here[at : at + _ASKING]
                    who = asked[chosen]
                    tile = rows[block[who]] @ rows[part].T
                    same = np.flatnonzero(own[chosen])
                    tile[same, rank[block[who[same]]] - first] = -np.inf
                    # Only rows for which the cell contains a nearer fact are merged.
                    better = np.flatnonzero(tile.max(axis=1) > scores[who, -1])
                    who = who[better]
                    both = np.concatenate([scores[who], tile[better]], axis=1)
                    wide = np.broadcast_to(part, (len(who), len(part)))
                    ids = np.concatenate([places[who], wide], axis=1)
                    best = np.argsort(-both, axis=1, kind="stable")[:, :k]
                    scores[who] = np.take_along_axis(both, best, axis=1)
                    places[who] = np.take_along_axis(ids, best, axis=1)
        left, column = np.nonzero(places != NO_FACT)
        # Rows of later windows meet the first rows of their cell, so that copies are connected.
        late = block[rank[block] >= _CELL_MOST]
        heads = order[starts[owner[late], None] + np.arange(min(k, _CELL_MOST))]
        owners = np.concatenate([block[left], np.repeat(late, heads.shape[1])])
        yield owners, np.concatenate([places[left, column], heads.reshape(-1)])


def _cells(rows: FloatRows) -> tuple[FloatRows, Places]:
    """Return centres of cells of similar rows, by k-means on a sample, and each row's cell."""
    count = -(-len(rows) // _CELL_ROWS)
    centres = rows[_spread(len(rows), count)]
    sample = rows[_spread(len(rows), _CELL_SAMPLE * count)]
    for _ in range(_CELL_ROUNDS):
        owner = _nearest_centres(sample, centres, 1)[:, 0]
        order = np.argsort(owner, kind="stable")
        used, first = np.unique(owner[order], return_index=True)
        centres[used] = unit_rows(np.add.reduceat(sample[order], first, axis=0))
    return centres, _nearest_centres(rows, centres, 1)[:, 0]


def _spread(facts: int, count: int) -> Places:
    """Return at most `count` places, evenly spread."""
    return np.linspace(0, facts - 1, min(facts, count)).astype(np.int64)


def _nearest_centres(rows: FloatRows, centres: FloatRows, count: int) -> Places:
    """Return the numbers of the centres with the largest products, shape (rows, count or less)."""
    count = min(count, len(centres))
    parts = []
    for start in range(0, len(rows), _TILE):
        products = rows[start : start + _TILE] @ centres.T
        if count == 1:
            parts.append(products.argmax(axis=1)[:, None])
        else:
            parts.append(np.argpartition(-products, count - 1, axis=1)[:, :count])
    return np.concatenate(parts)


def _near(
    rows: FloatRows,
    block: Places,
    k: int,
    floor: np.float32,
    margin: np.float32,
    bar: npt.NDArray[np.float32],
    offering: npt.NDArray[np.bool_],
) -> tuple[Places, Places]:
    """Return all pairs of a block's row and a column that may matter, by float32 products."""
    facts = len(rows)
    mine = rows[block]
    # The k-th best of a sample of columns is a lower bound for the k-th best of all; the block's
    # own columns are left out of the sample, so that no row is compared with itself.
    part = np.linspace(0, facts - 1, min(facts, _SAMPLE)).astype(np.int64)
    part = np.setdiff1d(part, block)
    sample = mine @ rows[part].T
    last = sample.shape[1] - k
    cut = np.full(len(block), floor)
    if last > 0:
        cut = np.maximum(np.partition(sample, last, axis=1)[:, last] - margin, floor)
    own = np.full(facts, NO_FACT, dtype=np.int64)
    own[block] = np.arange(len(block))
    offers = bool(offering.any())
    lefts, rights, products = [], [], []
    for start in range(0, facts, _TILE):
        tile = mine @ rows[start : start + _TILE].T
        width = tile.shape[1]
        met = np.flatnonzero(own[start : start + width] != NO_FACT)
        tile[own[start + met], met] = -np.inf
        near = tile >= cut[:, None]
        if offers:
            near |= (tile >= bar[start : start + width]) & offering[:, None]
        flat = np.flatnonzero(near)
        left, right = np.divmod(flat, width)
        lefts.append(left)
        rights.append(right + start)
        products.append(tile.reshape(-1)[flat])
    left, right, rough = (np.concatenate(arrays) for arrays in (lefts, rights, products))
    # With the exact bound of each row now known, drop most of the pairs.
    cut = np.maximum(_kth(left, rough, len(block), k) - margin, floor)
    relevant = rough >= cut[left]
    if offers:
        relevant |= (rough >= bar[right]) & offering[left]
    return left[relevant], right[relevant]


def _kth(
    owners: Places, products: npt.NDArray[np.float32], count: int, k: int
) -> npt.NDArray[np.float32]:
    """Return the k-th largest product of each of `count` owners; -inf for owners with fewer."""
    order = np.lexsort((-products, owners))
    first = np.searchsorted(owners[order], np.arange(count))
    last = first + k - 1
    ends = np.append(first[1:], len(owners))
    kth = np.full(count, -np.inf, dtype=np.float32)
    full = last < ends
    kth[full] = products[order[last[full]]]
    return kth


def _pairs(owners: Places, lists: npt.NDArray[np.integer], facts: int) -> Places:
    """Encode each (owner, listed place) as one number: owner × (facts + 1) + place + 1."""
    numbers: Places = owners[:, None] * (facts + 1) + lists + 1
    return numbers.reshape(-1)


def _exact(rows: FloatRows, left: Places, right: Places) -> Places:
    """Return the cosines of pairs of rows, in millionths."""
    scores = np.empty(len(left), dtype=np.int64)
    for start in range(0, len(left), _BLOCK_PAIRS):
        part = slice(start, start + _BLOCK_PAIRS)
        exact = np.einsum(
            "ij,ij->i", rows[left[part]], rows[right[part]], dtype=np.float64, casting="same_kind"
        )
        scores[part] = np.rint(np.clip(exact, -1.0, 1.0) * MILLION)
    return scores


def _keep_best(lists: Neighbours, owners: Places, others: Places, scores: Places) -> None:
    """Write the lists of the owners: best first, ties by place, at most K."""
    k = lists.places.shape[1]
    order = np.lexsort((others, -scores, owners))
    owners, others, scores = owners[order], others[order], scores[order]
    first = np.searchsorted(owners, owners, side="left")
    rank = np.arange(len(owners)) - first
    best = rank < k
    listed = np.unique(owners)
    lists.places[listed], lists.scores[listed] = NO_FACT, LOWEST
    lists.places[owners[best], rank[best]] = others[best]
    lists.scores[owners[best], rank[best]] = scores[best]


def _admit(lists: Neighbours, hosts: Places, guests: Places, scores: Places) -> None:
    """Insert guests into the lists of hosts if they are nearer than the last entry."""
    if not hosts.size:
        return
    listed = np.unique(hosts)
    rows, columns = np.nonzero(lists.places[listed] != NO_FACT)
    owners = listed[rows]
    _keep_best(
        lists,
        np.concatenate([owners, hosts]),
        np.concatenate([lists.places[owners, columns].astype(np.int64), guests]),
        np.concatenate([lists.scores[owners, columns].astype(np.int64), scores]),
    )


@dataclass(frozen=True, slots=True)
class ContractedGraph:
    """A graph in which some nodes represent many facts.

    Attributes:
        node: node of each fact, shape (facts,).
        nodes: number of nodes.
        left, right, weights: each undirected edge once, left below right, sorted.
        initial: the community in which each node starts, shape (nodes,).
    """

    node: Places
    nodes: int
    left: Places
    right: Places
    weights: npt.NDArray[np.float64]
    initial: Places

    def spread(self, membership: Places) -> Places:
        """Return the community of each fact, given the community of each node."""
        return membership[self.node]


def contract_graph(
    free: npt.NDArray[np.bool_],
    left: Places,
    right: Places,
    weights: npt.NDArray[np.float64],
    initial: Places,
) -> ContractedGraph:
    """Contract the facts that are not free to move: each of their communities becomes two nodes."""
    movable = np.flatnonzero(free)
    numbers, group = np.unique(initial[~free], return_inverse=True)
    node = np.empty(len(free), dtype=np.int64)
    node[movable] = np.arange(len(movable))
    node[~free] = len(movable) + 2 * group.reshape(-1)
    nodes = len(movable) + 2 * len(numbers)
    left_node, right_node = node[left], node[right]
    # Self-loops are not allowed: an edge within a community connects its two nodes.
    right_node = np.where(left_node == right_node, left_node + 1, right_node)
    keys = np.minimum(left_node, right_node) * nodes + np.maximum(left_node, right_node)
    unique, place = np.unique(keys, return_inverse=True)
    low, high = np.divmod(unique, max(1, nodes))
    return ContractedGraph(
        node=node,
        nodes=nodes,
        left=low,
        right=high,
        weights=np.bincount(place.reshape(-1), weights, len(unique)).astype(np.float64),
        initial=np.concatenate([initial[movable], np.repeat(numbers, 2)]),
    )


def initial_membership(before: Sequence[str | None], lists: Neighbours) -> Places:
    """Return a start: each fact's earlier community, else that of its nearest fact."""
    number = {name: place for place, name in enumerate(sorted({n for n in before if n}))}
    known = np.array([NO_FACT if name is None else number[name] for name in before], dtype=np.int64)
    nearest = lists.places[:, 0].astype(np.int64)
    joined = np.where((known == NO_FACT) & (nearest != NO_FACT), known[nearest], known)
    alone = np.flatnonzero(joined == NO_FACT)
    joined[alone] = len(number) + np.arange(len(alone))
    return joined
