"""`python -m crp_integrations.bench.relay --at-a-time 1,8,32 --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from crp_integrations.bench.measure import has_one_thread, in_one_thread
from crp_integrations.bench.relay.run import BUDGET, CALLS, FACTS, ROUNDS, run

MODULE = "crp_integrations.bench.relay"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--at-a-time", default="1,8,32", help="numbers, with commas between")
    parser.add_argument("--facts", type=int, default=FACTS, help="of the store")
    parser.add_argument("--calls", type=int, default=CALLS, help="of a round, of each kind")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="bare and relayed in turns")
    parser.add_argument("--budget", type=int, default=BUDGET, help="tokens of an envelope")
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    screen = Console(stderr=True, quiet=given.quiet)
    with screen.status("starting") as status:
        report = run(
            [int(level) for level in given.at_a_time.split(",")],
            facts=given.facts,
            calls=given.calls,
            rounds=given.rounds,
            budget_tokens=given.budget,
            embedder=given.embedder,
            say=status.update,
        )
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if not given.quiet:
        Console(highlight=False).print(table(report), demands(report))


def table(report: dict[str, Any]) -> Table:
    """Milliseconds of processor time a call, by number of calls at a time."""
    levels = report["levels"]
    drawn = Table(title="Processor time, milliseconds a call", title_justify="left")
    drawn.add_column("", overflow="fold")
    for level in levels:
        drawn.add_column(f"{level} at a time", justify="right")

    def row(name: str, values: list[float], style: str = "") -> None:
        drawn.add_row(Text(name), *(f"{value:.2f}" for value in values), style=style)

    row("bare LiteLLM call", [one["bare"]["cpu_ms"] for one in levels.values()])
    row("the same through the relay", [one["relay"]["cpu_ms"] for one in levels.values()])
    row("overhead", [one["overhead_cpu_ms"] for one in levels.values()], "bold")
    row("  embedding", [one["embedding_cpu_ms"] for one in levels.values()])
    row("  verification", [one["verification_cpu_ms"] for one in levels.values()])
    row("  apart from both", [one["apart_from_both_cpu_ms"] for one in levels.values()], "bold")
    row("wall time, bare", [one["bare"]["wall_ms"] for one in levels.values()])
    row("wall time, relay", [one["relay"]["wall_ms"] for one in levels.values()])
    drawn.add_section()
    first = next(iter(levels.values()))
    for name in first["steps"]:
        row(name, [one["steps"].get(name, 0.0) for one in levels.values()])
    return drawn


def demands(report: dict[str, Any]) -> Table:
    """What was asked for, and whether it is met."""
    drawn = Table(title="What was asked for", title_justify="left")
    for name in ("", "what", "wanted", "measured"):
        drawn.add_column(name, overflow="fold")
    for bar in report["bars"]:
        word, style = ("met", "green") if bar["met"] else ("not met", "red")
        cells = (Text(bar[key]) for key in ("name", "wanted", "measured"))
        drawn.add_row(Text(word, style=style), *cells)
    return drawn


if __name__ == "__main__":
    main()
