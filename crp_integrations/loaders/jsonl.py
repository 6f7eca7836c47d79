"""JSON lines: one document per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Document, StreamedDocument
from crp_integrations.loaders.files import NoTextError, decode, encoding_of, read_lines, read_part
from crp_integrations.loaders.text import read_front_matter, reread_document, split_paragraphs
from crp_integrations.seals import digest, sha256_hex

_TEXT_KEYS = ("text", "content")
_HASH_DIGITS = 16


def read_jsonl(data: bytes, *, uri: str, name: str) -> Iterator[Document]:
    """Yield the documents of a JSON lines file, given its bytes.

    Each line is an object with `text` or `content`, and optionally `uri` or `id`, `title`,
    `kind`, `labels` and `metadata`. A line without URI and id is identified by its content, so
    that lines inserted before it do not make it another document. A line whose text is empty is
    a document without blocks, identified by its line number.
    """
    for number, line in enumerate(decode(data, name=name).split("\n"), 1):
        if line.strip():
            yield _document(line, number, uri=uri, name=f"{name} line {number}")


def stream_jsonl(file: Path, *, uri: str, name: str) -> Iterator[StreamedDocument]:
    """Yield the documents of a long UTF-8 file, with one line in memory at a time.

    Each document records its line's position and reads the line again when its blocks are needed.
    """
    number, empty = 0, True
    for start, raw in read_lines(file):
        _, marked = encoding_of(raw) if start == 0 else ("", 0)
        body = raw[marked:]
        # In a file whose lines end in carriage returns only, `raw` is the whole file.
        texts = body.removesuffix(b"\n").removesuffix(b"\r").split(b"\r")
        for text in texts:
            number += 1
            if not text.strip():
                continue
            empty = False
            yield _lazy(file, start + marked, len(text), number, uri=uri, name=name)
            marked += len(text) + 1
    if empty:
        raise NoTextError(f"{name} contains no text")


def _lazy(
    file: Path, start: int, length: int, number: int, *, uri: str, name: str
) -> StreamedDocument:
    place = f"{name} line {number}"

    def document() -> Document:
        line = decode(read_part(file, start, length), name=place)
        return _document(line, number, uri=uri, name=place)

    return reread_document(document, place)


def _document(line: str, number: int, *, uri: str, name: str) -> Document:
    try:
        value: Any = json.loads(line)
        # Escapes can produce a lone surrogate, which no encoding can write.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise IngestError(f"{name} contains a character that is not Unicode text") from None
    except (ValueError, RecursionError) as error:
        problem = getattr(error, "msg", "it cannot be parsed")
        raise IngestError(f"{name} is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise IngestError(f"{name} is not a JSON object")
    text = next((value[key] for key in _TEXT_KEYS if value.get(key) is not None), None)
    if not isinstance(text, str) or "\x00" in text:
        raise IngestError(f"{name} has no usable text under 'text' or 'content'")
    extra = value.get("metadata") or {}
    if not isinstance(extra, dict):
        raise IngestError(f"{name} has metadata that is not an object")
    described = read_front_matter(
        {**extra, **{key: value[key] for key in ("kind", "title", "labels") if key in value}},
        name=name,
    )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return Document(
        uri=_uri(value, text, number, uri=uri, name=name),
        title=described.title or text.strip().split("\n", 1)[0][:80],
        blocks=tuple(split_paragraphs(text)),
        document_hash=digest(
            [text, described.kind, described.title, list(described.labels), described.metadata]
        ),
        kind=described.kind,
        labels=described.labels,
        metadata=described.metadata,
    )


def _uri(value: dict[str, Any], text: str, number: int, *, uri: str, name: str) -> str:
    for key in ("uri", "id"):
        own = value.get(key)
        if own is None:
            continue
        if isinstance(own, bool) or not isinstance(own, str | int) or not str(own).strip():
            raise IngestError(f"{name} has an unusable {key}; wanted a text or a number")
        return str(own) if key == "uri" else f"{uri}#{own}"
    if not text.strip():
        return f"{uri}#line-{number}"
    return f"{uri}#sha256-{sha256_hex(text)[:_HASH_DIGITS]}"
