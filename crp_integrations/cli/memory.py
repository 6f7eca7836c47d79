"""`crp memory lint`: a gate for memory items in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crp_integrations.errors import CRPError
from crp_integrations.governance.items import item

app = typer.Typer(help="Memory items.", no_args_is_help=True, rich_markup_mode=None)


@app.command("lint")
def lint(
    files: Annotated[list[Path], typer.Argument(help="Files of memory items, one JSON a line.")],
) -> None:
    """Look at memory items in files; malformed or unlabelled ones are told, and the status is 1."""
    wrong = seen = 0
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{file} cannot be read: {type(error).__name__}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            seen += 1
            try:
                fields = json.loads(line)
                if not isinstance(fields, dict):
                    raise ValueError("is no JSON object")
                item(fields)
            except (CRPError, ValueError, RecursionError) as error:
                wrong += 1
                said = error if isinstance(error, CRPError) else "is no JSON object"
                typer.echo(f"{file}:{number}: {said}")
    typer.echo(f"{seen} items, {wrong} refused")
    if wrong:
        raise typer.Exit(1)
