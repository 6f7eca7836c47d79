"""A transaction of a namespace: its facets, the journal, and the log of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports.facts import LogMark
from crp_integrations.stores import rules
from crp_integrations.stores.relational.receipts import RelationalReceipts
from crp_integrations.stores.relational.rows import columns, insertion, number, record, row
from crp_integrations.stores.relational.sessions import RelationalSessions
from crp_integrations.stores.relational.usage import RelationalFaults
from crp_integrations.stores.rules import AMONG, FACTS_DUE, Statements, among, note_due

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.


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
        values = self._connection.one(
            f"SELECT {EVENT_COLUMNS} FROM events ORDER BY seq DESC LIMIT 1"
        )
        return None if values is None else record(Event, values)

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
        values = self._connection.one(
            f"SELECT {SEAL_COLUMNS} FROM seals WHERE session_id = ? "
            "ORDER BY window_number DESC, window_id DESC LIMIT 1",
            [session_id],
        )
        return None if values is None else record(WindowSeal, values)

    def seals(self, session_id: str) -> list[WindowSeal]:
        """The session's windows by number, then id."""
        self._gate.reading()
        rows = self._connection.rows(
            f"SELECT {SEAL_COLUMNS} FROM seals WHERE session_id = ? "
            "ORDER BY window_number, window_id",
            [session_id],
        )
        return [record(WindowSeal, values) for values in rows]

    def all_seals(self) -> Iterator[WindowSeal]:
        """The windows of all sessions, by session id, then by number and window id."""
        self._gate.reading()
        return self._seal_pages()

    def _seal_pages(self) -> Iterator[WindowSeal]:
        after: tuple[str, int, str] = ("", FIRST_INTEGER, "")
        while True:
            self._gate.reading()
            rows = self._connection.rows(
                f"SELECT {SEAL_COLUMNS} FROM seals "
                "WHERE (session_id, window_number, window_id) > (?, ?, ?) "
                "ORDER BY session_id, window_number, window_id LIMIT ?",
                [*after, PAGE],
            )
            for values in rows:
                seal = record(WindowSeal, values)
                yield seal
                after = (seal.session_id, seal.window_number, seal.window_id)
            if len(rows) < PAGE:
                return

    def _pages(self, after: int, last: int) -> Iterator[Event]:
        while after < last:
            self._gate.reading()
            rows = self._connection.rows(
                f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > ? AND seq <= ? "
                "ORDER BY seq LIMIT ?",
                [after, last, PAGE],
            )
            for values in rows:
                event = record(Event, values)
                yield event
                after = event.seq
            if not rows:
                return


# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.


# In one statement, whose fixed cost is most of it.
_SEEN = (
    "SELECT 'own', name, value FROM own UNION ALL SELECT 'setting', name, value FROM settings "
    "UNION ALL SELECT * FROM "
    "(SELECT 'mark', sequence, token FROM changes ORDER BY sequence DESC LIMIT 1)"
)


@dataclass(slots=True)
class RelationalSnapshot:
    """What a reading transaction sees of its namespace as a whole, which does not change in it.

    Attributes:
        own: the namespace's own values.
        settings, mark: None until somebody asks for them.
    """

    own: Mapping[str, Any]
    settings: Mapping[str, str] | None = None
    mark: LogMark | None = None

    @classmethod
    def read(cls, connection: Statements) -> Self:
        """All of it, which also fixes what the transaction sees."""
        own: dict[str, Any] = {}
        settings: dict[str, str] = {}
        mark = LogMark(0, "")
        for kind, name, value in connection.rows(_SEEN):
            if kind == "own":
                own[name] = value
            elif kind == "setting":
                settings[name] = value
            else:
                mark = LogMark(name, value)
        return cls(own, settings, mark)


class FactsPart:
    """A part of the facts facet of one namespace."""

    def __init__(
        self,
        connection: Statements,
        gate: rules.TransactionGate,
        namespace: str,
        seen: RelationalSnapshot | None = None,
    ) -> None:
        """Take the connection."""
        self._connection = connection
        self._gate = gate
        self._namespace = namespace
        self._seen = seen

    def _own(self, name: str) -> Any:
        if self._seen is not None:
            return self._seen.own.get(name)
        values = self._connection.one("SELECT value FROM own WHERE name = ?", [name])
        return None if values is None else values[0]

    def _set_own(self, name: str, value: Any) -> None:
        self._connection.execute(
            "INSERT INTO own (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [name, value],
        )

    def _dimensions(self) -> int | None:
        stored = self._own("dimensions")
        return None if stored is None else number(stored, "dimensions")

    def _numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """Row numbers of those ids that are stored."""
        return dict(
            self._connection.rows(
                f"SELECT fact_id, fact FROM facts WHERE fact_id {AMONG}", [among(ids)]
            )
        )

    def _grow(self) -> None:
        self._connection.execute("UPDATE own SET value = value + 1 WHERE name = 'generation'")

    def _leave_to_scrub(self) -> None:
        """Note in this transaction that bytes are left which `scrub` has to take off the disk."""
        note_due(self._connection, FACTS_DUE)


class ChangeLog(FactsPart):
    """The log of changes of one namespace."""

    def mark(self) -> LogMark:
        """The end of the log of changes."""
        self._gate.reading()
        if self._seen is not None and self._seen.mark is not None:
            return self._seen.mark
        last = self._connection.one(
            "SELECT sequence, token FROM changes ORDER BY sequence DESC LIMIT 1"
        )
        mark = LogMark(0, "") if last is None else LogMark(*last)
        if self._seen is not None:
            self._seen.mark = mark
        return mark

    def changes(self, since: LogMark) -> list[str] | None:
        """Ids of the facts that were added, changed or removed after a mark, each once, by id."""
        self._gate.reading()
        if not self._leads_back_to(since):
            return None
        rows = self._connection.rows(
            "SELECT DISTINCT fact_id FROM changes WHERE sequence > ? ORDER BY fact_id",
            [since.sequence],
        )
        return [id for (id,) in rows]

    def trim_changes(self, keep: int) -> None:
        """Forget the log but for its last `keep` entries; at least the last one stays."""
        self._gate.writing()
        # Entries have no gaps: what is undone gives its numbers back.
        self._connection.execute(
            "DELETE FROM changes WHERE sequence <= (SELECT max(sequence) FROM changes) - ?",
            [max(1, keep)],
        )

    def _leads_back_to(self, mark: LogMark) -> bool:
        if mark == LogMark(0, ""):
            first = self._connection.one("SELECT min(sequence) FROM changes")
            return first is not None and first[0] in (None, 1)
        values = self._connection.one(
            "SELECT token FROM changes WHERE sequence = ?", [mark.sequence]
        )
        return values is not None and values[0] == mark.token


FactsOf = TypeVar("FactsOf")


class Facets(Generic[FactsOf]):
    """The facets of one namespace over one connection.

    Most transactions read facts alone, so the others are made when they are asked for.

    Attributes:
        facts: the first of them.
    """

    def __init__(self, facts: FactsOf, connection: Statements, gate: rules.TransactionGate) -> None:
        """Take the connection, and what says whether it may still be used."""
        self.facts = facts
        self._given = connection, gate

    @cached_property
    def journal(self) -> RelationalJournal:
        """Events and seals."""
        return RelationalJournal(*self._given)

    @cached_property
    def sessions(self) -> RelationalSessions:
        """Sessions with their windows."""
        return RelationalSessions(*self._given)

    @cached_property
    def faulted(self) -> RelationalFaults:
        """Facts that answers keep going wrong with."""
        return RelationalFaults(*self._given)

    @cached_property
    def receipts(self) -> RelationalReceipts:
        """Receipts and their log."""
        return RelationalReceipts(*self._given)


@contextmanager
def facets(
    facts: FactsOf, connection: Statements, gate: rules.TransactionGate
) -> Iterator[Facets[FactsOf]]:
    """Give out the facets for the length of the block; they refuse everything afterwards."""
    try:
        yield Facets(facts, connection, gate)
    finally:
        gate.shut()
