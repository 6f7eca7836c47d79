"""The fabric: a store with an embedder and a counter, which binds namespaces."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events, matches_key
from crp_integrations.audit.records import JournalFacet
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.errors import AccessDenied, ConfigError, RequestError
from crp_integrations.fabric.communities.similarity_graph import Similarity
from crp_integrations.fabric.embedder_migration import (
    EmbedderMigration,
    ReembedReport,
    migration_target,
    migration_transaction,
)
from crp_integrations.fabric.namespace import Namespace
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
from crp_integrations.fabric.search.fact_cache import FactCache
from crp_integrations.fabric.search.namespace_state import NamespaceState
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.fabric.session_memory import RecentUses, SessionMemory
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.shared_namespace import check_configured, refuse_reserved, stored_name
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.guard.decisions import LOCAL, AllowAll, Guard, Subject
from crp_integrations.guard.ports import Redactor
from crp_integrations.ports import Clock, Embedder, KeyRing, Silent, TokenCounter, Tracer
from crp_integrations.seals import iso

_LOG = logging.getLogger("crp_integrations.fabric")


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


class Fabric:
    """Knowledge of many tenants in one store; safe between threads.

    A fabric reads and writes nothing by itself: `bind` gives the namespace that does. What
    the namespaces of one tenant share, the index and the state hash, is kept here.

    Args:
        store: where everything is kept.
        embedder: makes the vectors; a namespace stays with the one it was first written with.
        counter: counts the tokens that chunking and the length of facts mean.
        clock: tells when facts were ingested.
        keyring: for the journal.
        regions: stores by the region whose data they keep (§7.2).
        graphs: builds the graphs of large namespaces; None searches exactly at any size.
        leiden: finds communities; None for a fabric that has none.
        notify: told of quarantines and changed sources; None for the log.
        elsewhere: what is kept outside of the store, by region, `""` for none.
        guard: of every namespace that is bound without one; None for the local guard that allows
            everything.
        redactor: takes personal data out of texts where the guard says so; without one such texts
            are withheld.
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
        regions: Mapping[str, Store] | None = None,
        graphs: GraphEngine | None = None,
        notify: Notify | None = None,
        leiden: CommunityEngine | None = None,
        elsewhere: Mapping[str, DerivedContent] | None = None,
        guard: Guard | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.counter = counter
        self.clock = clock
        self.keyring = keyring
        self.settings = settings or FabricSettings()
        self.tracer: Tracer = tracer or Silent()
        self.notify: Notify = notify or log_notice
        self.leiden = leiden
        self.guard: Guard = guard or AllowAll()
        self.redactor = redactor
        derived = elsewhere or {}
        self.elsewhere = derived.get("")
        # Similarity graphs by namespace, of a store that has no place for files.
        self.similarities: dict[str, Similarity] = {}
        self._lock = threading.Lock()
        # The writing transactions of each thread, by namespace.
        self._under_way = threading.local()
        self.graphs = graphs
        self._states: dict[str, NamespaceState] = {}
        self.session_memory = SessionMemory(
            self.settings.hot, self.settings.lifecycle.session_idle_hours
        )
        self.recent_uses = RecentUses(self.settings.shelves)
        self.fact_cache = FactCache(self.settings.ready_bytes)
        # A region is a fabric of its own: nothing is shared between two, not even what is kept in
        # memory.
        self.residency = ""
        self._regions = {
            name.lower(): Fabric(
                place,
                embedder,
                counter,
                clock,
                keyring,
                settings=settings,
                tracer=tracer,
                graphs=graphs,
                notify=notify,
                leiden=leiden,
                elsewhere={"": derived[name]} if name in derived else None,
                guard=guard,
                redactor=redactor,
            )
            for name, place in (regions or {}).items()
        }
        for name, region in self._regions.items():
            region.residency = name

    def bind(
        self, subject: Subject = LOCAL, guard: Guard | None = None, *, residency: str = ""
    ) -> Namespace:
        """The subject's namespace, the only way to read: own facts and the shared ones.

        Spec: CRP-SPEC-009 §7.2, §9.1, §9.2
        """
        if not subject.tenant.strip():
            raise AccessDenied(f"subject {subject.name!r} names no tenant, so access is denied")
        refuse_reserved(subject.tenant)
        return self.region(residency)._bound(subject, guard, self.settings.shared)

    def bind_shared(
        self, name: str, guard: Guard | None = None, *, residency: str = ""
    ) -> Namespace:
        """The operator's writable namespace behind a shared name.

        Whoever holds the fabric is the operator; tenants are given namespaces only.

        Spec: CRP-SPEC-009 §9.2
        """
        check_configured(name, self.settings.shared)
        operator = Subject(tenant=stored_name(name), name="operator")
        return self.region(residency)._bound(operator, guard, ())

    def region(self, residency: str) -> Fabric:
        """The fabric of a region; this one for an empty name.

        Spec: CRP-SPEC-009 §7.2
        """
        if not residency:
            return self
        region = self._regions.get(residency.lower())
        if region is None:
            raise RequestError(
                f"residency {residency!r:.40} is not one of the regions {self.regions}"
            )
        return region

    @property
    def regions(self) -> list[str]:
        """Names of the regions, ascending."""
        return sorted(self._regions)

    def _bound(self, subject: Subject, guard: Guard | None, shared: Sequence[str]) -> Namespace:
        with self.begin(subject.tenant, write=False) as transaction:
            self.check_embedder(transaction.facts)
            self.check_key(subject.tenant, transaction.journal)
        names = [stored_name(name) for name in shared]
        for name in names:
            with self.begin(name, write=False) as transaction:
                self.check_embedder(transaction.facts, name)
        return Namespace(self, subject, guard or self.guard, names)

    # --- for namespaces ----------------------------------------------------------------

    def begin(self, name: str, *, write: bool) -> AbstractContextManager[Transaction]:
        """A transaction of one namespace; for `Namespace` and `NamespaceReader` alone.

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
        key, timestamp = journal_key(self.keyring, name), iso(self.clock.now())
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
        if not matches_key(journal, journal_key(self.keyring, name)):
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
            key=lambda: journal_key(self.keyring, name),
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

    def index(self, name: str) -> VectorIndex:
        """The index of a namespace's present state."""
        with self.begin(name, write=False) as transaction:
            return self.namespace_state(name).snapshot(transaction.facts).index
