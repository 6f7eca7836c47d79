"""Exports of a journal as JSON lines, which can be read back, or as OCSF events for a SIEM.

Each line is one event, in order; a left-out event keeps its HMAC, so that anyone with the key can
check the chain elsewhere. Events are processed one at a time. The chain cannot be checked in OCSF
events (class 6003, API Activity); fields that the class requires and the journal does not record,
such as the caller and its address, are marked as unknown.

Spec: related facts §5
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
class ExportSelection:
    """Filters that choose the events of an export; empty filters choose all."""

    session_id: str = ""
    window_id: str = ""
    since: datetime | None = None
    until: datetime | None = None
    types: frozenset[EventType] = frozenset()

    def __post_init__(self) -> None:
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise RequestError(f"{name} {moment.isoformat()} has no time zone, such as Z")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise RequestError(
                f"since {self.since.isoformat()} is not before until {self.until.isoformat()}, so "
                "nothing lies between them"
            )

    def takes(self, event: Event) -> bool:
        """Whether an event is exported."""
        if self.session_id and event.session_id != self.session_id:
            return False
        if self.window_id and event.window_id != self.window_id:
            return False
        if self.types and event.event_type not in self.types:
            return False
        if self.since is None and self.until is None:
            return True
        at = parse_moment(event.timestamp)
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


ALL: Final = ExportSelection()
_TIME = "2026-05-25T00:00:00Z"


def parse_moment(timestamp: str) -> datetime:
    """Parse the time of an event."""
    try:
        at = datetime.fromisoformat(timestamp)
    except ValueError:
        raise RequestError(f"time {timestamp!r:.60} is not ISO 8601, such as {_TIME}") from None
    if at.tzinfo is None:
        raise RequestError(f"time {timestamp!r:.60} has no time zone; wanted one such as {_TIME}")
    return at


def write_ndjson(events: Iterable[Event], selection: ExportSelection = ALL) -> Iterator[str]:
    """One line for each event, without line feed; a left-out event has only its HMAC."""
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


def read_ndjson(lines: Iterable[str]) -> Iterator[Event | Stub]:
    """Read the events and stubs of an export, which `trail.verify_events` checks."""
    for index, line in enumerate(lines):
        try:
            fields = json.loads(line, object_pairs_hook=_unique_keys)
            if not isinstance(fields, dict) or fields.keys() != set(KEYS):
                raise ValueError
            if all(fields[name] is None for name in KEYS[:-1]):
                yield Stub.model_validate({"hmac": fields["hmac"]})
            else:
                yield Event.model_validate({"seq": index + 1, **fields})
        except (ValueError, RecursionError, ValidationError):
            raise ChainBroken(f"line {index + 1} is not an exported event", index=index) from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; refuses repeated keys, since parsers differ on which value they use."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError
    return fields


SCHEMA_VERSION: Final = "1.5.0"
OCSF_CATEGORY: Final = 6
OCSF_CLASS: Final = 6003
PRODUCT: Final = "crp-integrations"
UNKNOWN: Final = "Unknown"
OTHER_ACTIVITY: Final = 99
# Fields that the class requires or recommends and the journal does not record.
NOT_KNOWN: Final = ("actor.user", "src_endpoint")

_ACTIVITY: Final[dict[EventType, int]] = {
    **dict.fromkeys(
        (EventType.SESSION_CREATED, EventType.FACT_INGESTED, EventType.FAN_OUT_CREATED), 1
    ),
    **dict.fromkeys(
        (EventType.FACT_RETRIEVED, EventType.DISPATCH_STARTED, EventType.DISPATCH_COMPLETED), 2
    ),
    **dict.fromkeys(
        (
            EventType.SESSION_CONTINUED,
            EventType.FACT_QUARANTINED,
            EventType.CKF_ETAG_CHANGED,
            EventType.FAN_IN_MERGED,
        ),
        3,
    ),
    **dict.fromkeys((EventType.FACT_DELETED, EventType.SESSION_TERMINATED), 4),
}
_ACTIVITY_NAME: Final = {1: "Create", 2: "Read", 3: "Update", 4: "Delete"}
_SEVERITY: Final[dict[EventType, int]] = {
    **dict.fromkeys(
        (
            EventType.DISPATCH_FAILED,
            EventType.RE_DISPATCH,
            EventType.ANSWER_REPAIRED,
            EventType.STRATEGY_UPGRADE,
            EventType.REPETITION_DETECTED,
            EventType.COMPLETENESS_GAP,
            EventType.FLOW_REMEDIATION,
            EventType.STOP_INJECT,
        ),
        2,
    ),
    **dict.fromkeys(
        (
            EventType.FABRICATION_DETECTED,
            EventType.DISTORTION_DETECTED,
            EventType.CONTRADICTION_DETECTED,
            EventType.PII_DETECTED,
            EventType.OVERSIGHT_TRIGGERED,
            EventType.FACT_QUARANTINED,
        ),
        3,
    ),
    **dict.fromkeys(
        (
            EventType.POLICY_VIOLATION,
            EventType.SAFETY_HALT,
            EventType.SAFETY_BUDGET_DEPLETED,
        ),
        4,
    ),
}
_SEVERITY_NAME: Final = {1: "Informational", 2: "Low", 3: "Medium", 4: "High"}
_FAILED: Final = frozenset({"failed", "cancelled", "refused", "halted"})


def write_ocsf(
    events: Iterable[Event], selection: ExportSelection = ALL, *, version: str = ""
) -> Iterator[str]:
    """One line for each selected event, without line feed; other events are skipped."""
    for event in events:
        if selection.takes(event):
            yield json.dumps(map_to_ocsf(event, version=version), separators=(",", ":"))


def map_to_ocsf(event: Event, *, version: str = "") -> dict[str, Any]:
    """Convert an event to an OCSF object of class 6003."""
    activity = _ACTIVITY.get(event.event_type, OTHER_ACTIVITY)
    severity = _SEVERITY.get(event.event_type, 1)
    failed = event.event_type is EventType.DISPATCH_FAILED or event.data.get("outcome") in _FAILED
    product = {"name": PRODUCT, "vendor_name": PRODUCT, **({"version": version} if version else {})}
    api: dict[str, Any] = {"operation": event.event_type.value, "service": {"name": "crp"}}
    if event.window_id:
        api["request"] = {"uid": event.window_id}
    actor: dict[str, Any] = {
        "app_name": PRODUCT,
        "user": {"name": UNKNOWN, "type_id": 0, "type": UNKNOWN},
    }
    metadata: dict[str, Any] = {
        "version": SCHEMA_VERSION,
        "product": product,
        "uid": event.hmac,
        "event_code": event.event_type.value,
        "sequence": event.seq,
        "original_time": event.timestamp,
    }
    if event.session_id:
        actor["session"] = {"uid": event.session_id}
        metadata["correlation_uid"] = event.session_id
    return {
        "activity_id": activity,
        "activity_name": _ACTIVITY_NAME.get(activity, event.event_type.value),
        "category_uid": OCSF_CATEGORY,
        "category_name": "Application Activity",
        "class_uid": OCSF_CLASS,
        "class_name": "API Activity",
        "type_uid": OCSF_CLASS * 100 + activity,
        "time": int(parse_moment(event.timestamp).timestamp() * 1000),
        "severity_id": severity,
        "severity": _SEVERITY_NAME[severity],
        "status_id": 2 if failed else 1,
        "status": "Failure" if failed else "Success",
        "metadata": metadata,
        "actor": actor,
        "api": api,
        "src_endpoint": {"name": UNKNOWN},
        "unmapped": {"data": event.data, "hmac": event.hmac, "not_known": list(NOT_KNOWN)},
    }
