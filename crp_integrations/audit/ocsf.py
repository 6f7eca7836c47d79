"""A journal as events of the Open Cybersecurity Schema Framework, class 6003 (API Activity).

For a security system that reads OCSF; it is no form in which the chain can be checked. What a
class requires and the journal does not know, as who called from where, is named as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from crp_integrations.audit.exports import ALL, Selection, moment
from crp_integrations.audit.records import Event
from crp_integrations.vocabulary import EventType

SCHEMA_VERSION: Final = "1.5.0"
CATEGORY: Final = 6
CLASS: Final = 6003
PRODUCT: Final = "crp-integrations"
UNKNOWN: Final = "Unknown"
OTHER: Final = 99
# Required or recommended by the class, and not recorded by the journal.
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


def ocsf(
    events: Iterable[Event], selection: Selection = ALL, *, version: str = ""
) -> Iterator[str]:
    """A line for each event that is selected, without its end; the others leave nothing.

    Spec: related facts §5

    Args:
        events: of the journal, in order.
        version: of this package, for `metadata.product`.
    """
    for event in events:
        if selection.takes(event):
            yield json.dumps(mapped(event, version=version), separators=(",", ":"))


def mapped(event: Event, *, version: str = "") -> dict[str, Any]:
    """One event as an object of class 6003.

    Spec: related facts §5
    """
    activity = _ACTIVITY.get(event.event_type, OTHER)
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
        "category_uid": CATEGORY,
        "category_name": "Application Activity",
        "class_uid": CLASS,
        "class_name": "API Activity",
        "type_uid": CLASS * 100 + activity,
        "time": int(moment(event.timestamp).timestamp() * 1000),
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
