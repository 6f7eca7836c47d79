"""`python -m tests.bench.relay --at-a-time 1,8,32 --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.bench.measure import has_one_thread, in_one_thread
from tests.bench.relay.run import BUDGET, CALLS, FACTS, ROUNDS, run
from tests.bench.relay.table import table

MODULE = "tests.bench.relay"


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


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
