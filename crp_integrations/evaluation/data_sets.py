"""Data sets of documents, questions, and offsets of the evidence in the documents.

A set is a folder with `documents.jsonl.gz` (`doc_id, title, collection, text`) and
`queries.jsonl.gz` (`query_id, query, collection, evidence: [{doc_id, start, end}]`), UTF-8.
Offsets count characters of the text as stored. A question is asked within its collection.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from crp_integrations.errors import RequestError

Made = TypeVar("Made")


def rows(
    path: Path, skipped: Callable[[str], None] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The place of each row, for errors, and the row; blank lines are skipped.

    Args:
        skipped: receives a sentence if the last line is torn; None refuses such a line.
    """
    try:
        opened = gzip.open if _is_gzip(path) else open
        with opened(path, "rb") as file:
            for number, line in enumerate(file, 1):
                place = f"{path} line {number}"
                if not line.strip():
                    continue
                torn = skipped is not None and not line.endswith(b"\n")
                try:
                    row = json.loads(line.decode(errors="replace" if torn else "strict"))
                except UnicodeDecodeError:
                    raise
                except (ValueError, RecursionError):
                    row = None
                if torn and row is None and skipped is not None:
                    skipped(f"{place} is torn, as it has no end; it is left out")
                    return
                if not isinstance(row, dict):
                    raise RequestError(f"{place} is not a JSON object")
                yield place, row
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        # `strerror` alone, as the error's full message repeats the path.
        why = getattr(error, "strerror", None) or error
        raise RequestError(f"{path} cannot be read as JSON lines: {why}") from error


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def rows_of(path: Path) -> list[dict[str, Any]]:
    """All rows of a file, at least one."""
    records = [row for _, row in rows(path)]
    if not records:
        raise RequestError(f"{path} holds no rows, wanted one JSON object on each line")
    return records


def each(
    path: Path,
    form: str,
    make: Callable[[dict[str, Any]], Made],
    skipped: Callable[[str], None] | None = None,
) -> Iterator[Made]:
    """The result of `make` for each row; an error names the row's place and the wanted form."""
    for place, row in rows(path, skipped):
        try:
            made = make(row)
        except (KeyError, TypeError, ValueError):
            raise RequestError(f"{place} is not an object with {form}") from None
        yield made


def text_in(row: dict[str, Any], key: str, place: str) -> str:
    """The value of a key of a row, which must be a string that is not blank."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RequestError(f"{place}: {key} is {type(value).__name__}, wanted a text")
    return value


DOCUMENTS = "documents.jsonl.gz"
QUERIES = "queries.jsonl.gz"


@dataclass(frozen=True, slots=True)
class SetDocument:
    """A document of a set, with its text as stored."""

    doc_id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class EvidenceSpan:
    """A half-open stretch of a document that answers a question."""

    doc_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SetQuestion:
    """A question with the evidence that answers it, at least one piece."""

    query_id: str
    query: str
    evidence: tuple[EvidenceSpan, ...]


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents and the questions that are asked within them."""

    name: str
    texts: tuple[SetDocument, ...]
    questions: tuple[SetQuestion, ...]


@dataclass(frozen=True, slots=True)
class DataSet:
    """A named set of collections."""

    name: str
    collections: tuple[Collection, ...]

    @property
    def questions(self) -> int:
        """The number of questions in all collections."""
        return sum(len(collection.questions) for collection in self.collections)


def find(data: Path, names: Sequence[str] = ()) -> list[Path]:
    """The folders of the sets to measure: all in `data`, or those with the given names."""
    if (data / DOCUMENTS).is_file():
        folders = {data.resolve().name: data}
    elif data.is_dir():
        folders = {
            folder.name: folder
            for folder in sorted(data.iterdir())
            if (folder / DOCUMENTS).is_file()
        }
    else:
        folders = {}
    if not folders:
        raise RequestError(
            f"--data is {str(data)!r:.120}, wanted a folder with {DOCUMENTS} and {QUERIES}, or a "
            "folder of such folders"
        )
    if missing := sorted(set(names) - folders.keys()):
        raise RequestError(f"set {missing[0]!r:.40} is not one of {', '.join(folders)}")
    return [path for name, path in folders.items() if not names or name in names]


def read(folder: Path, *, queries: int | None = None) -> DataSet:
    """Read a set.

    Args:
        queries: maximum number of questions, spread evenly over the file; None for all.

    Raises:
        RequestError: a file is missing, or a line has another format; names file and line.
    """
    texts: dict[str, list[SetDocument]] = {}
    lengths: dict[tuple[str, str], int] = {}
    for place, row in rows(folder / DOCUMENTS):
        collection, text = text_in(row, "collection", place), text_in(row, "text", place)
        doc_id = text_in(row, "doc_id", place)
        if (collection, doc_id) in lengths:
            raise RequestError(f"{place}: doc_id {doc_id!r:.40} occurs twice in its collection")
        lengths[collection, doc_id] = len(text)
        title = row.get("title")
        document = SetDocument(doc_id, title if isinstance(title, str) else "", text)
        texts.setdefault(collection, []).append(document)
    asked_rows = list(rows(folder / QUERIES))
    if queries is not None and queries < len(asked_rows):
        asked_rows = [asked_rows[number * len(asked_rows) // queries] for number in range(queries)]
    asked: dict[str, list[SetQuestion]] = {}
    for place, row in asked_rows:
        collection = text_in(row, "collection", place)
        question = text_in(row, "query", place)
        pieces = tuple(_evidence(row, collection, lengths, place))
        one_id = text_in(row, "query_id", place)
        asked.setdefault(collection, []).append(SetQuestion(one_id, question, pieces))
    if not asked:
        raise RequestError(f"{folder / QUERIES} has no question, wanted at least one")
    return DataSet(
        folder.resolve().name,
        tuple(
            Collection(name, tuple(texts[name]), tuple(questions))
            for name, questions in asked.items()
        ),
    )


def _evidence(
    row: dict[str, Any], collection: str, lengths: dict[tuple[str, str], int], place: str
) -> Iterator[EvidenceSpan]:
    pieces = row.get("evidence")
    if not isinstance(pieces, list) or not pieces:
        raise RequestError(f"{place}: evidence is not a list of at least one piece")
    for piece in pieces:
        try:
            doc_id, start, end = piece["doc_id"], piece["start"], piece["end"]
            length = lengths[collection, doc_id]
            whole = isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= length
        except (KeyError, TypeError):
            whole = False
        if not whole:
            raise RequestError(
                f"{place}: a piece of evidence is not a doc_id of the collection with "
                "0 <= start < end within its text"
            )
        yield EvidenceSpan(doc_id, start, end)
