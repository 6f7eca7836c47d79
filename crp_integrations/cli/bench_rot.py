"""`crp bench rot`: how contexts hold up as they grow, beside two frameworks' stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crp_integrations.bench.measure import in_one_thread
from crp_integrations.errors import RequestError

ROT = "crp_integrations.bench.rot"


def rot(
    data: Annotated[
        Path, typer.Option("--data", help="Questions with passages, or a folder of them.")
    ],
    json_path: Annotated[Path | None, typer.Option("--json", help="File for the report.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="File for the report with its curves.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Folder for the curves as SVG.")
    ] = None,
    scenarios: Annotated[
        str, typer.Option("--scenarios", help="Names with commas between; all without.")
    ] = "",
    systems: Annotated[
        str, typer.Option("--systems", help="crp, langchain, llama_index; all without.")
    ] = "",
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="At most so many for each point.")
    ] = 100,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Passages of a store, with commas between.")
    ] = "10,100,1000",
    budgets: Annotated[
        str, typer.Option("--budgets", help="Tokens with commas between.")
    ] = "256,1024,4096,16384",
    budget: Annotated[
        int, typer.Option("--budget", min=1, help="Tokens in the other scenarios.")
    ] = 2_048,
    model: Annotated[
        str, typer.Option("--model", help="Answers by depth and length too; a LiteLLM name.")
    ] = "",
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder that keeps vectors between runs.")
    ] = None,
) -> None:
    """Evidence among distractors, its place, order, noise, compaction, prefixes and tenants."""
    for name, text, least in (("--sizes", sizes, 2), ("--budgets", budgets, 1)):
        if not all(one.strip().isdecimal() and int(one) >= least for one in text.split(",")):
            raise RequestError(f"{name} is {text!r:.40}, wanted numbers from {least} with commas")
    given = ["--data", str(data), "--sizes", sizes, "--budgets", budgets]
    given += ["--questions", str(questions), "--budget", str(budget)]
    given += ["--scenarios", scenarios] if scenarios else []
    given += ["--systems", systems] if systems else []
    given += ["--model", model] if model else []
    for option, path in (
        ("--json", json_path),
        ("--html", html),
        ("--plots", plots),
        ("--cache", cache),
    ):
        given += [option, str(path)] if path else []
    status = in_one_thread(ROT, given)
    if status != 0:
        raise typer.Exit(status)
