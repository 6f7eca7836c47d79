"""Sessions whose windows fork and join, sealed through a store, with the events of their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.audit.trail import AuditTrail, closing_data, verify_trail
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.ports import KeyRing
from crp_integrations.seals import sha256
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.vocabulary import EventType

TENANT = "a"
SESSION = "crp_sess_7f3a9bc2d4e1f083"
RING = FixedKeyRing(bytes(range(32)))


@dataclass
class Memory:
    """A journal in two lists, that holds several windows of one number."""

    written: list[Event] = field(default_factory=list)
    sealed: list[WindowSeal] = field(default_factory=list)

    def tip(self) -> Event | None:
        return self.written[-1] if self.written else None

    def append(self, events: Sequence[Event]) -> None:
        self.written.extend(events)

    def events(self, *, after: int = 0):
        return iter(self.written[after:])

    def seal(self, seal: WindowSeal) -> None:
        self.sealed.append(seal)

    def seals(self, session_id: str) -> list[WindowSeal]:
        own = [one for one in self.sealed if one.session_id == session_id]
        return sorted(own, key=lambda one: (one.window_number, one.window_id))

    def last_seal(self, session_id: str) -> WindowSeal | None:
        return next(iter(reversed(self.seals(session_id))), None)

    def all_seals(self):
        names = sorted({one.session_id for one in self.sealed})
        return (one for name in names for one in self.seals(name))

    def check(self, keyring: KeyRing = RING, **changed) -> AuditTrail:
        """Verify the trail; `events`, `seals` and `before` may be others than those written."""
        return verify_trail(
            changed.get("events", self.written),
            changed.get("seals", self.all_seals()),
            journal_key=journal_key(keyring, TENANT),
            session_key=lambda session_id: session_key(keyring, session_id),
            before=changed.get("before", ""),
        )


def window(
    journal: Memory,
    name: str,
    number: int,
    parents: Sequence[WindowSeal] | None = None,
    *,
    session: str = SESSION,
    keyring: KeyRing = RING,
    outcome: str = "released",
) -> WindowSeal:
    """Seal one window and journal its two events."""
    at = f"2026-05-25T10:00:{len(journal.sealed):02}Z"
    sealed = window_seals.seal_window(
        journal,
        session_key(keyring, session),
        session_id=session,
        window_id=f"crp_win_{name}",
        window_number=number,
        timestamp=at,
        response_hash=sha256(name),
        report_hash=sha256(f"report {name}"),
        outcome=outcome,
        parents=None if parents is None else [one.hmac for one in parents],
    )
    told: Mapping[EventType, Mapping[str, object]] = {
        EventType.DISPATCH_STARTED: {"model": "m"},
        EventType.DPE_COMPLETED: closing_data(sealed),
    }
    drafts = [EventDraft(kind, data, session, sealed.window_id) for kind, data in told.items()]
    append_events(journal, journal_key(keyring, TENANT), drafts, at)
    return sealed


def diamond(journal: Memory, *, session: str = SESSION) -> dict[str, WindowSeal]:
    """A root, three siblings of which one goes on, and a window that joins them all."""
    made: dict[str, WindowSeal] = {}
    made["root"] = window(journal, "root", 1, session=session)
    for name in ("left", "middle", "right"):
        made[name] = window(journal, name, 2, [made["root"]], session=session)
    made["deeper"] = window(journal, "deeper", 3, [made["left"]], session=session)
    followed = [made["right"], made["deeper"], made["middle"]]
    made["joined"] = window(journal, "joined", 4, followed, session=session)
    made["next"] = window(journal, "next", 5, session=session)
    return made
