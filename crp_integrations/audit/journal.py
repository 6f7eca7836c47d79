"""The journal: every event of a namespace, each chained to the one before.

The seal's formula covers type, timestamp, data, window and the previous HMAC. A session's id is
written into the data as well, so that it is covered too; the place in the journal is covered by
counting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crp_integrations.audit.ports import JournalFacet
from crp_integrations.audit.records import Event
from crp_integrations.errors import ChainBroken, StoreError
from crp_integrations.seals import canonical, event_hmac, same
from crp_integrations.vocabulary import EventType

SESSION_FIELD = "session_id"


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event before it has a place, a time and a seal.

    Attributes:
        data: ids, hashes and counts, JSON-like; `session_id` in it belongs to the journal.
        session_id, window_id: empty when the event belongs to none.
    """

    event_type: EventType
    data: Mapping[str, Any]
    session_id: str = ""
    window_id: str = ""


def append(
    journal: JournalFacet, key: bytes, drafts: Sequence[EventDraft], timestamp: str
) -> list[Event]:
    """Seal drafts in their order and add them behind the journal's tip.

    Spec: related facts §5

    Args:
        key: the namespace's journal key, 32 bytes.
        timestamp: ISO 8601 in UTC, the same for all of them.

    Returns:
        The events as stored.

    Raises:
        StoreError: a draft's data is not JSON or names another session than the draft.
    """
    tip = journal.tip()
    seq, previous = (tip.seq, tip.hmac) if tip else (0, "")
    events: list[Event] = []
    for draft in drafts:
        data = dict(draft.data)
        if data.setdefault(SESSION_FIELD, draft.session_id) != draft.session_id:
            raise StoreError(
                f"event {draft.event_type} of session {draft.session_id!r} names session "
                f"{data[SESSION_FIELD]!r} in its data"
            )
        if not draft.session_id:
            del data[SESSION_FIELD]
        try:
            # As it reads back from a store: plain JSON, and nobody else's.
            data = json.loads(canonical(data))
            seal = event_hmac(
                key,
                event_type=draft.event_type.value,
                timestamp=timestamp,
                data=data,
                window_id=draft.window_id,
                previous_hmac=previous,
            )
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"data of event {draft.event_type} cannot be written as canonical JSON: {error}"
            ) from error
        seq, previous = seq + 1, seal
        events.append(
            Event(
                seq=seq,
                event_type=draft.event_type,
                timestamp=timestamp,
                session_id=draft.session_id,
                window_id=draft.window_id,
                data=data,
                hmac=seal,
            )
        )
    journal.append(events)
    return events


def sealed_with(journal: JournalFacet, key: bytes) -> bool:
    """Whether a journal was sealed with this key, by its first and its last event.

    A journal in which one of the two verifies has the right key; what else may be wrong with
    it, `verify` finds. An empty journal goes with every key.

    Args:
        key: the namespace's journal key, 32 bytes.
    """
    tip = journal.tip()
    if tip is None:
        return True
    first = next(iter(journal.events()))
    if _fits(first, "", key):
        return True
    *before, last = journal.events(after=tip.seq - 2)
    return _fits(last, before[-1].hmac if before else "", key)


def verify(events: Iterable[Event], key: bytes) -> int:
    """Check a whole journal from its first event on.

    Spec: related facts §5

    Args:
        events: in order, the first with `seq` 1.
        key: the namespace's journal key, 32 bytes.

    Returns:
        The number of events.

    Raises:
        ChainBroken: an event was changed, left out, added or moved; carries its index.
    """
    count, previous = 0, ""
    for index, event in enumerate(events):
        _check(event, index, previous, key)
        count, previous = index + 1, event.hmac
    return count


def _check(event: Event, index: int, previous: str, key: bytes) -> None:
    if event.seq != index + 1:
        raise ChainBroken(f"event {index} has seq {event.seq}, wanted {index + 1}", index=index)
    if event.data.get(SESSION_FIELD, "") != event.session_id:
        raise ChainBroken(f"event {event.seq} was moved to another session", index=index)
    if not _fits(event, previous, key):
        raise ChainBroken(f"the HMAC of event {event.seq} does not match", index=index)


def _fits(event: Event, previous: str, key: bytes) -> bool:
    """Whether an event's seal is that of its content behind the previous HMAC."""
    try:
        wanted = event_hmac(
            key,
            event_type=event.event_type.value,
            timestamp=event.timestamp,
            data=event.data,
            window_id=event.window_id,
            previous_hmac=previous,
        )
    except (TypeError, ValueError):
        # Data that has no canonical form was never sealed.
        return False
    return same(wanted, event.hmac)
