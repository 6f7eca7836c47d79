"""Redaction of personal data and governed exceptions, in front of a guard.

Spec: CRP-SPEC-003 §17.1 (decision E22); Summit §Governed Exceptions
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from crp_integrations.audit.journal import EventDraft
from crp_integrations.dpe.pii import KINDS, find_personal_data
from crp_integrations.dpe.pii.spans import PersonalSpan, apart
from crp_integrations.dpe.ports import Recogniser
from crp_integrations.dpe.settings_compliance import PersonalSettings
from crp_integrations.errors import EngineError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.guard.decisions import Guard
from crp_integrations.guard.exceptions import Excepting, GovernedException, Used
from crp_integrations.language.memo import forgotten_with
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import EventType

EVERY: Final = "*"
_ENGINE: Final = "crp recognisers"
MOST_KEPT: Final = 10_000


class RedactingGuard:
    """Replaces each place of personal data by its kind, as in `[redacted email]` (`redact@1`).

    Safe between threads. `language.memo.forget` lets go of the texts that are kept, and of what is
    being made meanwhile.

    Args:
        settings: how sure a recogniser must be, and which kinds are left aside.
        recognisers: look beside the package's own.
        most_kept: redacted texts kept in memory, by the hash of what they were made of.
    """

    def __init__(
        self,
        settings: PersonalSettings,
        recognisers: Sequence[Recogniser] = (),
        *,
        most_kept: int = MOST_KEPT,
    ) -> None:
        self._settings = settings
        self._recognisers = tuple(recognisers)
        self._kinds = {EVERY, *KINDS, *(kind for one in self._recognisers for kind in one.kinds)}
        self._most = most_kept
        self._known: OrderedDict[tuple[str, tuple[str, ...]], str] = OrderedDict()
        self._lock = threading.Lock()
        self._erasures = 0
        _EVERY.add(self)

    @property
    def kept(self) -> int:
        """How many texts are kept."""
        return len(self._known)

    def forget(self) -> None:
        """Let go of every text that is kept."""
        with self._lock:
            self._erasures += 1
            self._known.clear()

    def redacted(self, text: str, kinds: tuple[str, ...]) -> str:
        """The text without the personal data of these kinds."""
        key = sha256_hex(text.encode("utf-8", "surrogatepass")), kinds
        with self._lock:
            begun = self._erasures
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        made = self._without(text, kinds)
        with self._lock:
            if begun == self._erasures:
                self._known[key] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return made

    def _without(self, text: str, kinds: tuple[str, ...]) -> str:
        unknown = sorted({*kinds} - self._kinds)
        if unknown:
            # A text with a kind that is misspelt would be shown as if nothing had been in it.
            raise EngineError(
                f"nobody looks for the kind of personal data {', '.join(map(repr, unknown)):.120}, "
                f"wanted `{EVERY}` or kinds of recognisers",
                engine=_ENGINE,
            )
        # What a policy names is taken out; `aside` says what reports need not tell.
        aside = tuple(kind for kind in self._settings.aside if kind not in kinds)
        settings = self._settings.model_copy(update={"aside": aside})
        found: list[PersonalSpan] = list(find_personal_data(text, settings=settings))
        for recogniser in self._recognisers:
            found += [
                one
                for one in recogniser.find(text)
                if one.score >= settings.least_score and one.kind not in aside
            ]
        wanted = [one for one in found if EVERY in kinds or one.kind in kinds]
        parts, end = [], 0
        for one in apart(wanted):
            parts += [text[end : one.start], f"[redacted {one.kind}]"]
            end = one.end
        return "".join([*parts, text[end:]])


_EVERY: weakref.WeakSet[RedactingGuard] = weakref.WeakSet()


def _forget_all() -> None:
    for redacting in list(_EVERY):
        redacting.forget()


forgotten_with(_forget_all)


# The audit hook that is always there.
JOURNAL: Final = "journal"


def with_exceptions(
    guard: Guard, exceptions: Sequence[GovernedException], fabric: Callable[[], Fabric]
) -> Guard:
    """A guard whose denials the registered exceptions may pass; the guard itself without any."""
    if not exceptions:
        return guard
    kept = JournalledExceptions(fabric, {one.rollback.event.value for one in exceptions})

    class Now:
        def now(self) -> datetime:
            return fabric().clock.now()

    return Excepting(guard, exceptions, Now(), {JOURNAL: kept.told}, kept.events)


class JournalledExceptions:
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

    def told(self, used: Used) -> None:
        """Put a use into the journal of the tenant's namespace."""
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
