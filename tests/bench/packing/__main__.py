"""`python -m tests.bench.packing --candidates 500,5000 --facts 100000 --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.measure import has_one_thread, in_one_thread
from tests.bench.packing.run import BUDGET, run

MODULE = "tests.bench.packing"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--candidates", default="500,5000", help="sizes, with commas between")
    parser.add_argument("--facts", type=int, default=100_000, help="of the store; 0 for none")
    parser.add_argument("--budget", type=int, default=BUDGET, help="tokens to fill")
    parser.add_argument("--float", type=Path, help="the MiniLM recipe's output in float32")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    sizes = [int(size) for size in given.candidates.split(",")]
    report = run(sizes, facts=given.facts, budget_tokens=given.budget, exact=given.float, say=_say)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if given.quiet:
        return
    for row in table(report):
        print("{:>7}  {:90} {:>10} {:>8}".format(*row))
    for bar in report["bars"]:
        print(f"{'met' if bar['met'] else 'NOT MET':8} {bar['name']}: {bar['measured']}")


def table(report: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The rows of a report: candidates, system, milliseconds, times ours."""
    for size, measured in report["sizes"].items():
        ours = measured["systems"]["ours"]["ms"]
        for system in measured["systems"].values():
            if "ms" not in system:
                yield size, system["name"], "", ""
                continue
            taken = system["ms"]
            yield size, system["name"], f"{taken:.2f}", f"{taken / ours:.1f}"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
