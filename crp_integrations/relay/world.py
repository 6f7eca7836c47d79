"""Everything that a Turn is handed from outside, and the check of what a relay is opened with."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.ports import Reranker, Walker
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.governance.artifacts.storage import ObjectStore
from crp_integrations.governance.window_trace import Observer
from crp_integrations.guard.injection.detection import InjectionDetector
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.policy.records import ViolationSink
from crp_integrations.ports import Clock, Ids, KeyRing, TokenCounter, Tracer
from crp_integrations.relay.judge import Judge, OnReport
from crp_integrations.relay.memory import RelayMemory
from crp_integrations.relay.settings import Settings
from crp_integrations.seals import iso
from crp_integrations.validation import Wanted, odd_part, refuse_part

# Takes the report on each window that is sealed, such as a compliance system of the operator's.
# That of a `World` neither waits nor raises.
Receiver = Callable[[Report], None]
# Whether an answer may be shown, asked of a person; the report and the text are all they get.
Reviewer = Callable[[Report, str], bool]
_LOG = logging.getLogger("crp_integrations.relay")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a relay's data lie.

    Attributes:
        namespace: of no region; the only way to facts, bound to tenant, subject and guard.
        regions: the namespaces of regions, for requests that name one.
        objects: where artifacts lie, by region; `""` for none.
        fleeting: makes a place for artifacts in memory, gone with whoever holds it.
    """

    namespace: Namespace
    regions: Mapping[str, Namespace]
    objects: Mapping[str, ObjectStore]
    fleeting: Callable[[], ObjectStore]

    def of(self, residency: str) -> Namespace:
        """The namespace of a region; the one of no region for an empty name.

        Spec: CRP-SPEC-009 §7.2
        """
        namespace = self.regions.get(residency.lower()) if residency else self.namespace
        if namespace is None:
            raise RequestError(
                f"residency {residency!r:.40} is not one of the regions {sorted(self.regions)}"
            )
        return namespace


@dataclass(frozen=True, slots=True)
class RelayEngines:
    """What a relay counts, selects and checks with; None leaves a step out.

    Attributes:
        recognisers: look for personal data beside the package's own.
        detector: looks for injections in what is selected.
        code_verified: the engine's code was compared with its published hashes.
    """

    counter_for: Callable[[str], TokenCounter]
    limit_for: Callable[[str], tuple[int, str]]
    verifier: Verifier | None = None
    reranker: Reranker | None = None
    policy: PolicyEngine | None = None
    recognisers: tuple[Recogniser, ...] = ()
    detector: InjectionDetector = field(default_factory=InjectionDetector)
    walker: Walker | None = None
    judge: Judge | None = None
    code_verified: bool = False


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is asked or told of what happens; None for nobody.

    Attributes:
        reviewer: a person's word on an answer that must be reviewed; None withholds it.
        sink: where violations of a policy are reported to.
    """

    reviewer: Reviewer | None = None
    sink: ViolationSink | None = None
    receiver: Receiver | None = None
    observer: Observer | None = None
    on_report: OnReport | None = None


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a Turn is handed from outside.

    Attributes:
        settings_digest: hash of the settings, computed once.
    """

    places: Places
    engines: RelayEngines
    listeners: Listeners
    memory: RelayMemory
    settings: Settings
    settings_digest: str
    clock: Clock
    ids: Ids
    keyring: KeyRing
    tracer: Tracer

    def journal(self, namespace: Namespace, drafts: Sequence[EventDraft]) -> None:
        """Write events into a namespace's journal, in a transaction of their own."""
        key = journal_key(self.keyring, namespace.subject.tenant)
        with namespace.begin(write=True) as transaction:
            append_events(transaction.journal, key, drafts, iso(self.clock.now()))


class ReportDelivery:
    """Hands reports on. Safe under threads; none runs before the first report."""

    def __init__(self, receiver: Receiver, capacity: int) -> None:
        """Prepare to hand on."""
        self._receiver = receiver
        self._capacity = capacity
        self._changed = threading.Condition()
        # The first of them is the one that is being received.
        self._waiting: deque[Report] = deque()
        self._running = self._closed = False

    def take(self, report: Report) -> None:
        """Take a report; never waits for the receiver and never raises.

        Spec: CRP-SPEC-005 §15.4
        """
        with self._changed:
            hindrance = self._hindrance()
            if not hindrance:
                self._waiting.append(report)
                if not self._running:
                    hindrance = self._started()
        if hindrance:
            _LOG.warning(
                "the report on window %s was not received: %s", report.window_id, hindrance
            )

    def close(self, timeout_s: float) -> None:
        """Wait until all were received, at most so long; what waits then is dropped."""
        with self._changed:
            self._closed = True
            if self._changed.wait_for(lambda: not self._waiting, timeout_s):
                return
            left = list(self._waiting)
            self._waiting.clear()
        _LOG.warning(
            "%d reports were not received, the first of window %s", len(left), left[0].window_id
        )

    def _hindrance(self) -> str:
        if self._closed:
            return "closed"
        waiting = len(self._waiting)
        return f"{waiting} are waiting" if waiting >= self._capacity else ""

    def _started(self) -> str:
        """Begin the thread; why that is not possible, else nothing."""
        thread = threading.Thread(target=self._run, name="crp-reports", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._waiting.clear()
            return f"no thread can be started: {type(error).__name__}"
        self._running = True
        return ""

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    # The next report begins another thread, so an idle relay has none.
                    self._running = False
                    return
                report = self._waiting[0]
            try:
                self._receiver(report)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the receiver's
                why = type(error).__name__
                _LOG.warning("the report on window %s was not received: %s", report.window_id, why)
            with self._changed:
                if self._waiting and self._waiting[0] is report:
                    self._waiting.popleft()
                self._changed.notify_all()


COMPONENTS: Final[Mapping[str, Wanted]] = MappingProxyType(
    {
        "store": Wanted("begin", "a folder, a postgresql:// address or a store object"),
        "subject": Wanted("tenant", "a Subject, such as Subject(tenant='acme')"),
        "guard": Wanted("decide", "a guard, or its settings as in guard={'policy': True}"),
        "embedder": Wanted("embed_passages", "an Embedder; without one MiniLM is used"),
        "verifier": Wanted(
            "judge", "a Verifier; one that ships is named as in dpe={'verifier': 'alignment'}"
        ),
        "reranker": Wanted("scores", "a Reranker"),
        "injections": Wanted("score", "an InjectionModel"),
        "policy": Wanted("decide", "a PolicyEngine, or a safety policy as a text"),
        "models": Wanted(
            "call",
            "a Model; a name goes into model=, a chat model of LangChain or LlamaIndex llm=",
        ),
        "tracer": Wanted("step", "a Tracer or an Observer"),
        "clock": Wanted("now", "a Clock, or the moment at which it stands still"),
        "ids": Wanted("new", "an Ids"),
        "keyring": Wanted(
            "master", "a KeyRing; a key by itself is given as key= with 64 hexadecimal digits"
        ),
        "reviewer": Wanted("__call__", "a function of a report and a text"),
        "violations": Wanted("take", "a ViolationSink"),
        "receiver": Wanted("__call__", "a function of a report"),
        "artifacts": Wanted(
            "create", "an ObjectStore, or its settings as in artifacts={'place': 's3://bucket'}"
        ),
        "settings": Wanted(
            "digest", "Settings; single settings are given by their names, as in model='extractive'"
        ),
    }
)
# A value given for one of these by mistake may hold a key or a password: errors name its type.
_SECRET: Final = frozenset({"artifacts", "keyring", "receiver", "settings", "store", "violations"})
_RECOGNISERS: Final = Wanted("kinds", "a list of Recognisers")


def check_components(*, recognisers: Any = (), **parts: Any) -> None:
    """Refuse a component of the wrong kind."""
    for name, part in parts.items():
        if part is not None:
            refuse_part(name, part, COMPONENTS[name], hidden=_SECRET)
    if isinstance(recognisers, str) or not isinstance(recognisers, Sequence):
        raise odd_part("recognisers", recognisers, _RECOGNISERS)
    for recogniser in recognisers:
        refuse_part("recognisers", recogniser, _RECOGNISERS)
