"""Redaction of personal data, governed exceptions, and quarantine of faulty facts.

Spec: CRP-SPEC-003 §17.1 (decision E22); CRP-SPEC-009 §8.4; Summit §Governed Exceptions
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.dpe.pii.recognisers import find_personal_data
from crp_integrations.dpe.pii.spans import KINDS, PersonalSpan, apart
from crp_integrations.dpe.ports import Recogniser
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.report_parts import QUESTION_ID, SYSTEM_ID
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.errors import (
    AccessDenied,
    EngineError,
    IllegalTransition,
    RequestError,
    StoreBusy,
    StoreError,
)
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.ports.store import FaultCounts, fault_counts_of
from crp_integrations.fabric.settings import LifecycleSettings
from crp_integrations.guard.decisions import Guard
from crp_integrations.guard.governed_exceptions import (
    ExceptionGuard,
    ExceptionUse,
    GovernedException,
)
from crp_integrations.language.memo import forgotten_with
from crp_integrations.relay.window_records import WindowEnd
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import EventType

EVERY_KIND: Final = "*"
_ENGINE: Final = "crp recognisers"
MAX_CACHED_TEXTS: Final = 10_000


class RedactingGuard:
    """Replaces each occurrence of personal data by its kind: `[redacted email]` (`redact@1`).

    Safe under threads. `language.memo.forget` clears the cached texts; results that are being
    computed at that time are not cached.
    """

    def __init__(
        self,
        settings: PersonalSettings,
        recognisers: Sequence[Recogniser] = (),
        *,
        most_kept: int = MAX_CACHED_TEXTS,
    ) -> None:
        self._settings = settings
        self._recognisers = tuple(recognisers)
        self._kinds = {
            EVERY_KIND,
            *KINDS,
            *(kind for recogniser in self._recognisers for kind in recogniser.kinds),
        }
        self._most = most_kept
        self._known: OrderedDict[tuple[str, tuple[str, ...]], str] = OrderedDict()
        self._lock = threading.Lock()
        self._erasures = 0
        _GUARDS.add(self)

    @property
    def kept(self) -> int:
        """Number of cached texts."""
        return len(self._known)

    def forget(self) -> None:
        """Drop all cached texts."""
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
            # A misspelt kind would redact nothing, and the text would be shown in full.
            raise EngineError(
                f"no recogniser finds the personal data {', '.join(map(repr, unknown)):.120}, "
                f"wanted `{EVERY_KIND}` or kinds of recognisers",
                engine=_ENGINE,
            )
        # Kinds that a policy names are redacted, even those that reports ignore.
        aside = tuple(kind for kind in self._settings.aside if kind not in kinds)
        settings = self._settings.model_copy(update={"aside": aside})
        spans: list[PersonalSpan] = list(find_personal_data(text, settings=settings))
        for recogniser in self._recognisers:
            spans += [
                span
                for span in recogniser.find(text)
                if span.score >= settings.least_score and span.kind not in aside
            ]
        wanted = [span for span in spans if EVERY_KIND in kinds or span.kind in kinds]
        parts, end = [], 0
        for span in apart(wanted):
            parts += [text[end : span.start], f"[redacted {span.kind}]"]
            end = span.end
        return "".join([*parts, text[end:]])


_GUARDS: weakref.WeakSet[RedactingGuard] = weakref.WeakSet()


def _forget_all() -> None:
    for redacting in list(_GUARDS):
        redacting.forget()


forgotten_with(_forget_all)


# Name of the audit hook that is always available.
JOURNAL: Final = "journal"


def with_exceptions(
    guard: Guard, exceptions: Sequence[GovernedException], fabric: Callable[[], Fabric]
) -> Guard:
    """A guard whose denials registered exceptions may override; without any, the guard itself."""
    if not exceptions:
        return guard
    journalled = JournalledExceptions(
        fabric, {exception.rollback.event.value for exception in exceptions}
    )

    class Now:
        def now(self) -> datetime:
            return fabric().clock.now()

    return ExceptionGuard(
        guard, exceptions, Now(), {JOURNAL: journalled.journal}, journalled.events
    )


class JournalledExceptions:
    """Writes uses of exceptions into journals, and reads the events that end exceptions.

    Safe under threads.
    """

    def __init__(self, fabric: Callable[[], Fabric], wanted: Iterable[str]) -> None:
        self._fabric = fabric
        self._wanted = frozenset(wanted)
        self._lock = threading.Lock()
        self._read: dict[str, tuple[int, str, list[tuple[str, datetime]]]] = {}

    def journal(self, used: ExceptionUse) -> None:
        """Write a use of an exception into the journal of the tenant's namespace."""
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

        Only events added since the last call are read.
        """
        with self._lock, self._fabric().begin(tenant, write=False) as transaction:
            seq, seal, events = self._read.get(tenant, (0, "", []))
            tip = transaction.journal.tip()
            if tip is None or tip.seq < seq or (tip.seq == seq and tip.hmac != seal):
                # This journal is not the one read before: a backup may have been restored.
                seq, events = 0, []
            if tip is not None and tip.seq > seq:
                events = events + [
                    (event.event_type.value, datetime.fromisoformat(event.timestamp))
                    for event in transaction.journal.events(after=seq)
                    if event.event_type.value in self._wanted
                ]
            self._read[tenant] = (tip.seq, tip.hmac, events) if tip else (0, "", [])
            return events


# Windows whose model was shown the facts and whose answer was examined.
EXAMINED: Final = frozenset({"released", "halted"})
QUARANTINE_REASON: Final = (
    "answers with it were repeatedly found to make things up or to distort it"
)

_LOG = logging.getLogger("crp_integrations.relay")


def faulty_facts(report: Report) -> tuple[str, ...]:
    """Ids of the facts that an answer's flagged claims were compared with, sorted.

    A flagged claim on which there is nothing in the context adds none.
    """
    fact_ids = {
        fact_id
        for claim in report.claims
        if claim.flagged
        for fact_id in (
            *(quotation.fact_id for quotation in claim.quotations),
            *(evidence.fact_id for evidence in claim.evidence),
            *(
                finding.evidence.fact_id
                for finding in claim.findings
                if finding.evidence is not None
            ),
        )
    }
    return tuple(sorted(fact_ids - {QUESTION_ID, SYSTEM_ID}))


def count_findings(
    transaction: Transaction, end: WindowEnd, report: Report, settings: LifecycleSettings
) -> list[str]:
    """Count a window's findings per fact when it is sealed; returns the facts over the bounds.

    Spec: CRP-SPEC-009 §8.4 (decision Fabric)
    """
    if end.outcome not in EXAMINED or not end.keep:
        return []
    fact_ids = faulty_facts(report)
    facet = fault_counts_of(transaction) if fact_ids else None
    return [] if facet is None else _over_bounds(facet.count(fact_ids), settings)


def count_shared(
    namespace: Namespace, end: WindowEnd, report: Report, settings: LifecycleSettings
) -> None:
    """Count a sealed window's findings on facts of shared namespaces.

    The subject may only read these facts, and one tenant's answers must not remove them for others.
    So a warning is logged for the operator, whose own relay removes them (`quarantine_due`).

    Spec: CRP-SPEC-009 §8.4
    """
    if end.outcome in EXAMINED and end.keep:
        for id_ in _over_bounds(namespace.note_shared_findings(faulty_facts(report)), settings):
            _LOG.warning("shared fact %s is due for quarantine by its operator", id_)


def quarantine_due(namespace: Namespace, settings: LifecycleSettings) -> None:
    """Quarantine facts whose counts are over the bounds and that earlier subjects could not remove.

    Spec: CRP-SPEC-009 §8.4
    """
    try:
        with namespace.begin(write=False) as transaction:
            facet = fault_counts_of(transaction)
            bounds = settings.quarantine_findings, settings.quarantine_share
            due = facet.due(*bounds) if facet is not None else []
    except StoreBusy:
        return
    quarantine(namespace, due)


def quarantine(namespace: Namespace, fact_ids: Sequence[str]) -> None:
    """Take facts out of retrieval, and log those that cannot be; the answer is delivered anyway.

    A fact that the subject may not write stays, with its count; the next finding tries again.
    """
    for id_ in fact_ids:
        try:
            namespace.quarantine([id_], reason=QUARANTINE_REASON)
            with namespace.begin(write=True) as transaction:
                facet = fault_counts_of(transaction)
                if facet is not None:
                    facet.reset([id_])
        except (AccessDenied, IllegalTransition, RequestError, StoreError) as error:
            why = type(error).__name__
            _LOG.warning("fact %s is due for quarantine, which was refused: %s", id_, why)


def _over_bounds(counts: Mapping[str, FaultCounts], settings: LifecycleSettings) -> list[str]:
    return [
        id_
        for id_, counted in counts.items()
        if counted.findings >= settings.quarantine_findings
        and counted.findings >= settings.quarantine_share * counted.uses
    ]
