"""Plain text: paragraphs between empty lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Block, Document, StreamedDocument
from crp_integrations.loaders.decoding import NoTextError, decode, decoded
from crp_integrations.loaders.find import pieces
from crp_integrations.seals import sha256

# Items of a list that have at least this many characters on average are paragraphs.
LONG_ITEM = 200
# A form feed ends a paragraph as an empty line does.
_GAP = re.compile(r"\n[ \t]*(?:\n[ \t]*)+|\f")
# A paragraph of more characters is cut, so that no file is one paragraph of any size.
_LONGEST = 1_000_000


def paragraphs(text: str, *, heading: str = "") -> list[Block]:
    """The paragraphs of a text, each a verbatim slice of it without outer white space."""
    return list(flow([text], heading=heading))


def flow(texts: Iterable[str], *, heading: str = "") -> Iterator[Block]:
    """The paragraphs of a text that comes in pieces, as `paragraphs` gives them of the whole."""
    rest, base = "", 0
    for text in texts:
        rest += text
        start = 0
        # More white space may follow a gap in the next piece; it is stripped in front.
        for gap in _GAP.finditer(rest):
            yield from _blocks(rest, start, gap.start(), base, heading)
            start = gap.end()
        filled = len(rest.rstrip())
        for block in _blocks(rest, start, filled, base, heading):
            # What is cut off in front is a block whatever follows; the last one may grow.
            if block.end - base == filled:
                break
            yield block
            start = block.end - base
        start = len(rest) if start >= filled else start
        rest, base = rest[start:], base + start
    yield from _blocks(rest, 0, len(rest), base, heading)


def _blocks(text: str, start: int, end: int, base: int, heading: str) -> Iterator[Block]:
    """A paragraph as one block, or as several when it is too long for one."""
    while True:
        body = text[start:end]
        start += len(body) - len(body.lstrip())
        body = body.strip()
        if not body:
            return
        length = len(body)
        if length > _LONGEST:
            line = body.rfind("\n", _LONGEST // 2, _LONGEST)
            space = line if line > 0 else body.rfind(" ", _LONGEST // 2, _LONGEST)
            length = space if space > 0 else _LONGEST
        yield Block(text=body[:length].rstrip(), start=base + start, heading=heading)
        if length == len(body):
            return
        start += length


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


def stream(file: Path, *, uri: str, name: str) -> StreamedDocument:
    """A document whose paragraphs are read from the file each time they are asked for.

    The file is read once to know its hash and that it is text; at most two million characters
    of it are in memory.

    Raises:
        IngestError: the bytes are not text.
        NoTextError: they are nothing but white space.
    """
    first = hashlib.sha256()
    filled = False
    for text in decoded(_hashed(file, first), name=name):
        filled = filled or bool(text.strip())
    if not filled:
        raise NoTextError(f"{name} holds no text")
    known = f"sha256:{first.hexdigest()}"

    def blocks() -> Iterator[Block]:
        again = hashlib.sha256()
        yield from flow(decoded(_hashed(file, again), name=name))
        if f"sha256:{again.hexdigest()}" != known:
            raise IngestError(f"{name} changed while it was read; ingest it again")

    return StreamedDocument(uri=uri, title=PurePath(name).stem, document_hash=known, blocks=blocks)


def _hashed(file: Path, into: hashlib._Hash) -> Iterator[bytes]:
    for piece in pieces(file):
        into.update(piece)
        yield piece
