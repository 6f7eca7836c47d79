"""Plain text: paragraphs between empty lines."""

from __future__ import annotations

import re
from pathlib import PurePath

from crp_integrations.fabric.records import Block, Document
from crp_integrations.loaders.decoding import decode
from crp_integrations.seals import sha256

# Items of a list that have at least this many characters on average are paragraphs.
LONG_ITEM = 200
# A form feed ends a paragraph as an empty line does.
_GAP = re.compile(r"\n[ \t]*(?:\n[ \t]*)+|\f")


def paragraphs(text: str, *, heading: str = "") -> list[Block]:
    """The paragraphs of a text, each a verbatim slice of it without outer white space."""
    blocks: list[Block] = []
    start = 0
    for end, behind in [
        *((gap.start(), gap.end()) for gap in _GAP.finditer(text)),
        (len(text),) * 2,
    ]:
        piece = text[start:end]
        body = piece.strip()
        if body:
            first = start + len(piece) - len(piece.lstrip())
            blocks.append(Block(text=body, start=first, heading=heading))
        start = behind
    return blocks


def read(data: bytes, *, uri: str, name: str) -> Document:
    """A document from the bytes of a text file.

    Raises:
        IngestError: the bytes are not text.
    """
    return Document(
        uri=uri,
        title=PurePath(name).stem,
        blocks=tuple(paragraphs(decode(data, name=name))),
        document_hash=sha256(data),
    )
