"""Blocks of a text: paragraphs, list items, headings, table rows and lines of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["paragraph", "item", "heading", "row", "rule", "code", "fence"]

_LINE = re.compile(r"[^\n\r]*(?:\r\n|\n|\r|\Z)")
_FENCE = re.compile(r"\s{0,12}(`{3,}|~{3,})")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_ITEM = re.compile(
    r"(?:>\s?){0,4}(?:[-*+\u2022\u2023\u25aa\u25cf\u25e6\u2013]|\(?\d{1,3}[.)]|\(?[a-z][.)]"
    r"|\(?[A-Z]\)|\(?[ivx]{1,5}[.)])(?=\s)"
)
_RULE = re.compile(r"[\s|:=*_+~-]{3,}\Z")
_QUOTE = re.compile(r"\s{0,3}>")
# After these words a line has not ended, wherever it breaks.
_OPEN_END = re.compile(
    r"(?:[,;(\u2013-]|\b(?:of|the|and|or|a|an|to|in|for|with|by|on|at|from|as|that|is|are|was)"
    r"|\b(?:Mr|Mrs|Ms|Dr|Prof|St|No)\.)\s*\Z"
)
_NARROWEST = 50


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of lines that no sentence crosses.

    Attributes:
        start, end: character offsets, without outer white space.
        kind: what it is; a row is a table's row, a rule a line of punctuation.
    """

    start: int
    end: int
    kind: BlockKind


@dataclass(slots=True)
class _Line:
    start: int
    end: int
    body: str


def _lines(text: str) -> Iterator[_Line]:
    if text and "\n" not in text and "\r" not in text:
        yield _Line(0, len(text), text)
        return
    for match in _LINE.finditer(text):
        if match.end() == match.start():
            return
        yield _Line(match.start(), match.end(), match.group())


def is_row(line: str) -> bool:
    """Whether a line is a table's row: framed by bars, or cut by tabs or several bars."""
    body = line.strip()
    if body.startswith("|") and body.endswith("|") and len(body) > 1:
        return True
    return body.count(" | ") >= 2 or body.count("\t") >= 2


def item_marker(text: str) -> int:
    """Length of the list marker that a text opens with, 0 when there is none.

    >>> item_marker("2. Run it"), item_marker("Run it")
    (3, 0)
    """
    match = _ITEM.match(text)
    if match is None:
        return 0
    place = match.end()
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def blocks(text: str) -> list[Block]:
    """The blocks of a text in order; together they hold every character that is no space."""
    found: list[Block] = []
    pending: list[_Line] = []
    pending_kind: BlockKind = "paragraph"
    fence = ""

    def close() -> None:
        nonlocal pending_kind
        for group in _paragraphs(pending):
            _add(found, text, group[0].start, group[-1].end, pending_kind)
            pending_kind = "paragraph"
        pending.clear()
        pending_kind = "paragraph"

    for line in _lines(text):
        body = line.body
        mark = _FENCE.match(body)
        if fence:
            closing = mark is not None and mark[1].startswith(fence) and not body.strip("`~ \t\r\n")
            _add(found, text, line.start, line.end, "fence" if closing else "code")
            fence = "" if closing else fence
        elif mark is not None:
            close()
            fence = mark[1]
            _add(found, text, line.start, line.end, "fence")
        elif not body.strip():
            close()
        elif _RULE.match(body.rstrip()):
            close()
            _add(found, text, line.start, line.end, "rule")
        elif is_row(body):
            close()
            _add(found, text, line.start, line.end, "row")
        elif _HEADING.match(body):
            close()
            _add(found, text, line.start, line.end, "heading")
        elif _ITEM.match(body.lstrip()):
            close()
            pending.append(line)
            pending_kind = "item"
        else:
            quoted = _QUOTE.match(body) is not None
            if pending and quoted != (_QUOTE.match(pending[-1].body) is not None):
                close()
            pending.append(line)
    close()
    return found


def _add(found: list[Block], text: str, start: int, end: int, kind: BlockKind) -> None:
    piece = text[start:end]
    body = piece.strip()
    if body:
        low = start + len(piece) - len(piece.lstrip())
        found.append(Block(low, low + len(body), kind))


def _paragraphs(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Lines that belong together: a break is meant when the next word had room before it."""
    if len(lines) < 2:
        # A sentence by itself, or nothing.
        if lines:
            yield lines
        return
    lengths = [len(line.body.rstrip()) for line in lines]
    width = max(_NARROWEST, *lengths)
    group = [lines[0]]
    for before, after, length in zip(lines, lines[1:], lengths, strict=False):
        head = after.body.lstrip()
        first = len(head.split(None, 1)[0])
        meant = (
            length + 1 + first <= width
            and not head[0].islower()
            and _OPEN_END.search(before.body[-12:]) is None
        )
        if meant:
            yield group
            group = []
        group.append(after)
    yield group
