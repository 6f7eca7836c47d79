"""Events of the journal and the seals of windows. Ids and hashes enter, content never."""

from __future__ import annotations

from typing import Any

from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import EventType


class Event(Record):
    """One entry of the journal, chained to the one before.

    Attributes:
        seq: place in the namespace's journal, from 1 without gaps.
        timestamp: ISO 8601 in UTC.
        data: ids, hashes and counts; never a fact's or an answer's text.
        hmac: `sha256:…` over type, timestamp, data, window and the previous event's HMAC.
    """

    SCHEMA = "event/1"

    seq: int
    event_type: EventType
    timestamp: str
    session_id: str = ""
    window_id: str = ""
    data: dict[str, Any] = {}
    hmac: str


class Stub(Part):
    """What stays of an event that was left out or erased: its HMAC, so that the chain goes on."""

    hmac: str


class WindowSeal(Record):
    """The HMAC record with which every window ends, also a failed one.

    Spec: CRP-SPEC-005 §15.1

    Attributes:
        window_number: from 1; windows of one fan-out share a number.
        parent_hmac: the HMAC of the window that it follows, empty for the first; of several, their
            HMACs in ascending order, joined with `|`.
        outcome: `released`, `failed`, `cancelled`, `refused` or `halted`.
    """

    SCHEMA = "window-seal/1"

    session_id: str
    window_id: str
    window_number: int
    timestamp: str
    response_hash: str
    report_hash: str
    parent_hmac: str
    hmac: str
    outcome: str = "released"
    etag: str = ""
    risk_level: str = ""
