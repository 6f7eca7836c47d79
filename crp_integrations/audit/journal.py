"""The journal: every event of a namespace, each chained to the one before.

An event's HMAC covers its type, timestamp, data, window and the previous HMAC. The session id and,
after a key rotation, the key's id are also written into the data, so that the HMAC covers them;
the place in the journal is checked by counting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from crp_integrations.audit.drafts import KEY_FIELD, SESSION_FIELD, EventDraft, check_draft
from crp_integrations.audit.records import Event, JournalFacet, Stub
from crp_integrations.audit.window_seals import ChainKey, key_epochs
from crp_integrations.errors import ChainBroken, StoreError
from crp_integrations.seals import canonical, event_hmac, same, written_event_hmac
from crp_integrations.vocabulary import TrailState


def append_events(
    journal: JournalFacet, key: bytes, drafts: Sequence[EventDraft], timestamp: str
) -> list[Event]:
    """Check drafts, seal them in order and append them to the journal.

    Spec: related facts §5
    """
    events = chain_events(journal.tip(), key, [check_draft(draft) for draft in drafts], timestamp)
    journal.append(events)
    return events


def chain_events(
    tip: Event | None, key: bytes, drafts: Sequence[EventDraft], timestamp: str
) -> list[Event]:
    """Chain and seal drafts after an event, without checking or storing them."""
    keys = key_epochs(key)
    own = keys[-1].key_id
    if tip is not None and _epoch(tip, keys) is None:
        raise StoreError(
            f"the journal continues with key {str(tip.data[KEY_FIELD])[:40]!r}, which this key "
            "ring lacks; open the store again with the keys that it was rotated to"
        )
    seq, previous = (tip.seq, tip.hmac) if tip else (0, "")
    events: list[Event] = []
    for draft in drafts:
        data = dict(draft.data)
        for name, value in ((SESSION_FIELD, draft.session_id), (KEY_FIELD, own)):
            if data.setdefault(name, value) != value:
                raise StoreError(
                    f"event {draft.event_type} of session {draft.session_id!r} names "
                    f"{name} {data[name]!r} in its data, wanted {value!r}"
                )
            if not value:
                del data[name]
        try:
            # A copy in plain JSON, as a store returns it.
            written = canonical(data)
            data = json.loads(written)
            seal = written_event_hmac(
                keys[-1],
                event_type=draft.event_type.value,
                timestamp=timestamp,
                written=written,
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
    return events


def matches_key(journal: JournalFacet, key: bytes) -> bool:
    """Whether a journal was sealed with this key, judged by its first and its last event.

    One verified event of the two is enough; `verify_journal` finds other errors. An empty journal
    matches every key. A key ring without the key that the last event names never matches.
    """
    tip = journal.tip()
    if tip is None:
        return True
    keys = key_epochs(key)
    if _epoch(tip, keys) is None:
        return False
    first = next(iter(journal.events()))
    if _seal_fits(first, "", keys):
        return True
    *before, last = journal.events(after=tip.seq - 2)
    return _seal_fits(last, before[-1].hmac if before else "", keys)


def verify_journal(events: Iterable[Event], key: bytes) -> int:
    """Check a whole journal from its first event, and return the number of events.

    Spec: related facts §5
    """
    walk = _ChainCheck(key_epochs(key), "")
    for event in events:
        walk.step(event)
    return walk.events


@dataclass(frozen=True, slots=True)
class JournalCheck:
    """Result of checking a journal that may be incomplete.

    Attributes:
        tip: HMAC of the last entry, empty without one. If that is a stub, it is unverified, since
            no later event covers it.
        state: VALID if complete, TRUNCATED if only the beginning is missing, else PARTIAL;
            UNVERIFIED without events.
    """

    events: int
    left_out: int
    tip: str
    state: TrailState


def verify_partial(
    entries: Iterable[Event | Stub], key: bytes, *, before: str = ""
) -> JournalCheck:
    """Check a journal with left-out or erased events, or one that starts in the middle.

    Spec: related facts §5 (decisions "Safety, sessions, audit")

    A stub's HMAC is covered by the event after it, so in a run of stubs only the last one is
    verified, and the length of the run is not.
    """
    walk = _ChainCheck(key_epochs(key), before)
    for entry in entries:
        walk.step(entry)
    if not walk.events:
        state = TrailState.UNVERIFIED
    elif walk.left_out > walk.leading:
        state = TrailState.PARTIAL
    else:
        state = TrailState.TRUNCATED if before or walk.leading else TrailState.VALID
    return JournalCheck(walk.events, walk.left_out, walk.previous, state)


class _ChainCheck:
    """Checks the entries of a chain one by one."""

    def __init__(self, keys: Sequence[ChainKey], before: str) -> None:
        self.index = self.events = self.left_out = self.leading = 0
        self.previous = before
        self._keys = keys
        self._epoch = 0
        # Number of the previous entry; None if it is unknown because the beginning is missing.
        self._seq = None if before else 0

    def step(self, entry: Event | Stub) -> None:
        """Check the next entry."""
        if isinstance(entry, Event):
            self._check(entry)
            self.events += 1
            self._seq = entry.seq
        else:
            self.left_out += 1
            self.leading += not self.events
            self._seq = self._seq + 1 if self.events and self._seq is not None else None
        self.index += 1
        self.previous = entry.hmac

    def _check(self, event: Event) -> None:
        index = self.index
        if self._seq is not None and event.seq != self._seq + 1:
            raise ChainBroken(
                f"event {index} has seq {event.seq}, wanted {self._seq + 1}", index=index
            )
        if event.data.get(SESSION_FIELD, "") != event.session_id:
            raise ChainBroken(f"event {event.seq} was moved to another session", index=index)
        epoch = _epoch(event, self._keys)
        if epoch is None:
            raise ChainBroken(
                f"event {event.seq} was sealed with a key that the key ring does not contain",
                index=index,
            )
        if epoch < self._epoch:
            raise ChainBroken(
                f"event {event.seq} was sealed with a key that was retired before", index=index
            )
        if not _seal_fits(event, self.previous, self._keys):
            raise ChainBroken(f"the HMAC of event {event.seq} does not match", index=index)
        self._epoch = epoch


def _epoch(event: Event, keys: Sequence[ChainKey]) -> int | None:
    """The index of an event's key among `keys`; None if it is not one of them."""
    named: Any = event.data.get(KEY_FIELD, "")
    return next((place for place, key in enumerate(keys) if key.key_id == named), None)


def _seal_fits(event: Event, previous: str, keys: Sequence[ChainKey]) -> bool:
    """Whether an event's HMAC matches its content and the previous HMAC."""
    epoch = _epoch(event, keys)
    if epoch is None:
        return False
    try:
        wanted = event_hmac(
            keys[epoch],
            event_type=event.event_type.value,
            timestamp=event.timestamp,
            data=event.data,
            window_id=event.window_id,
            previous_hmac=previous,
        )
    except (TypeError, ValueError):
        # Data without a canonical form cannot have been sealed.
        return False
    return same(wanted, event.hmac)
