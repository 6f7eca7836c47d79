"""Markdown: the blocks of CommonMark with tables, as they are written.

A block is a slice of the source, markup included, since a table or a list in Markdown is
readable as it stands. A list is one block, unless its items are as long as paragraphs.
Rules, comments and link definitions carry no text and are left out.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from crp_integrations.fabric.records import Block, Document
from crp_integrations.loaders import front_matter
from crp_integrations.loaders.decoding import NoTextError, decode
from crp_integrations.loaders.text import LONG_ITEM
from crp_integrations.seals import sha256

if TYPE_CHECKING:
    from markdown_it.token import Token

_TAG = re.compile(r"<!--.*?-->|<[^>]*>", re.DOTALL)
_LINE_END = re.compile(r"\n")


def read(data: bytes, *, uri: str, name: str) -> Document:
    """A document from the bytes of a Markdown file.

    Its title is the front matter's, else the first heading, else the file's name.

    Raises:
        IngestError: the bytes are not text, or the front matter cannot be read.
        NoTextError: there is no text behind the front matter.
    """
    text = decode(data, name=name)
    about, begin = front_matter.split(text, name=name)
    blocks, title = _blocks(text, begin)
    if not blocks:
        raise NoTextError(f"{name} holds no text")
    return Document(
        uri=uri,
        title=about.title or title or PurePath(name).stem,
        blocks=tuple(blocks),
        document_hash=sha256(data),
        kind=about.kind,
        labels=about.labels,
        metadata=about.metadata,
    )


def _blocks(text: str, begin: int) -> tuple[list[Block], str]:
    """The blocks behind the front matter, and the first heading's words."""
    # Loaded for the first file of this kind, since each opening of a relay would wait for it.
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").enable("table").parse(text[begin:])
    lines = _line_starts(text, begin)
    headings: list[tuple[int, str]] = []
    blocks: list[Block] = []
    title = ""
    for place, token in enumerate(tokens):
        if token.level != 0 or token.map is None or token.type == "hr":
            continue
        if token.type == "heading_open":
            words = " ".join(tokens[place + 1].content.split())
            headings = [(level, above) for level, above in headings if level < int(token.tag[1])]
            headings.append((int(token.tag[1]), words))
            title = title or words
        heading = " > ".join(above for _, above in headings if above)
        for first_line, last_line in _parts(tokens, place):
            block = _slice(text, lines[first_line], lines[last_line], token)
            if block is not None:
                blocks.append(block.model_copy(update={"heading": heading}))
    return blocks, title


def _parts(tokens: list[Token], place: int) -> list[tuple[int, int]]:
    """Line ranges of a block: one, or one an item for a list whose items are paragraphs."""
    token = tokens[place]
    whole = (token.map[0], token.map[1]) if token.map else (0, 0)
    if token.type not in ("bullet_list_open", "ordered_list_open"):
        return [whole]
    items: list[tuple[int, int]] = []
    length = 0
    for inner in tokens[place + 1 :]:
        if inner.level == 0:
            break
        if inner.level == 1 and inner.type == "list_item_open" and inner.map:
            items.append((inner.map[0], inner.map[1]))
        elif inner.type == "inline":
            length += len(inner.content)
    if not items or length < LONG_ITEM * len(items):
        return [whole]
    # An item's lines may end before the next begins; each takes what lies between.
    starts = [whole[0], *(first for first, _ in items[1:]), whole[1]]
    return list(pairwise(starts))


def _slice(text: str, start: int, end: int, token: Token) -> Block | None:
    body = text[start:end].strip()
    if not body or _is_markup(token):
        return None
    # Indentation that belongs to code is kept; a strip at the left would move its lines.
    first = start if token.type == "code_block" else text.index(body, start)
    return Block(text=text[first:end].rstrip(), start=first)


def _is_markup(token: Token) -> bool:
    return token.type == "html_block" and not _TAG.sub("", token.content).strip()


def _line_starts(text: str, begin: int) -> list[int]:
    """Offset of each line from `begin` on, and of the end."""
    starts = [begin, *(match.end() for match in _LINE_END.finditer(text, begin))]
    if starts[-1] != len(text):
        starts.append(len(text))
    return starts
