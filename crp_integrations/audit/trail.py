"""The audit trail: checks the journal, the windows of every session, and that they agree.

The HMAC of a window's seal does not cover the window's id, outcome, ETag and risk level. The last
event of each window contains them, and the journal's chain covers the event; so one of the chains
covers every field of a seal, and each chain reveals if the end of the other was cut off. The last
event also contains the other fields, so that windows can be checked in an export of events alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crp_integrations.audit import journal, window_seals
from crp_integrations.audit.records import Event, Stub, WindowSeal
from crp_integrations.audit.window_seals import key_epochs
from crp_integrations.errors import ChainBroken
from crp_integrations.vocabulary import TrailState

CLOSING_FIELD = "window_hmac"
_TEXTS = ("response_hash", "report_hash", "parent_hmac", "outcome", "etag", "risk_level")


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Result of a successful check of a trail.

    Attributes:
        events, windows, sessions: number of checked events, windows and sessions.
        tip: HMAC of the last event, empty without events. If you note it elsewhere, you can see
            later whether the end of the trail was cut off.
        left_out: number of stubs of left-out or erased events.
        truncated: True if only the beginning is missing, as after the erasure of old events.
    """

    events: int
    windows: int
    sessions: int
    tip: str
    left_out: int = 0
    truncated: bool = False

    @property
    def state(self) -> TrailState:
        """How complete the trail is; its `integrity` is the value of the header."""
        if not self.events:
            return TrailState.UNVERIFIED
        if self.truncated:
            return TrailState.TRUNCATED
        return TrailState.PARTIAL if self.left_out else TrailState.VALID


@dataclass(frozen=True, slots=True)
class _Closing:
    """The last event of a window and its place in the journal, from 0."""

    index: int
    event: Event


def closing_data(seal: WindowSeal) -> dict[str, Any]:
    """The fields of a window's seal for the data of its last event."""
    texts = {name: getattr(seal, name) for name in _TEXTS}
    return {CLOSING_FIELD: seal.hmac, "window_number": seal.window_number, **texts}


def seal_of_event(event: Event) -> WindowSeal | None:
    """The seal recorded in a window's last event; None if a field is missing."""
    data = event.data
    number, hmac = data.get("window_number"), data.get(CLOSING_FIELD)
    texts = {name: data.get(name) for name in _TEXTS}
    whole = isinstance(number, int) and all(isinstance(text, str) for text in texts.values())
    if not whole or not isinstance(hmac, str):
        return None
    fields = {**texts, "window_number": number, "hmac": hmac, "timestamp": event.timestamp}
    return WindowSeal(session_id=event.session_id, window_id=event.window_id, **fields)


def verify_trail(
    events: Iterable[Event | Stub],
    seals: Iterable[WindowSeal],
    *,
    journal_key: bytes,
    session_key: Callable[[str], bytes],
    before: str = "",
) -> AuditTrail:
    """Check a namespace's trail, read in one transaction.

    Spec: CRP-SPEC-005 §15.3; related facts §5

    The journal is checked first. Then every window must have one seal and one last event that agree
    in every field; if events were left out, a seal may lack its event. A trail without its last
    windows and their events verifies; you notice the loss only with an `AuditTrail.tip` that was
    noted elsewhere.
    """
    closings: list[_Closing] = []
    check = journal.verify_partial(_collect_closings(events, closings), journal_key, before=before)
    whole = check.state is TrailState.VALID
    sessions = _by_session(seals)
    end = check.events + check.left_out
    faults = [
        *_missing_seals(closings, sessions),
        *_differing_seals(closings, sessions, session_key, end, whole=whole),
    ]
    return _trail(check, closings, faults, len(sessions))


def verify_events(
    events: Iterable[Event | Stub],
    *,
    journal_key: bytes,
    session_key: Callable[[str], bytes],
    before: str = "",
) -> AuditTrail:
    """Check a trail that consists only of exported events.

    Spec: CRP-SPEC-005 §15.3; related facts §5

    The windows' seals are read from their last events. If events were left out, each seal is
    checked on its own, since others may be missing; otherwise the chain of each session is checked.
    """
    closings: list[_Closing] = []
    check = journal.verify_partial(_collect_closings(events, closings), journal_key, before=before)
    sealed = [
        (closing.index, seal)
        for closing in closings
        if (seal := seal_of_event(closing.event)) is not None
    ]
    sessions = _by_session(seal for _, seal in sealed)
    places = {(seal.session_id, seal.window_id): index for index, seal in sealed}
    faults = []
    for session_id, many in sessions.items():
        bad = _bad_seal(many, session_key(session_id), whole=check.state is TrailState.VALID)
        if bad is not None:
            name = _window_name(session_id, many[bad].window_number)
            index = places[session_id, many[bad].window_id]
            faults.append((index, f"the seal of {name} does not fit the session's chain"))
    return _trail(check, closings, faults, len(sessions))


def _trail(
    check: journal.JournalCheck,
    closings: Sequence[_Closing],
    faults: Sequence[tuple[int, str]],
    sessions: int,
) -> AuditTrail:
    if faults:
        index, sentence = min(faults)
        raise ChainBroken(sentence, index=index)
    truncated = check.state is TrailState.TRUNCATED
    return AuditTrail(check.events, len(closings), sessions, check.tip, check.left_out, truncated)


def _collect_closings(
    events: Iterable[Event | Stub], closings: list[_Closing]
) -> Iterator[Event | Stub]:
    for index, event in enumerate(events):
        if isinstance(event, Event) and CLOSING_FIELD in event.data:
            closings.append(_Closing(index, event))
        yield event


def _by_session(seals: Iterable[WindowSeal]) -> dict[str, list[WindowSeal]]:
    sessions: dict[str, list[WindowSeal]] = {}
    for seal in seals:
        sessions.setdefault(seal.session_id, []).append(seal)
    return sessions


def _bad_seal(many: list[WindowSeal], key: bytes, *, whole: bool) -> int | None:
    """Sort a session's seals and return the index of the first invalid one."""
    many.sort(key=lambda seal: (seal.window_number, seal.window_id))
    if whole:
        return window_seals.first_break(many, key)
    keys = key_epochs(key)
    bad = (
        place for place, seal in enumerate(many) if window_seals.epoch_of_seal(seal, keys) is None
    )
    return next(bad, None)


def _missing_seals(
    closings: Iterable[_Closing], sessions: Mapping[str, list[WindowSeal]]
) -> Iterator[tuple[int, str]]:
    """Last events of windows that have no seal of their own."""
    waiting = {(seal.session_id, seal.window_id) for many in sessions.values() for seal in many}
    for closing in closings:
        place = (closing.event.session_id, closing.event.window_id)
        if place not in waiting:
            name = _window_name(closing.event.session_id, closing.event.data.get("window_number"))
            yield closing.index, f"{name} has event {closing.event.seq} but no seal of its own"
        waiting.discard(place)


def _differing_seals(
    closings: Iterable[_Closing],
    sessions: Mapping[str, list[WindowSeal]],
    session_key: Callable[[str], bytes],
    journal_end: int,
    *,
    whole: bool,
) -> Iterator[tuple[int, str]]:
    """Seals without an event, different from their event, or not fitting the session's chain."""
    ends = {(closing.event.session_id, closing.event.window_id): closing for closing in closings}
    for session_id, many in sessions.items():
        broken = window_seals.first_break(many, session_key(session_id))
        for number, seal in enumerate(many):
            name = _window_name(session_id, seal.window_number)
            end = ends.get((session_id, seal.window_id))
            if end is None and whole:
                yield journal_end, f"{name} has a seal but no event"
                continue
            if number == broken:
                index = journal_end if end is None else end.index
                yield index, f"the seal of {name} does not fit the session's chain"
            if end is not None and (differing := _differing_fields(end.event, seal)):
                where = f"event {end.event.seq} in {', '.join(differing)}"
                yield end.index, f"the seal of {name} differs from {where}"


def _differing_fields(event: Event, seal: WindowSeal) -> list[str]:
    wanted = {"timestamp": seal.timestamp, **closing_data(seal)}
    actual = {**event.data, "timestamp": event.timestamp}
    return [name for name, value in wanted.items() if actual.get(name) != value]


def _window_name(session_id: str, number: Any) -> str:
    return f"window {number} of session {session_id!r:.80}"
