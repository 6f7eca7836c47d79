"""The journal facet over one connection. The tables themselves refuse changes and removals."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.stores import rules
from crp_integrations.stores.relational.rows import columns, insertion, record, row
from crp_integrations.stores.statements import Statements

EVENT_COLUMNS = ", ".join(columns(Event))
SEAL_COLUMNS = ", ".join(columns(WindowSeal))
ADD_EVENT = insertion("events", Event)
ADD_SEAL = insertion("seals", WindowSeal)
# Events or seals read at a time; a journal is longer than what should be held at once.
PAGE = 1_000
# SQLite's lowest integer; no window has it as its number.
FIRST_INTEGER = -(2**63)


class RelationalJournal:
    """Events and window seals of one namespace. Append-only."""

    def __init__(self, connection: Statements, gate: rules.TransactionGate) -> None:
        self._connection = connection
        self._gate = gate

    def tip(self) -> Event | None:
        """The last event, or None for an empty journal."""
        self._gate.reading()
        found = self._connection.one(
            f"SELECT {EVENT_COLUMNS} FROM events ORDER BY seq DESC LIMIT 1"
        )
        return None if found is None else record(Event, found)

    def append(self, events: Sequence[Event]) -> None:
        """Add events whose `seq` go on from the tip's."""
        self._gate.writing()
        last = self._connection.rows("SELECT coalesce(max(seq), 0) FROM events")[0][0]
        rules.check_next(events, last)
        self._connection.executemany(ADD_EVENT, [row(event) for event in events])

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Events in order, those with `seq` above `after`."""
        self._gate.reading()
        last = self._connection.rows("SELECT coalesce(max(seq), 0) FROM events")[0][0]
        return self._pages(after, last)

    def seal(self, seal: WindowSeal) -> None:
        """Add a window's seal."""
        self._gate.writing()
        if self._connection.one(
            "SELECT 1 FROM seals WHERE session_id = ? AND window_number = ? AND window_id = ?",
            [seal.session_id, seal.window_number, seal.window_id],
        ):
            raise StoreError(
                f"session {seal.session_id!r} already has a window {seal.window_number} "
                f"of id {seal.window_id!r:.60}"
            )
        self._connection.execute(ADD_SEAL, row(seal))

    def last_seal(self, session_id: str) -> WindowSeal | None:
        """The session's window with the highest number, of several the one with the last id."""
        self._gate.reading()
        found = self._connection.one(
            f"SELECT {SEAL_COLUMNS} FROM seals WHERE session_id = ? "
            "ORDER BY window_number DESC, window_id DESC LIMIT 1",
            [session_id],
        )
        return None if found is None else record(WindowSeal, found)

    def seals(self, session_id: str) -> list[WindowSeal]:
        """The session's windows by number, then id."""
        self._gate.reading()
        found = self._connection.rows(
            f"SELECT {SEAL_COLUMNS} FROM seals WHERE session_id = ? "
            "ORDER BY window_number, window_id",
            [session_id],
        )
        return [record(WindowSeal, values) for values in found]

    def all_seals(self) -> Iterator[WindowSeal]:
        """The windows of all sessions, by session id, then by number and window id."""
        self._gate.reading()
        return self._seal_pages()

    def _seal_pages(self) -> Iterator[WindowSeal]:
        after: tuple[str, int, str] = ("", FIRST_INTEGER, "")
        while True:
            self._gate.reading()
            found = self._connection.rows(
                f"SELECT {SEAL_COLUMNS} FROM seals "
                "WHERE (session_id, window_number, window_id) > (?, ?, ?) "
                "ORDER BY session_id, window_number, window_id LIMIT ?",
                [*after, PAGE],
            )
            for values in found:
                seal = record(WindowSeal, values)
                yield seal
                after = (seal.session_id, seal.window_number, seal.window_id)
            if len(found) < PAGE:
                return

    def _pages(self, after: int, last: int) -> Iterator[Event]:
        while after < last:
            self._gate.reading()
            found = self._connection.rows(
                f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > ? AND seq <= ? "
                "ORDER BY seq LIMIT ?",
                [after, last, PAGE],
            )
            for values in found:
                event = record(Event, values)
                yield event
                after = event.seq
            if not found:
                return
