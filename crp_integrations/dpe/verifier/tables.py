"""Rows of tables, CSV and JSON objects, and values that an answer gives to the wrong one.

A value is bound to its row's key and its column's head. A claim that names one row and gives it
another row's value is wrong wherever else that value stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.verifier.values import Value, read, same_value
from crp_integrations.language.quantities import Quantity, same_kind
from crp_integrations.language.text import plain
from crp_integrations.language.words import content_stems

FEWEST_ROWS: Final = 2
_CELL: Final = re.compile(r"[^|\n]+")
_RULE: Final = re.compile(r"[|\s:+=-]+\Z")
_LEAF: Final = re.compile(
    r"\"(?P<key>[^\"\\\n]{1,60})\"\s*:\s*(?P<value>\"[^\"\n]{0,200}\"|[-\w.+]{1,40})"
)
_BRACE: Final = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|[{}]")
_LETTERS: Final = re.compile(r"[^\W\d_]{2,}")
LONGEST_KEY: Final = 60
# A claim with more figures speaks of more than one row.
MOST_FIGURES: Final = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with the stems of its head, by character offsets in the passage."""

    head: frozenset[str]
    start: int
    end: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of one table.

    Attributes:
        table: number of the table within the context.
        key: what the row is about, in plain form.
    """

    passage: int
    table: int
    key: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A value that a claim gives to a row that has another one there."""

    value: Value
    cell: Cell
    passage: int
    expected: str


def rows_of(passages: Sequence[str]) -> list[Row]:
    """The rows of all tables, lists of comma-separated values and JSON objects."""
    found: list[Row] = []
    table = 0
    for number, text in enumerate(passages):
        for group in (*_tables(text), *_objects(text)):
            table += 1
            if len(group) >= FEWEST_ROWS:
                found += [Row(number, table, key, cells) for key, cells in group]
    return found


def _tables(text: str) -> Iterator[list[tuple[str, tuple[Cell, ...]]]]:
    head: list[frozenset[str]] = []
    rows: list[tuple[str, tuple[Cell, ...]]] = []
    start = 0
    for line in (*text.splitlines(keepends=True), "\n"):
        body = line.rstrip("\n")
        spans = _cells(body)
        if len(spans) < FEWEST_ROWS or (head and len(spans) != len(head)):
            if rows:
                yield rows
            head, rows = [], []
        if len(spans) >= FEWEST_ROWS and not _RULE.fullmatch(body):
            if not head:
                head = [frozenset(content_stems(body[low:high])) for low, high in spans]
            else:
                cells = tuple(
                    _cell(top, body[low:high], start + low)
                    for top, (low, high) in zip(head, spans, strict=True)
                )
                rows.append((_key(body[slice(*spans[0])]), cells))
        start += len(line)


def table_heads(text: str) -> list[tuple[int, int, frozenset[str]]]:
    """Offsets of each cell of a text's tables, with the stems of its head."""
    return [
        (cell.start, cell.end, cell.head)
        for rows in _tables(text)
        for _, cells in rows
        for cell in cells
    ]


def _cells(line: str) -> list[tuple[int, int]]:
    if line.count("|") >= FEWEST_ROWS:
        return [match.span() for match in _CELL.finditer(line) if match.group().strip()]
    if line.count(",") >= 1 and ", " not in line and not line.rstrip().endswith((".", "{", "}")):
        ends = [match.start() for match in re.finditer(",", line)] + [len(line)]
        return [(low, high) for low, high in zip([0, *(at + 1 for at in ends)], ends, strict=False)]
    return []


def _objects(text: str) -> Iterator[list[tuple[str, tuple[Cell, ...]]]]:
    """Objects without objects in them, grouped by the object around them."""
    stack: list[tuple[int, list[tuple[str, tuple[Cell, ...]]]]] = [(-1, [])]
    inner = False
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            stack.append((match.end(), []))
            inner = True
        elif match.group() == "}" and len(stack) > 1:
            start, children = stack.pop()
            if inner:
                leaves = [
                    leaf.span() and leaf for leaf in _LEAF.finditer(text, start, match.start())
                ]
                cells = tuple(
                    _cell(
                        frozenset(_stems(leaf["key"])),
                        leaf["value"].strip('"'),
                        leaf.start("value"),
                    )
                    for leaf in leaves
                )
                names = [leaf["value"].strip('"') for leaf in leaves if leaf["value"][:1] == '"']
                if len(cells) >= FEWEST_ROWS and names:
                    stack[-1][1].append((_key(names[0]), cells))
            elif children:
                yield children
            inner = False
    yield stack[0][1]


def _stems(key: str) -> list[str]:
    return content_stems(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", key))


def _cell(head: frozenset[str], text: str, start: int) -> Cell:
    return Cell(head, start, start + len(text), tuple(read(text.strip(" *`")).values))


def _key(text: str) -> str:
    return plain(text).strip(" *`'\"|")


def misplaced(
    text: str,
    heads: Sequence[tuple[int, int, frozenset[str]]],
    rows: Sequence[Row],
    *,
    small: bool,
) -> list[Misplaced]:
    """Figures and dates of a claim that belong to another row than the one that it names.

    Args:
        text: the claim.
        heads: in a row of the answer's own table, each cell's offsets in the claim and the stems
            of its head.
        small: the context holds little else, so that a head need not be named.
    """
    stems = frozenset(content_stems(text))
    folded = f" {plain(text)} "
    named = [row for row in rows if _names(row.key, folded)]
    tables = {row.table for row in named}
    if not named or len(tables) != 1 or len({row.key for row in named}) != 1:
        return []
    mine = [row for row in named if row.table in tables]
    others = [row for row in rows if row.table in tables and row not in mine]
    figures = read(text).of("quantity", "date")
    if len(mine) != 1 or (len(figures) > MOST_FIGURES and not heads):
        return []
    keys = " ".join(row.key for row in rows)
    source_heads = {cell.head for cell in mine[0].cells}
    copied = sum(head in source_heads for *_, head in heads) * 2 >= max(1, len(heads))
    found = []
    for value in figures:
        if _has(mine[0], value) or _names(plain(value.text), f" {keys} "):
            continue
        head = next((top for low, high, top in heads if low <= value.start < high), frozenset())
        for cell in mine[0].cells:
            column = [c for row in others for c in row.cells if c.head == cell.head]
            rivals = [v for v in cell.values if _measures_alike(v, value)]
            elsewhere = sum(same_value(value, v) for c in column for v in c.values) == 1
            under = bool(heads) and copied and bool(head) and cell.head == head
            measured = isinstance(value.of, Quantity) and bool(value.of.unit)
            meant = small or measured or (bool(cell.head) and cell.head <= stems)
            if rivals and (under or (elsewhere and meant and not heads)):
                found.append(Misplaced(value, cell, mine[0].passage, rivals[0].text))
                break
    return found


def _measures_alike(one: Value, other: Value) -> bool:
    if isinstance(one.of, Quantity) and isinstance(other.of, Quantity):
        bare = "" in (one.of.unit, other.of.unit) and other.text[-1:].isdigit()
        return same_kind(one.of, other.of) or bare
    return one.family == other.family


def _names(key: str, folded: str) -> bool:
    if not key or len(key) > LONGEST_KEY or _LETTERS.search(key) is None:
        return False
    return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", folded) is not None


def _has(row: Row, value: Value) -> bool:
    return any(same_value(value, other) for cell in row.cells for other in cell.values)
