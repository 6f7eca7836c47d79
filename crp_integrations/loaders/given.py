"""What a caller gives to be ingested, as documents: paths, our own, LangChain's, LlamaIndex's.

Those of a framework are told by what they have, not by their class, so none is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from crp_integrations.errors import IngestError
from crp_integrations.fabric.ingest.fact_fields import plain_metadata
from crp_integrations.fabric.records import Block, Document, StreamedDocument
from crp_integrations.loaders.load import load
from crp_integrations.loaders.text import paragraphs
from crp_integrations.seals import sha256

# Keys of metadata that name where a text is from, best first.
_PLACES = ("source", "url", "uri", "file_path")
# What LangChain's splitter for Markdown names the headings above a piece.
_HEADINGS = tuple(f"Header {level}" for level in range(1, 7))
_GAP = "\n\n"
# What needs no conversion.
_KNOWN = (str, Path, Document, StreamedDocument)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One document, page or chunk of a framework."""

    uri: str
    text: str
    metadata: dict[str, JsonValue]


def documents(what: Any, *, prefix: str | None = None) -> Iterator[Document | StreamedDocument]:
    """The documents of a path, of a document, or of many of them, in order.

    Spec: CRP-SPEC-009 §4.1, §4.5

    A framework makes several pieces of one file: pages, chunks. Pieces of one place that follow
    each other are one document, since an update replaces a document as a whole. The place is
    `metadata["source"]` (or `url`, `uri`, `file_path`), else the id of the document that a node
    is from, else the framework's id, else the hash of the text.

    Args:
        what: a path, a document, or several of them.
        prefix: what the URIs of paths begin with; see `load`.

    Raises:
        IngestError: an item is none of these, its metadata are not plain JSON, or a path cannot
            be read.
    """
    # A framework's document can be walked through, field by field; that is not meant.
    one = isinstance(what, _KNOWN) or _text(what) is not None
    if not one and not isinstance(what, Iterable):
        raise IngestError(
            f"{type(what).__name__} cannot be ingested; wanted a path, a document, or several of "
            "them"
        )
    numbered = enumerate([what] if one else what, 1)
    for uri, group in groupby(numbered, key=lambda pair: _place(pair[1])):
        if uri is not None:
            yield _joined([_piece(item, uri, number) for number, item in group])
            continue
        for _, item in group:
            if isinstance(item, str | Path):
                yield from load(item, prefix=prefix)
            else:
                yield item


def _place(item: Any) -> str | None:
    """Where a framework's document is from; None for what is no such document.

    Raises:
        IngestError: it is nothing that can be ingested.
    """
    if isinstance(item, _KNOWN):
        return None
    metadata = getattr(item, "metadata", None)
    text = _text(item)
    if text is None or not isinstance(metadata, Mapping):
        raise IngestError(
            f"{type(item).__name__} cannot be ingested; wanted a path, or a document of this "
            "package, of LangChain or of LlamaIndex"
        )
    for key in _PLACES:
        if isinstance(value := metadata.get(key), str) and value.strip():
            return value
    for name in ("ref_doc_id", "id", "id_", "node_id"):
        if isinstance(value := getattr(item, name, None), str) and value:
            return f"document:{value}"
    return f"text:{sha256(text.encode(errors='replace'))}"


def _text(item: Any) -> str | None:
    text = getattr(item, "page_content", None)
    if isinstance(text, str):
        return text
    # Without an argument, LlamaIndex leaves the metadata out of the text.
    content = getattr(item, "get_content", None)
    return str(content()) if callable(content) else None


def _piece(item: Any, uri: str, number: int) -> _Piece:
    name = f"document {number}"
    text = (_text(item) or "").replace("\r\n", "\n").replace("\r", "\n")
    if "\x00" in text:
        raise IngestError(f"{name} holds U+0000, which no text does")
    try:
        (text + uri).encode()
    except UnicodeEncodeError:
        raise IngestError(f"{name} is not text that can be encoded as UTF-8") from None
    return _Piece(uri, text, plain_metadata(item.metadata, name=name, refusal=IngestError))


def _joined(pieces: list[_Piece]) -> Document:
    blocks: list[Block] = []
    start = 0
    for piece in pieces:
        page = _page(piece.metadata)
        heading = _heading(piece.metadata)
        blocks += [
            block.model_copy(update={"start": start + block.start, "page": page})
            for block in paragraphs(piece.text, heading=heading)
        ]
        start += len(piece.text) + len(_GAP)
    first, *others = pieces
    shared = {
        key: value
        for key, value in first.metadata.items()
        if all(key in other.metadata and other.metadata[key] == value for other in others)
    }
    title = shared.get("title") or shared.get("file_name")
    return Document(
        uri=first.uri,
        title=title if isinstance(title, str) else first.uri.rpartition("/")[2] or first.uri,
        blocks=tuple(blocks),
        document_hash=sha256(_GAP.join(piece.text for piece in pieces)),
        metadata=shared,
    )


def _page(metadata: Mapping[str, JsonValue]) -> int | None:
    """The page from 1: a printed label, or the number that loaders count from 0."""
    label = metadata.get("page_label")
    if isinstance(label, str) and label.isascii() and label.isdecimal() and int(label) > 0:
        return int(label)
    page = metadata.get("page")
    return page + 1 if isinstance(page, int) and not isinstance(page, bool) and page >= 0 else None


def _heading(metadata: Mapping[str, JsonValue]) -> str:
    return " > ".join(
        value for key in _HEADINGS if isinstance(value := metadata.get(key), str) and value
    )
