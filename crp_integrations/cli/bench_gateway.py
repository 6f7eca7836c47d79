"""`crp bench gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crp_integrations.bench.measure import in_one_thread
from crp_integrations.errors import RequestError

MODULE = "crp_integrations.bench.gateway"
Json = Annotated[Path | None, typer.Option("--json", help="File for the report.")]


def gateway(
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.05, help="How long the callers ask.")
    ] = 5.0,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Callers at a time.")] = 32,
    facts: Annotated[
        int, typer.Option("--facts", min=10, help="Passages of each of four tenants.")
    ] = 500,
    embedder: Annotated[
        str, typer.Option("--embedder", help="minilm, or hash for trying this out.")
    ] = "minilm",
    json_path: Json = None,
) -> None:
    """Load on the gateway over loopback; status 1 with an error, or when memory grows."""
    if embedder not in ("minilm", "hash"):
        raise RequestError(f"--embedder is {embedder!r:.40}, wanted minilm or hash")
    given = ["--minutes", str(minutes), "--at-once", str(at_once), "--facts", str(facts)]
    given += ["--embedder", embedder]
    given += ["--json", str(json_path)] if json_path else []
    status = in_one_thread(MODULE, given)
    if status != 0:
        raise typer.Exit(status)
