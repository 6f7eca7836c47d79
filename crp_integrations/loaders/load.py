"""From a path to documents: the one door of the room."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

from crp_integrations.errors import IngestError, MissingExtra
from crp_integrations.fabric.records import Document
from crp_integrations.loaders import html, jsonl, markdown, text
from crp_integrations.loaders.decoding import NoTextError
from crp_integrations.loaders.find import SUFFIXES, find, read_bytes
from crp_integrations.seals import sha256

_LOG = logging.getLogger("crp_integrations.loaders")
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S
)
_PDF = b"%PDF-"


def load(path: str | Path, *, prefix: str | None = None) -> Iterator[Document]:
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
    for file in found.files:
        if prefix is None:
            uri = file.resolve().as_uri()
        else:
            uri = prefix + file.relative_to(found.root).as_posix()
        data = read_bytes(file)
        try:
            yield from _read(file, data, uri)
        except NoTextError:
            if named:
                raise
            yield Document(uri=uri, title=file.stem, blocks=(), document_hash=sha256(data))


def _read(file: Path, data: bytes, uri: str) -> Iterator[Document]:
    name = str(file)
    if not data.strip():
        raise NoTextError(f"{name} is empty")
    match SUFFIXES.get(file.suffix.lower()) or _sniff(data):
        case "markdown":
            yield markdown.read(data, uri=uri, name=name)
        case "html":
            yield html.read(data, uri=uri, name=name)
        case "pdf":
            yield _pdf(data, uri=uri, name=name)
        case "jsonl":
            yield from jsonl.read(data, uri=uri, name=name)
        case _:
            if data.startswith(_PDF):
                raise IngestError(f"{name} is a PDF; give it the suffix .pdf")
            yield text.read(data, uri=uri, name=name)


def _sniff(data: bytes) -> str:
    if data.startswith(_PDF):
        return "pdf"
    return "html" if _HTML.match(data[:4096]) else "text"


def _pdf(data: bytes, *, uri: str, name: str) -> Document:
    try:
        from crp_integrations.loaders import pdf
    except ModuleNotFoundError as error:
        if error.name != "pypdf":
            raise
        raise MissingExtra("pdf", f"reading {name}") from error
    return pdf.read(data, uri=uri, name=name)
