"""Copy a namespace from one store to another, row by row, except for derived data.

All stores have the same tables. The text index, the postings and the log of changes are rebuilt in
the target store.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import FactsFacet, Store
from crp_integrations.fabric.records import Fact, Source
from crp_integrations.fabric.search.namespace_state import StateHashes
from crp_integrations.stores.relational.facts import RelationalFacts
from crp_integrations.stores.relational.rows import columns
from crp_integrations.stores.rules import PackedVector, Statements

# Rows read and written at a time.
PAGE = 512


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table whose rows are copied.

    Attributes:
        key: columns of its primary key, in whose order it is read.
        columns: all columns, those of the key included.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


def _table(name: str, key: Sequence[str], others: Sequence[str] = ()) -> MovedTable:
    return MovedTable(name, tuple(key), (*key, *(column for column in others if column not in key)))


_WINDOW = '"window"'
# Tables that others refer to come first.
TABLES = (
    _table("settings", ["name"], ["value"]),
    _table("sources", ["source_id"], columns(Source)),
    _table("facts", ["fact"], ["expires_at", *columns(Fact)]),
    _table("vectors", ["fact"], ["vector"]),
    _table("token_counts", ["fact", "tokenizer"], ["tokens"]),
    _table("edges", ["source_fact", "kind", "target_fact"], ["weight"]),
    _table("prepared_vectors", ["embedder", "content_hash"], ["vector"]),
    _table("fact_findings", ["fact"], ["findings", "uses_before"]),
    _table("fact_uses", ["fact"], ["uses", "last_used_at"]),
    _table("events", ["seq"], columns(Event)),
    _table("seals", ["session_id", "window_number", "window_id"], columns(WindowSeal)),
    _table("sessions", ["session_id"], ["parent_session", "modified_at", "record"]),
    _table(
        "windows",
        [_WINDOW],
        [
            *("window_id", "session_id", "window_number", "continuation_id", "closed_at"),
            *("emptied", "record"),
        ],
    ),
    _table("window_contents", [_WINDOW], ["padding", "prior", "report"]),
    _table("window_facts", [_WINDOW], ["keys"]),
    _table("withdrawn_facts", ["fact_id"], ["withdrawn_at"]),
    _table("judge_spending", ["session_id", "judge"], ["period", "calls", "tokens", "usd"]),
    _table(
        "receipts",
        ["place"],
        ["receipt_id", "session_id", "window_id", "payload", "signature", "key"],
    ),
    _table("receipt_log", ["position"], ["hash"]),
    _table("receipt_contents", ["place"], ["padding", "texts"]),
    _table("receipt_facts", ["place"], ["keys"]),
)


@dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of a copy.

    Attributes:
        state_hash: state hash of the namespace, equal in both stores.
    """

    namespace: str
    facts: int
    events: int
    state_hash: str


def move(
    source: Store, target: Store, namespace: str, progress: Callable[[str, int], None]
) -> MoveResult:
    """Copy a namespace into a store that has no namespace of that name; the source is unchanged."""
    if namespace in target.namespaces():
        raise StoreError(
            f"{target.name} has a namespace {namespace!r:.80} already; move into an empty store"
        )
    with source.begin(namespace, write=False) as reading, target.begin(namespace) as writing:
        old, new = _tables(source, reading.facts), _tables(target, writing.facts)
        counted = {}
        for table in TABLES:
            written = 0
            for page in _pages(old.statements, table):
                _write(new, table, page)
                written += len(page)
                progress(table.name, written)
            counted[table.name] = written
        new.settle_numbers(old)
        before, after = (StateHashes().of(facts) for facts in (reading.facts, writing.facts))
        if before != after:
            raise StoreError(
                f"namespace {namespace!r:.80} has state hash {after} in {target.name}, wanted "
                f"{before}; nothing was kept"
            )
    return MoveResult(namespace, counted["facts"], counted["events"], before)


def moved_already(source: Store, target: Store, namespace: str) -> MoveResult | None:
    """The result of an interrupted copy that is complete: both stores contain the same namespace.

    Facts, trail and the number of rows of every table are then equal; None if they are not.
    """
    if namespace not in target.namespaces():
        return None
    with (
        source.begin(namespace, write=False) as original,
        target.begin(namespace, write=False) as copy,
    ):
        old, new = _tables(source, original.facts), _tables(target, copy.facts)
        state, other = (StateHashes().of(facts) for facts in (original.facts, copy.facts))
        counts, others = _counts(old.statements), _counts(new.statements)
        if state != other or counts != others or original.journal.tip() != copy.journal.tip():
            return None
    return MoveResult(namespace, counts["facts"], counts["events"], state)


def _counts(connection: Statements) -> dict[str, int]:
    return {
        table.name: connection.rows(f"SELECT count(*) FROM {table.name}")[0][0] for table in TABLES
    }


def _tables(store: Store, facts: FactsFacet) -> RelationalFacts:
    if not isinstance(facts, RelationalFacts):
        raise StoreError(f"{store.name} keeps no tables; move between a folder and a database")
    return facts


def _pages(connection: Statements, table: MovedTable) -> Iterator[list[tuple[Any, ...]]]:
    key = ", ".join(table.key)
    marks = ", ".join("?" * len(table.key))
    what = f"SELECT {', '.join(table.columns)} FROM {table.name}"
    page = connection.rows(f"{what} ORDER BY {key} LIMIT {PAGE}")
    while page:
        yield page
        after = page[-1][: len(table.key)]
        page = connection.rows(
            f"{what} WHERE ({key}) > ({marks}) ORDER BY {key} LIMIT {PAGE}", list(after)
        )


def _write(facts: RelationalFacts, table: MovedTable, page: list[tuple[Any, ...]]) -> None:
    names = list(table.columns)
    rows: list[Sequence[Any]] = [list(row) for row in page]
    if "padding" in names:
        at = names.index("padding")
        rows = [[*row[:at], facts.statements.padding, *row[at + 1 :]] for row in rows]
    if "vector" in names:
        at = names.index("vector")
        rows = [[*row[:at], PackedVector(row[at]), *row[at + 1 :]] for row in rows]
    if table.name == "facts":
        names, rows = facts.noted(names, rows)
    marks = ", ".join("?" * len(names))
    facts.statements.executemany(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})", rows
    )
