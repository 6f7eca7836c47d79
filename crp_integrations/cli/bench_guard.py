"""`crp bench guard`: what decisions cost, and whether a tenant's canary comes out at another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crp_integrations.bench.guard import QUERIES, TENANTS
from crp_integrations.bench.measure import in_one_thread

GUARD = "crp_integrations.bench.guard"


def guard(
    queries: Annotated[
        int, typer.Option("--queries", min=0, help="Random queries of the tenants; 0 for none.")
    ] = QUERIES,
    tenants: Annotated[int, typer.Option("--tenants", min=2, max=100, help="How many.")] = TENANTS,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Where to write the report.")
    ] = None,
) -> None:
    """CPU time of decisions, the guard's share of a question, and leaks between tenants: none."""
    given = ["--queries", str(queries), "--tenants", str(tenants)]
    given += ["--json", str(json_path)] if json_path else []
    status = in_one_thread(GUARD, given)
    if status != 0:
        raise typer.Exit(status)
