"""`crp fabric migrate`: everything in a store, copied to another one."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crp_integrations.cli.opening import place
from crp_integrations.cli.show import many, plain
from crp_integrations.errors import RequestError, StoreError

if TYPE_CHECKING:
    from crp_integrations.fabric.ports import Store


def migrate(
    source: Annotated[str, typer.Option("--from", help="Folder or postgresql:// address.")],
    target: Annotated[str, typer.Option("--to", help="Folder or postgresql:// address.")],
) -> None:
    """Copy every namespace of a store to another one; the state hashes are compared."""
    from crp_integrations.stores.address import holds_store
    from crp_integrations.stores.transfer import move, moved_already

    if not holds_store(source):
        raise RequestError(f"there is no store at {place(source)!r:.80}; nothing was copied")
    with ExitStack() as opened:
        old, new = (opened.enter_context(closing(_store(one))) for one in (source, target))
        if old.name == new.name:
            raise RequestError(f"{old.name} was given as both stores; nothing was copied")
        # Before anything is copied: what a copy that was cut off has done is left as it is.
        names = old.namespaces()
        taken = {*names} & {*new.namespaces()}
        done = {name: moved_already(old, new, name) for name in names if name in taken}
        refused = [name for name, same in done.items() if same is None]
        if refused:
            raise StoreError(
                f"{new.name} has {many(len(refused), 'namespace')} of these names already, such as "
                f"{refused[0]!r:.80}, with other content; nothing was copied"
            )
        for name in names:
            there = done.get(name)
            moved = there or move(old, new, name, lambda table, rows: None)
            typer.echo(
                f"{plain(name, whole=True)}: {many(moved.facts, 'fact')}, "
                f"{many(moved.events, 'event')}, state hash {moved.state_hash}"
                f"{', there already' if there else ''}"
            )
    keys = Path(source) / "keys"
    if "://" not in source and keys.is_file():
        typer.echo(
            f"The master key stays in {keys}: whoever opens the copy needs it, "
            "as CRP_KEY for a database, as the file keys for a folder."
        )


def _store(name: str) -> Store:
    from crp_integrations.stores.address import place_of
    from crp_integrations.stores.sqlite import SqliteStore

    found = place_of(name)
    return SqliteStore(found) if isinstance(found, Path) else found
