"""The dependencies of a Turn, and the check of the components that a relay is opened with."""

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
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.governance.artifacts.storage import ObjectStore
from crp_integrations.governance.window_trace import Observer
from crp_integrations.guard.injection.detection import InjectionDetector
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.messages import Reply
from crp_integrations.policy.records import ViolationSink
from crp_integrations.ports import Clock, Ids, KeyRing, TokenCounter, Tracer
from crp_integrations.relay.budget import BudgetPlaces
from crp_integrations.relay.judge import Judge, OnReport
from crp_integrations.relay.memory import RelayMemory
from crp_integrations.relay.settings import Settings
from crp_integrations.seals import iso
from crp_integrations.validation import Wanted, odd_part, refuse_part
from crp_integrations.vocabulary import EventType

# Receives the report on each sealed window, for example for the operator's compliance system.
# The receiver in a `World` must not block or raise.
Receiver = Callable[[Report], None]
# Asks a person whether an answer may be shown; gets only the report and the text.
Reviewer = Callable[[Report, str], bool]
_LOG = logging.getLogger("crp_integrations.relay")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a relay's data is stored.

    Attributes:
        namespace: namespace without a region, bound to tenant, subject and guard.
        regions: namespaces by region, for requests that name one.
        objects: stores of artifacts by region; `""` for no region.
        fleeting: creates a store of artifacts in memory.
    """

    namespace: Namespace
    regions: Mapping[str, Namespace]
    objects: Mapping[str, ObjectStore]
    fleeting: Callable[[], ObjectStore]

    def of(self, residency: str) -> Namespace:
        """The namespace of a region; an empty name gives the one without a region.

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
    """The engines with which a relay counts, selects and checks; None skips a step.

    Attributes:
        recognisers: personal-data recognisers, in addition to the package's own.
        own_policy: whether the caller gave the policy engine, which may then forbid any answer.
        detector: searches selected facts for prompt injections.
        code_verified: whether the engine's code was compared with its published hashes.
    """

    counter_for: Callable[[str], TokenCounter]
    limit_for: Callable[[str], tuple[int, str]]
    verifier: Verifier | None = None
    reranker: Reranker | None = None
    policy: PolicyEngine | None = None
    own_policy: bool = False
    recognisers: tuple[Recogniser, ...] = ()
    detector: InjectionDetector = field(default_factory=InjectionDetector)
    walker: Walker | None = None
    judge: Judge | None = None
    code_verified: bool = False


@dataclass(frozen=True, slots=True)
class CheckedCalls:
    """What a check of an answer's tool calls found.

    Attributes:
        refusal: why the answer is withheld; empty for no reason.
        notes: events for the audit trail of the answer's window.
    """

    refusal: str = ""
    notes: tuple[tuple[EventType, Mapping[str, Any]], ...] = ()


# Checks the tool calls of a reply that would be released, given its envelope and session.
CheckCalls = Callable[[Reply, Envelope, str], CheckedCalls]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for events of a relay; None for no callback.

    Attributes:
        reviewer: decides on an answer that a person must review; None withholds such answers.
        sink: receives policy violations.
    """

    reviewer: Reviewer | None = None
    sink: ViolationSink | None = None
    receiver: Receiver | None = None
    observer: Observer | None = None
    on_report: OnReport | None = None
    check_calls: CheckCalls | None = None


@dataclass(frozen=True, slots=True)
class World:
    """The dependencies of a Turn.

    Attributes:
        settings_digest: hash of the settings, computed once.
        budgets: where the judges' spending is counted.
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
    budgets: BudgetPlaces

    def journal(self, namespace: Namespace, drafts: Sequence[EventDraft]) -> None:
        """Write events into a namespace's journal, in a separate transaction."""
        key = journal_key(self.keyring, namespace.subject.tenant)
        with namespace.begin(write=True) as transaction:
            append_events(transaction.journal, key, drafts, iso(self.clock.now()))


class ReportDelivery:
    """Passes reports to a receiver in a background thread. Safe under threads."""

    def __init__(self, receiver: Receiver, capacity: int) -> None:
        """Set the receiver and the maximum number of waiting reports; starts no thread yet."""
        self._receiver = receiver
        self._capacity = capacity
        self._changed = threading.Condition()
        # The first report is the one being delivered.
        self._waiting: deque[Report] = deque()
        self._running = self._closed = False

    def take(self, report: Report) -> None:
        """Queue a report; never waits for the receiver and never raises.

        Spec: CRP-SPEC-005 §15.4
        """
        with self._changed:
            hindrance = self._obstacle()
            if not hindrance:
                self._waiting.append(report)
                if not self._running:
                    hindrance = self._start()
        if hindrance:
            _LOG.warning(
                "the report on window %s was not received: %s", report.window_id, hindrance
            )

    def close(self, timeout_s: float) -> None:
        """Wait for all deliveries up to a timeout; reports still waiting then are dropped."""
        with self._changed:
            self._closed = True
            if self._changed.wait_for(lambda: not self._waiting, timeout_s):
                return
            left = list(self._waiting)
            self._waiting.clear()
        _LOG.warning(
            "%d reports were not received, the first of window %s", len(left), left[0].window_id
        )

    def _obstacle(self) -> str:
        if self._closed:
            return "closed"
        waiting = len(self._waiting)
        return f"{waiting} are waiting" if waiting >= self._capacity else ""

    def _start(self) -> str:
        """Start the thread; returns the reason if that is not possible, else an empty text."""
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
                    # The next report starts a new thread, so an idle relay has none.
                    self._running = False
                    return
                report = self._waiting[0]
            try:
                self._receiver(report)
            except Exception as error:  # noqa: BLE001 - a receiver's error must not end the thread
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
# Errors name only the type of these: a wrong value may contain a key or a password.
_SECRET: Final = frozenset({"artifacts", "keyring", "receiver", "settings", "store", "violations"})
_RECOGNISERS: Final = Wanted("kinds", "a list of Recognisers")


def check_components(*, recognisers: Any = (), **parts: Any) -> None:
    """Refuse a component of the wrong type."""
    for name, part in parts.items():
        if part is not None:
            refuse_part(name, part, COMPONENTS[name], hidden=_SECRET)
    if isinstance(recognisers, str) or not isinstance(recognisers, Sequence):
        raise odd_part("recognisers", recognisers, _RECOGNISERS)
    for recogniser in recognisers:
        refuse_part("recognisers", recogniser, _RECOGNISERS)
