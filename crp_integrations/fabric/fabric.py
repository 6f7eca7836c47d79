"""The fabric: a store with an embedder and a counter, out of which namespaces are bound."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from crp_integrations.audit.journal import sealed_with
from crp_integrations.audit.keys import journal_key
from crp_integrations.audit.ports import JournalFacet
from crp_integrations.errors import AccessDenied, ConfigError
from crp_integrations.fabric.index import Index
from crp_integrations.fabric.ingestion import EMBEDDER_SETTING
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import FactsFacet, Store, Transaction
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.guard.decisions import AllowAll, Guard
from crp_integrations.guard.subjects import LOCAL, Subject
from crp_integrations.ports import Clock, Embedder, KeyRing, Silent, TokenCounter, Tracer


class Fabric:
    """Knowledge of many tenants in one store; safe between threads.

    A fabric reads and writes nothing by itself: `bind` gives the namespace that does. What
    the namespaces of one tenant share, the index and the state hash of a generation, is kept
    here.

    Args:
        store: where everything is kept.
        embedder: makes the vectors; a namespace stays with the one it was first written with.
        counter: counts the tokens that chunking and the length of facts mean.
        clock: tells when facts were ingested.
        keyring: for the journal.
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
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.counter = counter
        self.clock = clock
        self.keyring = keyring
        self.settings = settings or FabricSettings()
        self.tracer: Tracer = tracer or Silent()
        self._lock = threading.Lock()
        self._indexes: dict[str, Index] = {}
        self._hashes: dict[str, tuple[int, str]] = {}

    def bind(self, subject: Subject = LOCAL, guard: Guard | None = None) -> Namespace:
        """The subject's namespace, the only way to read.

        Args:
            subject: who asks; the tenant decides which namespace.
            guard: decides on labels; None for the local guard that allows everything.

        Raises:
            AccessDenied: the subject names no tenant.
            ConfigError: the stored vectors are of another embedder, or the journal was sealed
                with another key.
        """
        if not subject.tenant.strip():
            raise AccessDenied(f"subject {subject.name!r} names no tenant, so access is denied")
        with self.begin(subject, write=False) as transaction:
            self.check_embedder(transaction.facts)
            self.check_key(subject, transaction.journal)
        return Namespace(self, subject, guard or AllowAll())

    # --- for namespaces ----------------------------------------------------------------

    def begin(self, subject: Subject, *, write: bool) -> AbstractContextManager[Transaction]:
        """A transaction of the subject's tenant; for `Namespace` alone."""
        return self.store.begin(subject.tenant, write=write)

    def check_embedder(self, facts: FactsFacet) -> None:
        """Refuse to mix vectors of two embedders.

        Spec: CRP-SPEC-009 §3.4

        Raises:
            ConfigError: names the embedder stored and the one at hand.
        """
        stored = facts.setting(EMBEDDER_SETTING)
        if stored is not None and stored != self.embedder.identity:
            raise ConfigError(
                f"the vectors in {self.store.name} were made by embedder {stored!r}, not by "
                f"{self.embedder.identity!r}; open it with the first, or ingest into a new store"
            )

    def check_key(self, subject: Subject, journal: JournalFacet) -> None:
        """Refuse to go on with a chain under another key: neither part would verify.

        An empty journal asks for no key, so that looking at a store makes none.

        Raises:
            ConfigError: names the store and the key ring.
        """
        if journal.tip() is None:
            return
        if not sealed_with(journal, journal_key(self.keyring, subject.tenant)):
            # A stranger's key ring may show its key when it is printed; its type does not.
            ring = getattr(self.keyring, "path", None) or type(self.keyring).__name__
            raise ConfigError(
                f"the journal of namespace {subject.tenant!r} in {self.store.name} was sealed "
                f"with another key than that of {ring}; open it with the key that it was made with"
            )

    def index(self, subject: Subject) -> Index:
        """The index of the tenant's present generation."""
        with self.begin(subject, write=False) as transaction:
            generation = transaction.facts.generation()
            known = self._indexes.get(subject.tenant)
            if known is not None and known.generation == generation:
                return known
            # One thread reads the vectors; the others wait for its block.
            with self._lock:
                known = self._indexes.get(subject.tenant)
                if known is None or known.generation != generation:
                    self.check_embedder(transaction.facts)
                    known = Index.read(transaction.facts)
                    self._indexes[subject.tenant] = known
                return known

    def state_hash(self, subject: Subject) -> str:
        """The state hash of the tenant's present generation."""
        with self.begin(subject, write=False) as transaction:
            generation = transaction.facts.generation()
            known = self._hashes.get(subject.tenant)
            if known is None or known[0] != generation:
                known = (generation, state_hash(transaction.facts.state()))
                self._hashes[subject.tenant] = known
            return known[1]
