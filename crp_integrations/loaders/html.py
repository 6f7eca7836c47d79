"""HTML: the visible text of a page's main part, with its headings.

Lists become lines with dashes or numbers and tables become rows with bars, as in Markdown; a
merged cell's text is repeated in each row and column that it covers.
Navigation, scripts, forms and hidden elements are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from crp_integrations.errors import MissingExtra
from crp_integrations.fabric.records import Block, Document
from crp_integrations.loaders.files import NoTextError, decode
from crp_integrations.loaders.text import LONG_ITEM
from crp_integrations.seals import sha256

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w:.-]+)", re.IGNORECASE)
_CHARSET_WITHIN = 4096
_ALWAYS_REMOVED = (
    "script, style, noscript, template, svg, iframe, object, canvas, audio, video, button, input, "
    "select, textarea, nav, dialog, [role=navigation], [role=search], [hidden], "
    '[aria-hidden="true"], [style*="display:none"], [style*="display: none"], '
    '[style*="visibility:hidden"], [style*="visibility: hidden"], a.headerlink, a.anchor'
)
_OUTSIDE_MAIN = "footer, aside, [role=banner], [role=contentinfo], [role=complementary]"
_INLINE = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn"),
        *("em", "font", "i", "img", "ins", "kbd", "label", "mark", "math", "meter", "output"),
        *("picture", "q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike", "strong"),
        *("sub", "sup", "time", "tt", "u", "var", "wbr"),
    )
)
_NOT_DATA = "table, h1, h2, h3, h4, h5, h6, ul, ol, pre, p + p"
# Row limit of the HTML standard; a lower column limit, so that attributes cannot inflate a page.
_MAX_ROWS = 65_534
_MAX_COLUMNS = 50
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def read_html(data: bytes, *, uri: str, name: str) -> Document:
    """A document from the bytes of an HTML page."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ModuleNotFoundError as error:
        raise MissingExtra("documents", "reading HTML") from error

    declared = _CHARSET.search(data[:_CHARSET_WITHIN])
    text = decode(data, name=name, declared=declared[1].decode("ascii") if declared else "")
    tree = LexborHTMLParser(text)
    title = tree.css_first("title")
    named = _squeeze(title.text()) if title is not None else ""
    _remove(tree.root, _ALWAYS_REMOVED)
    root = _main(tree)
    if root is None:
        raise NoTextError(f"{name} contains no text")
    page = _Page()
    page.walk(root)
    if not page.blocks:
        raise NoTextError(f"{name} contains no text")
    return Document(
        uri=uri,
        title=named or page.title or PurePath(name).stem,
        blocks=tuple(page.blocks),
        document_hash=sha256(data),
    )


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    for selector in ("main", "[role=main]", "article"):
        nodes = tree.css(selector)
        if len(nodes) == 1 and nodes[0].text().strip():
            return nodes[0]
    _remove(tree.body, _OUTSIDE_MAIN)
    return tree.body


def _remove(node: LexborNode | None, selector: str) -> None:
    if node is not None:
        for element in node.css(selector):
            # A page whose whole body is marked as hidden until a script runs is still a page.
            if element.tag not in ("html", "body"):
                element.decompose()


class _Page:
    """Collects blocks during a walk; offsets refer to the blocks joined by empty lines."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.title = ""
        self._headings: list[tuple[int, str]] = []
        self._inline: list[str] = []
        self._start = 0

    def walk(self, root: LexborNode) -> None:
        # An explicit stack, since a page may be nested deeper than Python's recursion limit.
        pending: list[tuple[LexborNode, bool]] = [(root, False)]
        while pending:
            node, leaving = pending.pop()
            tag = str(node.tag)
            if leaving:
                self._flush()
            elif tag == "-text":
                self._inline.append(node.text(deep=False) or "")
            elif tag == "br":
                self._inline.append("\n")
            elif not tag[:1].isalpha():
                continue  # a comment or a declaration
            elif not self._add_block(node, tag):
                block = tag not in _INLINE
                if block:
                    self._flush()
                    pending.append((node, True))
                pending.extend((child, False) for child in reversed(_children(node)))
        self._flush()

    def _add_block(self, node: LexborNode, tag: str) -> bool:
        """Add an element that becomes one block; return False for other elements."""
        if tag in _HEADINGS:
            self._flush()
            self._heading(int(tag[1]), _text(node))
        elif tag in ("ul", "ol"):
            self._flush()
            self._list(list(_list_lines(node)))
        elif tag == "pre":
            self._flush()
            code = node.text().strip("\n").rstrip()
            if code.strip():
                self._add(f"```\n{code}\n```")
        elif tag == "table" and node.css_first("td, th") and not _within(node, _NOT_DATA):
            self._flush()
            self._add("\n".join(_rows(node)))
        else:
            return False
        return True

    def _list(self, lines: list[str]) -> None:
        """Add a list as one block, or one block per item if items are as long as paragraphs."""
        items: list[list[str]] = []
        for line in lines:
            if not items or not line.startswith(" "):
                items.append([])
            items[-1].append(line)
        if sum(map(len, lines)) < LONG_ITEM * len(items):
            items = [lines]
        for item in items:
            self._add("\n".join(item))

    def _heading(self, level: int, words: str) -> None:
        if words:
            self._headings = [(depth, above) for depth, above in self._headings if depth < level]
            self._headings.append((level, words))
            self.title = self.title or words
            self._add(words)

    def _flush(self) -> None:
        lines = [_squeeze(line) for line in re.split(r"\n", _join_inline(self._inline))]
        self._inline = []
        self._add("\n".join(line for line in lines if line))

    def _add(self, text: str) -> None:
        if text:
            heading = " > ".join(words for _, words in self._headings)
            self.blocks.append(Block(text=text, start=self._start, heading=heading))
            self._start += len(text) + 2


def _join_inline(parts: list[str]) -> str:
    """Join text parts; only the line breaks of `br` remain."""
    return "".join(part if part == "\n" else re.sub(r"\s", " ", part) for part in parts)


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _children(node: LexborNode) -> list[LexborNode]:
    return list(node.iter(include_text=True))


def _within(node: LexborNode, selector: str) -> bool:
    return any(element.mem_id != node.mem_id for element in node.css(selector))


def _text(node: LexborNode, *, but: frozenset[str] = frozenset()) -> str:
    """Return a subtree's text on one line, with spaces around elements that are not inline."""
    parts: list[str] = []
    pending = _children(node)[::-1]
    while pending:
        child = pending.pop()
        tag = str(child.tag)
        if tag == "-text":
            parts.append(child.text(deep=False) or "")
        elif tag not in but:
            if tag not in _INLINE:
                parts.append(" ")
                pending.extend(_children(child)[::-1])
                parts.append(" ")
            else:
                pending.extend(_children(child)[::-1])
    return _squeeze("".join(parts))


def _list_lines(node: LexborNode) -> Iterator[str]:
    lists = frozenset({"ul", "ol"})
    pending: list[tuple[LexborNode, int, str]] = [(node, 0, "")]
    while pending:
        item, depth, mark = pending.pop()
        if item.tag in lists:
            rows, number = [], 0
            for child in _children(item):
                if child.tag == "li":
                    number += 1
                    rows.append((child, depth, f"{number}. " if item.tag == "ol" else "- "))
                elif child.tag in lists:
                    rows.append((child, depth + 1, ""))
            pending.extend(reversed(rows))
            continue
        words = _text(item, but=lists)
        if words:
            yield "  " * depth + mark + words
        nested = [inner for inner in item.css("ul, ol") if _owner(inner) == item.mem_id]
        pending.extend((inner, depth + 1, "") for inner in reversed(nested))


def _owner(node: LexborNode) -> int:
    """Identity of the nearest `li` above a list."""
    above = node.parent
    while above is not None and above.tag != "li":
        above = above.parent
    return above.mem_id if above is not None else 0


def _rows(node: LexborNode) -> Iterator[str]:
    caption = node.css_first("caption")
    if caption is not None and _text(caption):
        yield _text(caption)
    first = True
    for cells in _grid(node):
        if any(cells):
            yield f"| {' | '.join(cells)} |"
            if first:
                yield "|" + "---|" * len(cells)
            first = False


def _grid(node: LexborNode) -> Iterator[list[str]]:
    """Yield the cells of each row; merged cells are repeated in every row and column."""
    above: dict[int, tuple[int, str]] = {}  # by column: rows still covered, and the cell's text
    for row in node.css("tr"):
        cells: list[str] = []
        for cell in row.css("td, th"):
            _take_from_above(cells, above)
            words = _text(cell).replace("|", "\\|")
            rows = _span(cell, "rowspan", _MAX_ROWS)
            for _ in range(_span(cell, "colspan", _MAX_COLUMNS)):
                if rows > 1:
                    above[len(cells)] = (rows - 1, words)
                cells.append(words)
        _take_from_above(cells, above)
        yield cells


def _take_from_above(cells: list[str], above: dict[int, tuple[int, str]]) -> None:
    while len(cells) in above:
        left, words = above.pop(len(cells))
        if left > 1:
            above[len(cells)] = (left - 1, words)
        cells.append(words)


def _span(cell: LexborNode, name: str, most: int) -> int:
    written = (cell.attributes.get(name) or "").strip()
    # A rowspan of 0 extends to the table's end (HTML, section 4.9.11).
    covered = int(written) if re.fullmatch(r"[0-9]{1,5}", written) else 1
    return min(covered, most) if covered else most if name == "rowspan" else 1
