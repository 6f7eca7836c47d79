"""`crp memory lint`: check memory items in files or in a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from crp_integrations.cli import options
from crp_integrations.cli.options import opened_namespace, printable_store
from crp_integrations.cli.terminal import plain
from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.governance.memory_items import item, of_fact
from crp_integrations.markup import counted
from crp_integrations.seals import sha256

STANDARD_INPUT = "-"
# Suffixes of the files that are read from a folder.
SUFFIXES = (".json", ".jsonl", ".ndjson")
NOT_AN_OBJECT = "is not a JSON object"
_BOM = b"\xef\xbb\xbf"
# Place of an item, and its fields or the reason why they cannot be read.
FoundItem = tuple[str, dict[str, Any] | str]


def items_in(names: Iterable[str]) -> Iterator[FoundItem]:
    """The items of files, in order, each with its file and line, or its number in a list."""
    for name in names:
        for file in _files_of(name):
            try:
                yield from _items_in_file(file)
            except (OSError, ValueError) as error:
                # A name with a NUL raises ValueError, which has no system message.
                reason = getattr(error, "strerror", None) or "not a usable path"
                raise RequestError(f"{file!r:.200} cannot be read: {reason}") from error


def _files_of(name: str) -> list[str]:
    if name == STANDARD_INPUT or "\x00" in name or not Path(name).is_dir():
        return [name]
    within = sorted(Path(name).rglob("*"))
    names = [str(path) for path in within if path.suffix in SUFFIXES and path.is_file()]
    if not names:
        raise RequestError(
            f"folder {name!r:.200} has no file of memory items; wanted one that ends in "
            f"{', '.join(SUFFIXES)}"
        )
    return names


def _items_in_file(name: str) -> Iterator[FoundItem]:
    data = sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    data = data.removeprefix(_BOM)
    whole = _parse(data)
    if isinstance(whole, list):
        for number, value in enumerate(whole, 1):
            yield f"{name}[{number}]", value if isinstance(value, dict) else NOT_AN_OBJECT
        return
    # A single object may span several lines; anything else is read line by line.
    for number, line in enumerate([data] if isinstance(whole, dict) else data.split(b"\n"), 1):
        if line.strip():
            value = _parse(line.rstrip())
            reason = str(value) if isinstance(value, _Unreadable) else NOT_AN_OBJECT
            yield f"{name}:{number}", value if isinstance(value, dict) else reason


class _Unreadable(ValueError):
    """Why a text is not JSON."""


def _parse(data: bytes) -> Any:
    """The JSON value, or an `_Unreadable` with the reason."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_unique_fields)
    except UnicodeDecodeError as error:
        return _Unreadable(f"is not valid UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        return _Unreadable(f"{NOT_AN_OBJECT}: {error.msg} at column {error.colno}")
    except _Unreadable as error:
        return error
    except (ValueError, RecursionError):
        # A number with thousands of digits, or deeply nested lists.
        return _Unreadable(NOT_AN_OBJECT)


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; duplicate keys are refused, since JSON readers differ in which one they take."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Unreadable("has two fields of the same name in an object")
    return fields


app = options.group("Check memory items in files or in a store.")

# Place of an item, and what is wrong with it; None if nothing is.
CheckedItem = tuple[str, str | None]


@app.command("lint")
def lint(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files (JSON lines or a list) of memory items, or folders; - for standard input."
        ),
    ] = None,
    # No environment variable and no default, so that a command with files checks only files.
    store: Annotated[
        str, typer.Option("--store", help="Folder or address of a store whose items to check.")
    ] = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Check memory items; lists malformed or unlabelled ones, with status 1."""
    names = files or []
    if not names and not store:
        raise RequestError("nothing to check; give FILE, a folder of files, or --store")
    if "" in names:
        # A path would turn it into the current folder.
        raise RequestError("FILE is empty; give a file, a folder of files, or --store")
    if tenant and not store:
        raise RequestError("--tenant needs --store; an item in a file names its own tenant")
    seen = 0
    problems = []
    for looked in (_check_files(names), _check_store(store, tenant)):
        for where, wrong in looked:
            seen += 1
            if wrong is None:
                continue
            problems.append({"place": where, "problem": wrong})
            if not as_json:
                typer.echo(plain(f"{where}: {wrong}", whole=True))
    if not seen:
        # A CI step that checked nothing must not pass.
        sought = ", ".join([*names, *([printable_store(store)] if store else [])])
        raise RequestError(f"there is no memory item in {sought:.200}, so nothing was checked")
    if as_json:
        fields = {"items": seen, "refused": len(problems), "problems": problems}
        typer.echo(json.dumps(fields, indent=2))
    else:
        typer.echo(f"{counted(seen, 'item')}, {len(problems)} refused")
    if problems:
        raise typer.Exit(1)


def _check_files(names: list[str]) -> Iterator[CheckedItem]:
    # Id → place of the first item with it, and the hash of its content.
    known: dict[str, tuple[str, str]] = {}
    for where, parsed in items_in(names):
        if isinstance(parsed, str):
            yield where, parsed
            continue
        try:
            memory_item = item(parsed)
        except FactRejected as error:
            yield where, str(error)
            continue
        content = sha256(memory_item.text)
        first, first_content = known.setdefault(memory_item.id, (where, content))
        # Writing a second item with the same id fails unless the content is equal.
        wrong = f"memory item is refused: id is that of {first}, which has different content"
        yield where, None if content == first_content else wrong


def _check_store(store: str, tenant: str) -> Iterator[CheckedItem]:
    if not store:
        return
    with opened_namespace(options.StoreScope(store, tenant=tenant)) as namespace:
        for record in namespace.export():
            if not isinstance(record, Fact):
                continue
            try:
                if of_fact(record) is not None:
                    yield printable_store(store), None
            except FactRejected as error:
                # The message names the fact.
                yield printable_store(store), str(error)
