"""From a path to documents: the one door of the room.

Text and JSON lines above `STREAMED` bytes are streamed: a paragraph, or a line, is in memory at a
time. Markdown, HTML and PDF are read whole, since their parsers work on whole files: Markdown
takes about 43 times and HTML about 28 times the file's size while it is read (measured), and each
is refused above `LARGEST` bytes. Of a folder, what is beyond its first `STREAMED` bytes is not held
either: each file is read again when its paragraphs are wanted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

from crp_integrations.errors import IngestError, MissingExtra
from crp_integrations.fabric.records import Block, Document, StreamedDocument
from crp_integrations.loaders import html, jsonl, markdown, text
from crp_integrations.loaders.decoding import NoTextError, encoding_of
from crp_integrations.loaders.find import SUFFIXES, find, part, read_bytes, size
from crp_integrations.seals import sha256

_LOG = logging.getLogger("crp_integrations.loaders")
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S
)
_PDF = b"%PDF-"
# How office programs' files begin, which nobody means as text: ZIP, and the older OLE2.
_OFFICE = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
_HEAD = 4096
# Bytes of a file, and of a folder's files together, up to which documents are held in memory.
STREAMED = 8 << 20
# Bytes of the largest file that is read whole although it is not text or JSON lines in UTF-8.
LARGEST = 64 << 20


def load(path: str | Path, *, prefix: str | None = None) -> Iterator[Document | StreamedDocument]:
    """Load a file, or every file of a folder whose suffix is known, in sorted order.

    Args:
        path: a file or folder. A file without a known suffix is loaded by what it begins with,
            or as text.
        prefix: for documents whose place is not to decide their ids, such as those of a
            package: URIs are the prefix and the path within `path`. None gives `file:` URIs of
            the resolved path, so that one file is one source from wherever it is named.

    Yields:
        Documents, at least one. A file of a folder that holds no text is one without blocks.

    Raises:
        IngestError: something cannot be loaded, or a file that was named itself holds no text;
            names it.
        MissingExtra: a PDF is among the files and `pypdf` is not installed.
    """
    found = find(path)
    if found.skipped:
        _LOG.info("skipped %d files of unknown kinds in a folder", len(found.skipped))
    named = not Path(path).is_dir()
    held = 0
    for file in found.files:
        if prefix is None:
            uri = file.resolve().as_uri()
        else:
            uri = prefix + file.relative_to(found.root).as_posix()
        bytes_ = size(file)
        held += bytes_
        try:
            yield from _file(file, bytes_, uri, keep=named or held <= STREAMED)
        except NoTextError:
            if named:
                raise
            yield Document(
                uri=uri, title=file.stem, blocks=(), document_hash=sha256(read_bytes(file))
            )


def _file(
    file: Path, bytes_: int, uri: str, *, keep: bool
) -> Iterator[Document | StreamedDocument]:
    """The documents of one file, held when there are few bytes of them."""
    name = str(file)
    head = part(file, 0, _HEAD)
    form = SUFFIXES.get(file.suffix.lower()) or _sniff(head)
    if form == "text" and head.startswith(_PDF):
        raise IngestError(f"{name} is a PDF; give it the suffix .pdf")
    if form == "text" and head.startswith(_OFFICE):
        raise IngestError(
            f"{name} is no text but an archive, as Word, Excel and PowerPoint write them; save it "
            "as PDF, HTML, Markdown or plain text"
        )
    if bytes_ > STREAMED or not keep:
        if form == "text":
            yield text.stream(file, uri=uri, name=name)
            return
        if form == "jsonl" and encoding_of(head)[0] == "utf-8":
            yield from jsonl.stream(file, uri=uri, name=name)
            return
    if bytes_ > LARGEST:
        raise IngestError(
            f"{name} has {bytes_ >> 20} MiB, and {form} is read whole; wanted at most "
            f"{LARGEST >> 20} MiB: split it, or save it as text"
        )
    for document in _read(form, read_bytes(file), uri=uri, name=name):
        yield document if keep or form == "jsonl" else _again(file, form, document, name)


def _read(form: str, data: bytes, *, uri: str, name: str) -> Iterator[Document]:
    if not data.strip():
        raise NoTextError(f"{name} is empty")
    match form:
        case "markdown":
            yield markdown.read(data, uri=uri, name=name)
        case "html":
            yield html.read(data, uri=uri, name=name)
        case "pdf":
            yield _pdf(data, uri=uri, name=name)
        case "jsonl":
            yield from jsonl.read(data, uri=uri, name=name)
        case _:
            yield text.read(data, uri=uri, name=name)


def _again(file: Path, form: str, first: Document, name: str) -> StreamedDocument:
    """A document that reads its file again instead of holding its paragraphs."""
    uri, known = first.uri, first.document_hash

    def blocks() -> Iterator[Block]:
        data = read_bytes(file)
        if sha256(data) != known:
            raise IngestError(f"{name} changed while it was read; ingest it again")
        for document in _read(form, data, uri=uri, name=name):
            yield from document.blocks

    return StreamedDocument(
        uri=uri,
        title=first.title,
        document_hash=known,
        blocks=blocks,
        kind=first.kind,
        labels=first.labels,
        metadata=first.metadata,
    )


def _sniff(data: bytes) -> str:
    if data.startswith(_PDF):
        return "pdf"
    return "html" if _HTML.match(data) else "text"


def _pdf(data: bytes, *, uri: str, name: str) -> Document:
    try:
        from crp_integrations.loaders import pdf
    except ModuleNotFoundError as error:
        if error.name != "pypdf":
            raise
        raise MissingExtra("pdf", f"reading {name}") from error
    return pdf.read(data, uri=uri, name=name)
