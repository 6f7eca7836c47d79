"""The journal facet over one draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.stores import rules
from crp_integrations.stores.memory.state import Draft


class MemoryJournal:
    """Events and window seals of one namespace. Append-only."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def tip(self) -> Event | None:
        """The last event, or None for an empty journal."""
        events = self._draft.state.events
        return events[-1].model_copy(deep=True) if events else None

    def append(self, events: Sequence[Event]) -> None:
        """Add events whose `seq` go on from the tip's."""
        self._draft.gate.writing()
        rules.check_next(events, len(self._draft.state.events))
        copies = [event.model_copy(deep=True) for event in events]
        self._draft.change("events").events.extend(copies)

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Events in order, those with `seq` above `after`."""
        chosen = self._draft.state.events[max(0, after) :]
        return (event.model_copy(deep=True) for event in chosen)

    def seal(self, seal: WindowSeal) -> None:
        """Add a window's seal."""
        self._draft.gate.writing()
        others = self._draft.state.seals.get(seal.session_id, ())
        if any(_place(other) == _place(seal) for other in others):
            raise StoreError(
                f"session {seal.session_id!r} already has a window {seal.window_number} "
                f"of id {seal.window_id!r:.60}"
            )
        ordered = sorted((*others, seal), key=_place)
        self._draft.change("seals").seals[seal.session_id] = tuple(ordered)

    def last_seal(self, session_id: str) -> WindowSeal | None:
        """The session's window with the highest number, of several the one with the last id."""
        seals = self.seals(session_id)
        return seals[-1] if seals else None

    def seals(self, session_id: str) -> list[WindowSeal]:
        """The session's windows by number, then id."""
        return list(self._draft.state.seals.get(session_id, ()))

    def all_seals(self) -> Iterator[WindowSeal]:
        """The windows of all sessions, by session id, then by number and window id."""
        sessions = self._draft.state.seals
        return (seal for session_id in sorted(sessions) for seal in sessions[session_id])


def _place(seal: WindowSeal) -> tuple[int, str]:
    return seal.window_number, seal.window_id
