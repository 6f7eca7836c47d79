"""What communities are shown as: records of them, the graph behind them, and its modularity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crp_integrations.fabric.communities.neighbours import Places
from crp_integrations.records import Record


class Community(Record):
    """A group of facts that are near to one another, as one subject may see it.

    Spec: CRP-SPEC-009 §5

    Attributes:
        label: its topic in words of its facts, unique in the namespace.
        size: how many of its facts the subject may read.
        facts: ids of the most important ones, most important first.
    """

    SCHEMA = "community/1"

    label: str
    size: int = Field(ge=1)
    facts: tuple[str, ...] = ()


class ClusterReport(Record):
    """What one reclustering found and changed; counts only.

    Spec: CRP-SPEC-009 §5.5

    Attributes:
        facts: retrievable facts that were looked at.
        searched: facts whose neighbours were searched for; the others' were known.
        edges: pairs of facts that are similar enough.
        communities: how many there are now.
        dissolved: groups of two facts or more that were too small to be a community.
        unclustered: facts in no community.
        relabelled: facts whose label is another one now.
        modularity: of the whole partition before anything was dissolved, at most 1.
        warm: whether the partition was found from the one before.
        engine: library and version; empty when there was nothing to do.
    """

    SCHEMA = "cluster-report/1"

    facts: int = 0
    searched: int = 0
    edges: int = 0
    communities: int = 0
    dissolved: int = 0
    unclustered: int = 0
    relabelled: int = 0
    modularity: float = 0.0
    warm: bool = False
    engine: str = ""
    state_hash: str = ""


@dataclass(frozen=True, slots=True)
class FactGraph:
    """The similarity graph of the facts that a subject may read.

    Attributes:
        ids: of the facts, ascending.
        communities: label of each, None for a fact in no community.
        sources: source id of each.
        left, right: places of the ends of each undirected edge, left below right, shape (edges,).
        weights: cosine of each edge, shape (edges,), in (0, 1].
    """

    ids: tuple[str, ...]
    communities: tuple[str | None, ...]
    sources: tuple[str, ...]
    left: Places
    right: Places
    weights: npt.NDArray[np.float64]

    def among(self, keep: npt.NDArray[np.bool_]) -> FactGraph:
        """The part of the graph between some of its facts, shape of `keep`: (facts,)."""
        place = np.cumsum(keep) - 1
        inside = keep[self.left] & keep[self.right]
        kept = np.flatnonzero(keep).tolist()
        return FactGraph(
            ids=tuple(self.ids[number] for number in kept),
            communities=tuple(self.communities[number] for number in kept),
            sources=tuple(self.sources[number] for number in kept),
            left=place[self.left[inside]],
            right=place[self.right[inside]],
            weights=self.weights[inside],
        )


def modularity(
    membership: Places,
    left: Places,
    right: Places,
    weights: npt.NDArray[np.float64],
    resolution: float = 1.0,
) -> float:
    """How much more weight lies within communities than chance would put there.

    Args:
        membership: community of each node, shape (nodes,), numbers from 0.
        left, right, weights: each undirected edge once, shape (edges,).

    Returns:
        At most 1; 0 for a graph without edges.
    """
    total = float(weights.sum())
    if total == 0.0:
        return 0.0
    inside = float(weights[membership[left] == membership[right]].sum())
    strength = np.bincount(membership[left], weights, membership.max() + 1)
    strength += np.bincount(membership[right], weights, membership.max() + 1)
    return inside / total - resolution * float(np.square(strength / (2.0 * total)).sum())


def groups_of(membership: Places) -> list[list[int]]:
    """Places of the members of each community, ascending, in the order of their first."""
    order = np.argsort(membership, kind="stable")
    cuts = np.flatnonzero(np.diff(membership[order])) + 1
    return sorted(part.tolist() for part in np.split(order, cuts)) if len(order) else []
