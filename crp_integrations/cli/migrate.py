"""`crp fabric migrate`: everything in a store, copied to another one."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crp_integrations.cli.opening import place
from crp_integrations.errors import RequestError

if TYPE_CHECKING:
    from crp_integrations.fabric.ports import Store


def migrate(
    source: Annotated[str, typer.Option("--from", help="Folder or postgresql:// address.")],
    target: Annotated[str, typer.Option("--to", help="Folder or postgresql:// address.")],
) -> None:
    """Copy every namespace of a store to another one; the state hashes are compared."""
    from crp_integrations.relay.build import holds_store
    from crp_integrations.stores.moving import move

    if not holds_store(source):
        raise RequestError(f"there is no store at {place(source)!r:.80}; nothing was copied")
    with ExitStack() as opened:
        old, new = (opened.enter_context(closing(_store(one))) for one in (source, target))
        for namespace in old.namespaces():
            moved = move(old, new, namespace, lambda table, rows: None)
            typer.echo(
                f"{namespace}: {moved.facts} facts, {moved.events} events, "
                f"state hash {moved.state_hash}"
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
