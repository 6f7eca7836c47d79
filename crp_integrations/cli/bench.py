"""`crp bench …`: measurements of this machine, beside the libraries that are installed."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from crp_integrations.bench import hash as hash_bench
from crp_integrations.bench.fabric.table import table
from crp_integrations.bench.measure import in_one_thread
from crp_integrations.cli.show import terminal
from crp_integrations.errors import RequestError

FABRIC = "crp_integrations.bench.fabric"
FEWEST = 200

app = typer.Typer(help="Measure this machine.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[Path | None, typer.Option("--json", help="File for the report.")]


@app.command("fabric")
def fabric(
    facts: Annotated[
        str, typer.Option("--facts", help="Numbers of facts, with commas between.")
    ] = "1000,10000,100000",
    json_path: Json = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder that keeps vectors between runs.")
    ] = None,
    embedder: Annotated[
        str, typer.Option("--embedder", help="minilm, or hash for trying this out.")
    ] = "minilm",
) -> None:
    """Search, filter, communities, ingestion and opening beside other stores, on real text."""
    _checked(facts, embedder)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        given = ["--facts", facts, "--embedder", embedder, "--quiet", "--json", str(path)]
        given += ["--cache", str(cache)] if cache else []
        # A process of its own: BLAS is told to use one thread before numpy is loaded.
        status = in_one_thread(FABRIC, given)
        if status != 0:
            raise typer.Exit(status)
        text = path.read_text(encoding="utf-8")
    if json_path:
        json_path.write_text(text, encoding="utf-8")
    _show(json.loads(text))


@app.command("hash")
def hash_(
    facts: Annotated[int, typer.Option("--facts", min=1, help="Number of facts.")] = 1_000_000,
    json_path: Json = None,
) -> None:
    """The state hash after one change, incrementally and by the formula."""
    found = asdict(hash_bench.measure(facts))
    if json_path:
        json_path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    drawn = Table(title="State hash, CPU milliseconds", title_justify="left", show_header=False)
    for name, value in found.items():
        drawn.add_row(name, str(value))
    terminal().print(drawn)


def _checked(facts: str, embedder: str) -> None:
    sizes = facts.split(",")
    if not all(size.strip().isdecimal() and int(size) >= FEWEST for size in sizes):
        raise RequestError(f"--facts is {facts!r:.40}, wanted numbers from {FEWEST} with commas")
    if embedder not in ("minilm", "hash"):
        raise RequestError(f"--embedder is {embedder!r:.40}, wanted minilm or hash")


def _show(report: dict[str, Any]) -> None:
    drawn = Table(title="Fabric, CPU milliseconds", title_justify="left")
    for name, side in (("facts", "right"), ("what", "left"), ("ms", "right")):
        drawn.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for name, side in (("times ours", "right"), ("recall", "right"), ("", "left")):
        drawn.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in table(report):
        drawn.add_row(*(Text(cell) for cell in row))
    demands = Table(title="What was asked for", title_justify="left")
    for name in ("", "what", "wanted", "measured"):
        demands.add_column(name, overflow="fold")
    for bar in report["bars"]:
        said = {True: ("met", "green"), False: ("not met", "red"), None: ("not measured", "")}
        word, style = said[bar["met"]]
        cells = (Text(bar[key]) for key in ("name", "wanted", "measured"))
        demands.add_row(Text(word, style=style), *cells)
    source = report["source"]
    terminal().print(
        drawn,
        demands,
        Text(
            f"{source['passages']} of {source['found']} distinct passages out of the documentation "
            f"inside {len(source['packages'])} installed packages, embedder {report['embedder']}."
        ),
    )
