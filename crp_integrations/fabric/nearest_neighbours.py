"""The K nearest neighbours of every fact, exactly, and the graph contracted around changed facts.

Scores are cosines in millionths, computed in double precision, so that rounding decides neither who
is a neighbour nor what an edge weighs; ties go by place, which is by id. A list holds neighbours
from the threshold on only: one with fewer than K is complete, and losing a member costs it nothing.
Only a full list that loses one is searched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.vectors import FloatRows

Places = npt.NDArray[np.int64]

MILLION = 1_000_000
# Empty places of a list; no cosine in millionths is as low.
NOBODY = -1
LOWEST = -2 * MILLION
# A float32 dot product of unit vectors, summed in any order, is off by at most d × 2^-24; two are
# compared, and the rest is slack for the rounding of bound and score.
_ERROR_PER_DIMENSION = 4 * 2.0**-24
_ROUNDING = 1e-6
# Rows and columns of one tile of products, and columns that a first bound is taken from.
_BLOCK_ROWS = 1_024
_TILE = 2_048
_SAMPLE = 8_192
# Pairs whose rows are gathered for one exact product.
_BLOCK_PAIRS = 1 << 15


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest facts of each of n facts, best first.

    Attributes:
        places: shape (n, K), int32; `NOBODY` where a list has ended.
        scores: cosines in millionths, shape (n, K), int32; `LOWEST` where a list has ended.
        threshold: least score of an entry, in millionths.
    """

    places: npt.NDArray[np.int32]
    scores: npt.NDArray[np.int32]
    threshold: int

    @classmethod
    def empty(cls, facts: int, k: int, threshold: int) -> Neighbours:
        """Lists without entries."""
        return cls(
            np.full((facts, k), NOBODY, dtype=np.int32),
            np.full((facts, k), LOWEST, dtype=np.int32),
            threshold,
        )

    def edges(self) -> tuple[Places, Places, npt.NDArray[np.float64]]:
        """Each undirected edge once: the lower place, the higher place, the cosine; sorted.

        Spec: CRP-SPEC-009 §5.2
        """
        rows, columns = np.nonzero(self.places != NOBODY)
        other = self.places[rows, columns].astype(np.int64)
        keys = np.minimum(rows, other) * len(self.places) + np.maximum(rows, other)
        # A pair has one score, from whichever of its two ends it is seen.
        unique, first = np.unique(keys, return_index=True)
        weights = self.scores[rows[first], columns[first]] / MILLION
        low, high = np.divmod(unique, max(1, len(self.places)))
        return low, high, weights

    def moved(self, to: Places, facts: int) -> tuple[Neighbours, Places]:
        """The lists after facts were removed, changed or added; those of new facts are empty."""
        remaining = np.flatnonzero(to != NOBODY)
        old, scores = self.places[remaining], self.scores[remaining]
        places = np.where(old == NOBODY, NOBODY, to[old])
        lost = (old != NOBODY) & (places == NOBODY)
        touched = np.flatnonzero(lost.any(axis=1))
        scores = np.where(places == NOBODY, LOWEST, scores)
        # The order within a list stays, since places keep theirs.
        order = np.argsort(places[touched] == NOBODY, axis=1, kind="stable")
        places[touched] = np.take_along_axis(places[touched], order, axis=1)
        scores[touched] = np.take_along_axis(scores[touched], order, axis=1)
        neighbours = Neighbours.empty(facts, self.places.shape[1], self.threshold)
        neighbours.places[to[remaining]], neighbours.scores[to[remaining]] = places, scores
        was_full = old[touched, -1] != NOBODY
        return neighbours, to[remaining][touched[was_full]]

    def changed(self, before: Neighbours, to: Places) -> Places:
        """The facts whose edges changed, and the neighbours of new ones; ascending."""
        facts = len(self.places)
        remaining = np.flatnonzero(to != NOBODY)
        old = before.places[remaining]
        was = np.where(old == NOBODY, NOBODY, to[old])
        there = to[remaining]
        differs = ((was != self.places[there]) | ((old != NOBODY) & (was == NOBODY))).any(axis=1)
        touched = np.ones(facts, dtype=np.bool_)
        touched[there] = differs
        # Both ends of an edge that came or went, though one of them may be in no list of its own.
        hosts = there[differs]
        turned = np.setxor1d(
            _pairs(hosts, was[differs], facts), _pairs(hosts, self.places[hosts], facts)
        )
        new = np.setdiff1d(np.arange(facts), there, assume_unique=True)
        robbed = before.places[to == NOBODY].reshape(-1)
        near = np.where(robbed == NOBODY, NOBODY, to[robbed]), self.places[new].reshape(-1)
        others = np.concatenate([turned % (facts + 1) - 1, *near])
        touched[others[others != NOBODY]] = True
        return np.flatnonzero(touched)


def search_neighbours(
    known: Neighbours, rows: FloatRows, missing: Places, new: Places
) -> Neighbours:
    """Fill the lists that are missing, and let new facts into those of others."""
    facts, k = known.places.shape
    neighbours = Neighbours(known.places.copy(), known.scores.copy(), known.threshold)
    neighbours.places[missing], neighbours.scores[missing] = NOBODY, LOWEST
    if facts < 2 or not missing.size:
        return neighbours
    margin = np.float32(_ERROR_PER_DIMENSION * rows.shape[1] + _ROUNDING)
    floor = np.float32(known.threshold / MILLION) - margin
    # The score that a new fact must reach to enter the list of a fact that is not searched for.
    bar = np.maximum(floor, (known.scores[:, -1] / MILLION).astype(np.float32) - margin)
    bar[missing] = np.inf
    is_new = np.zeros(facts, dtype=np.bool_)
    is_new[new] = True
    offers: list[tuple[Places, Places, Places]] = []
    for start in range(0, len(missing), _BLOCK_ROWS):
        block = missing[start : start + _BLOCK_ROWS]
        left, right = _near(rows, block, k, floor, margin, bar, is_new[block])
        scores = _exact(rows, block[left], right)
        good = scores >= known.threshold
        left, right, scores = left[good], right[good], scores[good]
        _keep_best(neighbours, block[left], right, scores)
        open_to = is_new[block[left]] & np.isfinite(bar[right])
        offers.append((right[open_to], block[left[open_to]], scores[open_to]))
    hosts, guests, scores = (np.concatenate(part) for part in zip(*offers, strict=True))
    _admit(neighbours, hosts, guests, scores)
    return neighbours


def _near(
    rows: FloatRows,
    block: Places,
    k: int,
    floor: np.float32,
    margin: np.float32,
    bar: npt.NDArray[np.float32],
    offering: npt.NDArray[np.bool_],
) -> tuple[Places, Places]:
    """Every pair of a block's row and a column that may matter, by products of single precision."""
    facts = len(rows)
    mine = rows[block]
    # The k-th best of a part of the columns is no better than the k-th best of all; the block
    # itself is left out of the part, so that no row meets itself there.
    part = np.linspace(0, facts - 1, min(facts, _SAMPLE)).astype(np.int64)
    part = np.setdiff1d(part, block)
    sample = mine @ rows[part].T
    last = sample.shape[1] - k
    cut = np.full(len(block), floor)
    if last > 0:
        cut = np.maximum(np.partition(sample, last, axis=1)[:, last] - margin, floor)
    own = np.full(facts, NOBODY, dtype=np.int64)
    own[block] = np.arange(len(block))
    offers = bool(offering.any())
    lefts, rights, products = [], [], []
    for start in range(0, facts, _TILE):
        tile = mine @ rows[start : start + _TILE].T
        width = tile.shape[1]
        met = np.flatnonzero(own[start : start + width] != NOBODY)
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
    # Now that a row's k-th best product is known, few of the others can matter.
    cut = np.maximum(_kth(left, rough, len(block), k) - margin, floor)
    relevant = rough >= cut[left]
    if offers:
        relevant |= (rough >= bar[right]) & offering[left]
    return left[relevant], right[relevant]


def _kth(
    owners: Places, products: npt.NDArray[np.float32], count: int, k: int
) -> npt.NDArray[np.float32]:
    """The k-th largest product of each of `count` owners, minus infinity where it has fewer."""
    order = np.lexsort((-products, owners))
    first = np.searchsorted(owners[order], np.arange(count))
    last = first + k - 1
    ends = np.append(first[1:], len(owners))
    kth = np.full(count, -np.inf, dtype=np.float32)
    full = last < ends
    kth[full] = products[order[last[full]]]
    return kth


def choose_neighbours(
    known: Neighbours, rows: FloatRows, owners: Places, others: Places
) -> Neighbours:
    """The best of given candidates for the lists of their owners, by their exact scores."""
    neighbours = Neighbours(known.places.copy(), known.scores.copy(), known.threshold)
    apart = owners != others
    owners, others = owners[apart], others[apart]
    scores = _exact(rows, owners, others)
    good = scores >= known.threshold
    _keep_best(neighbours, owners[good], others[good], scores[good])
    return neighbours


def _pairs(owners: Places, lists: npt.NDArray[np.integer], facts: int) -> Places:
    """Each owner and place of its list as one number: owner × (facts + 1) + place + 1."""
    numbers: Places = owners[:, None] * (facts + 1) + lists + 1
    return numbers.reshape(-1)


def _exact(rows: FloatRows, left: Places, right: Places) -> Places:
    """Cosines of pairs of rows in millionths."""
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
    lists.places[listed], lists.scores[listed] = NOBODY, LOWEST
    lists.places[owners[best], rank[best]] = others[best]
    lists.scores[owners[best], rank[best]] = scores[best]


def _admit(lists: Neighbours, hosts: Places, guests: Places, scores: Places) -> None:
    """Let guests into the lists of hosts where they are nearer than the last."""
    if not hosts.size:
        return
    listed = np.unique(hosts)
    rows, columns = np.nonzero(lists.places[listed] != NOBODY)
    owners = listed[rows]
    _keep_best(
        lists,
        np.concatenate([owners, hosts]),
        np.concatenate([lists.places[owners, columns].astype(np.int64), guests]),
        np.concatenate([lists.scores[owners, columns].astype(np.int64), scores]),
    )


@dataclass(frozen=True, slots=True)
class ContractedGraph:
    """A graph in which some nodes stand for many facts.

    Attributes:
        node: of each fact, shape (facts,).
        nodes: how many there are.
        left, right, weights: each undirected edge once, left below right, sorted.
        initial: the community that each node starts from, shape (nodes,).
    """

    node: Places
    nodes: int
    left: Places
    right: Places
    weights: npt.NDArray[np.float64]
    initial: Places

    def spread(self, membership: Places) -> Places:
        """The community of each fact, from that of each node."""
        return membership[self.node]


def contract_graph(
    free: npt.NDArray[np.bool_],
    left: Places,
    right: Places,
    weights: npt.NDArray[np.float64],
    initial: Places,
) -> ContractedGraph:
    """Contract the facts that may not move: each of their communities becomes two nodes."""
    movable = np.flatnonzero(free)
    numbers, group = np.unique(initial[~free], return_inverse=True)
    node = np.empty(len(free), dtype=np.int64)
    node[movable] = np.arange(len(movable))
    node[~free] = len(movable) + 2 * group.reshape(-1)
    nodes = len(movable) + 2 * len(numbers)
    left_node, right_node = node[left], node[right]
    # No node may have an edge to itself: an edge within a community joins its two nodes.
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
    """A membership to start from: the one before; what had none starts with its nearest fact."""
    number = {name: place for place, name in enumerate(sorted({n for n in before if n}))}
    known = np.array([NOBODY if name is None else number[name] for name in before], dtype=np.int64)
    nearest = lists.places[:, 0].astype(np.int64)
    joined = np.where((known == NOBODY) & (nearest != NOBODY), known[nearest], known)
    alone = np.flatnonzero(joined == NOBODY)
    joined[alone] = len(number) + np.arange(len(alone))
    return joined
