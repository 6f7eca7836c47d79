"""`crp ingest`."""

from __future__ import annotations

from typing import Annotated

import typer

from crp_integrations import Relay
from crp_integrations.cli import options, show

# As text: a `Path` would make the current folder of an empty argument.
Paths = Annotated[list[str], typer.Argument(help="Files and folders.")]


def ingest(
    paths: Paths,
    kind: options.Kind = None,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    as_json: options.AsJson = False,
) -> None:
    """Put files and folders into the store: all of them, or none when one cannot be read."""
    with Relay.open(store, shared=shared) as relay, show.progress(quiet=as_json) as advance:
        report = relay.ingest(paths, kind=kind, progress=advance)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        show.ingested(report, store)
