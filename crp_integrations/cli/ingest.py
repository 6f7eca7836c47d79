"""`crp ingest`."""

from __future__ import annotations

from typing import Annotated

import typer

from crp_integrations import Relay
from crp_integrations.cli import options, show
from crp_integrations.cli.opening import subject_of

# As text: a `Path` would make the current folder of an empty argument.
Paths = Annotated[list[str], typer.Argument(help="Files and folders.")]


def ingest(
    paths: Paths,
    kind: options.Kind = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", help="Time after which the facts turn STALE, such as P90D or PT12H."),
    ] = None,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Put files and folders into the store: all of them, or none when one cannot be read."""
    from crp_integrations.loaders.files import skipped_files

    subject = subject_of(tenant, shared)
    with (
        Relay.open(store, subject=subject, shared=shared, residency=residency) as relay,
        show.progress(quiet=as_json) as advance,
    ):
        report = relay.ingest(paths, kind=kind, ttl=ttl, progress=advance)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        show.ingested(report, store, skipped_files(paths))
