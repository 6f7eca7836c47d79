"""Governed exceptions at work: registered in front of a guard, each use in the tenant's journal.

Spec: Summit §Governed Exceptions
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.guard.decisions import Guard
from crp_integrations.guard.governed_exceptions import (
    ExceptionGuard,
    ExceptionUse,
    GovernedException,
)
from crp_integrations.vocabulary import EventType

# The audit hook that is always there.
JOURNAL: Final = "journal"


def excepting(
    guard: Guard, exceptions: Sequence[GovernedException], fabric: Callable[[], Fabric]
) -> Guard:
    """A guard whose denials the registered exceptions may pass; the guard itself without any.

    Args:
        fabric: whose journals are written and whose clock is asked; not called before the first
            decision.

    Raises:
        RequestError: two exceptions have one id, or one names another hook than `journal`.
    """
    if not exceptions:
        return guard
    kept = Journalled(fabric, {one.rollback.event.value for one in exceptions})

    class Now:
        def now(self) -> datetime:
            return fabric().clock.now()

    return ExceptionGuard(guard, exceptions, Now(), {JOURNAL: kept.told}, kept.events)


class Journalled:
    """Writes uses of exceptions into journals, and reads the events that end exceptions.

    Safe between threads.

    Args:
        wanted: types of the events that rollback triggers name.
    """

    def __init__(self, fabric: Callable[[], Fabric], wanted: Iterable[str]) -> None:
        self._fabric = fabric
        self._wanted = frozenset(wanted)
        self._lock = threading.Lock()
        self._read: dict[str, tuple[int, str, list[tuple[str, datetime]]]] = {}

    def told(self, used: ExceptionUse) -> None:
        """Put a use into the journal of the tenant's namespace.

        Raises:
            StoreError: it could not be written; the use is then denied.
        """
        fabric = self._fabric()
        data = {
            "exception": used.exception,
            "subject": used.subject,
            "action": used.action,
            "labels": list(used.labels),
            "decisions": [*used.decisions, *([used.denial] if used.denial else [])],
        }
        fabric.tell(used.tenant, [EventDraft(EventType.EXCEPTION_USED, data)])

    def events(self, tenant: str) -> list[tuple[str, datetime]]:
        """Type and time of a tenant's events that rollback triggers name.

        Only what was added since the last call is read.
        """
        with self._lock, self._fabric().begin(tenant, write=False) as transaction:
            seq, seal, found = self._read.get(tenant, (0, "", []))
            tip = transaction.journal.tip()
            if tip is None or tip.seq < seq or (tip.seq == seq and tip.hmac != seal):
                # Another journal than was read before, as after a copy was put back.
                seq, found = 0, []
            if tip is not None and tip.seq > seq:
                found = found + [
                    (event.event_type.value, datetime.fromisoformat(event.timestamp))
                    for event in transaction.journal.events(after=seq)
                    if event.event_type.value in self._wanted
                ]
            self._read[tenant] = (tip.seq, tip.hmac, found) if tip else (0, "", [])
            return found
