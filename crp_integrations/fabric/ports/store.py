"""The store, its transactions, and the optional parts that a store may offer beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, cast

from pydantic import JsonValue

from crp_integrations.audit.records import JournalFacet
from crp_integrations.fabric.ports.facts import FactsFacet


class Transaction(Protocol):
    """All facets of one namespace."""

    @property
    def facts(self) -> FactsFacet: ...

    @property
    def journal(self) -> JournalFacet: ...


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A derived file that was found whole.

    Attributes:
        path: the file, for reading now; another writer may replace it at any time.
        about: what was said of it when it was saved.
    """

    path: str
    about: Mapping[str, JsonValue]


class Cache(Protocol):
    """Derived files of one namespace: each can be lost at any time and be made again.

    A file counts only with a manifest of its name, namespace, length and SHA-256 that fits;
    anything else is logged, removed and reported as absent.
    """

    def load(self, name: str) -> CachedFile | None:
        """A file whose manifest was checked; None when there is none or it is damaged."""
        ...

    def save(
        self,
        name: str,
        about: Mapping[str, JsonValue],
        write: Callable[[str], None],
        still_valid: Callable[[Transaction], bool],
    ) -> bool:
        """Write a file under a temporary name, sync it, and give it its name.

        Args:
            write: is called with the path to write.
            still_valid: asked in a writing transaction right before the renaming, so that nothing
                is published that holds what was erased meanwhile.

        Returns:
            Whether it was published.
        """
        ...

    def drop(self, name: str | None = None) -> None:
        """Remove a file, or all of them, temporary ones of other processes included."""
        ...


class DerivedContent(Protocol):
    """What is kept of facts outside of the store, such as artifacts."""

    def erase(self, namespace: str, ids: Iterable[str], now: datetime) -> int:
        """Erase what comes from these facts or sources; returns how many things that were.

        Raises:
            StoreError: it could not be done; call it again.
        """
        ...


class Store(Protocol):
    """Where everything is kept."""

    @property
    def name(self) -> str:
        """Kind and place for people, such as `sqlite:kb`."""
        ...

    def begin(self, namespace: str, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction: commits when the block ends, undoes everything when it raises.

        A reading transaction sees one state of the namespace throughout, may run beside a
        writing one, and refuses to write.

        Raises:
            StoreBusy: another process held the write lock for too long.
            StoreDamaged, StoreNewer: the files cannot be used.
        """
        ...

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were ever written, ascending."""
        ...

    def cache(self, namespace: str) -> Cache | None:
        """Where derived files of a namespace are kept; None for a store without files."""
        ...

    def scrub(self, namespace: str) -> bool:
        """Take every byte of what was removed off the disk: free pages, log, text index, caches.

        A removal notes in its own transaction that this is due, so that it can be asked for at any
        time, by any process, and costs nothing when nothing is due. Not within a transaction.

        Returns:
            False when a reader still holds an old state; call it again later.

        Raises:
            StoreBusy: another process wrote for too long; call it again later.
        """
        ...

    def compact(self, namespace: str) -> None:
        """Rewrite the namespace's files without free space, scrubbed. Not within a transaction.

        Raises:
            StoreBusy: another process used the files for too long.
        """
        ...

    def check(self, namespace: str) -> list[str]:
        """What is wrong with the namespace's files, one sentence each; empty when nothing is.

        Raises:
            StoreBusy: another process wrote for too long.
        """
        ...

    def files(self, namespace: str) -> Mapping[str, int]:
        """Bytes by file name, caches included; empty for a store without files."""
        ...

    def close(self) -> None:
        """Release files and connections; calling it twice does nothing."""
        ...


class WorkLocks(Protocol):
    """What a store has that many processes open, beside `Store`."""

    def alone(self, namespace: str, work: str) -> AbstractContextManager[bool]:
        """Keep other processes from a long work on a namespace for the length of the block.

        What is written must not rest on it: a lock goes with a connection that is lost.

        Args:
            work: its name.

        Returns:
            Whether nobody else has it; at once.
        """
        ...


class IndexedStore(Protocol):
    """What a store has that searches with an index of its own, beside `Store`."""

    def settle(self, namespace: str) -> bool:
        """Build the namespace's index when one is due; whether it was built."""
        ...


class WriteCheck(Protocol):
    """What a store has that may be open where nothing can be written, beside `Store`."""

    def must_write(self, namespace: str) -> None:
        """Refuse where a namespace cannot be written just now, or by whoever has it open.

        Costs next to nothing where it can be, since every question asks it. That a write then
        succeeds is not promised.

        Raises:
            StoreBusy: as on a standby.
            AccessDenied: the login, or the user, may not write it.
            StoreError: there is no room for it.
        """
        ...


def must_write(store: Store, namespace: str) -> None:
    """As `WriteCheck`; a store that has no such thing finds out as it writes."""
    if hasattr(store, "must_write"):
        cast("WriteCheck", store).must_write(namespace)


def build_due_index(store: Store, namespace: str) -> bool:
    """As `IndexedStore`; a store without an index of its own has nothing to build."""
    return hasattr(store, "settle") and cast("IndexedStore", store).settle(namespace)


def work_lock(store: Store, namespace: str, work: str) -> AbstractContextManager[bool]:
    """As `WorkLocks`; a store that has no such lock lets everyone begin."""
    if not hasattr(store, "alone"):
        return nullcontext(True)
    return cast("WorkLocks", store).alone(namespace, work)


class WindowRecordsFacet(Protocol):
    """What sessions keep, as far as it must go with facts or with time."""

    def withdraw(self, fact_ids: Sequence[str], at: datetime, *, source_id: str = "") -> int:
        """Remove what windows said with some facts, and keep nothing of what is on its way.

        A window that showed one of them is emptied, and so is every window that follows it, near
        or far, and every later window of the sessions that its session was delegated from or to:
        their answers may repeat it. A window under way that shows one keeps nothing when it is
        added within a day, unless the namespace then holds a fact of that id that is not DELETED.

        Args:
            fact_ids: stored in this namespace or not.
            at: the moment of the withdrawal.
            source_id: also what was said with facts of this source; empty for none.

        Returns:
            How many windows were emptied.
        """
        ...

    def has(self, session_id: str) -> bool:
        """Whether a session is kept."""
        ...

    def idle(self, since: datetime) -> list[str]:
        """Ids of the sessions not gone on with since a moment, ascending."""
        ...

    def forget(self, session_id: str) -> bool:
        """Remove a session, its windows and all that they said; whether there was one."""
        ...


def window_records_of(transaction: Transaction) -> WindowRecordsFacet | None:
    """What an open transaction's store keeps of sessions; None for a store that keeps none."""
    return cast("WindowRecordsFacet | None", getattr(transaction, "sessions", None))


class FaultCounts(NamedTuple):
    """How often a fact was found at fault, and how often it was shown to a model."""

    findings: int
    uses: int


class FaultCountsFacet(Protocol):
    """Counts of one namespace, which go with the facts that they are of."""

    def count(self, fact_ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count one more finding against each fact.

        Spec: CRP-SPEC-009 §8.4

        Args:
            fact_ids: each once; ids that are not stored in this namespace are left out.

        Returns:
            What is counted of each since it was last reset. A fact's uses are its `access_count`.
        """
        ...

    def due(self, findings: int, share: float) -> list[str]:
        """Retrievable facts with at least so many findings, in such a share of their uses.

        Spec: CRP-SPEC-009 §8.4

        Returns:
            Their ids, ascending.
        """
        ...

    def reset(self, fact_ids: Sequence[str]) -> None:
        """Begin anew, so that a fact whose quarantine is lifted is not held against its past."""
        ...


class _WithFaultCounts(Protocol):
    @property
    def faulted(self) -> FaultCountsFacet: ...


def fault_counts_of(transaction: Transaction) -> FaultCountsFacet | None:
    """The counts of an open transaction's store; None for a store that keeps none."""
    if not hasattr(transaction, "faulted"):
        return None
    return cast("_WithFaultCounts", transaction).faulted


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that nobody else has.

    Attributes:
        finish: notes the job's result, ids and numbers as JSON; it stands when the block ends.
    """

    job_id: str
    finish: Callable[[str], None]


class Jobs(Protocol):
    """Jobs of one batch after another; a job is its id, a hash, and its result is no content."""

    def put(self, namespace: str, batch: str, ids: Sequence[str]) -> int:
        """Add the jobs that are not there yet; returns how many that were."""
        ...

    def claim(self, namespace: str, batch: str) -> AbstractContextManager[ClaimedJob | None]:
        """The next job without a result that nobody has, for the length of the block.

        When the block raises, or the process dies, the job is free again without a result.

        Returns:
            None when every job has a result or is somebody's.
        """
        ...

    def results(self, namespace: str, batch: str) -> Mapping[str, str | None]:
        """The result of each job in the order they came, None for one without."""
        ...

    def forget(self, namespace: str, batch: str) -> int:
        """Remove a batch; returns how many jobs it had."""
        ...


class _WithJobs(Protocol):
    @property
    def jobs(self) -> Jobs: ...

    def loading(self, namespace: str) -> AbstractContextManager[None]: ...


def jobs_of(store: Store) -> Jobs | None:
    """The jobs of a store; None for one that keeps none."""
    if not hasattr(store, "jobs"):
        return None
    return cast("_WithJobs", store).jobs


def bulk_load(store: Store, namespace: str) -> AbstractContextManager[None]:
    """Tells a store that many batches of facts come within the block.

    One that keeps an index of vectors builds it once, after them; for another it does nothing.
    """
    if not hasattr(store, "loading"):
        return nullcontext()
    return cast("_WithJobs", store).loading(namespace)
