"""The last committed state of a namespace in memory, updated from its change log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from crp_integrations.errors import ConfigError, EngineError, StoreError
from crp_integrations.fabric.ports import Cache, FactsFacet, GraphEngine, LogMark, Transaction
from crp_integrations.fabric.search.neighbour_graph import NeighbourGraphs
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING, Item, StateHash, epoch_item
from crp_integrations.vocabulary import RETRIEVABLE

# Up to this many facts, the items of a state hash are always kept in memory. With more, they are
# kept only after a small change, to save memory in processes that ingest once or ask once.
MAX_HELD_ITEMS = 50_000
# Maximum log entries for which a state hash is updated incrementally. With more changes, reading
# everything again costs hardly more and needs no memory for the changes.
MAX_FOLLOWED = 8_192


@dataclass(frozen=True, slots=True)
class _HashedState:
    """The state hash of one state.

    Attributes:
        items: items for computing the next hash; None if they have to be read from the store.
    """

    mark: LogMark
    generation: int
    epoch: Item | None
    digest: str
    items: StateHash | None


class StateHashes:
    """The state hashes of the last two requested states; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[_HashedState, ...] = ()

    def of(self, facts: FactsFacet) -> str:
        """The state hash of what a transaction sees, including its own writes.

        Spec: CRP-SPEC-009 §6.1
        """
        made = self._made(facts)
        with self._lock:
            others = [known for known in self._known if known.mark != made.mark]
            self._known = (*others[-1:], made)
        return made.digest

    def _made(self, facts: FactsFacet) -> _HashedState:
        """Compute the hash from the most recent usable hash, or else from every fact."""
        mark, generation, epoch = facts.mark(), facts.generation(), epoch_item(facts)
        hold: int | None = MAX_HELD_ITEMS
        for known in reversed(self._known):
            if (known.mark, known.generation, known.epoch) == (mark, generation, epoch):
                return known
            if not 0 <= mark.sequence - known.mark.sequence <= MAX_FOLLOWED:
                continue
            changed = facts.changes(known.mark)
            if changed is None:
                continue
            if known.items is not None:
                items = known.items.changed(changed, facts.state(changed), epoch)
                return _HashedState(mark, generation, epoch, items.digest, items)
            if not changed and known.epoch == epoch:
                return _HashedState(mark, generation, epoch, known.digest, None)
            # After one small change, more are likely: keep the items whatever their number.
            hold = None
            break
        items = StateHash(facts.state(), epoch)
        held = items if hold is None or len(items) <= hold else None
        return _HashedState(mark, generation, epoch, items.digest, held)


# Number of states kept, so that a reader that began slightly earlier still finds its state.
_SNAPSHOTS = 4
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One committed state of a namespace.

    Attributes:
        mark: position of the state in the change log.
        index: the retrievable facts.
        lacking: whether the size requires a graph and there is none, or an outdated one.
    """

    mark: LogMark
    index: VectorIndex
    lacking: bool

    @property
    def generation(self) -> int:
        """Generation of the state."""
        return self.index.generation


class NamespaceState:
    """The last states of one namespace; thread-safe.

    A new state is made from an earlier one and the facts that changed in between. Snapshots are
    kept from read transactions only, since a write transaction may be rolled back. A hash is kept
    from either, since its mark shows whether the state was committed.

    Args:
        begin: opens a read transaction of the namespace.
        cache: contains the graph's file; None for a store without files.
        engine: builds graphs; None for exact search at any size.
        check: raises ConfigError if the vectors are from another embedder.
    """

    def __init__(
        self,
        begin: Callable[[], AbstractContextManager[Transaction]],
        cache: Cache | None,
        settings: VectorGraphSettings,
        engine: GraphEngine | None = None,
        check: Callable[[FactsFacet], None] = lambda facts: None,
    ) -> None:
        self._begin = begin
        self._settings = settings
        self._graphs = None if engine is None else NeighbourGraphs(engine, cache, settings)
        self._check = check
        self._lock = threading.Lock()
        self._settling = threading.Lock()
        self._snapshots: tuple[Snapshot, ...] = ()
        self._hashes = StateHashes()
        # Number of searches without the graph they needed, and whether a warning was logged.
        self._searches_without_graph = 0
        self._warned = False

    # --- in a reading transaction --------------------------------------------------------

    def snapshot(self, facts: FactsFacet) -> Snapshot:
        """The state that a read transaction sees."""
        snapshot = self._current(facts)
        return self._find_graph(facts, snapshot) if snapshot.lacking else snapshot

    def state_hash(self, facts: FactsFacet) -> str:
        """The state hash of what a read transaction sees.

        Spec: CRP-SPEC-009 §6.1
        """
        # One thread computes the hash; the others wait for it.
        with self._lock:
            return self._hashes.of(facts)

    def seen_facts(self) -> bool:
        """Whether the most recently read state contained facts."""
        snapshots = self._snapshots
        return bool(snapshots) and len(snapshots[-1].index) > 0

    # --- in any transaction --------------------------------------------------------------

    def retrievable(self, facts: FactsFacet, ids: Sequence[str]) -> set[str]:
        """The ids of retrievable facts, from a snapshot of this state if there is one."""
        snapshot = self._known(facts.mark(), facts.generation()) if self._snapshots else None
        if snapshot is None:
            return {id_ for id_, _ in facts.retrievable(ids)}
        places = snapshot.index.places(ids)
        return {id_ for id_, place in zip(ids, places, strict=True) if place is not None}

    def hash_in(self, facts: FactsFacet) -> str:
        """The state hash of what a transaction sees, including its own writes.

        Spec: CRP-SPEC-009 §6.1
        """
        return self._hashes.of(facts)

    # --- after a commit ------------------------------------------------------------------

    def settle(self, *, thorough: bool = False) -> bool:
        """Update the state in memory, and build the graph if it is due; called by writers.

        Spec: CRP-SPEC-009 §3.3
        """
        # A writer that arrives while a graph is being built leaves the rest to the next writer.
        if not self._settling.acquire(blocking=False):
            return False
        try:
            return self._settled(thorough)
        except (ConfigError, EngineError, StoreError) as error:
            _log.warning("the index could not be brought up to date: %s", error)
            return False
        finally:
            self._settling.release()

    def _settled(self, thorough: bool) -> bool:
        graphs = self._graphs
        with self._begin() as transaction:
            facts = transaction.facts
            # With this hash in memory, later changes are incremental even if nothing is read.
            self.state_hash(facts)
            # A process that has read nothing yet must not load a namespace too small for a graph.
            if graphs is None or not (self._snapshots or graphs.wanted(_retrievable(facts))):
                return False
            snapshot = self._current(facts)
            if snapshot.lacking and (loaded := self._loaded(facts, snapshot)):
                snapshot = loaded
            embedder = facts.setting(EMBEDDER_SETTING) or ""
            lost = thorough and graphs.keeps and not graphs.is_kept(facts)
        index = snapshot.index
        if not graphs.due(index) and not (lost and graphs.wanted(len(index))):
            return False
        built = self._snapshot_of(snapshot.mark, graphs.build(index))
        with self._lock:
            # Later states are made from this one; readers of earlier states keep their snapshots.
            earlier = [p for p in self._snapshots if p.mark.sequence < built.mark.sequence]
            self._snapshots = (*earlier, built)
        graphs.save(built.index, built.mark, embedder)
        return True

    def _current(self, facts: FactsFacet) -> Snapshot:
        mark, generation = facts.mark(), facts.generation()
        snapshot = self._known(mark, generation)
        if snapshot is None:
            # One thread updates the state; the others wait for it.
            with self._lock:
                snapshot = self._known(mark, generation)
                if snapshot is None:
                    self._check(facts)
                    snapshot = self._made(facts, mark)
        return snapshot

    def _known(self, mark: LogMark, generation: int) -> Snapshot | None:
        for snapshot in reversed(self._snapshots):
            # Changes that only filters see, such as metadata, change the generation, not the log.
            if snapshot.mark == mark and snapshot.generation == generation:
                return snapshot
        return None

    def _snapshot_of(self, mark: LogMark, index: VectorIndex) -> Snapshot:
        if self._graphs is None:
            return Snapshot(mark, index, lacking=len(index) > self._settings.exact_up_to)
        return Snapshot(mark, index, lacking=self._graphs.due(index))

    def _made(self, facts: FactsFacet, mark: LogMark) -> Snapshot:
        """Make a snapshot from the nearest earlier one, or else from the whole store."""
        for earlier in reversed(self._snapshots):
            if earlier.mark.sequence <= mark.sequence:
                changed = facts.changes(earlier.mark)
                index = None if changed is None else earlier.index.advanced(facts, changed)
                if index is not None:
                    return self._keep(self._snapshot_of(mark, self._without_worn_graph(index)))
        # The log does not connect any of them to this state, so they may be of another history.
        self._snapshots = ()
        graphs = self._graphs
        index = None
        if graphs is not None and graphs.wanted(_retrievable(facts)):
            index = graphs.load(facts)
        return self._keep(self._snapshot_of(mark, index or VectorIndex.read(facts)))

    def _without_worn_graph(self, index: VectorIndex) -> VectorIndex:
        """Drop an outdated graph that will not be rebuilt, and merge the rows into one block."""
        graphs = self._graphs
        if graphs is None or index.graph is None or graphs.wanted(len(index)):
            return index
        if index.worn <= self._settings.rebuild_share:
            return index
        return index.with_graph(None).merged()

    def _keep(self, made: Snapshot) -> Snapshot:
        """Add a snapshot to the last ones; at most two base blocks stay in memory."""
        others = [snapshot for snapshot in self._snapshots if snapshot.mark != made.mark]
        ordered = sorted([*others, made], key=lambda state: state.mark.sequence)[-_SNAPSHOTS:]
        bases = {id(snapshot.index.base) for snapshot in ordered[-2:]}
        self._snapshots = tuple(p for p in ordered if id(p.index.base) in bases)
        return made

    def _find_graph(self, facts: FactsFacet, snapshot: Snapshot) -> Snapshot:
        """Look for a graph that another process has built; never build one here."""
        size = len(snapshot.index)
        if self._graphs is None:
            self._warn_once(
                "%d facts are compared one by one; above %d a graph is faster: "
                "pip install 'crp-integrations[hnsw]'",
                size,
            )
            return snapshot
        self._searches_without_graph += 1
        if self._searches_without_graph & (self._searches_without_graph - 1) == 0:
            loaded = self._loaded(facts, snapshot)
            if loaded is not None:
                self._searches_without_graph = 0
                return loaded
        if snapshot.index.graph is None:
            self._warn_once(
                "%d facts are compared one by one, since there is no graph of them yet (above %d "
                "one is faster); build it with `crp fabric maintain`",
                size,
            )
        return snapshot

    def _loaded(self, facts: FactsFacet, snapshot: Snapshot) -> Snapshot | None:
        """The same state with a graph saved by another process, if it is less outdated."""
        if self._graphs is None or not self._graphs.keeps:
            return None
        with self._lock:
            index = self._graphs.load(facts)
            if index is None or (snapshot.index.graph and index.worn >= snapshot.index.worn):
                return None
            return self._keep(self._snapshot_of(snapshot.mark, index))

    def _warn_once(self, message: str, size: int) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(message, size, self._settings.exact_up_to)


def _retrievable(facts: FactsFacet) -> int:
    tally = facts.tally()
    return sum(tally.get(status.value, 0) for status in RETRIEVABLE)
