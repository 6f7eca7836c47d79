"""The whole trail: the journal, every session's windows, and that they tell the same.

The formula of a window's seal leaves out the window's id, outcome, ETag and risk level. The last
event of each window carries them, and the journal's chain covers the event; so every field of a
seal is covered by one chain or the other, and each chain shows what was cut off the other's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crp_integrations.audit import journal, windows
from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import ChainBroken

CLOSING_FIELD = "window_hmac"


@dataclass(frozen=True, slots=True)
class Trail:
    """What was found whole.

    Attributes:
        events, windows, sessions: how many were checked.
        tip: HMAC of the last event, empty without events. Who notes it elsewhere can see later
            whether the end of the trail was cut off.
    """

    events: int
    windows: int
    sessions: int
    tip: str


@dataclass(frozen=True, slots=True)
class _Closing:
    """The last event of a window and its place in the journal, from 0."""

    index: int
    event: Event


def closing(seal: WindowSeal) -> dict[str, Any]:
    """What the last event of a window says of its seal: hashes, a number and words."""
    return {
        CLOSING_FIELD: seal.hmac,
        "window_number": seal.window_number,
        "outcome": seal.outcome,
        "etag": seal.etag,
        "risk_level": seal.risk_level,
    }


def verify_trail(
    events: Iterable[Event],
    seals: Iterable[WindowSeal],
    *,
    journal_key: bytes,
    session_key: Callable[[str], bytes],
) -> Trail:
    """Check a namespace's whole trail, read in one transaction.

    Spec: CRP-SPEC-005 §15.3

    The journal is checked first. Then every window must have one seal and one closing event
    that agree in every field. A trail whose last windows are gone with their events is whole
    in itself; it shows only against a `Trail.tip` that was noted elsewhere.

    Args:
        events: the whole journal in order.
        seals: of every session, each session's by number.
        journal_key: the namespace's journal key, 32 bytes.
        session_key: the chain key of a session's id, 32 bytes.

    Raises:
        ChainBroken: something was changed, left out, added or moved; `index` is that of the
            first bad event, or the number of events for a seal that has none.
    """
    closings: list[_Closing] = []
    count, tip = 0, ""

    def read() -> Iterator[Event]:
        nonlocal count, tip
        for index, event in enumerate(events):
            if CLOSING_FIELD in event.data:
                closings.append(_Closing(index, event))
            yield event
            count, tip = index + 1, event.hmac

    journal.verify(read(), journal_key)
    sessions: dict[str, list[WindowSeal]] = {}
    for seal in seals:
        sessions.setdefault(seal.session_id, []).append(seal)
    faults = [
        *_unsealed(closings, sessions),
        *_unlike(closings, sessions, session_key, count),
    ]
    if faults:
        index, sentence = min(faults)
        raise ChainBroken(sentence, index=index)
    return Trail(count, len(closings), len(sessions), tip)


def _unsealed(
    closings: Iterable[_Closing], sessions: Mapping[str, list[WindowSeal]]
) -> Iterator[tuple[int, str]]:
    """Closing events without a seal of their own."""
    waiting = {(one.session_id, one.window_number) for many in sessions.values() for one in many}
    for one in closings:
        place = _place(one.event)
        if place not in waiting:
            yield one.index, f"{_name(*place)} has event {one.event.seq} but no seal of its own"
        waiting.discard(place)


def _unlike(
    closings: Iterable[_Closing],
    sessions: Mapping[str, list[WindowSeal]],
    session_key: Callable[[str], bytes],
    count: int,
) -> Iterator[tuple[int, str]]:
    """Seals without an event, unlike their event, or out of their session's chain."""
    ends = {_place(one.event): one for one in closings}
    for session_id, many in sessions.items():
        broken = windows.first_break(many, session_key(session_id))
        for number, seal in enumerate(many):
            name = _name(session_id, seal.window_number)
            end = ends.get((session_id, seal.window_number))
            if end is None:
                yield count, f"{name} has a seal but no event"
                continue
            if number == broken:
                yield end.index, f"the seal of {name} does not fit the session's chain"
            if differing := _differing(end.event, seal):
                where = f"event {end.event.seq} in {', '.join(differing)}"
                yield end.index, f"the seal of {name} differs from {where}"


def _differing(event: Event, seal: WindowSeal) -> list[str]:
    wanted = {"timestamp": seal.timestamp, "window_id": seal.window_id, **closing(seal)}
    found = {**event.data, "timestamp": event.timestamp, "window_id": event.window_id}
    return [name for name, value in wanted.items() if found.get(name) != value]


def _place(event: Event) -> tuple[str, Any]:
    return event.session_id, event.data.get("window_number")


def _name(session_id: str, number: Any) -> str:
    return f"window {number} of session {session_id!r:.80}"
