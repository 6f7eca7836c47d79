"""Rows of JSON lines files, gzip or plain: an error names the file and the line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from crp_integrations.errors import RequestError

Made = TypeVar("Made")


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each row stands, for errors, and the row; blank lines are none."""
    try:
        opened = gzip.open if _is_gzip(path) else open
        with opened(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                place = f"{path} line {number}"
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    raise RequestError(f"{place} is no JSON object")
                yield place, row
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        # The system's own sentence names the path once more.
        why = getattr(error, "strerror", None) or error
        raise RequestError(f"{path} cannot be read as JSON lines: {why}") from error


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def rows_of(path: Path) -> list[dict[str, Any]]:
    """All rows of a file, at least one."""
    found = [row for _, row in rows(path)]
    if not found:
        raise RequestError(f"{path} holds no rows, wanted one JSON object on each line")
    return found


def each(path: Path, form: str, make: Callable[[dict[str, Any]], Made]) -> Iterator[Made]:
    """What is made of each row."""
    for place, row in rows(path):
        try:
            made = make(row)
        except (KeyError, TypeError, ValueError):
            raise RequestError(f"{place} is not an object with {form}") from None
        yield made


def text_in(row: dict[str, Any], key: str, place: str) -> str:
    """The text of a row under a key, which is not blank."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RequestError(f"{place}: {key} is {type(value).__name__}, wanted a text")
    return value
