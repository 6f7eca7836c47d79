"""A transaction of a namespace: its facets, including the journal and the fault counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Generic, TypeVar

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports.store import FaultCounts
from crp_integrations.session.ports import Spending
from crp_integrations.stores import rules
from crp_integrations.stores.relational.facts import USED
from crp_integrations.stores.relational.receipts import RelationalReceipts
from crp_integrations.stores.relational.rows import columns, insertion, record, replacing, row
from crp_integrations.stores.relational.sessions import RelationalSessions
from crp_integrations.stores.rules import AMONG, RETRIEVABLE_SQL, Statements, among

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.


EVENT_COLUMNS = ", ".join(columns(Event))
SEAL_COLUMNS = ", ".join(columns(WindowSeal))
ADD_EVENT = insertion("events", Event)
ADD_SEAL = insertion("seals", WindowSeal)
SAVE_SPENDING = replacing(
    "INSERT INTO judge_spending (session_id, judge, period, calls, tokens, usd) "
    "VALUES (?, ?, ?, ?, ?, ?)",
    ["session_id", "judge"],
    ["period", "calls", "tokens", "usd"],
)
# Events or seals read at a time, because a whole journal may be too long for memory.
PAGE = 1_000
# SQLite's lowest integer, which is not a window's number, so that a page can start after it.
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
        """Add events whose `seq` continues from the tip's."""
        self._gate.writing()
        last = self._connection.rows("SELECT coalesce(max(seq), 0) FROM events")[0][0]
        rules.check_next(events, last)
        if events:
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
        """The session's seal with the highest window number, and among those the last id."""
        self._gate.reading()
        values = self._connection.one(
            f"SELECT {SEAL_COLUMNS} FROM seals WHERE session_id = ? "
            "ORDER BY window_number DESC, window_id DESC LIMIT 1",
            [session_id],
        )
        return None if values is None else record(WindowSeal, values)

    def seals(self, session_id: str) -> list[WindowSeal]:
        """The session's seals by window number, then window id."""
        self._gate.reading()
        rows = self._connection.rows(
            f"SELECT {SEAL_COLUMNS} FROM seals WHERE session_id = ? "
            "ORDER BY window_number, window_id",
            [session_id],
        )
        return [record(WindowSeal, values) for values in rows]

    def all_seals(self) -> Iterator[WindowSeal]:
        """The seals of all sessions, by session id, then by window number and window id."""
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


class RelationalFaults:
    """Counts of findings against the facts of one namespace."""

    def __init__(self, connection: Statements, gate: rules.TransactionGate) -> None:
        self._connection = connection
        self._gate = gate

    def count(self, fact_ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count one more finding against each fact; return the counts."""
        self._gate.writing()
        wanted = [among(fact_ids)]
        self._connection.execute(
            "INSERT INTO fact_findings (fact, findings, uses_before) "
            f"SELECT fact, 1, 0 FROM facts WHERE fact_id {AMONG} "
            "ON CONFLICT (fact) DO UPDATE SET findings = fact_findings.findings + 1",
            wanted,
        )
        rows = self._connection.rows(
            f"SELECT fact_id, findings, {USED} - uses_before FROM facts "
            "JOIN fact_findings USING (fact) LEFT JOIN fact_uses USING (fact) "
            f"WHERE fact_id {AMONG} ORDER BY fact_id",
            wanted,
        )
        return {id_: FaultCounts(findings, uses) for id_, findings, uses in rows}

    def due(self, findings: int, share: float) -> list[str]:
        """Retrievable facts with at least this many findings, and this share of their uses."""
        self._gate.reading()
        rows = self._connection.rows(
            "SELECT fact_id FROM facts JOIN fact_findings USING (fact) "
            f"LEFT JOIN fact_uses USING (fact) WHERE {RETRIEVABLE_SQL} AND findings >= ? "
            f"AND findings >= ? * ({USED} - uses_before) ORDER BY fact_id",
            [findings, share],
        )
        return [id_ for (id_,) in rows]

    def reset(self, fact_ids: Sequence[str]) -> None:
        """Restart the counts of some facts at zero."""
        self._gate.writing()
        self._connection.execute(
            "UPDATE fact_findings SET findings = 0, uses_before = "
            f"(SELECT {USED} FROM facts LEFT JOIN fact_uses USING (fact) "
            "WHERE facts.fact = fact_findings.fact) "
            f"WHERE fact IN (SELECT fact FROM facts WHERE fact_id {AMONG})",
            [among(fact_ids)],
        )


class RelationalSpending:
    """What the judges of one namespace spent."""

    def __init__(self, connection: Statements, gate: rules.TransactionGate) -> None:
        self._connection = connection
        self._gate = gate

    def spent(self, session_id: str, judge: str) -> tuple[str, Spending] | None:
        """The last period of a judge and what it spent in it; None if it never spent."""
        self._gate.reading()
        values = self._connection.one(
            "SELECT period, calls, tokens, usd FROM judge_spending "
            "WHERE session_id = ? AND judge = ?",
            [session_id, judge],
        )
        return None if values is None else (values[0], Spending(*values[1:]))

    def save(self, session_id: str, judge: str, period: str, spent: Spending) -> None:
        """Replace a judge's period and what it spent in it."""
        self._gate.writing()
        self._connection.execute(
            SAVE_SPENDING, [session_id, judge, period, spent.calls, spent.tokens, spent.usd]
        )


FactsOf = TypeVar("FactsOf")


class Facets(Generic[FactsOf]):
    """The facets of one namespace over one connection.

    Most transactions read only facts, so the other facets are created on first use.

    Attributes:
        facts: the facts facet.
    """

    def __init__(self, facts: FactsOf, connection: Statements, gate: rules.TransactionGate) -> None:
        """Keep the connection, and the gate that allows its use."""
        self.facts = facts
        self._held = connection, gate

    @cached_property
    def journal(self) -> RelationalJournal:
        """Events and seals."""
        return RelationalJournal(*self._held)

    @cached_property
    def sessions(self) -> RelationalSessions:
        """Sessions with their windows."""
        return RelationalSessions(*self._held)

    @cached_property
    def faulted(self) -> RelationalFaults:
        """Counts of findings against facts."""
        return RelationalFaults(*self._held)

    @cached_property
    def spending(self) -> RelationalSpending:
        """What judges spent."""
        return RelationalSpending(*self._held)

    @cached_property
    def receipts(self) -> RelationalReceipts:
        """Receipts and their log."""
        return RelationalReceipts(*self._held)


@contextmanager
def facets(
    facts: FactsOf,
    connection: Statements,
    gate: rules.TransactionGate,
    kind: type[Facets[FactsOf]] = Facets,
) -> Iterator[Facets[FactsOf]]:
    """Yield the facets for the length of the block; they refuse everything afterwards."""
    try:
        yield kind(facts, connection, gate)
    finally:
        gate.shut()
