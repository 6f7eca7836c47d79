"""The components of a relay, checked before it opens, and what it keeps in memory."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.dpe.pii.recognisers import find_personal_data
from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import unique_claims
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.envelope.ports import Reranker, Walker
from crp_integrations.envelope.records import EarlierWindow, PackedFact
from crp_integrations.envelope.reuse import KnownEnvelopes
from crp_integrations.errors import (
    AccessDenied,
    EngineError,
    RequestError,
    StoreDamaged,
    StoreError,
    StoreNewer,
)
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.governance.artifacts.storage import ObjectStore
from crp_integrations.governance.window_trace import Observer
from crp_integrations.guard.injection.detection import InjectionDetector
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.policy.records import ViolationSink
from crp_integrations.ports import Clock, Ids, KeyRing, TokenCounter, Tracer
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.judge import Judge, OnReport
from crp_integrations.relay.settings import Settings
from crp_integrations.seals import iso, sha256_each
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.validation import Wanted, odd_part, refuse_part

# Of one session: the oldest go first, and no caller fills the memory through one name.
MOST_WINDOWS = 4_096
MOST_CHARACTERS = 1_000_000
MOST_REJECTED = 200


@dataclass(frozen=True, slots=True)
class SessionMemorySource:
    """What is known of a session in memory alone.

    Attributes:
        session: its state; None where the store keeps that.
        nodes: windows that the store does not keep, by number.
        priors: what windows said, by their ids.
        rejected: claims that sub-agents' reports flag.
    """

    session: Session | None = None
    nodes: tuple[WindowNode, ...] = ()
    priors: dict[str, EarlierWindow] = field(default_factory=dict)
    rejected: tuple[RejectedClaim, ...] = ()


class SessionMemories:
    """What `no-store` sessions, and windows with facts held in memory, have said.

    Safe under threads.

    Spec: CRP-SPEC-003 §17.1
    """

    def __init__(self, most_sessions: int = 1_000) -> None:
        self._most = most_sessions
        self._sessions: OrderedDict[str, SessionMemorySource] = OrderedDict()
        self._lock = threading.Lock()
        # Held from the reading of a session until what became of it is kept.
        self._turns = threading.Lock()

    @contextmanager
    def one_by_one(self, *, wanted: bool = True) -> Iterator[list[tuple[Session, WindowNode]]]:
        """Keep what a block leaves in the list, once it has ended well; no two blocks overlap."""
        left: list[tuple[Session, WindowNode]] = []
        with self._turns if wanted else nullcontext():
            yield left
            for session, node in left:
                self.keep(session, node)

    def keep(self, session: Session, node: WindowNode | None = None) -> None:
        """Hold a session's state and a window; the one longest unused goes when there are many."""
        with self._lock:
            held = self._sessions.get(session.session_id, SessionMemorySource())
            nodes = held.nodes if node is None else (*held.nodes, node)[-MOST_WINDOWS:]
            self._put(session.session_id, replace(held, session=session, nodes=nodes))

    def keep_prior(self, session_id: str, window: EarlierWindow) -> None:
        """Hold what a window said; of a session that says much, what it said last."""
        with self._lock:
            held = self._sessions.get(session_id, SessionMemorySource())
            priors = {**held.priors, window.window_id: window}
            room = MOST_CHARACTERS - sum(map(_characters, priors.values()))
            # The last window stays whatever its length: the next one continues it.
            for id_ in [*priors][:-1]:
                if room >= 0 and len(priors) <= MOST_WINDOWS:
                    break
                room += _characters(priors.pop(id_))
            self._put(session_id, replace(held, priors=priors))

    def reject(self, session_id: str, claims: Sequence[RejectedClaim]) -> None:
        """Hold claims that a sub-agent's report flags; of many, the last ones."""
        if not claims:
            return
        with self._lock:
            held = self._sessions.get(session_id, SessionMemorySource())
            both = unique_claims(held.rejected, claims)[-MOST_REJECTED:]
            self._put(session_id, replace(held, rejected=both))

    def of(self, session_id: str) -> SessionMemorySource:
        """What is held of a session; nothing of an unknown one."""
        with self._lock:
            return self._sessions.get(session_id, SessionMemorySource())

    def end(self, session_id: str) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def _put(self, session_id: str, held: SessionMemorySource) -> None:
        self._sessions[session_id] = held
        self._sessions.move_to_end(session_id)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)


def _characters(window: EarlierWindow) -> int:
    return len(window.answer) + len(window.summary)


@dataclass(frozen=True, slots=True)
class PersonalFacts:
    """How many facts of an envelope hold personal data, and how many nobody has looked at.

    Attributes:
        hashes: `sha256:…` of what is shown of the others, by the fact's id.
    """

    held: int
    unread: int
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def flags(self) -> list[str]:
        """The compliance warning of an envelope that is not under `no-store`."""
        counts = (
            ("personal-facts-without-no-store", self.held),
            ("facts-not-searched", self.unread),
        )
        return [f"{name}={count}" for name, count in counts if count]


class PersonalDataIndex:
    """Whether texts hold personal data, by their hash: a model of names is slow beside the rest.

    Safe under threads.
    """

    def __init__(self, most_texts: int = 50_000) -> None:
        self._most = most_texts
        self._known: OrderedDict[str, bool] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, facts: Sequence[PackedFact], settings: PersonalSettings, most_characters: int
    ) -> PersonalFacts:
        """Look at an envelope's facts."""
        texts: list[str] = []
        ids: list[str] = []
        unread = 0
        for fact in facts:
            most_characters -= len(fact.content)
            if most_characters < 0:
                unread += 1
            else:
                texts.append(fact.content)
                ids.append(fact.fact_id)
        names = sha256_each([text.encode("utf-8", "surrogatepass") for text in texts])
        with self._lock:
            known = [self._known.get(name) for name in names]
            # The order of last use does not matter before the memory is half full.
            if 2 * len(self._known) > self._most:
                for name, holds in zip(names, known, strict=True):
                    if holds is not None:
                        self._known.move_to_end(name)
        held = known.count(True)
        if None in known:
            held += sum(
                self._holds(name, text, settings)
                for name, text, holds in zip(names, texts, known, strict=True)
                if holds is None
            )
        return PersonalFacts(held, unread, dict(zip(ids, names, strict=True)))

    def _holds(self, name: str, text: str, settings: PersonalSettings) -> bool:
        """Look at a text that was not known."""
        holds = bool(list(find_personal_data(text, settings=settings)))
        with self._lock:
            self._known[name] = holds
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return holds


class UnwrittenReceipt(NamedTuple):
    """A receipt, and whether the store keeps it."""

    receipt: Receipt
    written: bool


class UnwrittenReceipts:
    """Receipts on `no-store` windows, and on those with facts held in memory. Safe under threads.

    They are in no log and end with their session, with the relay, or when there are too many.
    """

    def __init__(self, most: int = 1_000) -> None:
        self._most = most
        # By region and id; a region's receipts are read there alone.
        self._receipts: OrderedDict[tuple[str, str], Receipt] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, made: UnwrittenReceipt | None, residency: str) -> str:
        """Hold a receipt unless it was written; its id, empty for none."""
        if made is None:
            return ""
        id_ = made.receipt.receipt_id
        if not made.written:
            with self._lock:
                self._receipts[residency, id_] = made.receipt
                while len(self._receipts) > self._most:
                    self._receipts.popitem(last=False)
        return id_

    def find(self, name: str, residency: str) -> Receipt | None:
        """A region's receipt by its id or its window's."""
        with self._lock:
            by_id = self._receipts.get((residency, name))
            if by_id is not None:
                return by_id
            held = reversed(self._receipts.items())
            return next(
                (
                    receipt
                    for (region, _), receipt in held
                    if region == residency and receipt.chain.window_id == name
                ),
                None,
            )

    def of_session(self, session_id: str, residency: str) -> list[str]:
        """Ids of a session's receipts in a region, oldest first; of every session for no name."""
        with self._lock:
            return [
                id_
                for (region, id_), receipt in self._receipts.items()
                if region == residency and session_id in ("", receipt.chain.session_id)
            ]

    def end(self, session_id: str) -> None:
        """Forget those of a session, in every region."""
        with self._lock:
            ended = [
                key
                for key, receipt in self._receipts.items()
                if receipt.chain.session_id == session_id
            ]
            for key in ended:
                del self._receipts[key]


# Takes the report on each window that is sealed, such as a compliance system of the operator's.
# That of a `World` neither waits nor raises.
Receiver = Callable[[Report], None]
# Whether an answer may be shown, asked of a person; the report and the text are all they get.
Reviewer = Callable[[Report, str], bool]


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a Turn is handed from outside.

    Attributes:
        namespace: the only way to facts, bound to tenant, subject and guard.
        regions: the same by region, for requests that name one.
        fleeting: makes a place for artifacts in memory, gone with whoever holds it.
        objects: where artifacts lie, by region; `""` for none.
        reranker: looks at the best candidates again; None for none.
        counter_for: the token counter of a model.
        limit_for: a model's context limit in tokens and where the number is from.
        settings_digest: hash of the settings, computed once.
        known: earlier envelopes, for conditional requests.
        policy: evaluates the control catalogue; None leaves that out.
        recognisers: look for personal data beside the package's own.
        code_verified: the engine's code was compared with its published hashes.
        session_memories: what `no-store` sessions said.
        reviewer: a person's word on an answer that must be reviewed; None withholds it.
        sink: where violations of a policy are reported to; None for nowhere.
        receiver: gets the report on each sealed window; None for nobody.
        personal: which facts hold personal data, as far as they were looked at.
        unwritten: receipts that may not be on disk.
        observer: told of each window that is sealed; None for nobody.
        detector: looks for injections in what is selected.
        walker: walks the graph around the best facts; None for no graph.
        judge: is asked whether answers hold; None for nobody.
        on_report: called with the report of each answer; None for nobody.
    """

    namespace: Namespace
    clock: Clock
    ids: Ids
    keyring: KeyRing
    tracer: Tracer
    verifier: Verifier | None
    counter_for: Callable[[str], TokenCounter]
    limit_for: Callable[[str], tuple[int, str]]
    settings: Settings
    settings_digest: str
    known: KnownEnvelopes
    fleeting: Callable[[], ObjectStore]
    regions: Mapping[str, Namespace] = field(default_factory=dict)
    objects: Mapping[str, ObjectStore] = field(default_factory=dict)
    reranker: Reranker | None = None
    policy: PolicyEngine | None = None
    recognisers: tuple[Recogniser, ...] = ()
    code_verified: bool = False
    session_memories: SessionMemories = field(default_factory=SessionMemories)
    reviewer: Reviewer | None = None
    sink: ViolationSink | None = None
    receiver: Receiver | None = None
    personal: PersonalDataIndex = field(default_factory=PersonalDataIndex)
    unwritten: UnwrittenReceipts = field(default_factory=UnwrittenReceipts)
    observer: Observer | None = None
    detector: InjectionDetector = field(default_factory=InjectionDetector)
    walker: Walker | None = None
    judge: Judge | None = None
    on_report: OnReport | None = None

    def journal(self, namespace: Namespace, drafts: Sequence[EventDraft]) -> None:
        """Write events into a namespace's journal, in a transaction of their own."""
        key = journal_key(self.keyring, namespace.subject.tenant)
        with namespace.begin(write=True) as transaction:
            append_events(transaction.journal, key, drafts, iso(self.clock.now()))

    def namespace_in(self, residency: str) -> Namespace:
        """The namespace of a region; the one of no region for an empty name.

        Spec: CRP-SPEC-009 §7.2
        """
        namespace = self.regions.get(residency.lower()) if residency else self.namespace
        if namespace is None:
            raise RequestError(
                f"residency {residency!r:.40} is not one of the regions {sorted(self.regions)}"
            )
        return namespace


_COMPONENTS: Final[Mapping[str, Wanted]] = MappingProxyType(
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
            refuse_part(name, part, _COMPONENTS[name], hidden=_SECRET)
    if isinstance(recognisers, str) or not isinstance(recognisers, Sequence):
        raise odd_part("recognisers", recognisers, _RECOGNISERS)
    for recogniser in recognisers:
        refuse_part("recognisers", recogniser, _RECOGNISERS)


_LOG = logging.getLogger("crp_integrations.relay")


def maintain_due(namespace: Namespace) -> None:
    """Do the maintenance that is due; an error of it does not keep the relay from opening.

    A standby, a read-only login or a read-only file can still be opened.

    Spec: CRP-SPEC-009 §8
    """
    try:
        # Opening does not wait for a graph; writing builds it, and so does `crp fabric maintain`.
        namespace.maintain(graph=False)
    except (StoreDamaged, StoreNewer):
        raise
    except (StoreError, AccessDenied, EngineError) as error:
        _LOG.warning("maintenance on opening was put off: %s", error)
