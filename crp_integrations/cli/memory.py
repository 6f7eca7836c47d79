"""`crp memory lint`: a gate for memory items in files, or in a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from crp_integrations.cli import options
from crp_integrations.cli.memory_files import items_in
from crp_integrations.cli.opening import kept, place
from crp_integrations.cli.show import many, plain
from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.governance.memory_items import MemoryItem, item, of_fact
from crp_integrations.seals import sha256

app = typer.Typer(help="Memory items.", no_args_is_help=True, rich_markup_mode=None)

# Where an item is, and what is wrong with it; None for nothing.
Looked = tuple[str, str | None]


@app.command("lint")
def lint(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of memory items, one JSON a line or a list; folders of them; - reads input."
        ),
    ] = None,
    # Without the variable and the default of other commands: files are looked at alone.
    store: Annotated[
        str, typer.Option("--store", help="Folder or address of a store whose items are meant.")
    ] = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Look at memory items; malformed or unlabelled ones are told, and the status is 1."""
    names = files or []
    if not names and not store:
        raise RequestError("nothing to look at; give FILE, a folder of files, or --store")
    if "" in names:
        # It would be the folder that one stands in.
        raise RequestError("FILE is empty; give a file, a folder of files, or --store")
    if tenant and not store:
        raise RequestError("--tenant goes with --store; an item in a file names its own tenant")
    seen = 0
    problems = []
    for looked in (_of_files(names), _of_store(store, tenant)):
        for where, wrong in looked:
            seen += 1
            if wrong is None:
                continue
            problems.append({"place": where, "problem": wrong})
            if not as_json:
                typer.echo(plain(f"{where}: {wrong}", whole=True))
    if not seen:
        # A gate that looked at nothing must not stand open.
        sought = ", ".join([*names, *([place(store)] if store else [])])
        raise RequestError(f"there is no memory item in {sought:.200}, so nothing was checked")
    if as_json:
        told = {"items": seen, "refused": len(problems), "problems": problems}
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo(f"{many(seen, 'item')}, {len(problems)} refused")
    if problems:
        raise typer.Exit(1)


def _of_files(names: list[str]) -> Iterator[Looked]:
    # By id: where an item was first, and the hash of its content.
    known: dict[str, tuple[str, str]] = {}
    for where, found in items_in(names):
        if isinstance(found, str):
            yield where, found
            continue
        try:
            one = item(found)
        except FactRejected as error:
            yield where, str(error)
            continue
        yield where, _twice(one, known.setdefault(one.id, (where, sha256(one.text))))


def _twice(one: MemoryItem, first: tuple[str, str]) -> str | None:
    """What is wrong where another item of the same id came before, which a writer refuses."""
    where, content = first
    if content == sha256(one.text):
        return None
    return f"memory item is refused: id is that of {where}, which has another content"


def _of_store(store: str, tenant: str) -> Iterator[Looked]:
    if not store:
        return
    with kept(store, tenant=tenant) as namespace:
        for record in namespace.export():
            if not isinstance(record, Fact):
                continue
            try:
                if of_fact(record) is not None:
                    yield place(store), None
            except FactRejected as error:
                # It names the fact.
                yield place(store), str(error)
