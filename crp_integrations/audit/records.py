"""Events of the journal, seals of windows, and the journal's interface to a store."""

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
    """The HMAC of a left-out or erased event, which keeps the chain verifiable."""

    hmac: str


class WindowSeal(Record):
    """The HMAC record at the end of every window, including failed ones.

    Spec: CRP-SPEC-005 §15.1

    Attributes:
        window_number: number from 1; windows of one fan-out share a number.
        parent_hmac: HMACs of the windows that it follows, ascending and joined with `|`; empty
            for the first window.
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
        """Add events whose `seq` continues from the tip's.

        Raises:
            StoreError: a `seq` is not the next one.
        """
        ...

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Events with `seq` above `after`, in order."""
        ...

    def seal(self, seal: WindowSeal) -> None:
        """Add a window's seal.

        Raises:
            StoreError: the session already has a window of that number.
        """
        ...

    def last_seal(self, session_id: str) -> WindowSeal | None:
        """The seal of the session's window with the highest number."""
        ...

    def seals(self, session_id: str) -> list[WindowSeal]:
        """The seals of the session's windows, by number."""
        ...

    def all_seals(self) -> Iterator[WindowSeal]:
        """The seals of all sessions' windows, by session id (code points), then by number."""
        ...
