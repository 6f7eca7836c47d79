"""The invariants of a session's graph of windows, checked with networkx.

A sound graph is acyclic and connected, has one root, and every window is sealed (related facts §5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import networkx

from crp_integrations.audit.records import WindowSeal
from crp_integrations.session.records import DELIVERED, WindowNode
from crp_integrations.session.settings import WindowGraphSettings
from crp_integrations.vocabulary import Pattern


class GraphFaultKind(StrEnum):
    """What is wrong with a graph of windows."""

    REPEATED = "repeated"
    SESSION = "session"
    PARENT = "unknown-parent"
    PATTERN = "pattern"
    ROOTS = "roots"
    CYCLE = "cycle"
    APART = "apart"
    NUMBER = "number"
    SIBLINGS = "siblings"
    UNSEALED = "unsealed"
    NODES = "nodes"
    FAN_OUT = "fan-out"


def as_networkx(windows: Sequence[WindowNode]) -> networkx.DiGraph:
    """A session's windows as a directed graph from each window to those that follow it.

    A parent that is not among them is a node without attributes.
    """
    made = networkx.DiGraph()
    for node in windows:
        if node.window_id in made and "number" in made.nodes[node.window_id]:
            continue
        made.add_node(
            node.window_id,
            number=node.window_number,
            session=node.session_id,
            pattern=node.pattern.value,
            hmac=node.hmac,
            outcome=node.outcome,
            parents=len(node.parents),
        )
        made.add_edges_from((parent, node.window_id) for parent in node.parents)
    return made


def find_faults(
    windows: Sequence[WindowNode], settings: WindowGraphSettings
) -> frozenset[GraphFaultKind]:
    """The kinds of what is wrong with a session's graph, found with networkx.

    Spec: related facts §5
    """
    if not windows:
        return frozenset()
    whole = as_networkx(windows)
    known = whole.subgraph([id_ for id_, number in whole.nodes(data="number") if number])
    number, pattern = dict(known.nodes(data="number")), dict(known.nodes(data="pattern"))
    seals = [hmac for _, hmac in known.nodes(data="hmac")]
    fans = {
        parent: [child for child in known.successors(parent) if pattern[child] == Pattern.FAN_OUT]
        for parent in known
    }
    said = {
        GraphFaultKind.REPEATED: len(windows) > len(known),
        GraphFaultKind.SESSION: len({session for _, session in known.nodes(data="session")}) > 1,
        GraphFaultKind.PARENT: len(whole) > len(known),
        GraphFaultKind.ROOTS: [count for _, count in known.nodes(data="parents")].count(0) != 1,
        GraphFaultKind.CYCLE: not networkx.is_directed_acyclic_graph(known),
        GraphFaultKind.APART: not networkx.is_weakly_connected(known),
        GraphFaultKind.NUMBER: any(
            number[earlier] > number[later] for earlier, later in known.edges
        ),
        GraphFaultKind.SIBLINGS: any(
            len({number[one] for one in fan}) > 1 for fan in fans.values()
        ),
        GraphFaultKind.PATTERN: any(
            not _fits(pattern[id_], whole.in_degree(id_), named)
            for id_, named in known.nodes(data="parents")
        ),
        GraphFaultKind.UNSEALED: "" in seals or len(set(seals)) < len(seals),
        GraphFaultKind.FAN_OUT: any(
            sum(
                known.nodes[child]["parents"] == 1 and known.nodes[child]["outcome"] in DELIVERED
                for child in known.successors(parent)
            )
            > settings.fan_out
            for parent in known
        ),
        GraphFaultKind.NODES: settings.nodes is not None and len(known) > settings.nodes,
    }
    return frozenset(kind for kind, wrong in said.items() if wrong)


def find_unchained(windows: Sequence[WindowNode], seals: Iterable[WindowSeal]) -> list[str]:
    """Windows whose node and seal differ, or whose seal is not chained to their parents'.

    The seals' own HMACs are verified by the audit room; this is about the edges of the graph.
    """
    sealed = {seal.window_id: seal for seal in seals}
    known = {node.window_id: node for node in windows}
    faults = []
    for id_, node in known.items():
        seal = sealed.get(id_)
        parents = [known[parent].hmac for parent in node.parents if parent in known]
        if (
            seal is None
            or (seal.hmac, seal.window_number) != (node.hmac, node.window_number)
            or len(parents) < len(node.parents)
            or seal.parent_hmac != "|".join(sorted(parents))
        ):
            faults.append(id_)
    return sorted(faults)


def _fits(pattern: str, parents: int, named: int) -> bool:
    if parents < named:
        return False
    if pattern == Pattern.FAN_IN:
        return parents > 1
    return parents <= 1 if pattern == Pattern.LINEAR else parents == 1
