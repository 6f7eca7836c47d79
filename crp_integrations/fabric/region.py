"""One store with its engines, and the in-memory state of its namespaces."""

from __future__ import annotations

import logging
import threading
import unicodedata
from collections import Counter
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
from crp_integrations.fabric.search.fact_cache import FactCache
from crp_integrations.fabric.search.namespace_state import NamespaceState
from crp_integrations.fabric.session_memory import RecentUses, SessionMemory
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.similarity_graph import Similarity
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.guard.decisions import AllowAll, Guard
from crp_integrations.guard.ports import Redactor
from crp_integrations.ports import Clock, Embedder, KeyRing, Silent, TokenCounter, Tracer
from crp_integrations.seals import iso
from crp_integrations.validation import require_settings

_LOG = logging.getLogger("crp_integrations.fabric")

# Reserved prefix: tenant names cannot begin with it, so no tenant's namespace is a shared one.
PREFIX = "shared:"


def stored_name(name: str) -> str:
    """Return the name of a shared namespace in the store."""
    return PREFIX + name


def refuse_reserved(tenant: str) -> None:
    """Refuse a tenant with the reserved prefix, also in compatible letter forms (NFKC)."""
    if unicodedata.normalize("NFKC", tenant).strip().casefold().startswith(PREFIX):
        raise AccessDenied(
            f"tenant {tenant!r:.60} begins with {PREFIX!r}, reserved for shared namespaces, "
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
    """Log a notice; a quarantine needs a person's attention, so it is a warning.

    Spec: CRP-SPEC-009 §8.4

    The reason is left out, since it may repeat what the facts say.
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
    """A store with its engines, and what its namespaces share; thread-safe.

    Two regions share nothing, not even state in memory.

    Args:
        store: stores all facts, journals and settings.
        embedder: makes the vectors; a namespace keeps the embedder of its first write.
        counter: counts tokens for chunking and for the length of facts.
        clock: gives the current time, for example of ingestion.
        keyring: provides the keys of the journals.
        graphs: builds the graphs of large namespaces; None for exact search at any size.
        notify: receives notices of quarantines and changed sources; None for the log.
        leiden: finds communities; None for a fabric without communities.
        elsewhere: content derived from facts outside of the store; None for none.
        guard: default guard of namespaces bound without one; None for the local guard that allows
            everything.
        redactor: removes personal data from texts where the guard requires it; without one such
            texts are withheld.
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
        self.settings = require_settings(settings, FabricSettings)
        self.tracer: Tracer = tracer or Silent()
        self.graphs = graphs
        self.notify: Notify = notify or log_notice
        self.leiden = leiden
        self.elsewhere = elsewhere
        self.guard: Guard = guard or AllowAll()
        self.redactor = redactor
        self.residency = residency
        # Similarity graphs by namespace, for a store that cannot cache files.
        self.similarities: dict[str, Similarity] = {}
        # Number of bulk loads under way in this process, by namespace.
        self.loads: Counter[str] = Counter()
        self.session_memory = SessionMemory(
            self.settings.hot, self.settings.lifecycle.session_idle_hours
        )
        self.recent_uses = RecentUses(self.settings.shelves)
        self.fact_cache = FactCache()
        self._lock = threading.Lock()
        # The open write transactions of each thread, by namespace.
        self._open_writes = threading.local()
        self._states: dict[str, NamespaceState] = {}

    def key(self, name: str) -> bytes:
        """Return the key that seals a namespace's journal; create it if it does not exist yet."""
        return journal_key(self.keyring, name)

    def begin(self, name: str, *, write: bool) -> AbstractContextManager[Transaction]:
        """Begin a transaction of one namespace.

        While the namespace is being migrated to this embedder, a read transaction uses the
        prepared vectors (§3.4).
        """
        begun = self.store.begin(name, write=write)
        return (
            self._writes(name, begun)
            if write
            else migration_transaction(begun, self.embedder.identity)
        )

    def tell(self, name: str, drafts: Sequence[EventDraft]) -> None:
        """Append events to a namespace's journal.

        If this thread has a write transaction open on the namespace, the events are part of it;
        otherwise they are committed in a transaction of their own.
        """
        key, timestamp = self.key(name), iso(self.clock.now())
        under_way = self._open_writes.__dict__.get(name)
        if under_way is not None:
            append_events(under_way.journal, key, drafts, timestamp)
            return
        with self.begin(name, write=True) as transaction:
            append_events(transaction.journal, key, drafts, timestamp)

    @contextmanager
    def _writes(
        self, name: str, begun: AbstractContextManager[Transaction]
    ) -> Iterator[Transaction]:
        """A write transaction that is registered as open in this thread."""
        with begun as transaction:
            self._open_writes.__dict__[name] = transaction
            try:
                yield transaction
            finally:
                del self._open_writes.__dict__[name]

    def check_embedder(self, facts: FactsFacet, shared: str = "") -> None:
        """Refuse to mix vectors of two embedders.

        Spec: CRP-SPEC-009 §3.4
        """
        stored = facts.setting(EMBEDDER_SETTING)
        if stored is not None and stored != self.embedder.identity:
            if migration_target(facts, self.embedder.identity):
                raise ConfigError(
                    f"the namespace is being moved from embedder {stored!r} to "
                    f"{self.embedder.identity!r}: until it is moved, write with the first"
                )
            place = f"namespace {shared!r} of {self.store.name}" if shared else self.store.name
            raise ConfigError(
                f"the vectors in {place} were made by embedder {stored!r}, not by "
                f"{self.embedder.identity!r}; open it with the first, or move it: "
                "crp fabric maintain --reembed"
            )

    def check_key(self, name: str, journal: JournalFacet) -> None:
        """Refuse to continue a journal with another key, since the chain would not verify.

        For an empty journal no key is needed, so that looking at a store creates none.
        """
        if journal.tip() is None:
            return
        if not matches_key(journal, self.key(name)):
            # Printing an unknown key ring might reveal its key; printing its type does not.
            ring = getattr(self.keyring, "path", None) or type(self.keyring).__name__
            raise ConfigError(
                f"the journal of namespace {name!r} in {self.store.name} was sealed "
                f"with another key than that of {ring}; open it with the key that sealed it"
            )

    def reembed(
        self, name: str, embedder: Embedder, progress: Progress | None = None
    ) -> ReembedReport:
        """Move a namespace to another embedder; for `Namespace.reembed` and the operator.

        Neither the old embedder nor a bound namespace is needed: a fabric made with the new
        embedder can move its namespaces although it cannot bind them yet.

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
            # A fresh state, since this fabric's own may still use the old embedder.
            NamespaceState(
                lambda: self.store.begin(name, write=False),
                self.store.cache(name),
                self.settings.graph,
                self.graphs,
            ).settle(thorough=True)
        return report

    def forget(self, name: str) -> None:
        """Drop everything of a namespace that is held in memory."""
        with self._lock:
            self._states.pop(name, None)
        self.similarities.pop(name, None)
        self.recent_uses.clear(name)
        self.fact_cache.drop(name)

    def namespace_state(self, name: str) -> NamespaceState:
        """Return the in-memory state of a namespace."""
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
