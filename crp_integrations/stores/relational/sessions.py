"""The sessions facet over one connection."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.errors import StoreDamaged
from crp_integrations.records import Record
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.stores import rules
from crp_integrations.stores.relational import fact_references, window_contents
from crp_integrations.stores.relational.receipts import forget as forget_texts
from crp_integrations.stores.relational.rows import read, sortable
from crp_integrations.stores.rules import AMONG, SHOWN, WINDOWS_DUE, Statements, among, note_due

# Ids read at a time.
PAGE = 1_000
# The rowid is given by SQLite.
ADD_WINDOW = (
    "INSERT INTO windows (window_id, session_id, window_number, continuation_id, closed_at, "
    "record) VALUES (?, ?, ?, ?, ?, ?)"
)

ADD_CONTENT = 'INSERT INTO window_contents ("window", padding, prior, report) VALUES (?, ?, ?, ?)'


class RelationalSessions:
    """Sessions, windows and what they said, of one namespace."""

    def __init__(self, connection: Statements, gate: rules.TransactionGate) -> None:
        self._connection = connection
        self._gate = gate

    def session(self, session_id: str) -> Session | None:
        """A session's state; None for one that is not known."""
        self._gate.reading()
        row = self._connection.one("SELECT record FROM sessions WHERE session_id = ?", [session_id])
        return None if row is None else read(Session, row[0])

    def keep(self, session: Session) -> None:
        """Keep a session's state; replaces that of the same id."""
        self._gate.writing()
        window_contents.check_kept(session, self.session(session.session_id))
        modified_at = window_contents.moment(
            session.modified_at, f"session {session.session_id!r:.60}"
        )
        # Not replaced as a whole: its windows would go with the row.
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
        given: Sequence[str] | None = None,
    ) -> None:
        """Add a window of a session that is kept."""
        self._gate.writing()
        window_contents.check_window(
            node,
            kept=self.has(node.session_id),
            known=self._is("windows", "window_id", node.window_id),
            continued=self.continued(node.continuation_id) is not None,
        )
        closed_at = window_contents.moment(node.timestamp, f"window {node.window_id!r:.60}")
        made = window_contents.content_of(node, prior, report, facts, sources)
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
        if made is None or self._is_overtaken(made, node, given):
            return
        self._connection.execute(
            ADD_CONTENT, [window, self._connection.padding, made.prior, made.report]
        )
        own = self._connection.rows(
            f"SELECT DISTINCT source_id FROM facts WHERE fact_id {AMONG}", [among(made.facts)]
        )
        named = {id_ for (id_,) in own if id_} | {*made.sources}
        fact_references.keep(
            self._connection,
            fact_references.WINDOWS,
            fact_references.References(window or 0, made.facts, tuple(sorted(named))),
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
        """The window that an id continues."""
        self._gate.reading()
        # The index holds no empty ids, and only a query that says so uses it.
        row = self._connection.one(
            "SELECT record FROM windows WHERE continuation_id = ? AND continuation_id <> ''",
            [continuation_id],
        )
        return None if row is None else read(WindowNode, row[0])

    def priors(self, window_ids: Sequence[str]) -> dict[str, EarlierWindow]:
        """What is kept of windows, by id; those of which nothing is kept are left out."""
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
        """A window's report as JSON; None where none is kept."""
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
        """Remove what windows said with some facts, and keep nothing of what is on its way."""
        self._gate.writing()
        self._trim(at)
        self._connection.executemany(
            "INSERT INTO withdrawn_facts (fact_id, withdrawn_at) VALUES (?, ?) "
            "ON CONFLICT (fact_id) DO UPDATE SET withdrawn_at = excluded.withdrawn_at",
            ((id_, sortable(at)) for id_ in fact_ids),
        )
        return window_contents.empty_windows(self._connection, fact_ids, source_id)

    def has(self, session_id: str) -> bool:
        """Whether a session is kept."""
        self._gate.reading()
        return self._is("sessions", "session_id", session_id)

    def idle(self, since: datetime) -> list[str]:
        """Ids of the sessions that have not changed since a moment, ascending."""
        self._gate.reading()
        rows = self._connection.rows(
            "SELECT session_id FROM sessions WHERE modified_at < ?", [sortable(since)]
        )
        return sorted(id_ for (id_,) in rows)

    def forget(self, session_id: str) -> bool:
        """Remove a session, its windows and all that they said; whether there was one."""
        self._gate.writing()
        forget_texts(self._connection, session_id)
        # Windows and what they said go with their session, see the tables.
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
        self, made: window_contents.WindowContent, node: WindowNode, given: Sequence[str] | None
    ) -> bool:
        """Whether something that the window came from was withdrawn while it was under way."""
        # Mostly nothing was withdrawn within a day, and then there is nothing to look for.
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
        if given is None:
            row = self._connection.one(
                f"SELECT 1 FROM windows WHERE window_id {AMONG} AND emptied <> 0",
                [among(node.parents)],
            )
            return row is not None
        wanted = {*given}
        if not wanted:
            return False
        row = self._connection.one(
            'SELECT count(*) FROM windows JOIN window_contents USING ("window") '
            f"WHERE window_id {AMONG}",
            [among([*wanted])],
        )
        return row is None or row[0] < len(wanted)

    def _trim(self, now: datetime) -> None:
        """Forget withdrawals that no window under way can have missed."""
        self._connection.execute(
            "DELETE FROM withdrawn_facts WHERE withdrawn_at < ?",
            [sortable(now - window_contents.UNDER_WAY)],
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
    """What of sessions does not read back, one sentence each; ids alone, never a text."""
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
        after, wrong = "", 0
        while wrong < SHOWN:
            part = connection.rows(
                f"{statement} WHERE {key} > ? ORDER BY {key} LIMIT ?", [after, PAGE]
            )
            if not part:
                break
            after = part[-1][0]
            for id_, text in part:
                try:
                    if text is not None:
                        read(kind, text)
                except StoreDamaged:
                    wrong += 1
                    yield f"{what} {id_!r:.80} does not read back"
