"""The sessions facet over one connection: window contents, and their removal with facts."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import orjson

from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.errors import StoreDamaged, StoreError
from crp_integrations.records import Record
from crp_integrations.session.records import BUDGET_DIGITS, Session, WindowNode
from crp_integrations.stores import rules
from crp_integrations.stores.relational.receipts import erase, name_facts, unnamed
from crp_integrations.stores.relational.receipts import forget as forget_texts
from crp_integrations.stores.relational.rows import keys_of, naming, read, sortable, source_name
from crp_integrations.stores.rules import (
    AMONG,
    MAX_SHOWN,
    WINDOWS_DUE,
    Among,
    Statements,
    among,
    note_due,
    pages,
)

# Ids per page.
PAGE = 1_000
# SQLite assigns the rowid.
ADD_WINDOW = (
    "INSERT INTO windows (window_id, session_id, window_number, continuation_id, closed_at, "
    "record) VALUES (?, ?, ?, ?, ?, ?)"
)

ADD_CONTENT = 'INSERT INTO window_contents ("window", padding, prior, report) VALUES (?, ?, ?, ?)'


class RelationalSessions:
    """Sessions, windows and window contents of one namespace."""

    def __init__(self, connection: Statements, gate: rules.TransactionGate) -> None:
        self._connection = connection
        self._gate = gate

    def session(self, session_id: str) -> Session | None:
        """A session's state; None if it is unknown."""
        self._gate.reading()
        row = self._connection.one("SELECT record FROM sessions WHERE session_id = ?", [session_id])
        return None if row is None else read(Session, row[0])

    def keep(self, session: Session) -> None:
        """Store a session's state; replaces that of the same id."""
        self._gate.writing()
        check_kept(session, self.session(session.session_id))
        modified_at = moment(session.modified_at, f"session {session.session_id!r:.60}")
        # An update, because replacing the row would delete its windows.
        self._connection.execute(
            "INSERT INTO sessions (session_id, parent_session, modified_at, record) "
            "VALUES (?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET "
            "parent_session = excluded.parent_session, modified_at = excluded.modified_at, "
            "record = excluded.record",
            [
                session.session_id,
                session.parent_session,
                sortable(modified_at),
                session.model_dump_json(),
            ],
        )

    def add_window(
        self,
        node: WindowNode,
        *,
        prior: EarlierWindow | None = None,
        report: str = "",
        facts: Sequence[str] = (),
        sources: Sequence[str] = (),
        shown_windows: Sequence[str] | None = None,
    ) -> None:
        """Add a window of a stored session."""
        self._gate.writing()
        check_window(
            node,
            session_kept=self.has(node.session_id),
            known=self._is("windows", "window_id", node.window_id),
            continued=self.continued(node.continuation_id) is not None,
        )
        closed_at = moment(node.timestamp, f"window {node.window_id!r:.60}")
        made = content_of(node, prior, report, facts, sources)
        window = self._connection.execute(
            ADD_WINDOW,
            [
                node.window_id,
                node.session_id,
                node.window_number,
                node.continuation_id,
                sortable(closed_at),
                node.model_dump_json(),
            ],
        ).lastrowid
        self._trim(closed_at)
        if made is None or self._is_overtaken(made, node, shown_windows):
            return
        self._connection.execute(
            ADD_CONTENT, [window, self._connection.padding, made.prior, made.report]
        )
        own = self._connection.rows(
            f"SELECT DISTINCT source_id FROM facts WHERE fact_id {AMONG}", [among(made.facts)]
        )
        named = {id_ for (id_,) in own if id_} | {*made.sources}
        self._connection.execute(
            'INSERT INTO window_facts ("window", keys) VALUES (?, ?)',
            [window, keys_of([*made.facts, *map(source_name, sorted(named))])],
        )

    def windows(self, session_id: str) -> list[WindowNode]:
        """A session's windows by number, then id."""
        self._gate.reading()
        rows = self._connection.rows(
            "SELECT record FROM windows WHERE session_id = ? ORDER BY window_number, window_id",
            [session_id],
        )
        return [read(WindowNode, text) for (text,) in rows]

    def continued(self, continuation_id: str) -> WindowNode | None:
        """The window with this continuation id."""
        self._gate.reading()
        # The index has no empty ids; the query repeats that condition so that the index is used.
        row = self._connection.one(
            "SELECT record FROM windows WHERE continuation_id = ? AND continuation_id <> ''",
            [continuation_id],
        )
        return None if row is None else read(WindowNode, row[0])

    def priors(self, window_ids: Sequence[str]) -> dict[str, EarlierWindow]:
        """Stored contents of windows, by id; windows without any are left out."""
        self._gate.reading()
        if not window_ids:
            return {}
        texts = dict(
            self._connection.rows(
                'SELECT window_id, prior FROM windows JOIN window_contents USING ("window") '
                f"WHERE window_id {AMONG} AND prior IS NOT NULL",
                [among(window_ids)],
            )
        )
        return {id_: read(EarlierWindow, texts[id_]) for id_ in window_ids if id_ in texts}

    def report(self, window_id: str) -> str | None:
        """A window's report as JSON; None if there is none."""
        self._gate.reading()
        row = self._connection.one(
            'SELECT report FROM windows JOIN window_contents USING ("window") WHERE window_id = ?',
            [window_id],
        )
        return None if row is None or row[0] is None else str(row[0])

    def session_ids(self) -> Iterator[str]:
        """Ids of all sessions, ascending."""
        self._gate.reading()
        return self._pages()

    def withdraw(self, fact_ids: Sequence[str], at: datetime, *, source_id: str = "") -> int:
        """Remove window contents that used some facts, and refuse those of running windows."""
        self._gate.writing()
        self._trim(at)
        self._connection.executemany(
            "INSERT INTO withdrawn_facts (fact_id, withdrawn_at) VALUES (?, ?) "
            "ON CONFLICT (fact_id) DO UPDATE SET withdrawn_at = excluded.withdrawn_at",
            ((id_, sortable(at)) for id_ in fact_ids),
        )
        return empty_windows(self._connection, fact_ids, source_id)

    def has(self, session_id: str) -> bool:
        """Whether a session is stored."""
        self._gate.reading()
        return self._is("sessions", "session_id", session_id)

    def unnamed(self) -> int:
        """Number of readable receipts whose facts are not named."""
        self._gate.reading()
        return unnamed(self._connection)

    def name_facts(self) -> int:
        """Name the facts of these receipts again; return the number of receipts."""
        self._gate.writing()
        return name_facts(self._connection)[0]

    def idle(self, since: datetime) -> list[str]:
        """Ids of the sessions that have not changed since a time, ascending."""
        self._gate.reading()
        rows = self._connection.rows(
            "SELECT session_id FROM sessions WHERE modified_at < ?", [sortable(since)]
        )
        return sorted(id_ for (id_,) in rows)

    def forget(self, session_id: str) -> bool:
        """Remove a session, its windows and their contents; return whether it existed."""
        self._gate.writing()
        forget_texts(self._connection, session_id)
        self._connection.execute("DELETE FROM judge_spending WHERE session_id = ?", [session_id])
        # Windows and their contents are removed by the tables' ON DELETE CASCADE.
        removed = self._connection.execute(
            "DELETE FROM sessions WHERE session_id = ?", [session_id]
        )
        if removed.rowcount:
            note_due(self._connection, WINDOWS_DUE)
        return bool(removed.rowcount)

    def _is(self, table: str, column: str, id_: str) -> bool:
        row = self._connection.one(f"SELECT 1 FROM {table} WHERE {column} = ?", [id_])
        return row is not None

    def _is_overtaken(
        self, made: WindowContent, node: WindowNode, shown_windows: Sequence[str] | None
    ) -> bool:
        """Whether something that the window used was withdrawn while the window was running."""
        # Usually nothing was withdrawn within a day, and the search can be skipped.
        withdrawn = self._connection.one(
            "SELECT 1 FROM withdrawn_facts WHERE withdrawn_at > '' LIMIT 1"
        )
        gone = withdrawn and self._connection.one(
            f"SELECT 1 FROM withdrawn_facts AS gone WHERE fact_id {AMONG} AND NOT EXISTS "
            "(SELECT 1 FROM facts WHERE facts.fact_id = gone.fact_id AND status <> 'DELETED')",
            [among(made.facts)],
        )
        if gone is not None:
            return True
        if shown_windows is None:
            row = self._connection.one(
                f"SELECT 1 FROM windows WHERE window_id {AMONG} AND emptied <> 0",
                [among(node.parents)],
            )
            return row is not None
        wanted = {*shown_windows}
        if not wanted:
            return False
        row = self._connection.one(
            'SELECT count(*) FROM windows JOIN window_contents USING ("window") '
            f"WHERE window_id {AMONG}",
            [among([*wanted])],
        )
        return row is None or row[0] < len(wanted)

    def _trim(self, now: datetime) -> None:
        """Remove withdrawals that are too old to concern a running window."""
        self._connection.execute(
            "DELETE FROM withdrawn_facts WHERE withdrawn_at < ?",
            [sortable(now - UNDER_WAY)],
        )

    def _pages(self) -> Iterator[str]:
        after = ""
        while True:
            self._gate.reading()
            rows = self._connection.rows(
                "SELECT session_id FROM sessions WHERE session_id > ? ORDER BY session_id LIMIT ?",
                [after, PAGE],
            )
            for (id_,) in rows:
                yield id_
                after = id_
            if len(rows) < PAGE:
                return


def problems(connection: Statements) -> Iterator[str]:
    """Session records that cannot be read back, one sentence each; only ids, never a text."""
    looks: tuple[tuple[str, type[Record], str], ...] = (
        ("session", Session, "SELECT session_id, record FROM sessions"),
        ("window", WindowNode, "SELECT window_id, record FROM windows"),
        (
            "what was said by window",
            EarlierWindow,
            'SELECT window_id, prior FROM window_contents JOIN windows USING ("window")',
        ),
    )
    for what, kind, statement in looks:
        key = "session_id" if kind is Session else "window_id"
        rows = pages(connection, f"{statement} WHERE {key} > ? ORDER BY {key} LIMIT ?", "", PAGE)
        wrong = (id_ for page in rows for id_, text in page if not _reads_back(kind, text))
        for id_ in islice(wrong, MAX_SHOWN):
            yield f"{what} {id_!r:.80} does not read back"


def _reads_back(kind: type[Record], text: Any) -> bool:
    try:
        return text is None or read(kind, text) is not None
    except StoreDamaged:
        return False


# A window that began longer ago than this is assumed to have ended.
UNDER_WAY = timedelta(days=1)
# Key that names a fact in every part of a report.
_FACT = "fact_id"


@dataclass(frozen=True, slots=True)
class WindowContent:
    """What a window said, and what it was made from.

    Attributes:
        prior, report: JSON texts, or None.
        facts, sources: ids, ascending.
    """

    prior: str | None
    report: str | None
    facts: tuple[str, ...]
    sources: tuple[str, ...]


def content_of(
    node: WindowNode,
    prior: EarlierWindow | None,
    report: str,
    facts: Sequence[str],
    sources: Sequence[str],
) -> WindowContent | None:
    """A window's content, with every fact that it names; None if there is nothing to store."""
    if prior is None and not report:
        return None
    named = {*facts}
    try:
        if prior is not None:
            named.update(seen.fact_id for seen in prior.facts_seen)
        if report:
            named.update(_named(report))
            report.encode()
        text = None if prior is None else prior.model_dump_json()
    except ValueError as error:
        raise StoreError(
            f"what window {node.window_id!r:.60} said cannot be kept: it is not JSON in UTF-8 "
            f"({type(error).__name__})"
        ) from None
    return WindowContent(text, report or None, tuple(sorted(named)), tuple(sorted({*sources})))


def _read(report: str) -> Any:
    """A report's JSON; values that orjson refuses, such as NaN, are read by `json`."""
    try:
        return orjson.loads(report)
    except ValueError:
        return json.loads(report)


def _named(report: str) -> Iterator[str]:
    """Every fact id in a report, at any depth."""
    waiting = [_read(report)]
    if _FACT not in report and "\\u" not in report:  # not even with escapes
        return
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            id_ = item.get(_FACT)
            if isinstance(id_, str):
                yield id_
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def following(nodes: Iterable[WindowNode], roots: Collection[str]) -> set[str]:
    """Ids of the given windows of a session, and of all their direct and indirect successors."""
    children: dict[str, list[str]] = {}
    for node in nodes:
        for parent in node.parents:
            children.setdefault(parent, []).append(node.window_id)
    window_ids: set[str] = set()
    waiting = [*roots]
    while waiting:
        id_ = waiting.pop()
        if id_ not in window_ids:
            window_ids.add(id_)
            waiting.extend(children.get(id_, ()))
    return window_ids


def check_kept(session: Session, before: Session | None) -> None:
    """Refuse a session state that may not follow the previous one.

    Spec: related facts §8
    """
    if not session.session_id:
        raise StoreError("a session's id is empty; give one of at least one character")
    if before is None or session.reviews > before.reviews:
        return
    if before.ended:
        raise StoreError(f"session {session.session_id!r:.80} has ended; nothing follows it")
    new = round(session.safety_budget, BUDGET_DIGITS)
    old = round(before.safety_budget, BUDGET_DIGITS)
    if new > old:
        raise StoreError(
            f"session {session.session_id!r:.80} has safety budget {old}, which never rises; "
            f"wanted at most that, got {new}"
        )


def check_window(node: WindowNode, *, session_kept: bool, known: bool, continued: bool) -> None:
    """Refuse a window that may not be added."""
    name = f"window {node.window_id!r:.60}"
    if "\0" in node.window_id or not node.window_id:
        raise StoreError(f"{name} has an id that is empty or holds a NUL")
    if not session_kept:
        raise StoreError(f"{name} belongs to session {node.session_id!r:.80}, which is not kept")
    if known:
        raise StoreError(f"{name} is there already; a window is added once")
    if continued:
        raise StoreError(f"{name} has a continuation id that another window has already")


def moment(text: str, what: str) -> datetime:
    """The time that a record contains as text."""
    try:
        parsed: datetime | None = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise StoreError(
            f"{what} has the time {text!r:.40}; wanted ISO 8601 in UTC, such as "
            "2026-05-25T10:00:00Z"
        )
    return parsed.astimezone(UTC)


# Sessions that the given ones were delegated from or to. The inequality repeats an index's
# condition, so that SQLite uses the index.
_NEXT = (
    f"SELECT parent_session FROM sessions WHERE session_id {AMONG} AND parent_session <> '' "
    f"UNION SELECT session_id FROM sessions WHERE parent_session {AMONG} AND parent_session <> ''"
)


def empty_windows(connection: Statements, fact_ids: Sequence[str], source_id: str = "") -> int:
    """Remove window contents that used some facts, in the open transaction; return how many."""
    roots = naming(connection, "window_facts", '"window"', fact_ids, source_id)
    if not roots:
        # A fact may be a candidate of a window that did not show it, and then be in its receipt.
        return len(erase(connection, fact_ids, source_id, ()))
    by_session: dict[str, list[tuple[str, str]]] = {}
    for session_id, window_id, closed_at in connection.rows(
        f'SELECT session_id, window_id, closed_at FROM windows WHERE "window" {AMONG}',
        [Among(roots)],
    ):
        by_session.setdefault(session_id, []).append((window_id, closed_at))
    gone: set[str] = set()
    for session_id, shown in by_session.items():
        own = connection.rows(
            "SELECT window_id, record FROM windows WHERE session_id = ?", [session_id]
        )
        try:
            nodes = [read(WindowNode, text) for _, text in own]
            gone |= following(nodes, [window_id for window_id, _ in shown])
        except StoreDamaged:
            # Without readable records the successors are unknown, so take every window.
            gone.update(window_id for window_id, _ in own)
        first = min(closed_at for _, closed_at in shown)
        for name in _family(connection, session_id):
            others = connection.rows(
                "SELECT window_id FROM windows WHERE session_id = ? AND closed_at >= ?",
                [name, first],
            )
            gone.update(window_id for (window_id,) in others if name != session_id)
    saying = connection.rows(
        'SELECT "window", window_id FROM windows JOIN window_contents USING ("window") '
        f'WHERE window_id {AMONG} ORDER BY "window"',
        [among(sorted(gone))],
    )
    numbers = Among(window for window, _ in saying)
    connection.execute(f'UPDATE windows SET emptied = 1 WHERE "window" {AMONG}', [numbers])
    # The keys of facts and sources are removed by the table's ON DELETE CASCADE.
    connection.execute(f'DELETE FROM window_contents WHERE "window" {AMONG}', [numbers])
    note_due(connection, WINDOWS_DUE)
    taken = {window_id for _, window_id in saying}
    return len(taken | erase(connection, fact_ids, source_id, gone))


def _family(connection: Statements, session_id: str) -> set[str]:
    """A session and all sessions that it was delegated from or to, directly or indirectly."""
    family, new = {session_id}, {session_id}
    while new:
        ids = among(sorted(new))
        new = {id_ for (id_,) in connection.rows(_NEXT, [ids, ids])} - family
        family |= new
    return family
