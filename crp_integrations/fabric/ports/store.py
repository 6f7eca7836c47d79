"""Transactions over all facets of a namespace, and the store that opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

from pydantic import JsonValue

from crp_integrations.audit.ports import JournalFacet
from crp_integrations.fabric.ports.facts import FactsFacet


class Transaction(Protocol):
    """All facets of one namespace."""

    @property
    def facts(self) -> FactsFacet: ...

    @property
    def journal(self) -> JournalFacet: ...


@dataclass(frozen=True, slots=True)
class Cached:
    """A derived file that was found whole.

    Attributes:
        path: the file, for reading now; another writer may replace it at any time.
        about: what was said of it when it was saved.
    """

    path: str
    about: Mapping[str, JsonValue]


class Found(Protocol):
    """A derived file that is being checked while its caller reads something else.

    Attributes:
        about: what its manifest says of it; the manifest itself was checked.
    """

    @property
    def about(self) -> Mapping[str, JsonValue]: ...

    def whole(self) -> Cached | None:
        """The file when it fits its manifest, else None; waits for the check to end."""
        ...


class Cache(Protocol):
    """Derived files of one namespace: each can be lost at any time and be made again.

    A file counts only with a manifest of its name, namespace, length and SHA-256 that fits;
    anything else is logged, removed and reported as absent.
    """

    def load(self, name: str) -> Cached | None:
        """A file whose manifest was checked; None when there is none or it is damaged."""
        ...

    def find(self, name: str) -> Found | None:
        """What `load` would give, the bytes being checked meanwhile; None without a manifest."""
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

    def restate(
        self,
        name: str,
        say: Callable[[Mapping[str, JsonValue]], Mapping[str, JsonValue] | None],
    ) -> bool:
        """Say something else of a file that stays as it is.

        Args:
            say: is called with what is said now; None leaves it.

        Returns:
            Whether it was said; not when the file was replaced or removed meanwhile.
        """
        ...

    def drop(self, name: str | None = None) -> None:
        """Remove a file, or all of them, temporary ones of other processes included."""
        ...


class Elsewhere(Protocol):
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


class Alone(Protocol):
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


class Indexed(Protocol):
    """What a store has that searches with an index of its own, beside `Store`."""

    def settle(self, namespace: str) -> bool:
        """Build the namespace's index when one is due; whether it was built."""
        ...


class Standing(Protocol):
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
    """As `Standing`; a store that has no such thing finds out as it writes."""
    if hasattr(store, "must_write"):
        cast("Standing", store).must_write(namespace)


def settled_in(store: Store, namespace: str) -> bool:
    """As `Indexed`; a store without an index of its own has nothing to build."""
    return hasattr(store, "settle") and cast("Indexed", store).settle(namespace)


def alone_in(store: Store, namespace: str, work: str) -> AbstractContextManager[bool]:
    """As `Alone`; a store that has no such lock lets everyone begin."""
    if not hasattr(store, "alone"):
        return nullcontext(True)
    return cast("Alone", store).alone(namespace, work)
