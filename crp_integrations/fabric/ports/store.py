"""The store interface, its transactions, and optional interfaces that a store may implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple, Protocol, cast

from pydantic import JsonValue

from crp_integrations.audit.records import JournalFacet
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports.facts import FactsFacet


class Transaction(Protocol):
    """All facets of one namespace."""

    @property
    def facts(self) -> FactsFacet: ...

    @property
    def journal(self) -> JournalFacet: ...


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A derived file that was found intact.

    Attributes:
        path: path of the file; read it at once, since another writer may replace it any time.
        about: description of the file, given when it was saved.
    """

    path: str
    about: Mapping[str, JsonValue]


class Cache(Protocol):
    """Derived files of one namespace: each can be lost at any time and be made again.

    A file is valid only with a matching manifest of its name, namespace, length and SHA-256;
    any other file is logged, removed and reported as absent.
    """

    def load(self, name: str) -> CachedFile | None:
        """Return a file with a valid manifest; None if it is missing or damaged."""
        ...

    def save(
        self,
        name: str,
        about: Mapping[str, JsonValue],
        write: Callable[[str], None],
        still_valid: Callable[[Transaction], bool],
    ) -> bool:
        """Write a file under a temporary name, sync it, and rename it.

        Args:
            write: function that writes the file to the given path.
            still_valid: called in a write transaction right before the renaming, so that no file
                is published that contains facts erased meanwhile.

        Returns:
            Whether it was published.
        """
        ...

    def drop(self, name: str | None = None) -> None:
        """Remove a file, or all files, including temporary ones of other processes."""
        ...


class DerivedContent(Protocol):
    """Content derived from facts and kept outside of the store, such as artifacts."""

    def erase(self, namespace: str, ids: Iterable[str], now: datetime) -> int:
        """Erase content derived from these facts or sources; returns the number of items.

        Raises:
            StoreError: the erasure failed; call it again.
        """
        ...

    def erase_all(self, namespace: str) -> int:
        """Erase everything of a tenant; returns the number of items."""
        ...


class Store(Protocol):
    """Stores facts, journals and settings of all namespaces."""

    @property
    def name(self) -> str:
        """Readable kind and place, such as `sqlite:kb`."""
        ...

    def begin(self, namespace: str, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction: it commits when the block ends, and rolls back if the block raises.

        A read transaction sees one state of the namespace throughout, may run at the same time
        as a write transaction, and refuses writes.

        Raises:
            StoreBusy: another process kept the write lock for too long.
            StoreDamaged, StoreNewer: the files cannot be used.
        """
        ...

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were ever written, ascending."""
        ...

    def cache(self, namespace: str) -> Cache | None:
        """The cache for derived files of a namespace; None for a store without files."""
        ...

    def scrub(self, namespace: str) -> bool:
        """Scrub removed bytes from disk: free pages, log, text index, caches.

        A removal records in its own transaction that a scrub is due, so any process can call this
        at any time, at no cost if nothing is due. Do not call it within a transaction.

        Returns:
            False if a reader still has an old state open; call it again later.

        Raises:
            StoreBusy: another process wrote for too long; call it again later.
        """
        ...

    def compact(self, namespace: str) -> None:
        """Rewrite the files without free space, scrubbed. Do not call it within a transaction.

        Raises:
            StoreBusy: another process used the files for too long.
        """
        ...

    def check(self, namespace: str) -> list[str]:
        """Return the problems of the namespace's files, one sentence each; empty if none.

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
    """Optional interface of a store that many processes open at once."""

    def alone(self, namespace: str, work: str) -> AbstractContextManager[bool]:
        """Lock a long job on a namespace against other processes for the length of the block.

        Do not rely on it for correctness: the lock is released if the connection drops.

        Args:
            work: name of the job.

        Returns:
            Whether the lock was acquired; does not wait.
        """
        ...


class IndexedStore(Protocol):
    """Optional interface of a store that searches with an index of its own."""

    def settle(self, namespace: str) -> bool:
        """Build the namespace's index if one is due; returns whether it was built."""
        ...


class WriteCheck(Protocol):
    """Optional interface of a store that may be open without being writable."""

    def must_write(self, namespace: str) -> None:
        """Raise if a namespace cannot be written now, or not by this login.

        Must be cheap if it can be written, since every question calls it. A later write may still
        fail.

        Raises:
            StoreBusy: the namespace cannot be written now, for example on a standby server.
            AccessDenied: the login, or the user, may not write it.
            StoreError: there is not enough space.
        """
        ...


def namespace_drop(store: Store) -> Callable[[str], bool]:
    """A function that erases a namespace with its trail, and on a database its login.

    It returns whether the namespace was there. Raises StoreError for a store without one.
    """
    for name, options in (("dismiss", {"artifacts": ()}), ("drop", {})):
        if hasattr(store, name):
            return partial(getattr(store, name), **options)
    raise StoreError(f"{store.name} cannot erase a whole namespace; erase its sources")


def must_write(store: Store, namespace: str) -> None:
    """Call `WriteCheck.must_write` if the store has it; other stores fail only when writing."""
    if hasattr(store, "must_write"):
        cast("WriteCheck", store).must_write(namespace)


def build_due_index(store: Store, namespace: str) -> bool:
    """Call `IndexedStore.settle` if the store has it; other stores have nothing to build."""
    return hasattr(store, "settle") and cast("IndexedStore", store).settle(namespace)


def work_lock(store: Store, namespace: str, work: str) -> AbstractContextManager[bool]:
    """Return the lock of `WorkLocks.alone`; for a store without locks, one that always succeeds."""
    if not hasattr(store, "alone"):
        return nullcontext(True)
    return cast("WorkLocks", store).alone(namespace, work)


class WindowRecordsFacet(Protocol):
    """The records of sessions, as far as facts or time can require their removal."""

    def withdraw(self, fact_ids: Sequence[str], at: datetime, *, source_id: str = "") -> int:
        """Delete the answers of windows that used some facts, including windows still running.

        A window that used one of them is emptied, and so are all windows that follow it, directly
        or not, and all later windows of the sessions that its session was delegated from or to,
        since their answers may repeat it. A running window that used one is stored empty if it is
        added within a day, unless the namespace then has a fact with that id that is not DELETED.

        Args:
            fact_ids: ids of the facts, stored in this namespace or not.
            at: time of the withdrawal.
            source_id: source whose facts count as well; empty for none.

        Returns:
            Number of windows that were emptied.
        """
        ...

    def has(self, session_id: str) -> bool:
        """Whether a session is stored."""
        ...

    def idle(self, since: datetime) -> list[str]:
        """Ids of the sessions not continued since a moment, ascending."""
        ...

    def unnamed(self) -> int:
        """Number of receipts with readable texts of which no row names the facts."""
        ...

    def name_facts(self) -> int:
        """Write the rows that name the facts of these receipts; return the number of receipts."""
        ...

    def forget(self, session_id: str) -> bool:
        """Remove a session, its windows and their answers; returns whether it existed."""
        ...


def window_records_of(transaction: Transaction) -> WindowRecordsFacet | None:
    """Return a transaction's facet for session records; None for a store without sessions."""
    return cast("WindowRecordsFacet | None", getattr(transaction, "sessions", None))


class FaultCounts(NamedTuple):
    """Number of findings against a fact, and number of times it was sent to a model."""

    findings: int
    uses: int


class FaultCountsFacet(Protocol):
    """Fault counts of one namespace; they are removed together with their facts."""

    def count(self, fact_ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count one more finding against each fact.

        Spec: CRP-SPEC-009 §8.4

        Args:
            fact_ids: distinct ids; ids that are not stored in this namespace are ignored.

        Returns:
            Counts of each fact since its last reset. A fact's uses are its `access_count`.
        """
        ...

    def due(self, findings: int, share: float) -> list[str]:
        """Retrievable facts with at least this number of findings and this share of their uses.

        Spec: CRP-SPEC-009 §8.4

        Returns:
            Their ids, ascending.
        """
        ...

    def reset(self, fact_ids: Sequence[str]) -> None:
        """Reset counts, so that a fact released from quarantine is not judged by its past."""
        ...


class _WithFaultCounts(Protocol):
    @property
    def faulted(self) -> FaultCountsFacet: ...


def fault_counts_of(transaction: Transaction) -> FaultCountsFacet | None:
    """Return a transaction's facet for fault counts; None for a store without them."""
    if not hasattr(transaction, "faulted"):
        return None
    return cast("_WithFaultCounts", transaction).faulted


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that only this process works on.

    Attributes:
        finish: records the job's result, ids and numbers as JSON, saved when the block ends.
    """

    job_id: str
    finish: Callable[[str], None]


class Jobs(Protocol):
    """Batches of jobs; a job is identified by a hash, and its result contains no texts."""

    def put(self, namespace: str, batch: str, ids: Sequence[str]) -> int:
        """Add the jobs that do not exist yet; returns their number."""
        ...

    def claim(self, namespace: str, batch: str) -> AbstractContextManager[ClaimedJob | None]:
        """Claim the next free job without a result for the length of the block.

        If the block raises, or the process dies, the job is free again without a result.

        Returns:
            None if every job has a result or is claimed.
        """
        ...

    def results(self, namespace: str, batch: str) -> Mapping[str, str | None]:
        """The result of each job in the order they were added, None for one without."""
        ...

    def forget(self, namespace: str, batch: str) -> int:
        """Remove a batch; returns the number of its jobs."""
        ...


class _WithJobs(Protocol):
    @property
    def jobs(self) -> Jobs: ...

    def loading(self, namespace: str) -> AbstractContextManager[None]: ...


def jobs_of(store: Store) -> Jobs | None:
    """Return the jobs of a store; None for a store without jobs."""
    if not hasattr(store, "jobs"):
        return None
    return cast("_WithJobs", store).jobs


def bulk_load(store: Store, namespace: str) -> AbstractContextManager[None]:
    """Announce to a store that the block adds many batches of facts.

    A store with its own vector index builds it once afterwards; for others this does nothing.
    """
    if not hasattr(store, "loading"):
        return nullcontext()
    return cast("_WithJobs", store).loading(namespace)
