"""Memory items in files: one JSON a line, a JSON list of them, or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from crp_integrations.errors import RequestError

STANDARD_INPUT = "-"
# Of a folder, these files are read.
SUFFIXES = (".json", ".jsonl", ".ndjson")
NO_OBJECT = "is no JSON object"
_BOM = b"\xef\xbb\xbf"
# Where something is, and its fields; or the sentence that says why there are none.
Found = tuple[str, dict[str, Any] | str]


def items_in(names: Iterable[str]) -> Iterator[Found]:
    """What the files hold, in their order, each with file and line, or file and number in a list.

    Args:
        names: files, folders, or `-` for standard input.

    Raises:
        RequestError: one cannot be read, or a folder has no such file.
    """
    for name in names:
        for file in _files(name):
            try:
                yield from _of_file(file)
            except (OSError, ValueError) as error:
                # A name with a NUL is a ValueError, which has no message of the system's.
                reason = getattr(error, "strerror", None) or "no usable path"
                raise RequestError(f"{file!r:.200} cannot be read: {reason}") from error


def _files(name: str) -> list[str]:
    if name == STANDARD_INPUT or "\x00" in name or not Path(name).is_dir():
        return [name]
    within = sorted(Path(name).rglob("*"))
    found = [str(path) for path in within if path.suffix in SUFFIXES and path.is_file()]
    if not found:
        raise RequestError(
            f"folder {name!r:.200} has no file of memory items; wanted one that ends in "
            f"{', '.join(SUFFIXES)}"
        )
    return found


def _of_file(name: str) -> Iterator[Found]:
    with ExitStack() as stack:
        file: BinaryIO
        if name == STANDARD_INPUT:
            file = sys.stdin.buffer
        else:
            file = stack.enter_context(Path(name).open("rb"))
        first = file.readline().removeprefix(_BOM)
        lines: Iterable[bytes] = chain([first], file)
        if not isinstance(_parsed(first), dict) and first.lstrip()[:1] in (b"[", b"{"):
            # A list, or an object over several lines; what is neither is looked at line by line.
            data = first + file.read()
            whole = _parsed(data)
            if isinstance(whole, list):
                for number, one in enumerate(whole, 1):
                    yield f"{name}[{number}]", one if isinstance(one, dict) else NO_OBJECT
                return
            lines = [data] if isinstance(whole, dict) else data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{name}:{number}", _object(line.rstrip())


def _object(line: bytes) -> dict[str, Any] | str:
    found = _parsed(line)
    if isinstance(found, _Unread):
        return found.why
    return found if isinstance(found, dict) else NO_OBJECT


class _Unread(ValueError):
    """What is no JSON, and why."""

    @property
    def why(self) -> str:
        return str(self)


def _parsed(data: bytes) -> Any:
    """The JSON value; `_Unread` where there is none."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        return _Unread(f"is no UTF-8 text: byte {error.start} does not decode")
    except json.JSONDecodeError as error:
        return _Unread(f"{NO_OBJECT}: {error.msg} at column {error.colno}")
    except _Unread as error:
        return error
    except (ValueError, RecursionError):
        # A number with thousands of digits, or lists within lists.
        return _Unread(NO_OBJECT)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; two readers may take different ones of two fields with one name."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Unread("has two fields of one name in an object")
    return fields
