"""Stretches of a text: what is taken away from what, and names for parts of an item."""

from __future__ import annotations

import re
from collections.abc import Sequence

Spans = tuple[tuple[int, int], ...]

# A part of an item by its characters, half-open.
_PART = re.compile(r"(?P<id>.+)#(?P<start>\d+)-(?P<end>\d+)\Z", re.DOTALL)


def part_id(item_id: str, start: int, end: int) -> str:
    """The name of some characters of an item."""
    return f"{item_id}#{start}-{end}"


def read_part(name: str, ids: frozenset[str] | set[str]) -> tuple[str, tuple[int, int] | None]:
    """The item that a name in a drop report speaks of, and its characters; None for all of it.

    Args:
        ids: ids of items; one that looks like the name of a part is still an id.
    """
    if name in ids:
        return name, None
    found = _PART.match(name)
    if found is None:
        return name, None
    return found["id"], (int(found["start"]), int(found["end"]))


def merged(spans: Sequence[tuple[int, int]], text: str) -> Spans:
    """Spans in order, those with nothing but white space between them as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and not text[found[-1][1] : start].strip():
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def without(spans: Sequence[tuple[int, int]], gone: Sequence[tuple[int, int]]) -> Spans:
    """What of some spans does not lie in others; both sorted, neither overlapping itself."""
    left: list[tuple[int, int]] = []
    at = 0
    for begin, end in spans:
        start = begin
        while at < len(gone) and gone[at][1] <= start:
            at += 1
        place = at
        while place < len(gone) and gone[place][0] < end:
            if gone[place][0] > start:
                left.append((start, gone[place][0]))
            start = max(start, gone[place][1])
            place += 1
        if start < end:
            left.append((start, end))
    return tuple(left)
