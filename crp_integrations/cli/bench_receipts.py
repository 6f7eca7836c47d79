"""`crp bench receipts`: what a receipt costs, or random packs replayed in other processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from crp_integrations.bench.measure import in_one_thread
from crp_integrations.cli.show import terminal
from crp_integrations.errors import RequestError

COSTS = "crp_integrations.bench.receipts.costs"


def receipts(
    facts: Annotated[int, typer.Option("--facts", min=50, help="Facts in the store.")] = 50,
    joined: Annotated[
        int, typer.Option("--joined", min=1, help="Passages that one fact is made of.")
    ] = 1,
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="Windows that are timed in a round.")
    ] = 40,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Rounds; the lowest median is told.")
    ] = 5,
    packs: Annotated[
        int, typer.Option("--packs", min=0, help="Random packs to replay elsewhere instead.")
    ] = 0,
    python: Annotated[
        list[str] | None,
        typer.Option("--python", help="Another interpreter for the packs; repeatable."),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Where to write the report.")
    ] = None,
) -> None:
    """What a receipt costs; with packs, whether they replay: status 1 where one differs."""
    if packs:
        _replayed(packs, python or [], json_path)
        return
    given = ["--facts", str(facts), "--joined", str(joined), "--questions", str(questions)]
    given += ["--rounds", str(rounds)]
    given += ["--json", str(json_path)] if json_path else []
    status = in_one_thread(COSTS, given)
    if status != 0:
        raise typer.Exit(status)


def _replayed(packs: int, pythons: list[str], json_path: Path | None) -> None:
    from crp_integrations.bench.receipts.replays import run

    for one in pythons:
        if shutil.which(one) is None:
            raise RequestError(f"--python is {one!r:.80}, wanted an interpreter that can be run")
    report = run(packs, pythons=pythons)
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    drawn = Table(title="Receipts replayed to their bytes", title_justify="left")
    for name in ("Python", "hash seed", "receipts", "equal"):
        drawn.add_column(name)
    for one in report["runs"]:
        cells = (one["python"], one["hash_seed"], f"{one['receipts']:,}", f"{one['equal']:,}")
        drawn.add_row(*(Text(cell) for cell in cells))
    terminal().print(drawn)
    if not report["met"]:
        raise typer.Exit(1)
