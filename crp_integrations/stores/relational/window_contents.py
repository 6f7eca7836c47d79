"""What a window said: what is kept of it, and how it goes with the facts that it came from."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.errors import StoreDamaged, StoreError
from crp_integrations.session.records import BUDGET_DIGITS, Session, WindowNode
from crp_integrations.stores.relational import fact_references
from crp_integrations.stores.relational.receipts import erase
from crp_integrations.stores.relational.rows import read
from crp_integrations.stores.rules import AMONG, WINDOWS_DUE, Among, Statements, among, note_due

# A window that began longer ago than this is not waited for: what it shows is known by then.
UNDER_WAY = timedelta(days=1)
# Under this name every part of a report names a fact.
_FACT = "fact_id"
_IDS = re.compile(rf'"{_FACT}"\s*:\s*("(?:[^"\\]|\\.)*")')
# Begins a character that is written as its number.
_ESCAPED = "\\u"


@dataclass(frozen=True, slots=True)
class WindowContent:
    """What a window said, and what it came from.

    Attributes:
        prior, report: as JSON; None for none.
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
    """What a window said, with every fact that it names; None when nothing is to be kept."""
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
            f"what window {node.window_id!r:.60} said cannot be kept: it is no JSON in UTF-8 "
            f"({type(error).__name__})"
        ) from None
    return WindowContent(text, report or None, tuple(sorted(named)), tuple(sorted({*sources})))


def _read(report: str) -> Any:
    """A report's JSON; what the fast reader refuses, such as NaN, the general one may take."""
    try:
        return orjson.loads(report)
    except ValueError:
        return json.loads(report)


def _named(report: str) -> Iterable[str]:
    """Every fact id anywhere in a report."""
    value = _read(report)
    if _ESCAPED in report:
        # The key itself may be written with escapes.
        return _walked(value)
    # In JSON a word within quotation marks before a colon is a key, wherever it stands.
    return [
        json.loads(quoted) if "\\" in quoted else quoted[1:-1] for quoted in _IDS.findall(report)
    ]


def _walked(value: Any) -> Iterator[str]:
    """Every fact id anywhere in a report that was read."""
    waiting = [value]
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
    """Ids of some windows of a session, and of all that follow them, near and far."""
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


def check_kept(session: Session, kept: Session | None) -> None:
    """Refuse a state that may not follow the one that is kept.

    Spec: related facts §8
    """
    if not session.session_id:
        raise StoreError("a session's id is empty; give one of at least one character")
    if kept is None or session.reviews > kept.reviews:
        return
    if kept.ended:
        raise StoreError(f"session {session.session_id!r:.80} has ended; nothing follows it")
    new = round(session.safety_budget, BUDGET_DIGITS)
    old = round(kept.safety_budget, BUDGET_DIGITS)
    if new > old:
        raise StoreError(
            f"session {session.session_id!r:.80} has safety budget {old}, which never rises; "
            f"wanted at most that, got {new}"
        )


def check_window(node: WindowNode, *, kept: bool, known: bool, continued: bool) -> None:
    """Refuse a window that may not be added."""
    name = f"window {node.window_id!r:.60}"
    if "\0" in node.window_id or not node.window_id:
        raise StoreError(f"{name} has an id that is empty or holds a NUL")
    if not kept:
        raise StoreError(f"{name} is of session {node.session_id!r:.80}, which is not kept")
    if known:
        raise StoreError(f"{name} is there already; a window is added once")
    if continued:
        raise StoreError(f"{name} has a continuation id that another window has already")


def moment(text: str, what: str) -> datetime:
    """A time as the records print it."""
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


# Sessions that some were delegated from, and those delegated to. With the inequality SQLite finds
# the latter in an index.
_NEXT = (
    f"SELECT parent_session FROM sessions WHERE session_id {AMONG} AND parent_session <> '' "
    f"UNION SELECT session_id FROM sessions WHERE parent_session {AMONG} AND parent_session <> ''"
)


def empty_windows(connection: Statements, fact_ids: Sequence[str], source_id: str = "") -> int:
    """Remove what windows said with some facts, within the open transaction."""
    fact_references.spread(connection, fact_references.WINDOWS)
    roots = connection.rows(
        f'SELECT "window" FROM window_facts WHERE fact_id {AMONG} '
        'UNION SELECT "window" FROM window_sources WHERE source_id = ?',
        [among(fact_ids), source_id],
    )
    wanted = {*fact_ids}
    roots += [
        (references.number,)
        for references in fact_references.left(connection, fact_references.WINDOWS)
        # What a damaged row names is unknown, so the erasure takes its window too.
        if references.damaged
        or source_id in references.sources
        or not wanted.isdisjoint(references.facts)
    ]
    if not roots:
        # A fact may be a candidate of a window that did not show it.
        return len(erase(connection, fact_ids, source_id, ()))
    by_session: dict[str, list[tuple[str, str]]] = {}
    for session_id, window_id, closed_at in connection.rows(
        f'SELECT session_id, window_id, closed_at FROM windows WHERE "window" {AMONG}',
        [Among(window for (window,) in roots)],
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
            # What follows what is unknown, so the erasure takes every window of the session.
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
    # The ids that the contents came from go with them, see the tables.
    connection.execute(f'DELETE FROM window_contents WHERE "window" {AMONG}', [numbers])
    note_due(connection, WINDOWS_DUE)
    taken = {window_id for _, window_id in saying}
    return len(taken | erase(connection, fact_ids, source_id, gone))


def _family(connection: Statements, session_id: str) -> set[str]:
    """A session with all sessions that it was delegated from or to, directly or through others."""
    family, new = {session_id}, {session_id}
    while new:
        ids = among(sorted(new))
        new = {id_ for (id_,) in connection.rows(_NEXT, [ids, ids])} - family
        family |= new
    return family
