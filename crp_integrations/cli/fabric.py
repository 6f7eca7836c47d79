"""`crp fabric …`: what is in a store, its upkeep, facts that go in and out, and moving a store."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crp_integrations.cli import facts, options, store_views, terminal
from crp_integrations.cli.store_access import kept, moving, place
from crp_integrations.cli.terminal import many, plain
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


app = typer.Typer(
    help="Look after what is stored.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("quarantine")(facts.quarantine)
for _name, _help, _change in (
    ("lift", "End the quarantine of facts after review.", "lift"),
    ("archive", "Put facts aside until they are restored.", "archive"),
    ("restore", "Bring archived facts back.", "restore"),
    ("stale", "Mark facts as out of date; they keep being found, as old.", "mark_stale"),
):
    app.command(_name, help=_help)(facts.verb(_change))
app.command("forget")(facts.forget)
app.command("erase")(facts.erase)
app.command("export")(facts.export)
app.command("migrate")(migrate)


@app.command("stats")
def stats(
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Show what is stored: counts, hashes, sizes."""
    with kept(store, shared, residency, tenant) as namespace:
        found = namespace.stats()
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        store_views.stats(found)


@app.command("doctor")
def doctor(
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Read everything that is stored; status 1 when something is wrong."""
    with kept(store, shared, residency, tenant) as namespace:
        found = namespace.doctor()
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        store_views.examination(found)
    if found.findings:
        raise typer.Exit(1)


@app.command("recluster")
def recluster(
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Find the communities of facts anew, whether or not it is due."""
    with kept(store, shared, residency, tenant) as namespace, terminal.progress(quiet=as_json):
        report = namespace.recluster()
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        store_views.reclustered(report)


@app.command("maintain")
def maintain(
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Do what time has made due: ttl, retention, disuse, communities, index."""
    with (
        kept(store, shared, residency, tenant) as namespace,
        terminal.progress(quiet=as_json) as advance,
    ):
        report = namespace.maintain(advance)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        store_views.maintained(report)


@app.command("reembed")
def reembed(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Folder of another embedder's files and card; the shipped one when left out.",
        ),
    ] = "",
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Make all vectors anew by another embedder, and switch to it; a kill loses nothing."""
    with moving(store, shared, model, tenant) as move, terminal.progress(quiet=as_json) as advance:
        report = move(advance)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        store_views.reembedded(report)


@app.command("compact")
def compact(
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Rewrite the files without free space and without bytes of what was removed."""
    with kept(store, shared, tenant=tenant) as namespace:
        before = namespace.stats().files
        namespace.compact()
        after = namespace.stats().files
    store_views.compacted(sum(before.values()), sum(after.values()), as_json=as_json)
