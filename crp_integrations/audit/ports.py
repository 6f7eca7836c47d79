"""What the journal needs of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from crp_integrations.audit.records import Event, WindowSeal


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
