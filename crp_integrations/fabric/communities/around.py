"""The part of a similarity graph around what changed, small enough to partition again and again.

A fact far from every change has no reason to leave its community, but its edges weigh in every
decision about that community. So what may not move is drawn together: all of a community's such
facts become two nodes, which keep its edges to others as they were, and its edges within as one
edge between the two. A partition of the small graph has the same modularity as the partition of
the whole one that it stands for.

Spec: CRP-SPEC-009 §5.3, §5.5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.communities.neighbours import NOBODY, Neighbours, Places


@dataclass(frozen=True, slots=True)
class Part:
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


def around(
    free: npt.NDArray[np.bool_],
    left: Places,
    right: Places,
    weights: npt.NDArray[np.float64],
    initial: Places,
) -> Part:
    """Draw together what may not move.

    Args:
        free: whether each fact may move, shape (facts,).
        left, right, weights: each undirected edge once, shape (edges,).
        initial: the community of each fact, shape (facts,).
    """
    movable = np.flatnonzero(free)
    numbers, group = np.unique(initial[~free], return_inverse=True)
    node = np.empty(len(free), dtype=np.int64)
    node[movable] = np.arange(len(movable))
    node[~free] = len(movable) + 2 * group.reshape(-1)
    nodes = len(movable) + 2 * len(numbers)
    one, other = node[left], node[right]
    # No node may have an edge to itself, so what lies within goes to the second of the two.
    other = np.where(one == other, one + 1, other)
    keys = np.minimum(one, other) * nodes + np.maximum(one, other)
    unique, place = np.unique(keys, return_inverse=True)
    low, high = np.divmod(unique, max(1, nodes))
    return Part(
        node=node,
        nodes=nodes,
        left=low,
        right=high,
        weights=np.bincount(place.reshape(-1), weights, len(unique)).astype(np.float64),
        initial=np.concatenate([initial[movable], np.repeat(numbers, 2)]),
    )


def starting_from(before: Sequence[str | None], found: Neighbours) -> Places:
    """A membership to start from: the one before; what had none starts with its nearest fact.

    A fact whose nearest one had none either starts alone.
    """
    number = {name: place for place, name in enumerate(sorted({n for n in before if n}))}
    known = np.array([NOBODY if name is None else number[name] for name in before], dtype=np.int64)
    nearest = found.places[:, 0].astype(np.int64)
    joined = np.where((known == NOBODY) & (nearest != NOBODY), known[nearest], known)
    alone = np.flatnonzero(joined == NOBODY)
    joined[alone] = len(number) + np.arange(len(alone))
    return joined
