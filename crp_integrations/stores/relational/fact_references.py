"""Which facts a window or a receipt names: one row each, until an erasure asks for them.

In an index each id lies in a page of its own, and those pages were most of what a sealed window
wrote. So the ids of a window, and of a receipt, are written as one row. An erasure puts what was
packed since the last one into the index first, so much of it at a time, and reads through the rest.
Other databases write less for an index, and are given its rows at once.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.receipt.leaves import texts_as_json
from crp_integrations.stores.rules import AMONG, Among, Statements

# How many windows, and how many receipts, an erasure puts into the index: some 40,000 entries,
# which take less than half a second.
SPREAD: Final = 256


@dataclass(frozen=True, slots=True)
class References:
    """What one window or receipt names.

    Attributes:
        number: the window's, or the receipt's place in the log.
        facts: ids.
        sources: ids; of a receipt's facts in their order, empty for none.
        damaged: whether the row does not read back; then it has no ids.
    """

    number: int
    facts: tuple[str, ...]
    sources: tuple[str, ...]
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class ReferenceTable:
    """Windows or receipts.

    Attributes:
        table: where they are packed.
        key: the column of their number.
        spread: puts some of them into the index.
        paired: whether each fact has the source at its place.
    """

    table: str
    key: str
    spread: Callable[[Statements, Sequence[References]], None]
    paired: bool = False


def keep(
    connection: Statements, kind: ReferenceTable, named: References, *, packed: bool = True
) -> None:
    """Keep what a window or receipt names, within the transaction that is open."""
    if not (named.facts or named.sources):
        return
    if not packed or not connection.packs_references:
        kind.spread(connection, [named])
        return
    connection.execute(
        f"INSERT INTO {kind.table} ({kind.key}, facts, sources) VALUES (?, ?, ?)",
        # Not in ASCII: an id that is no UTF-8 is refused here, and not first by an erasure.
        [named.number, texts_as_json(named.facts), texts_as_json(named.sources)],
    )


def spread(connection: Statements, kind: ReferenceTable) -> None:
    """Put what was packed longest ago into the index, within the open transaction."""
    if not connection.packs_references:
        return
    good = [references for references in _page(connection, kind, -1) if not references.damaged]
    if not good:
        return
    kind.spread(connection, good)
    connection.execute(
        f"DELETE FROM {kind.table} WHERE {kind.key} {AMONG}",
        [Among(references.number for references in good)],
    )


def left(connection: Statements, kind: ReferenceTable) -> Iterator[References]:
    """What is packed still, by number."""
    if not connection.packs_references:
        return
    page = _page(connection, kind, -1)
    while page:
        yield from page
        page = _page(connection, kind, page[-1].number)


def of(connection: Statements, kind: ReferenceTable, number: int) -> References | None:
    """What one window or receipt names; None where that is not packed."""
    if not connection.packs_references:
        return None
    rows = connection.rows(
        f"SELECT {kind.key}, facts, sources FROM {kind.table} WHERE {kind.key} = ?", [number]
    )
    return _named(kind, *rows[0]) if rows else None


def _page(connection: Statements, kind: ReferenceTable, after: int) -> list[References]:
    rows = connection.rows(
        f"SELECT {kind.key}, facts, sources FROM {kind.table} WHERE {kind.key} > ? "
        f"ORDER BY {kind.key} LIMIT ?",
        [after, SPREAD],
    )
    return [_named(kind, *row) for row in rows]


def _named(kind: ReferenceTable, number: int, facts: str, sources: str) -> References:
    try:
        references = References(number, tuple(json.loads(facts)), tuple(json.loads(sources)))
    except (ValueError, TypeError):
        return References(number, (), (), damaged=True)
    if kind.paired and len(references.facts) != len(references.sources):
        return References(number, (), (), damaged=True)
    return references


def _windows(connection: Statements, some: Sequence[References]) -> None:
    for table, column, pairs in (
        (
            "window_facts",
            "fact_id",
            [(id_, references.number) for references in some for id_ in references.facts],
        ),
        (
            "window_sources",
            "source_id",
            [(id_, references.number) for references in some for id_ in references.sources],
        ),
    ):
        if pairs:
            connection.executemany(
                f'INSERT INTO {table} ({column}, "window") VALUES (?, ?) ON CONFLICT DO NOTHING',
                sorted(pairs),
            )


def _receipts(connection: Statements, some: Sequence[References]) -> None:
    rows = sorted(
        (fact, references.number, source)
        for references in some
        for fact, source in zip(references.facts, references.sources, strict=True)
    )
    connection.executemany(
        "INSERT INTO receipt_facts (fact_id, place, source_id) VALUES (?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        rows,
    )


WINDOWS: Final = ReferenceTable("window_packed", '"window"', _windows)
RECEIPTS: Final = ReferenceTable("receipt_packed", "place", _receipts, paired=True)
