"""Blocks of a text: paragraphs, list items, headings, table rows and code."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["paragraph", "item", "heading", "row", "rule", "code", "fence"]

# The line ends that `fold` recognizes.
_ENDS = "\n\r\x0b\x0c\x85\u2028\u2029"
_LINE = re.compile(rf"[^{_ENDS}]*(?:\r\n|[{_ENDS}]|\Z)")
_FENCE = re.compile(r"\s{0,12}(`{3,}|~{3,})")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_ITEM = re.compile(
    r"(?:>\s?){0,4}(?:[-*+\u2022\u2023\u25aa\u25cf\u25e6\u2013]|\(?\d{1,3}[.)]|\(?[a-z][.)]"
    r"|\(?[A-Z]\)|\(?[ivx]{1,5}[.)])(?=\s)"
)
_RULE = re.compile(r"[\s|:=*_+~-]{3,}\Z")
_QUOTE = re.compile(r"\s{0,3}>")
# A line that ends in one of these goes on in the next line.
_OPEN_END = re.compile(
    r"(?:[,;(\u2013-]|\b(?:of|the|and|or|a|an|to|in|for|with|by|on|at|from|as|that|is|are|was)"
    r"|\b(?:Mr|Mrs|Ms|Dr|Prof|St|No)\.)\s*\Z"
)
_ROW_NUMBER = re.compile(r"\|?\s*(\d{1,3})[.)]?\s*[|\t]")
_ORDINAL = re.compile(r"\(?(\w{1,5})[.)]\s")
_ANNOUNCES = re.compile(r":[*_]*\Z")
_TITLE = re.compile(r"\*\*[^*\n]+\*\*")
_MIN_WIDTH = 50  # minimum assumed line width, so that short lines are not joined


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A group of lines; no sentence goes beyond it.

    Attributes:
        kind: type of block; "row" is a table row, "rule" a line of punctuation.
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
    if text and not any(end in text for end in _ENDS):
        yield _Line(0, len(text), text)
        return
    for match in _LINE.finditer(text):
        if match.end() == match.start():
            return
        yield _Line(match.start(), match.end(), match.group())


def is_row(line: str) -> bool:
    """Whether a line is a table row: framed by bars, or divided by tabs or several bars."""
    body = line.strip()
    if body.startswith("|") and body.endswith("|") and len(body) > 1:
        return True
    return body.count(" | ") >= 2 or body.count("\t") >= 2


def blocks(text: str) -> list[TextBlock]:
    """The blocks of a text in order; together they cover every non-space character."""
    text_blocks: list[TextBlock] = []
    pending: list[_Line] = []
    pending_kind: BlockKind = "paragraph"
    fence = ""

    def close() -> None:
        nonlocal pending_kind
        for group in _paragraphs(pending):
            _add(text_blocks, text, group[0].start, group[-1].end, pending_kind)
            pending_kind = "paragraph"
        pending.clear()
        pending_kind = "paragraph"

    for line in _lines(text):
        body = line.body
        mark = _FENCE.match(body)
        if fence:
            closing = mark is not None and mark[1].startswith(fence) and not body.strip("`~ \t\r\n")
            _add(text_blocks, text, line.start, line.end, "fence" if closing else "code")
            fence = "" if closing else fence
        elif mark is not None:
            close()
            fence = mark[1]
            _add(text_blocks, text, line.start, line.end, "fence")
        elif not body.strip():
            close()
        elif _RULE.match(body.rstrip()):
            close()
            _add(text_blocks, text, line.start, line.end, "rule")
        elif is_row(body):
            close()
            _add(text_blocks, text, line.start, line.end, "row")
        elif _HEADING.match(body):
            close()
            _add(text_blocks, text, line.start, line.end, "heading")
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
    return text_blocks


def is_needed(
    text: str, text_blocks: Sequence[TextBlock], block: TextBlock, cut: Container[TextBlock]
) -> bool:
    """Whether a text without some blocks also needs this one.

    It is needed for what it holds or announces, for the numbers of a list, or where nothing else
    stays of what a heading, a colon or a header row announces.

    Args:
        cut: the blocks that go, with this one.
    """
    at = text_blocks.index(block)
    rest = [other for other in text_blocks[at + 1 :] if other not in cut]
    after = rest[0] if rest else None
    before = next((other for other in reversed(text_blocks[:at]) if other not in cut), None)
    column = _column(text, block)
    level = after is not None and after.kind == block.kind and _column(text, after) >= column
    if after is not None:
        near = after.kind == "paragraph" and text[block.end : after.start].count("\n") < 2
        if block.kind == "item" and (near or _column(text, after) > column):
            return True
        if after.kind == "rule" and block.kind == "row":
            return True
        if after.kind != "heading" and (
            block.kind == "heading" or _ANNOUNCES.search(text, block.start, block.end)
        ):
            return True
    items = (other for other in rest if other.kind == "item" and _column(text, other) <= column)
    follower = next(items, None)
    if block.kind == "item" and follower is not None and _column(text, follower) == column:
        own, other = (_ORDINAL.match(text, item.start) for item in (block, follower))
        if own and other and other[1] not in ("1", "a", "A", "i", own[1]):
            return True
    if block.kind == "row" and after is not None and after.kind == "row":
        own, other = (_ROW_NUMBER.match(text, row.start) for row in (block, after))
        if own and other and int(other[1]) == int(own[1]) + 1:
            return True
    if before is None:
        return False
    if block.kind == "row" and before.kind == "rule":
        return not level
    if _ANNOUNCES.search(text, before.start, before.end):
        return not level or block.kind == "paragraph"
    titles = [
        other is None
        or other.kind == "heading"
        or bool(_TITLE.fullmatch(text, other.start, other.end))
        for other in (before, after)
    ]
    return all(titles)


def _column(text: str, block: TextBlock) -> int:
    return block.start - text.rfind("\n", 0, block.start) - 1


def _add(text_blocks: list[TextBlock], text: str, start: int, end: int, kind: BlockKind) -> None:
    piece = text[start:end]
    body = piece.strip()
    if body:
        low = start + len(piece) - len(piece.lstrip())
        text_blocks.append(TextBlock(low, low + len(body), kind))


def _paragraphs(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Groups of lines; a line break is intended when the next word would have fitted before it."""
    if len(lines) < 2:
        # A single line, or none.
        if lines:
            yield lines
        return
    lengths = [len(line.body.rstrip()) for line in lines]
    width = max(_MIN_WIDTH, *lengths)
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


_CELL = re.compile(r"\|?[ \t]*([^|\t\n]*?)[ \t]*(?:\||\t)")
_COUNTS = re.compile(
    r"(?i)(?:[*_]*(?:no|nr|num|number|#|\u2116|(?:s|sr|sl)\.?\s?no|step|item|row|point|id|index"
    r"|entry|line|finding|claim|statement|fact)s?[.:]?[*_]*)?"
)
_NUMBER = re.compile(r"[*_]*(\d{1,4})[.)]?[*_]*")


def counting_cells(text: str, blocks: Sequence[TextBlock]) -> dict[int, int]:
    r"""Table rows whose first cell is only a row number.

    A first column is a row number when it runs 1, 2, 3 … and its header is empty or a word such
    as "No.", or the table has no header. Such a number is not a value.

    Returns:
        Start offset of each such row → offset just after its first cell.
    """
    cell_ends: dict[int, int] = {}
    table: list[TextBlock] = []
    ruled = False

    def close() -> None:
        rows = table[1:] if ruled else table
        ends: dict[int, int] = {}
        for number, row in enumerate(rows, 1):
            cell = _CELL.match(text, row.start, row.end)
            written = _NUMBER.fullmatch(cell[1]) if cell is not None else None
            if cell is None or written is None or int(written[1]) != number:
                return
            ends[row.start] = cell.end() - 1
        if ruled and table:
            head = _CELL.match(text, table[0].start, table[0].end)
            if head is None or _COUNTS.fullmatch(head[1]) is None:
                return
        elif len(rows) == 1:
            return
        cell_ends.update(ends)

    for block in blocks:
        if block.kind == "row":
            table.append(block)
        elif block.kind == "rule" and len(table) == 1:
            ruled = True
        else:
            close()
            table, ruled = [], False
    close()
    return cell_ends
