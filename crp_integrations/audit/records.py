"""Events of the journal, seals of windows, and the journal's port to a store. Never content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import EventType


class Event(Record):
    """One entry of the journal, chained to the one before.

    Attributes:
        data: ids, hashes and counts; never a fact's or an answer's text.
        hmac: `sha256:…` over type, timestamp, data, window and the previous event's HMAC.
    """

    SCHEMA = "event/1"

    seq: int
    event_type: EventType
    timestamp: str
    session_id: str = ""
    window_id: str = ""
    data: dict[str, Any] = {}
    hmac: str


class Stub(Part):
    """What stays of an event that was left out or erased: its HMAC, so that the chain goes on."""

    hmac: str


class WindowSeal(Record):
    """The HMAC record with which every window ends, also a failed one.

    Spec: CRP-SPEC-005 §15.1

    Attributes:
        window_number: from 1; windows of one fan-out share a number.
        parent_hmac: the HMAC of the window that it follows, empty for the first; of several, their
            HMACs in ascending order, joined with `|`.
    """

    SCHEMA = "window-seal/1"

    session_id: str
    window_id: str
    window_number: int
    timestamp: str
    response_hash: str
    report_hash: str
    parent_hmac: str
    hmac: str
    outcome: str = "released"
    etag: str = ""
    risk_level: str = ""


class JournalFacet(Protocol):
    """The journal of one namespace, within one transaction. Append-only."""

    def tip(self) -> Event | None:
        """The last event, or None for an empty journal."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Add events whose `seq` go on from the tip's.

        Raises:
            StoreError: a `seq` is not the next one.
        """
        ...

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Events in order, those with `seq` above `after`."""
        ...

    def seal(self, seal: WindowSeal) -> None:
        """Add a window's seal.

        Raises:
            StoreError: the session already has a window of that number.
        """
        ...

    def last_seal(self, session_id: str) -> WindowSeal | None:
        """The session's window with the highest number."""
        ...

    def seals(self, session_id: str) -> list[WindowSeal]:
        """The session's windows by number."""
        ...

    def all_seals(self) -> Iterator[WindowSeal]:
        """The windows of all sessions, by session id (code points), then by number."""
        ...
