"""`crp models`: published verifiers, fetched by a pinned revision and hash."""

from __future__ import annotations

from typing import Annotated

import typer

from crp_integrations.cli.command_groups import PLAIN

app = typer.Typer(help="List and fetch published verifiers.", **PLAIN)


@app.command("list")
def list_models() -> None:
    """List the published models, with what their authors say of them; none was run here."""
    from crp_integrations.engines.verifiers.model_catalogue import PUBLISHED, RECORD, models_folder

    for name, model in PUBLISHED.items():
        here = "fetched" if (models_folder() / name / RECORD).exists() else "-"
        typer.echo(
            f"{name:14} {model.megabytes:>6} MB  {model.licence:11} {here:8} "
            f"{model.repository}  {model.accuracy}"
        )


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="Short name; `crp models list` has them.")],
    revision: Annotated[
        str, typer.Option(help="Commit of the hub; with --take-what-comes a branch.")
    ] = "",
    sha256: Annotated[str, typer.Option(help="Hash of the files, with `sha256:`.")] = "",
    take_what_comes: Annotated[
        bool, typer.Option("--take-what-comes", help="Use files that nobody compared.")
    ] = False,
) -> None:
    """Fetch a model into CRP_MODELS from the hub, or from CRP_MODELS_MIRROR."""
    from crp_integrations.engines.verifiers.model_catalogue import fetch, models_folder

    record = fetch(name, revision, sha256, unpinned=take_what_comes)
    typer.echo(f"{models_folder() / name}: {record['sha256']}")
    if not record["pinned"]:
        typer.echo("The files were not compared with a hash, and every report says so.")
