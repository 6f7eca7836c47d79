"""Windows of sessions for tests: short ways to make them, and random graphs of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from crp_integrations.seals import sha256
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.vocabulary import Pattern, QualityTier

SESSION = "crp_sess_7f3a9bc2d4e1f083"
NOON = "2026-05-25T12:00:00Z"


def node(window_id: str, number: int, *parents: str, **fields: Any) -> WindowNode:
    given: dict[str, Any] = {"hmac": sha256(window_id), "timestamp": NOON, **fields}
    return WindowNode(
        window_id=window_id,
        session_id=given.pop("session_id", SESSION),
        window_number=number,
        parents=parents,
        **given,
    )


def fan(window_id: str, number: int, parent: str, **fields: Any) -> WindowNode:
    return node(window_id, number, parent, pattern=Pattern.FAN_OUT, **fields)


def merge(window_id: str, number: int, *parents: str, **fields: Any) -> WindowNode:
    return node(window_id, number, *parents, pattern=Pattern.FAN_IN, **fields)


def chain(*tiers: QualityTier | None) -> list[WindowNode]:
    """Windows `a`, `b`, … one after the other."""
    names = [chr(ord("a") + place) for place in range(len(tiers))]
    return [
        node(name, place + 1, *names[max(0, place - 1) : place], quality_tier=tier)
        for place, (name, tier) in enumerate(zip(names, tiers, strict=True))
    ]


def session(**fields: Any) -> Session:
    given = {"session_id": SESSION, "created_at": NOON, "modified_at": NOON, **fields}
    return Session(**given)


# Root, three that fan out, one of them goes on, and all are merged.
DIAMOND = (
    node("root", 1),
    fan("a", 2, "root"),
    fan("b", 2, "root"),
    fan("c", 2, "root"),
    node("d", 3, "a"),
    merge("e", 4, "d", "b", "c"),
)


@st.composite
def graphs(draw: st.DrawFn) -> list[WindowNode]:
    """Any small set of windows with any edges: nearly always something is wrong with it."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=7))
    made = []
    for name in names:
        parents = draw(st.lists(st.sampled_from("abcdefghz"), max_size=3))
        made.append(
            node(
                name,
                draw(st.integers(1, 4)),
                *parents,
                pattern=draw(st.sampled_from(Pattern)),
                hmac=draw(st.sampled_from(["", sha256("x"), *[sha256(name)] * 6])),
                session_id=draw(st.sampled_from([SESSION] * 9 + ["crp_sess_0000000000000000"])),
            )
        )
    return made


@st.composite
def sound_graphs(draw: st.DrawFn, most: int = 11) -> list[WindowNode]:
    """Graphs that were grown window by window as the numbers demand."""
    made = [node("w00", 1)]
    for place in range(1, draw(st.integers(1, most))):
        parents = draw(
            st.lists(st.sampled_from(made), min_size=1, max_size=3, unique_by=lambda n: n.window_id)
        )
        ids = [parent.window_id for parent in parents]
        pattern = Pattern.FAN_IN
        if len(parents) == 1:
            pattern = draw(st.sampled_from([Pattern.LINEAR, Pattern.FAN_OUT, Pattern.BRANCH]))
        number = 1 + max(parent.window_number for parent in parents)
        made.append(node(f"w{place:02d}", number, *ids, pattern=pattern))
    return made
