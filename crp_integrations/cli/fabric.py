"""`crp fabric …`: what is in a store, its upkeep, and facts that go in and out of it."""

from __future__ import annotations

from typing import Annotated

import typer

from crp_integrations.cli import facts, options, show, show_fabric
from crp_integrations.cli.migrate import migrate
from crp_integrations.cli.opening import kept, moving

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
        show_fabric.stats(found)


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
        show_fabric.examination(found)
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
    with kept(store, shared, residency, tenant) as namespace, show.progress(quiet=as_json):
        report = namespace.recluster()
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        show_fabric.reclustered(report)


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
        show.progress(quiet=as_json) as advance,
    ):
        report = namespace.maintain(advance)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        show_fabric.maintained(report)


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
    with moving(store, shared, model, tenant) as move, show.progress(quiet=as_json) as advance:
        report = move(advance)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        show_fabric.reembedded(report)


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
    show_fabric.compacted(sum(before.values()), sum(after.values()), as_json=as_json)
