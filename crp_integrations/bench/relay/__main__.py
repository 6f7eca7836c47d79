"""`python -m crp_integrations.bench.relay --at-a-time 1,8,32 --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from crp_integrations.bench.measure import has_one_thread, in_one_thread
from crp_integrations.bench.relay.run import BUDGET, CALLS, FACTS, ROUNDS, run

MODULE = "crp_integrations.bench.relay"
ROWS: Final[tuple[tuple[str, Callable[[dict[str, Any]], float]], ...]] = (
    ("bare LiteLLM call", lambda level: level["bare"]["cpu_ms"]),
    ("the same through the relay", lambda level: level["relay"]["cpu_ms"]),
    ("overhead", lambda level: level["overhead_cpu_ms"]),
    ("of it embedding", lambda level: level["embedding_cpu_ms"]),
    ("of it verification", lambda level: level["verification_cpu_ms"]),
    ("of it apart from both", lambda level: level["apart_from_both_cpu_ms"]),
    ("wall time, bare", lambda level: level["bare"]["wall_ms"]),
    ("wall time, relay", lambda level: level["relay"]["wall_ms"]),
)


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
    parser.add_argument("--quiet", action="store_true", help="print no table")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    report = run(
        [int(level) for level in given.at_a_time.split(",")],
        facts=given.facts,
        calls=given.calls,
        rounds=given.rounds,
        budget_tokens=given.budget,
        embedder=given.embedder,
        say=_say,
    )
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if given.quiet:
        return
    for name, *cells in table(report):
        print(f"{name:38}", *(f"{cell:>9}" for cell in cells))
    for bar in report["bars"]:
        print(f"{'met' if bar['met'] else 'NOT MET':8} {bar['name']}: {bar['measured']}")


def table(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of a report: a name, then milliseconds of processor time a call by calls at a time."""
    levels = list(report["levels"].values())
    for name, read in ROWS:
        yield name, *(f"{read(level):.2f}" for level in levels)
    for name in levels[0]["steps"]:
        yield f"- {name}", *(f"{level['steps'].get(name, 0.0):.2f}" for level in levels)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
