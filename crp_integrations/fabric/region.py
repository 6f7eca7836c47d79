"""One store with its engines, and what is kept in memory of its namespaces."""

from __future__ import annotations

import logging
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events, matches_key
from crp_integrations.audit.records import JournalFacet
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.errors import AccessDenied, ConfigError
from crp_integrations.fabric.embedder_migration import (
    EmbedderMigration,
    ReembedReport,
    migration_target,
    migration_transaction,
)
from crp_integrations.fabric.ports import (
    CommunityEngine,
    DerivedContent,
    FactsFacet,
    GraphEngine,
    Notify,
    Store,
    Transaction,
)
from crp_integrations.fabric.ports.engines import Progress, ignore_progress
from crp_integrations.fabric.records import Notice
from crp_integrations.fabric.search.namespace_state import NamespaceState
from crp_integrations.fabric.session_memory import RecentUses, SessionMemory
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.similarity_graph import Similarity
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.guard.decisions import AllowAll, Guard
from crp_integrations.guard.ports import Redactor
from crp_integrations.ports import Clock, Embedder, KeyRing, Silent, TokenCounter, Tracer
from crp_integrations.seals import iso

_LOG = logging.getLogger("crp_integrations.fabric")

# No tenant's name begins like this, so no tenant's namespace is ever a shared one.
PREFIX = "shared:"


def stored_name(name: str) -> str:
    """The name under which a shared namespace is kept in the store."""
    return PREFIX + name


def refuse_reserved(tenant: str) -> None:
    """Refuse a tenant named like a shared namespace, also in letters that only look like it."""
    if unicodedata.normalize("NFKC", tenant).strip().casefold().startswith(PREFIX):
        raise AccessDenied(
            f"tenant {tenant!r:.60} begins with {PREFIX!r}, which is kept for shared namespaces, "
            "so access is denied"
        )


def check_configured(name: str, names: Iterable[str]) -> None:
    """Refuse a shared namespace that no tenant would read."""
    known = list(names)
    if name not in known:
        raise ConfigError(
            f"shared namespace {name!r:.60} is not one of {known} (setting fabric.shared)"
        )


def log_notice(notice: Notice) -> None:
    """Tell the log; a quarantine needs a person, so it is a warning.

    Spec: CRP-SPEC-009 §8.4

    The reason is left out: it may say what the facts say.
    """
    level = logging.WARNING if notice.kind == "quarantined" else logging.INFO
    _LOG.log(
        level,
        "%s: source %s of namespace %s; facts %s, stale %s, returned %s",
        notice.kind,
        notice.source_id,
        notice.namespace,
        ", ".join(notice.facts) or "none",
        ", ".join(notice.stale) or "none",
        ", ".join(notice.returned) or "none",
    )


class FabricRegion:
    """A store with its engines, and what its namespaces share; safe between threads.

    Two regions share nothing, not even what is kept in memory.

    Args:
        store: where everything is kept.
        embedder: makes the vectors; a namespace stays with the one it was first written with.
        counter: counts the tokens that chunking and the length of facts mean.
        clock: tells when facts were ingested.
        keyring: for the journal.
        graphs: builds the graphs of large namespaces; None searches exactly at any size.
        notify: told of quarantines and changed sources; None for the log.
        leiden: finds communities; None for a fabric that has none.
        elsewhere: what is kept of facts outside of the store; None for nothing.
        guard: of every namespace that is bound without one; None for the local guard that allows
            everything.
        redactor: takes personal data out of texts where the guard says so; without one such texts
            are withheld.
        residency: the region's name; empty for none.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        counter: TokenCounter,
        clock: Clock,
        keyring: KeyRing,
        settings: FabricSettings | None = None,
        tracer: Tracer | None = None,
        graphs: GraphEngine | None = None,
        notify: Notify | None = None,
        leiden: CommunityEngine | None = None,
        elsewhere: DerivedContent | None = None,
        guard: Guard | None = None,
        redactor: Redactor | None = None,
        residency: str = "",
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.counter = counter
        self.clock = clock
        self.keyring = keyring
        self.settings = settings or FabricSettings()
        self.tracer: Tracer = tracer or Silent()
        self.graphs = graphs
        self.notify: Notify = notify or log_notice
        self.leiden = leiden
        self.elsewhere = elsewhere
        self.guard: Guard = guard or AllowAll()
        self.redactor = redactor
        self.residency = residency
        # Similarity graphs by namespace, of a store that has no place for files.
        self.similarities: dict[str, Similarity] = {}
        self.session_memory = SessionMemory(
            self.settings.hot, self.settings.lifecycle.session_idle_hours
        )
        self.recent_uses = RecentUses(self.settings.shelves)
        self._lock = threading.Lock()
        # The writing transactions of each thread, by namespace.
        self._under_way = threading.local()
        self._states: dict[str, NamespaceState] = {}

    def key(self, name: str) -> bytes:
        """The key that a namespace's journal is sealed with; one that is not there yet is made."""
        return journal_key(self.keyring, name)

    def begin(self, name: str, *, write: bool) -> AbstractContextManager[Transaction]:
        """A transaction of one namespace.

        A reading one shows what is prepared for this embedder while the namespace is on its way
        to it (§3.4).
        """
        begun = self.store.begin(name, write=write)
        return (
            self._writes(name, begun)
            if write
            else migration_transaction(begun, self.embedder.identity)
        )

    def tell(self, name: str, drafts: Sequence[EventDraft]) -> None:
        """Journal something about a namespace.

        Within the writing transaction that this thread has open on it, if any, and then it is
        committed with that one or not at all; else in a transaction of its own.
        """
        key, timestamp = self.key(name), iso(self.clock.now())
        under_way = self._under_way.__dict__.get(name)
        if under_way is not None:
            append_events(under_way.journal, key, drafts, timestamp)
            return
        with self.begin(name, write=True) as transaction:
            append_events(transaction.journal, key, drafts, timestamp)

    @contextmanager
    def _writes(
        self, name: str, begun: AbstractContextManager[Transaction]
    ) -> Iterator[Transaction]:
        """A writing transaction that the thread is known to have open."""
        with begun as transaction:
            self._under_way.__dict__[name] = transaction
            try:
                yield transaction
            finally:
                del self._under_way.__dict__[name]

    def check_embedder(self, facts: FactsFacet, shared: str = "") -> None:
        """Refuse to mix vectors of two embedders.

        Spec: CRP-SPEC-009 §3.4
        """
        stored = facts.setting(EMBEDDER_SETTING)
        if stored is not None and stored != self.embedder.identity:
            if migration_target(facts, self.embedder.identity):
                raise ConfigError(
                    f"the namespace is on its way from embedder {stored!r} to "
                    f"{self.embedder.identity!r}: until it is there, write with the first"
                )
            place = f"namespace {shared!r} of {self.store.name}" if shared else self.store.name
            raise ConfigError(
                f"the vectors in {place} were made by embedder {stored!r}, not by "
                f"{self.embedder.identity!r}; open it with the first, or move it: "
                "crp fabric maintain --reembed"
            )

    def check_key(self, name: str, journal: JournalFacet) -> None:
        """Refuse to go on with a chain under another key: neither part would verify.

        An empty journal asks for no key, so that looking at a store makes none.
        """
        if journal.tip() is None:
            return
        if not matches_key(journal, self.key(name)):
            # A stranger's key ring may show its key when it is printed; its type does not.
            ring = getattr(self.keyring, "path", None) or type(self.keyring).__name__
            raise ConfigError(
                f"the journal of namespace {name!r} in {self.store.name} was sealed "
                f"with another key than that of {ring}; open it with the key that it was made with"
            )

    def reembed(
        self, name: str, embedder: Embedder, progress: Progress | None = None
    ) -> ReembedReport:
        """Move a namespace to another embedder; for `Namespace.reembed` and the operator.

        Neither the old embedder nor a bound namespace is needed: a fabric that was made with the
        new one, which nothing can be bound from yet, moves its own namespaces with it.

        Spec: CRP-SPEC-009 §3.4
        """
        with self.store.begin(name, write=False) as transaction:
            self.check_key(name, transaction.journal)
        report = EmbedderMigration(
            begin=lambda write: self.store.begin(name, write=write),
            embedder=embedder,
            clock=self.clock,
            key=lambda: self.key(name),
            settings=self.settings,
            tracer=self.tracer,
            hash_in=self.namespace_state(name).hash_in,
        ).carry_out(progress or ignore_progress)
        if self.graphs is not None:
            # This fabric may still be one of the old embedder, so its own memory stays out of it.
            NamespaceState(
                lambda: self.store.begin(name, write=False),
                self.store.cache(name),
                self.settings.graph,
                self.graphs,
            ).settle(thorough=True)
        return report

    def namespace_state(self, name: str) -> NamespaceState:
        """What is kept in memory of a namespace."""
        with self._lock:
            if name not in self._states:
                self._states[name] = NamespaceState(
                    lambda: self.begin(name, write=False),
                    None if self.graphs is None else self.store.cache(name),
                    self.settings.graph,
                    self.graphs,
                    self.check_embedder,
                )
            return self._states[name]
