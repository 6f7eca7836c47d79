"""`MemoryStore`: namespaces as states that replace each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from crp_integrations.errors import StoreError
from crp_integrations.language.words import stems_of
from crp_integrations.stores.locks import WriterLocks
from crp_integrations.stores.memory.facts import MemoryFacts
from crp_integrations.stores.memory.faulted import MemoryFaulted
from crp_integrations.stores.memory.jobs import MemoryJobs
from crp_integrations.stores.memory.journal import MemoryJournal
from crp_integrations.stores.memory.receipts import MemoryReceipts
from crp_integrations.stores.memory.sessions import MemorySessions
from crp_integrations.stores.memory.state import Draft, State
from crp_integrations.stores.memory.text import TextIndex
from crp_integrations.stores.rules import Gate, checked_name
from crp_integrations.stores.scratch import FileScratch, in_memory


@dataclass(frozen=True, slots=True)
class MemoryTransaction:
    """All facets of one namespace over one draft."""

    facts: MemoryFacts
    journal: MemoryJournal
    sessions: MemorySessions
    faulted: MemoryFaulted
    receipts: MemoryReceipts


class _Texts:
    """The text index of the last state that was searched, and the stems of all texts seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stems: dict[str, tuple[str, ...]] = {}
        self._made: tuple[object, TextIndex] | None = None

    def index(self, state: State) -> TextIndex:
        """The index of a state's retrievable facts."""
        with self._lock:
            if self._made is None or self._made[0] is not state.texts:
                live = [f for f in state.facts.values() if f.retrievable]
                known = self._stems
                self._stems = {
                    f.content_hash: known.get(f.content_hash) or stems_of(f.content) for f in live
                }
                index = TextIndex({f.fact_id: self._stems[f.content_hash] for f in live})
                self._made = (state.texts, index)
            return self._made[1]


class MemoryStore:
    """Keeps everything in the process; safe under threads."""

    def __init__(self, *, busy_seconds: float = 5.0) -> None:
        """Make an empty store.

        Args:
            busy_seconds: how long a writer waits for another one of its namespace.
        """
        self._writers = WriterLocks(busy_seconds)
        self._states: dict[str, State] = {}
        self._texts: dict[str, _Texts] = {}
        self._closed = False
        self._jobs = MemoryJobs()

    @property
    def jobs(self) -> MemoryJobs:
        """The jobs that threads share."""
        return self._jobs

    @property
    def name(self) -> str:
        """Kind and place for people."""
        return "memory"

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[MemoryTransaction]:
        """Open a transaction: commits when the block ends, undoes everything when it raises.

        Raises:
            StoreBusy: another thread held the write lock for too long.
            StoreError: the store is closed, or this thread writes in the namespace already.
        """
        checked_name(namespace)
        self._refuse_closed()
        if not write:
            with self._draft(namespace, write=False) as draft:
                yield self._transaction(draft)
            return
        with self._writers.held(namespace), self._draft(namespace, write=True) as draft:
            yield self._transaction(draft)
            self._states[namespace] = draft.state

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were ever written, ascending."""
        self._refuse_closed()
        return sorted(self._states)

    def cache(self, namespace: str) -> None:
        """None: there are no files."""
        self._refuse_closed()
        checked_name(namespace)

    def scratch(self) -> FileScratch:
        """A scratch in memory, for what an ingestion puts down."""
        self._refuse_closed()
        return in_memory()

    def scrub(self, namespace: str) -> bool:
        """Do nothing: there are no files."""
        self._refuse_closed()
        checked_name(namespace)
        return True

    def compact(self, namespace: str) -> None:
        """Do nothing: there are no files."""
        self._refuse_closed()
        checked_name(namespace)

    def check(self, namespace: str) -> list[str]:
        """Nothing: there are no files that something could be wrong with."""
        self._refuse_closed()
        checked_name(namespace)
        return []

    def files(self, namespace: str) -> Mapping[str, int]:
        """Nothing: there are no files."""
        self._refuse_closed()
        checked_name(namespace)
        return {}

    def close(self) -> None:
        """Forget everything; calling it twice does nothing."""
        self._closed = True
        self._states.clear()
        self._texts.clear()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")

    @contextmanager
    def _draft(self, namespace: str, *, write: bool) -> Iterator[Draft]:
        gate = Gate(write=write)
        try:
            yield Draft(namespace, self._states.get(namespace, State()), gate)
        finally:
            gate.shut()

    def _transaction(self, draft: Draft) -> MemoryTransaction:
        texts = self._texts.setdefault(draft.namespace, _Texts())
        return MemoryTransaction(
            MemoryFacts(draft, texts.index),
            MemoryJournal(draft),
            MemorySessions(draft),
            MemoryFaulted(draft),
            MemoryReceipts(draft),
        )
