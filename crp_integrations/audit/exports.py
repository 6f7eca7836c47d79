"""A journal as lines of JSON, and back, so that anybody with the key can check it elsewhere.

One event a line, in order; an event that is left out keeps its HMAC. Nothing is held but the
event at hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from crp_integrations.audit.records import Event, Stub
from crp_integrations.errors import ChainBroken, RequestError
from crp_integrations.vocabulary import EventType

KEYS: Final = ("event_type", "timestamp", "session_id", "window_id", "data", "hmac")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events an export shows; what is not given chooses nothing out.

    Attributes:
        since, until: from this moment on, and before that one; aware.
        types: the types that are shown; all for none.
    """

    session_id: str = ""
    window_id: str = ""
    since: datetime | None = None
    until: datetime | None = None
    types: frozenset[EventType] = frozenset()

    def __post_init__(self) -> None:
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise RequestError(f"{name} {moment.isoformat()} has no zone; add one, such as Z")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise RequestError(
                f"since {self.since.isoformat()} is not before until {self.until.isoformat()}, so "
                "nothing lies between them"
            )

    def takes(self, event: Event) -> bool:
        """Whether an event is shown."""
        if self.session_id and event.session_id != self.session_id:
            return False
        if self.window_id and event.window_id != self.window_id:
            return False
        if self.types and event.event_type not in self.types:
            return False
        if self.since is None and self.until is None:
            return True
        at = moment(event.timestamp)
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


ALL: Final = Selection()
_TIME = "2026-05-25T00:00:00Z"


def moment(timestamp: str) -> datetime:
    """The moment of an event.

    Raises:
        RequestError: it is not ISO 8601 with a zone.
    """
    try:
        at = datetime.fromisoformat(timestamp)
    except ValueError:
        raise RequestError(f"time {timestamp!r:.60} is not ISO 8601, such as {_TIME}") from None
    if at.tzinfo is None:
        raise RequestError(f"time {timestamp!r:.60} has no zone; wanted one such as {_TIME}")
    return at


def ndjson(events: Iterable[Event], selection: Selection = ALL) -> Iterator[str]:
    """A line for each event, without its end; a stub with nothing but an HMAC for one left out.

    Spec: related facts §5

    Args:
        events: the journal from its beginning, in order.
    """
    for event in events:
        shown: dict[str, Any] = dict.fromkeys(KEYS)
        if selection.takes(event):
            shown = {
                "event_type": event.event_type.value,
                "timestamp": event.timestamp,
                "session_id": event.session_id,
                "window_id": event.window_id,
                "data": event.data,
            }
        yield json.dumps({**shown, "hmac": event.hmac}, separators=(",", ":"))


def read(lines: Iterable[str]) -> Iterator[Event | Stub]:
    """The events and stubs of an export, to be verified by `trail.verify_events`.

    Spec: related facts §5

    Args:
        lines: with or without their ends; an event's place is its line's.

    Raises:
        ChainBroken: a line is no event; carries its index.
    """
    for index, line in enumerate(lines):
        try:
            told = json.loads(line, object_pairs_hook=_once)
            if not isinstance(told, dict) or told.keys() != set(KEYS):
                raise ValueError
            if all(told[name] is None for name in KEYS[:-1]):
                yield Stub.model_validate({"hmac": told["hmac"]})
            else:
                yield Event.model_validate({"seq": index + 1, **told})
        except (ValueError, RecursionError, ValidationError):
            raise ChainBroken(f"line {index + 1} is no event of an export", index=index) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that names nothing twice, of which a reader might see another than is verified."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found
