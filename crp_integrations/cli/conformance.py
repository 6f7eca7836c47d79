"""`crp conformance`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from crp_integrations.cli import options
from crp_integrations.relay.conformance import Conformance
from crp_integrations.relay.conformance import conformance as report
from crp_integrations.relay.settings import load


def conformance(
    store: Annotated[
        str | None, typer.Option("--store", help="Folder of a store, whose crp.toml is read.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the weights, amplifiers and thresholds in force, and what was verified."""
    found = report(load(None if store is None else Path(store)))
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    typer.echo("\n".join(_lines(found)))


def _lines(found: Conformance) -> Iterator[str]:
    yield from _table("Weight", found.weights)
    yield from _table("Level from", found.levels)
    yield from _table("Amplifier", found.amplifiers)
    yield from _table("Loop depth", found.loop_depth)
    yield from _table("Omission from importance", found.omissions)
    yield from _table(
        "Threshold", {"omission, cosine": found.omission_cosine, **found.embedder_thresholds}
    )
    if found.maps:
        yield from ("| Map | Points |", "|---|---|")
        for name, points in found.maps.items():
            yield f"| {name} | {', '.join(f'{x:.3f} → {y:.3f}' for x, y in points)} |"
        yield ""
    yield f"Preset {found.preset}, settings {found.settings_digest}."
    yield f"Embedder {found.embedder}; verifier {found.verifier}."
    yield f"Catalogue {found.catalogue}, evaluated by {found.policy}."
    checked = "was compared with its published hashes" if found.code_verified else "was not checked"
    yield f"The engine's code {checked}; every shipped weight has its card's hash."


def _table(head: str, rows: Mapping[str, float]) -> Iterator[str]:
    yield from (f"| {head} | |", "|---|---|")
    yield from (f"| {name} | {value:g} |" for name, value in rows.items())
    yield ""
