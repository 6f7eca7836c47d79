"""The graph of a session's windows: what must hold of it, and where the next window goes.

A window's number is its depth: one more than the largest of the windows that it follows. So the
windows of a fan-out share one, and numbers never fall along an edge. A test compares this with
what networkx finds.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from crp_integrations.audit.records import WindowSeal
from crp_integrations.errors import LimitReached, StoreDamaged, UnknownContinuation
from crp_integrations.session.records import DELIVERED, REFUSED, WindowNode
from crp_integrations.session.settings import GraphSettings
from crp_integrations.vocabulary import Pattern


class FaultKind(StrEnum):
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
class Fault:
    """One thing that is wrong with a graph, at a window."""

    kind: FaultKind
    window_id: str


def faults(windows: Sequence[WindowNode], settings: GraphSettings) -> tuple[Fault, ...]:
    """Everything that is wrong with a session's graph; nothing for none and for a sound one.

    Acyclic, one root, connected, every window sealed; numbers never fall, windows of a fan-out
    share one; not more windows, and not more delivered ones that go on from one, than the settings
    allow.

    Spec: related facts §5
    """
    known: dict[str, WindowNode] = {}
    found: set[Fault] = set()
    for node in windows:
        if node.window_id in known:
            found.add(Fault(FaultKind.REPEATED, node.window_id))
        known.setdefault(node.window_id, node)
    if not known:
        return ()
    seals: dict[str, str] = {}
    session = next(iter(known.values())).session_id
    for id_, node in known.items():
        if node.session_id != session:
            found.add(Fault(FaultKind.SESSION, id_))
        if not node.hmac or seals.setdefault(node.hmac, id_) != id_:
            found.add(Fault(FaultKind.UNSEALED, id_))
        if not _fits(node.pattern, node.parents):
            found.add(Fault(FaultKind.PATTERN, id_))
        for parent in node.parents:
            if parent not in known:
                found.add(Fault(FaultKind.PARENT, id_))
            elif known[parent].window_number > node.window_number:
                found.add(Fault(FaultKind.NUMBER, id_))
    roots = sorted(id_ for id_, node in known.items() if not node.parents)
    if len(roots) != 1:
        found.update(Fault(FaultKind.ROOTS, id_) for id_ in roots[1:] or (min(known),))
    straight = {node.window_id for node in order(known.values())}
    found.update(Fault(FaultKind.CYCLE, id_) for id_ in set(known) - straight)
    found.update(Fault(FaultKind.APART, id_) for id_ in _apart(known))
    for parent, fan in _fans(known).items():
        if len({node.window_number for node in fan}) > 1:
            found.add(Fault(FaultKind.SIBLINGS, parent))
    found.update(
        Fault(FaultKind.FAN_OUT, parent)
        for parent, count in _hanging(known).items()
        if count > settings.fan_out
    )
    if len(known) > settings.nodes:
        found.add(Fault(FaultKind.NODES, session))
    return tuple(sorted(found))


def check(windows: Sequence[WindowNode], settings: GraphSettings) -> None:
    """Refuse a graph with anything wrong.

    Spec: related facts §5

    Raises:
        StoreDamaged: names the first fault and its window.
    """
    found = faults(windows, settings)
    if found:
        first = found[0]
        raise StoreDamaged(
            f"the session's graph of {len(windows)} windows has the fault {first.kind.value!r} at "
            f"{first.window_id!r:.60}, {len(found)} in all; verify its trail"
        )


def unchained(windows: Sequence[WindowNode], seals: Iterable[WindowSeal]) -> tuple[Fault, ...]:
    """Windows whose node and seal differ, or whose seal is not chained to their parents'.

    The seals' own HMACs are verified by the audit room; this is about the edges of the graph.

    Spec: related facts §5
    """
    sealed = {seal.window_id: seal for seal in seals}
    known = {node.window_id: node for node in windows}
    found = []
    for id_, node in known.items():
        seal = sealed.get(id_)
        parents = [known[parent].hmac for parent in node.parents if parent in known]
        if (
            seal is None
            or (seal.hmac, seal.window_number) != (node.hmac, node.window_number)
            or len(parents) < len(node.parents)
            or seal.parent_hmac != "|".join(sorted(parents))
        ):
            found.append(Fault(FaultKind.UNCHAINED, id_))
    return tuple(sorted(found))


def room(windows: Sequence[WindowNode], parents: Sequence[str], settings: GraphSettings) -> None:
    """Refuse a window for which there is no room behind those that it names.

    Spec: related facts §5

    Args:
        windows: of the session so far.
        parents: ids of the windows that it follows, as its caller named them.

    Raises:
        LimitReached: the session has as many windows as it may, or as many were delivered that
            follow the one that is named and no other.
    """
    if len(windows) >= settings.nodes:
        raise LimitReached(
            f"the session has {len(windows)} windows, at most {settings.nodes} allowed"
        )
    if len(parents) != 1:
        return
    hanging = _hanging({node.window_id: node for node in windows}).get(parents[0], 0)
    if hanging >= settings.fan_out:
        raise LimitReached(
            f"{hanging} windows go on from {parents[0]!r:.60}, at most {settings.fan_out} allowed"
        )


def last(windows: Sequence[WindowNode]) -> tuple[WindowNode, ...]:
    """The window that a question without a continuation id follows; none in a new session.

    Nothing follows a refused one, unless it is all that there is.

    Args:
        windows: by number, then id.
    """
    return tuple(([one for one in windows if one.outcome != REFUSED] or windows[:1])[-1:])


def pattern_of(
    windows: Iterable[WindowNode], parents: Sequence[str], *, fanned: bool = False
) -> Pattern:
    """How a window that follows others hangs in the graph.

    Spec: related facts §5

    Args:
        fanned: it was started as one of a fan-out.
    """
    if len(parents) > 1:
        return Pattern.FAN_IN
    if fanned:
        return Pattern.FAN_OUT
    followed = parents and any(
        parents[0] in node.parents for node in windows if node.outcome != REFUSED
    )
    return Pattern.BRANCH if followed else Pattern.LINEAR


def order(windows: Iterable[WindowNode]) -> list[WindowNode]:
    """Windows so that each comes after those that it follows; ties by number, then id.

    Windows on a cycle, and those that follow one, are left out.
    """
    known = {node.window_id: node for node in windows}
    waiting = {id_: len(_parents(node, known)) for id_, node in known.items()}
    children = _children(known)
    ready = [(known[id_].window_number, id_) for id_, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, id_ = heapq.heappop(ready)
        ordered.append(known[id_])
        for child in children.get(id_, ()):
            waiting[child] -= 1
            if not waiting[child]:
                heapq.heappush(ready, (known[child].window_number, child))
    return ordered


def ancestors(windows: Sequence[WindowNode], parents: Sequence[str]) -> list[WindowNode]:
    """The windows that a window with these parents follows, near and far, each after its own.

    Raises:
        UnknownContinuation: a parent is not one of the windows.
    """
    known = {node.window_id: node for node in windows}
    found: set[str] = set()
    waiting = list(parents)
    while waiting:
        id_ = waiting.pop()
        if id_ not in known:
            raise UnknownContinuation(f"the session has no window {id_!r:.60}")
        if id_ not in found:
            found.add(id_)
            waiting.extend(known[id_].parents)
    return order(known[id_] for id_ in found)


def lineage(windows: Sequence[WindowNode], window_id: str) -> tuple[str, ...]:
    """Ids from the root to a window, along edges; at a fan-in along the deepest parent.

    Spec: related facts §3

    Raises:
        UnknownContinuation: it is not one of the windows.
        StoreDamaged: a window before it is missing, or they go in a circle.
    """
    known = {node.window_id: node for node in windows}
    if window_id not in known:
        raise UnknownContinuation(f"the session has no window {window_id!r:.60}")
    path = [window_id]
    while parents := _parents(known[path[-1]], known):
        if len(path) >= len(known):
            raise StoreDamaged(f"the windows before {window_id!r:.60} go in a circle")
        path.append(min(parents, key=lambda id_: (-known[id_].window_number, id_)))
    if known[path[-1]].parents:
        raise StoreDamaged(f"the windows before {path[-1]!r:.60} are missing")
    return tuple(reversed(path))


def root(windows: Iterable[WindowNode]) -> str:
    """Id of the window that follows none; empty without windows.

    Spec: related facts §3
    """
    return min((node.window_id for node in windows if not node.parents), default="")


def _fits(pattern: Pattern, parents: tuple[str, ...]) -> bool:
    if len(set(parents)) < len(parents):
        return False
    if pattern is Pattern.FAN_IN:
        return len(parents) > 1
    if pattern is Pattern.LINEAR:
        return len(parents) <= 1
    return len(parents) == 1


def _parents(node: WindowNode, known: Mapping[str, WindowNode]) -> set[str]:
    return {parent for parent in node.parents if parent in known}


def _children(known: Mapping[str, WindowNode]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for id_, node in known.items():
        for parent in _parents(node, known):
            found.setdefault(parent, []).append(id_)
    return found


def _fans(known: Mapping[str, WindowNode]) -> dict[str, list[WindowNode]]:
    """Windows of each fan-out, by the window that they fan out of."""
    found: dict[str, list[WindowNode]] = {}
    for node in known.values():
        if node.pattern is Pattern.FAN_OUT:
            for parent in _parents(node, known):
                found.setdefault(parent, []).append(node)
    return found


def _hanging(known: Mapping[str, WindowNode]) -> Counter[str]:
    """How many delivered windows follow each window and no other."""
    return Counter(
        node.parents[0]
        for node in known.values()
        if len(node.parents) == 1 and node.parents[0] in known and node.outcome in DELIVERED
    )


def _apart(known: Mapping[str, WindowNode]) -> set[str]:
    """Windows that no path of edges, whichever way, joins to the smallest root."""
    children = _children(known)
    start = min((id_ for id_, node in known.items() if not node.parents), default=min(known))
    found = {start}
    waiting = [start]
    while waiting:
        id_ = waiting.pop()
        near = _parents(known[id_], known).union(children.get(id_, ())) - found
        found |= near
        waiting.extend(near)
    return set(known) - found
