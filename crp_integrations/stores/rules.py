"""Checks and error texts that all stores share, and what a facet needs of its database."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from pydantic import JsonValue

from crp_integrations.audit.records import Event
from crp_integrations.errors import StoreBusy, StoreError
from crp_integrations.fabric.records import Fact
from crp_integrations.language.words import stems_of
from crp_integrations.vectors import FloatRows

# A search of more terms than this first leaves out the words that are in more facts than that: they
# would take nearly all of its time, and tell little beside rare ones.
MANY_TERMS, COMMON = 16, 4_000


def rare_terms(terms: Sequence[str], is_common: Callable[[str], bool]) -> Sequence[str]:
    """The terms of a search without the common ones, if there are many; phrases stay."""
    if len(terms) <= MANY_TERMS:
        return terms
    return [term for term in terms if len(stems_of(term)) != 1 or not is_common(term)]


def checked_name(namespace: str) -> str:
    """Return a namespace's name if it is usable, else raise."""
    try:
        namespace.encode()
    except UnicodeEncodeError:
        raise StoreError(f"namespace {namespace!r} cannot be written as UTF-8") from None
    if not namespace:
        raise StoreError("the namespace's name is empty; give one of at least one character")
    return namespace


def checked_facts(
    facts: Sequence[Fact],
    vectors: FloatRows,
    *,
    namespace: str,
    dimensions: int | None,
    taken: Collection[str],
) -> list[Fact]:
    """Facts ready to be added: each has the namespace that it is stored in."""
    check_vectors(vectors, len(facts), dimensions)
    if taken:
        raise StoreError(f"fact {min(taken)} exists already; ids are never used twice")
    return _with_namespace(facts, namespace)


def checked_replacements(
    facts: Sequence[Fact],
    vectors: FloatRows | None,
    *,
    namespace: str,
    dimensions: int | None,
    known: Collection[str],
) -> list[Fact]:
    """Facts ready to replace those with the same ids."""
    if vectors is not None:
        check_vectors(vectors, len(facts), dimensions)
    refuse_unknown([fact.fact_id for fact in facts], known)
    return _with_namespace(facts, namespace)


def check_vectors(vectors: FloatRows, count: int, dimensions: int | None) -> None:
    """Refuse vectors of another shape than (count, dimensions), or with a value not finite."""
    wanted = (count, dimensions if dimensions is not None else "d")
    if vectors.ndim != 2 or vectors.shape[0] != count:
        raise StoreError(f"vectors have shape {vectors.shape}, wanted {wanted}")
    if dimensions is not None and count and vectors.shape[1] != dimensions:
        raise StoreError(f"vectors have shape {vectors.shape}, wanted {wanted}")
    if not np.isfinite(vectors).all():
        raise StoreError("a vector holds a value that is not finite")


def _with_namespace(facts: Sequence[Fact], namespace: str) -> list[Fact]:
    counts = Counter(fact.fact_id for fact in facts)
    twice = sorted(id for id, count in counts.items() if count > 1)
    if twice:
        raise StoreError(f"fact {twice[0]} is given twice in one batch; ids are never used twice")
    for fact in facts:
        if "\0" in fact.fact_id:
            raise StoreError(f"fact id {fact.fact_id!r:.60} holds a NUL; give one without")
        if fact.namespace not in ("", namespace):
            raise StoreError(
                f"fact {fact.fact_id} belongs to namespace {fact.namespace!r} and cannot be "
                f"stored in {namespace!r}"
            )
    return [fact if fact.namespace else fact.changed(namespace=namespace) for fact in facts]


def same_json(value: JsonValue) -> str:
    """Canonical text of a JSON value: equal for any order of keys, and for 1 and 1.0."""
    return json.dumps(_plain(value), sort_keys=True)


def has_metadata(wanted: Mapping[str, str], metadata: Mapping[str, JsonValue]) -> bool:
    """Whether metadata contain the wanted pairs; `wanted` has the values as `same_json` texts."""
    return all(key in metadata and same_json(metadata[key]) == text for key, text in wanted.items())


def _plain(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def check_next(events: Sequence[Event], tip: int) -> None:
    """Refuse events that do not continue the journal from its last `seq`."""
    for wanted, event in enumerate(events, start=tip + 1):
        if event.seq != wanted:
            raise StoreError(f"event has seq {event.seq}, wanted {wanted}")


def refuse_unknown(ids: Sequence[str], known: Collection[str]) -> None:
    """Refuse ids that are not in `known`, the ids of stored facts."""
    for id in ids:
        if id not in known:
            raise StoreError(f"fact {id!r} is not in the store")


class TransactionGate:
    """Refuses reads after a transaction has ended, and writes in a read-only one.

    A facet asks before every read and write, so that a transaction kept beyond its block, or a
    reading one used for writing, is refused instead of doing something else.
    """

    __slots__ = ("_open", "_write")

    def __init__(self, *, write: bool) -> None:
        self._open = True
        self._write = write

    def shut(self) -> None:
        """End the transaction: from now on everything is refused."""
        self._open = False

    def reading(self) -> None:
        """Raise unless reading is allowed."""
        if not self._open:
            raise StoreError("the transaction has ended; begin another one")

    def writing(self) -> None:
        """Raise unless writing is allowed."""
        self.reading()
        if not self._write:
            raise StoreError("the transaction was opened for reading; begin one with write=True")


class WriterLocks:
    """One lock for each namespace; waiting for it has a time limit."""

    def __init__(self, busy_seconds: float) -> None:
        self._seconds = busy_seconds
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._owners: dict[str, int] = {}

    @contextmanager
    def held(self, namespace: str) -> Iterator[None]:
        """Hold a namespace's lock for the length of the block."""
        thread = threading.get_ident()
        with self._guard:
            lock = self._locks.setdefault(namespace, threading.Lock())
        if self._owners.get(namespace) == thread:
            raise StoreError(
                f"this thread already writes in namespace {namespace!r}; end that transaction first"
            )
        if not lock.acquire(timeout=self._seconds):
            raise StoreBusy(
                f"namespace {namespace!r} is being written by another thread; "
                f"gave up after {self._seconds:g} s"
            )
        self._owners[namespace] = thread
        try:
            yield
        finally:
            del self._owners[namespace]
            lock.release()


# One statement for any number of values; SQLite reads the list from one JSON parameter.
AMONG = "IN (SELECT value FROM json_each(?))"
# Facts for which `Fact.retrievable` is true, and all others.
RETRIEVABLE_SQL = "status IN ('ACTIVE', 'STALE') AND archived_at IS NULL"
ASIDE_SQL = f"NOT ({RETRIEVABLE_SQL})"
# Time of last use, as far as the fact's own row tells; without the Z, times with and without
# microseconds sort correctly.
TOUCHED_SQL = (
    "max(rtrim(coalesce(ingested_at, ''), 'Z'), rtrim(coalesce(last_accessed_at, ''), 'Z'))"
)
# Entries of `own` while bytes of removed facts, or of window contents, may be left on disk. For
# facts the files are rewritten; window contents are only in SQLite's log.
FACTS_DUE = "scrub_due"
WINDOWS_DUE = "scrub_windows_due"
# Maximum number of sentences on one kind of damage.
MAX_SHOWN = 20


class Among(list[Any]):
    """A list as the one parameter of `AMONG`; each database encodes it in its own way."""

    __slots__ = ()


class PackedVector(bytes):
    """A unit vector as little-endian float32 bytes; each database stores it in its own type."""

    __slots__ = ()


def among(values: Iterable[str]) -> Among:
    """Texts as the one parameter of `AMONG`.

    Texts with a NUL are left out: SQLite would cut them there, into other ids, and no fact id
    contains one.
    """
    return Among([value for value in values if "\0" not in value])


class Executed(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""
        ...

    @property
    def lastrowid(self) -> int | None:
        """The number that was assigned to the added row."""
        ...


class Statements(Protocol):
    """A connection with an open transaction."""

    @property
    def padding(self) -> bytes:
        """Zeros to store before a text, so that no copy of the text is left in a shared page."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Executed:
        """Run one statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        ...

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        ...

    def one(self, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        ...


def note_due(connection: Statements, name: str) -> None:
    """Record in the open transaction that bytes are left which `scrub` must erase from disk."""
    connection.execute(
        "INSERT INTO own (name, value) VALUES (?, 1) "
        "ON CONFLICT (name) DO UPDATE SET value = own.value + 1",
        [name],
    )


def pages(
    connection: Statements, statement: str, after: Any, size: int
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a query, page by page, so that no lock is held throughout.

    Its parameters are the key to continue after, which is its first column, and the page size.
    """
    while page := connection.rows(statement, [after, size]):
        yield page
        after = page[-1][0]
