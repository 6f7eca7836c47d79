"""Load documents from a path, or convert documents of this package, LangChain or LlamaIndex.

Text and JSON lines above `MAX_IN_MEMORY` bytes are streamed: one paragraph or line is in memory at
a time. Markdown, HTML and PDF are read whole, since their parsers work on whole files: Markdown
takes about 43 times and HTML about 28 times the file's size while it is read (measured), and each
is refused above `MAX_WHOLE_FILE` bytes. In a folder, files after the first `MAX_IN_MEMORY` bytes
are not kept in memory either: each is read again when its paragraphs are requested.

Framework documents are recognised by their attributes, so that no framework is imported.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from crp_integrations.errors import IngestError, MissingExtra
from crp_integrations.fabric.ingest.fact_preparation import plain_metadata
from crp_integrations.fabric.records import Block, Document, StreamedDocument
from crp_integrations.loaders import html, jsonl, text
from crp_integrations.loaders.files import (
    SUFFIXES,
    NoTextError,
    encoding_of,
    file_size,
    find_files,
    read_bytes,
    read_part,
)
from crp_integrations.loaders.text import split_paragraphs
from crp_integrations.seals import sha256

_LOG = logging.getLogger("crp_integrations.loaders")
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S
)
_PDF = b"%PDF-"
# First bytes of office files (ZIP, and the older OLE2), which are never meant as text.
_OFFICE = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
_HEAD = 4096
# Maximum bytes of a file, and of a folder's files together, that are kept in memory.
MAX_IN_MEMORY = 8 << 20
# Maximum bytes of a file that cannot be streamed (only text and UTF-8 JSON lines can).
MAX_WHOLE_FILE = 64 << 20


def load_path(
    path: str | Path, *, prefix: str | None = None
) -> Iterator[Document | StreamedDocument]:
    """Load a file, or every file of a folder whose suffix is known, in sorted order."""
    listing = find_files(path)
    if listing.skipped:
        _LOG.info("skipped %d files of unknown kinds in a folder", len(listing.skipped))
    named = not Path(path).is_dir()
    held = 0
    for file in listing.files:
        if prefix is None:
            uri = file.resolve().as_uri()
        else:
            uri = prefix + file.relative_to(listing.root).as_posix()
        bytes_ = file_size(file)
        held += bytes_
        try:
            yield from _load_file(file, bytes_, uri, keep=named or held <= MAX_IN_MEMORY)
        except NoTextError:
            if named:
                raise
            yield Document(
                uri=uri, title=file.stem, blocks=(), document_hash=sha256(read_bytes(file))
            )


def _load_file(
    file: Path, bytes_: int, uri: str, *, keep: bool
) -> Iterator[Document | StreamedDocument]:
    """Load the documents of one file; keep them in memory only if the file is small."""
    name = str(file)
    head = read_part(file, 0, _HEAD)
    form = SUFFIXES.get(file.suffix.lower()) or _sniff(head)
    if form == "text" and head.startswith(_PDF):
        raise IngestError(f"{name} is a PDF; give it the suffix .pdf")
    if form == "text" and head.startswith(_OFFICE):
        raise IngestError(
            f"{name} is not text but an archive, as Word, Excel and PowerPoint write them; save it "
            "as PDF, HTML, Markdown or plain text"
        )
    if bytes_ > MAX_IN_MEMORY or not keep:
        if form == "text":
            yield text.stream_text(file, uri=uri, name=name)
            return
        if form == "jsonl" and encoding_of(head)[0] == "utf-8":
            yield from jsonl.stream_jsonl(file, uri=uri, name=name)
            return
    if bytes_ > MAX_WHOLE_FILE:
        raise IngestError(
            f"{name} has {bytes_ >> 20} MiB, and {form} is read whole; wanted at most "
            f"{MAX_WHOLE_FILE >> 20} MiB: split it, or save it as text"
        )
    if keep or form == "jsonl":
        yield from _read_form(form, read_bytes(file), uri=uri, name=name)
        return
    # The document reads its file again instead of keeping its paragraphs in memory.
    yield text.reread_document(
        lambda: next(_read_form(form, read_bytes(file), uri=uri, name=name)), name
    )


def _read_form(form: str, data: bytes, *, uri: str, name: str) -> Iterator[Document]:
    if not data.strip():
        raise NoTextError(f"{name} is empty")
    match form:
        case "markdown":
            yield text.read_markdown(data, uri=uri, name=name)
        case "html":
            yield html.read_html(data, uri=uri, name=name)
        case "pdf":
            yield _read_pdf(data, uri=uri, name=name)
        case "jsonl":
            yield from jsonl.read_jsonl(data, uri=uri, name=name)
        case _:
            yield text.read_text(data, uri=uri, name=name)


def _sniff(data: bytes) -> str:
    if data.startswith(_PDF):
        return "pdf"
    return "html" if _HTML.match(data) else "text"


def _read_pdf(data: bytes, *, uri: str, name: str) -> Document:
    try:
        from crp_integrations.loaders import pdf
    except ModuleNotFoundError as error:
        if error.name != "pypdf":
            raise
        raise MissingExtra("pdf", f"reading {name}") from error
    return pdf.read_pdf(data, uri=uri, name=name)


# Metadata keys that name the origin of a text, best first.
_ORIGIN_KEYS = ("source", "url", "uri", "file_path")
# Metadata keys in which LangChain's Markdown splitter stores the headings above a piece.
_HEADING_KEYS = tuple(f"Header {level}" for level in range(1, 7))
_GAP = "\n\n"
# Types that need no conversion.
_KNOWN = (str, Path, Document, StreamedDocument)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One document, page or chunk of a framework."""

    uri: str
    text: str
    metadata: dict[str, JsonValue]


def load_documents(
    what: Any, *, prefix: str | None = None
) -> Iterator[Document | StreamedDocument]:
    """Yield the documents of a path, of a document, or of several of them, in order.

    Spec: CRP-SPEC-009 §4.1, §4.5

    A framework splits one file into several pieces: pages, chunks. Consecutive pieces with the
    same origin become one document, since an update replaces a document as a whole. The origin is
    `metadata["source"]` (or `url`, `uri`, `file_path`), else the id of the document that a node
    is from, else the framework's id, else the hash of the text.
    """
    # A framework's document can be iterated too (over its fields), but it is a single document.
    single = isinstance(what, _KNOWN) or _text(what) is not None
    if not single and not isinstance(what, Iterable):
        raise IngestError(
            f"{type(what).__name__} cannot be ingested; wanted a path, a document, or several of "
            "them"
        )
    numbered = enumerate([what] if single else what, 1)
    for uri, group in groupby(numbered, key=lambda pair: _place(pair[1])):
        if uri is not None:
            yield _join_pieces([_piece(item, uri, number) for number, item in group])
            continue
        for _, item in group:
            if isinstance(item, str | Path):
                yield from load_path(item, prefix=prefix)
            else:
                yield item


def _place(item: Any) -> str | None:
    """Return the origin of a framework's document; None if the item needs no conversion."""
    if isinstance(item, _KNOWN):
        return None
    metadata = getattr(item, "metadata", None)
    text = _text(item)
    if text is None or not isinstance(metadata, Mapping):
        raise IngestError(
            f"{type(item).__name__} cannot be ingested; wanted a path, or a document of this "
            "package, of LangChain or of LlamaIndex"
        )
    for key in _ORIGIN_KEYS:
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
        raise IngestError(f"{name} contains U+0000, which is not allowed in text")
    try:
        (text + uri).encode()
    except UnicodeEncodeError:
        raise IngestError(f"{name} is not text that can be encoded as UTF-8") from None
    return _Piece(uri, text, plain_metadata(item.metadata, name=name, refusal=IngestError))


def _join_pieces(pieces: list[_Piece]) -> Document:
    blocks: list[Block] = []
    start = 0
    for piece in pieces:
        page = _page(piece.metadata)
        heading = _heading(piece.metadata)
        blocks += [
            block.model_copy(update={"start": start + block.start, "page": page})
            for block in split_paragraphs(piece.text, heading=heading)
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
    """Page number from 1: the printed label, else the loader's number (from 0) plus one."""
    label = metadata.get("page_label")
    if isinstance(label, str) and label.isascii() and label.isdecimal() and int(label) > 0:
        return int(label)
    page = metadata.get("page")
    return page + 1 if isinstance(page, int) and not isinstance(page, bool) and page >= 0 else None


def _heading(metadata: Mapping[str, JsonValue]) -> str:
    return " > ".join(
        value for key in _HEADING_KEYS if isinstance(value := metadata.get(key), str) and value
    )
