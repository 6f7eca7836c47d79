"""Leiden engines: one file a library, and the choice of one by name.

In: a graph as arrays of nodes and weighted edges, optionally a membership to start from. Out: the
community of each node, equal for equal graphs, settings and library versions.

Read `network.py` first (what all three share), then `graspologic.py`, which is MIT and comes
with the default install, or `leidenalg.py` and `igraph.py`, which are GPL and an extra. All three
optimise modularity with a resolution, so they differ in speed and in the last thousandth of
quality, not in what a community is. A library is loaded when its engine is made or first used.

Spec: CRP-SPEC-009 §5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from crp_integrations.fabric.ports import CommunityEngine

EngineName = Literal["graspologic", "leidenalg", "igraph"]


def engine_for(name: EngineName) -> CommunityEngine:
    """The engine of a name.

    Spec: CRP-SPEC-009 §5.3

    Raises:
        MissingExtra: the engine needs the extra `communities`, which is not installed.
    """
    match name:
        case "graspologic":
            from crp_integrations.engines.leiden.graspologic import GraspologicLeiden

            return GraspologicLeiden()
        case "leidenalg":
            from crp_integrations.engines.leiden.leidenalg import LeidenalgLeiden

            return LeidenalgLeiden()
        case "igraph":
            from crp_integrations.engines.leiden.igraph import IgraphLeiden

            return IgraphLeiden()
