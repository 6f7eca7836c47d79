"""`crp bench compaction`: what is left of evidence, and accounted for, at half of the tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crp_integrations.bench.measure import in_one_thread

COMPACTION = "crp_integrations.bench.compaction"


def compaction(
    data: Annotated[Path, typer.Option("--data", help="Folder with rot/ and retrieval/.")],
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="At most so many of each set.")
    ] = 100,
    json_path: Annotated[Path | None, typer.Option("--json", help="File for the report.")] = None,
) -> None:
    """Answers and evidence kept, tokens left and drops reported, beside LangChain's ways."""
    given = ["--data", str(data), "--questions", str(questions)]
    given += ["--json", str(json_path)] if json_path else []
    status = in_one_thread(COMPACTION, given)
    if status != 0:
        raise typer.Exit(status)
