"""Drawing what `crp audit` found: ids, hashes, counts and words, which is all there is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import typer
from rich.table import Column, Table
from rich.text import Text

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.audit.trail import AuditTrail
from crp_integrations.audit.window_seals import parents_of
from crp_integrations.cli.show import many, plain, terminal

# So many digits of a hash tell it from the others of a session.
DIGITS = 12
_LONGEST = 60
# What every event says, and what the table of windows says already.
_ELSEWHERE = frozenset(
    {"session_id", "window_hmac", "window_number", "outcome", "parent_hmac", "response_hash"}
) | {"report_hash", "risk_level"}


def fields(trail: AuditTrail) -> dict[str, Any]:
    """A trail for a program."""
    return {
        "state": trail.state,
        "events": trail.events,
        "windows": trail.windows,
        "sessions": trail.sessions,
        "left_out": trail.left_out,
        "tip": trail.tip,
    }


def verified(trail: AuditTrail) -> None:
    """What was checked, and the tip to be noted elsewhere."""
    counts = (
        f"{many(trail.events, 'event')}, {many(trail.windows, 'window')} and "
        f"{many(trail.sessions, 'session')} checked: {trail.state}"
    )
    lines = [counts, f"tip {trail.tip or 'none'}"]
    if trail.left_out:
        lines.insert(1, f"{many(trail.left_out, 'event')} left out, of which there is the HMAC")
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


# `crp_sess_` and at most 32 letters and digits.
SESSION_WIDTH = 41


def sessions(seals: Iterable[WindowSeal]) -> None:
    """Which sessions there are, one line each."""
    # Whole, so that it can be handed to `crp audit show`.
    whole = Column("Session", no_wrap=True, min_width=SESSION_WIDTH)
    table = Table(whole, "Windows", "First", "Last", title="Sessions", title_justify="left")
    for one in _spans(seals):
        table.add_row(*(Text(plain(str(cell))) for cell in one.values()))
    terminal().print(table if table.row_count else Text("no session was sealed in this store"))


def sessions_json(seals: Iterable[WindowSeal]) -> None:
    """The same as one JSON document: a list with an object for each session."""
    typer.echo(json.dumps(list(_spans(seals)), indent=2))


def session_json(session_id: str, seals: Sequence[WindowSeal], events: Sequence[Event]) -> None:
    """A session's windows and events as one JSON document."""
    found = {
        "session_id": session_id,
        "windows": [seal.model_dump(mode="json") for seal in seals],
        "events": [event.model_dump(mode="json") for event in events],
    }
    typer.echo(json.dumps(found, indent=2))


def _spans(seals: Iterable[WindowSeal]) -> Iterator[dict[str, str | int]]:
    """Of each session how many windows were sealed, and the times of the first and last."""
    for session_id, group in groupby(seals, key=lambda seal: seal.session_id):
        times = [seal.timestamp for seal in group]
        yield {
            "session_id": session_id,
            "windows": len(times),
            "first": min(times),
            "last": max(times),
        }


def session(session_id: str, seals: Sequence[WindowSeal], events: Sequence[Event]) -> None:
    """A session's windows and events, as two tables."""
    numbers = {seal.hmac: seal.window_number for seal in seals}
    windows = Table(
        "No.", "Window", "Time", "Outcome", "Risk", "Follows", "HMAC", title="Windows",
        title_justify="left",
    )  # fmt: skip
    for seal in seals:
        follows = [str(numbers.get(hmac, "?")) for hmac in parents_of(seal)]
        cells = (
            str(seal.window_number),
            seal.window_id,
            seal.timestamp,
            seal.outcome,
            seal.risk_level,
            ", ".join(follows),
            _short(seal.hmac),
        )
        windows.add_row(*(Text(plain(cell)) for cell in cells))
    told = Table("Seq", "Event", "Window", "Says", title="Events", title_justify="left")
    for event in events:
        row = (str(event.seq), event.event_type.value, event.window_id, _says(event))
        told.add_row(*(Text(plain(cell, whole=True)) for cell in row))
    terminal().print(Text(plain(session_id)), windows, told)


def _says(event: Event) -> str:
    said = []
    for name, value in event.data.items():
        if name in _ELSEWHERE or value in ("", []):
            continue
        if isinstance(value, list) and len(value) > 1:
            said.append(f"{name}: {len(value)}")
        else:
            shown = value[0] if isinstance(value, list) else value
            text = shown if isinstance(shown, str) else json.dumps(shown)
            said.append(f"{name}: {_short(text)}")
    return ", ".join(said)


def _short(text: str) -> str:
    """A hash by its first digits; other text up to a length."""
    hashed = text.removeprefix("sha256:")
    return hashed[:DIGITS] if hashed != text else text[:_LONGEST]
