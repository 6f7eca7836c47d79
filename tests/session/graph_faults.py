"""The invariants of a session's graph, as a check that tests make of every graph.

A sound graph is acyclic and connected, has one root, and every window is sealed (related facts §5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from crp_integrations.audit.records import WindowSeal
from crp_integrations.session.records import WindowNode
from crp_integrations.session.settings import WindowGraphSettings
from crp_integrations.session.window_graph import (
    _children,
    _count_followers,
    _parents,
    sort_windows,
)
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
    UNCHAINED = "unchained"
    NODES = "nodes"
    FAN_OUT = "fan-out"


@dataclass(frozen=True, slots=True, order=True)
class GraphFault:
    """One thing that is wrong with a graph, at a window."""

    kind: GraphFaultKind
    window_id: str


def find_faults(
    windows: Sequence[WindowNode], settings: WindowGraphSettings
) -> tuple[GraphFault, ...]:
    """Everything that is wrong with a session's graph; nothing for an empty and for a sound one.

    A sound graph is acyclic and connected, has one root, and every window is sealed. Numbers never
    fall, and windows of a fan-out share one. The settings limit the windows, and the delivered ones
    that follow one window.
    """
    known: dict[str, WindowNode] = {}
    faults: set[GraphFault] = set()
    for node in windows:
        if node.window_id in known:
            faults.add(GraphFault(GraphFaultKind.REPEATED, node.window_id))
        known.setdefault(node.window_id, node)
    if not known:
        return ()
    seals: dict[str, str] = {}
    session = next(iter(known.values())).session_id
    for id_, node in known.items():
        if node.session_id != session:
            faults.add(GraphFault(GraphFaultKind.SESSION, id_))
        if not node.hmac or seals.setdefault(node.hmac, id_) != id_:
            faults.add(GraphFault(GraphFaultKind.UNSEALED, id_))
        if not _pattern_fits(node.pattern, node.parents):
            faults.add(GraphFault(GraphFaultKind.PATTERN, id_))
        for parent in node.parents:
            if parent not in known:
                faults.add(GraphFault(GraphFaultKind.PARENT, id_))
            elif known[parent].window_number > node.window_number:
                faults.add(GraphFault(GraphFaultKind.NUMBER, id_))
    roots = sorted(id_ for id_, node in known.items() if not node.parents)
    if len(roots) != 1:
        faults.update(GraphFault(GraphFaultKind.ROOTS, id_) for id_ in roots[1:] or (min(known),))
    straight = {node.window_id for node in sort_windows(known.values())}
    faults.update(GraphFault(GraphFaultKind.CYCLE, id_) for id_ in set(known) - straight)
    faults.update(GraphFault(GraphFaultKind.APART, id_) for id_ in _unconnected(known))
    for parent, fan in _fan_outs(known).items():
        if len({node.window_number for node in fan}) > 1:
            faults.add(GraphFault(GraphFaultKind.SIBLINGS, parent))
    faults.update(
        GraphFault(GraphFaultKind.FAN_OUT, parent)
        for parent, count in _count_followers(known).items()
        if count > settings.fan_out
    )
    if len(known) > settings.nodes:
        faults.add(GraphFault(GraphFaultKind.NODES, session))
    return tuple(sorted(faults))


def find_unchained(
    windows: Sequence[WindowNode], seals: Iterable[WindowSeal]
) -> tuple[GraphFault, ...]:
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
            faults.append(GraphFault(GraphFaultKind.UNCHAINED, id_))
    return tuple(sorted(faults))


def _pattern_fits(pattern: Pattern, parents: tuple[str, ...]) -> bool:
    if len(set(parents)) < len(parents):
        return False
    if pattern is Pattern.FAN_IN:
        return len(parents) > 1
    if pattern is Pattern.LINEAR:
        return len(parents) <= 1
    return len(parents) == 1


def _fan_outs(known: Mapping[str, WindowNode]) -> dict[str, list[WindowNode]]:
    """Windows of each fan-out, by the window that they fan out of."""
    fan_outs: dict[str, list[WindowNode]] = {}
    for node in known.values():
        if node.pattern is Pattern.FAN_OUT:
            for parent in _parents(node, known):
                fan_outs.setdefault(parent, []).append(node)
    return fan_outs


def _unconnected(known: Mapping[str, WindowNode]) -> set[str]:
    """Windows that no path of edges, whichever way, joins to the smallest root."""
    children = _children(known)
    start = min((id_ for id_, node in known.items() if not node.parents), default=min(known))
    reached = {start}
    waiting = [start]
    while waiting:
        id_ = waiting.pop()
        near = _parents(known[id_], known).union(children.get(id_, ())) - reached
        reached |= near
        waiting.extend(near)
    return set(known) - reached
