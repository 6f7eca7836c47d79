"""What both stores make of a session and of what a window said, in the same words."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from crp_integrations.envelope.records import PriorWindow
from crp_integrations.errors import StoreError
from crp_integrations.session.records import BUDGET_DIGITS, Session, WindowNode

# A window that began longer ago than this is not waited for: what it shows is known by then.
UNDER_WAY = timedelta(days=1)
# Under this name every part of a report names a fact.
_FACT = "fact_id"
_IDS = re.compile(rf'"{_FACT}"\s*:\s*("(?:[^"\\]|\\.)*")')
# Begins a character that is written as its number.
_ESCAPED = "\\u"


@dataclass(frozen=True, slots=True)
class Said:
    """What a window said, and what it came from.

    Attributes:
        prior, report: as JSON; None for none.
        facts, sources: ids, ascending.
    """

    prior: str | None
    report: str | None
    facts: tuple[str, ...]
    sources: tuple[str, ...]


def said(
    node: WindowNode,
    prior: PriorWindow | None,
    report: str,
    facts: Sequence[str],
    sources: Sequence[str],
) -> Said | None:
    """What a window said, with every fact that it names; None when nothing is to be kept.

    Raises:
        StoreError: the report is not JSON, or a text cannot be written as UTF-8.
    """
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
    return Said(text, report or None, tuple(sorted(named)), tuple(sorted({*sources})))


def _read(report: str) -> Any:
    """A report's JSON; what the fast reader refuses, such as NaN, the general one may take."""
    try:
        return orjson.loads(report)
    except ValueError:
        return json.loads(report)


def _named(report: str) -> Iterable[str]:
    """Every fact id anywhere in a report.

    Raises:
        ValueError: it is no JSON.
    """
    value = _read(report)
    if _ESCAPED in report:
        # The word itself may be written otherwise.
        return _walked(value)
    # In JSON a word within quotation marks before a colon is a key, wherever it stands.
    return [json.loads(found) if "\\" in found else found[1:-1] for found in _IDS.findall(report)]


def _walked(value: Any) -> Iterator[str]:
    """Every fact id anywhere in a report that was read."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            id_ = one.get(_FACT)
            if isinstance(id_, str):
                yield id_
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def following(nodes: Iterable[WindowNode], roots: Collection[str]) -> set[str]:
    """Ids of some windows of a session, and of all that follow them, near and far."""
    children: dict[str, list[str]] = {}
    for node in nodes:
        for parent in node.parents:
            children.setdefault(parent, []).append(node.window_id)
    found: set[str] = set()
    waiting = [*roots]
    while waiting:
        id_ = waiting.pop()
        if id_ not in found:
            found.add(id_)
            waiting.extend(children.get(id_, ()))
    return found


def check_kept(session: Session, kept: Session | None) -> None:
    """Refuse a state that may not follow the one that is kept.

    Spec: related facts §8

    Raises:
        StoreError: names the session and both values.
    """
    if not session.session_id:
        raise StoreError("a session's id is empty; give one of at least one character")
    if kept is None:
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
    """Refuse a window that may not be added.

    Args:
        kept: whether its session is kept.
        known: whether there is a window of its id.
        continued: whether another window has its continuation id.

    Raises:
        StoreError: names the window and why.
    """
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
    """A time as the records print it.

    Args:
        what: whose time, for the message.

    Raises:
        StoreError: it is no ISO 8601 moment with a zone.
    """
    try:
        found: datetime | None = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise StoreError(
            f"{what} has the time {text!r:.40}; wanted ISO 8601 in UTC, such as "
            "2026-05-25T10:00:00Z"
        )
    return found.astimezone(UTC)
