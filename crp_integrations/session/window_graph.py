"""The graph of a session's windows: its order, its limits, and the trend of quality tiers.

Spec: related facts §5; CRP-SPEC-003 §14
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from crp_integrations.envelope.continuation import degradation_advice
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import LimitReached, StoreDamaged, UnknownContinuation
from crp_integrations.markup import counted
from crp_integrations.session.records import DELIVERED, REFUSED, WindowNode
from crp_integrations.session.settings import WindowGraphSettings
from crp_integrations.vocabulary import Pattern, QualityTier


def check_limits(
    windows: Sequence[WindowNode], parents: Sequence[str], settings: WindowGraphSettings
) -> None:
    """Refuse a window that would exceed the graph's size or the fan-out of its parent."""
    if settings.nodes is not None and len(windows) >= settings.nodes:
        raise LimitReached(
            f"the session has {counted(len(windows), 'window')}, at most {settings.nodes} allowed; "
            "begin another session, or raise sessions.graph.nodes"
        )
    if len(parents) != 1:
        return
    followers = _count_followers({node.window_id: node for node in windows}).get(parents[0], 0)
    if followers >= settings.fan_out:
        raise LimitReached(
            f"window {parents[0]!r:.60} is continued by {counted(followers, 'window')}, at most "
            f"{settings.fan_out} allowed"
        )


def last_windows(windows: Sequence[WindowNode]) -> tuple[WindowNode, ...]:
    """The window that a question without a continuation id follows; empty in a new session.

    A refused window is not followed, unless there are only refused ones.
    """
    return tuple(([node for node in windows if node.outcome != REFUSED] or windows[:1])[-1:])


def pattern_of(
    windows: Iterable[WindowNode], parents: Sequence[str], *, fanned: bool = False
) -> Pattern:
    """The pattern by which a window follows others: linear, branch, fan-out or fan-in."""
    if len(parents) > 1:
        return Pattern.FAN_IN
    if fanned:
        return Pattern.FAN_OUT
    followed = parents and any(
        parents[0] in node.parents for node in windows if node.outcome != REFUSED
    )
    return Pattern.BRANCH if followed else Pattern.LINEAR


def sort_windows(windows: Iterable[WindowNode]) -> list[WindowNode]:
    """Windows in topological order: each after those that it follows; ties by number, then id.

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
    """All windows before a window with these parents, in topological order."""
    known = {node.window_id: node for node in windows}
    reached: set[str] = set()
    waiting = list(parents)
    while waiting:
        id_ = waiting.pop()
        if id_ not in known:
            raise UnknownContinuation(f"the session has no window {id_!r:.60}")
        if id_ not in reached:
            reached.add(id_)
            waiting.extend(known[id_].parents)
    return sort_windows(known[id_] for id_ in reached)


def lineage(windows: Sequence[WindowNode], window_id: str) -> tuple[str, ...]:
    """Ids on a path from the root to a window; at a fan-in it takes the deepest parent.

    Spec: related facts §3
    """
    known = {node.window_id: node for node in windows}
    if window_id not in known:
        raise UnknownContinuation(f"the session has no window {window_id!r:.60}")
    ids = [window_id]
    while parents := _parents(known[ids[-1]], known):
        if len(ids) >= len(known):
            raise StoreDamaged(f"the windows before {window_id!r:.60} form a cycle")
        ids.append(min(parents, key=lambda id_: (-known[id_].window_number, id_)))
    if known[ids[-1]].parents:
        raise StoreDamaged(f"the windows before {ids[-1]!r:.60} are missing")
    return tuple(reversed(ids))


def root_of(windows: Iterable[WindowNode]) -> str:
    """Id of the window without parents; empty without windows.

    Spec: related facts §3
    """
    return min((node.window_id for node in windows if not node.parents), default="")


def _parents(node: WindowNode, known: Mapping[str, WindowNode]) -> set[str]:
    return {parent for parent in node.parents if parent in known}


def _children(known: Mapping[str, WindowNode]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {}
    for id_, node in known.items():
        for parent in _parents(node, known):
            children.setdefault(parent, []).append(id_)
    return children


def _count_followers(known: Mapping[str, WindowNode]) -> Counter[str]:
    """For each window, the number of delivered windows whose only parent it is."""
    return Counter(
        node.parents[0]
        for node in known.values()
        if len(node.parents) == 1 and node.parents[0] in known and node.outcome in DELIVERED
    )


LACKS_DEPTH: Final = "quality falls from window to window; the domain may lack depth"


def quality_tiers(windows: Sequence[WindowNode]) -> tuple[QualityTier, ...]:
    """The quality tier of each window that had an envelope, in the order of the graph.

    Spec: CRP-SPEC-003 §14.3
    """
    return tuple(
        node.quality_tier for node in sort_windows(windows) if node.quality_tier is not None
    )


def find_degradation(
    history: Sequence[QualityTier], settings: EnvelopeSettings
) -> dict[str, object]:
    """Journal fields of the warning that the last windows' tiers fall; empty if they do not.

    Spec: CRP-SPEC-003 §14.3
    """
    advice = degradation_advice(history, settings)
    if advice is None:
        return {}
    shown = history[-settings.pressure.falling_windows :]
    return {
        "warning": LACKS_DEPTH,
        "recommended": f"dispatch_{advice.word.value}",
        "tiers": [tier.value for tier in shown],
    }


def seen_windows(windows: Sequence[WindowNode], parents: Sequence[str]) -> tuple[str, ...]:
    """Ids of the windows whose facts a window with these parents has seen.

    These are all its ancestors; a branch has not seen what another branch was shown. What they
    saw and deferred is in their stored records.

    Spec: CRP-SPEC-003 §14.2
    """
    return tuple(node.window_id for node in ancestors(windows, parents))
