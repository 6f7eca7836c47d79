"""`python -m tests.bench.fabric --facts 1000,10000,100000 --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.bench.fabric.run import run
from tests.bench.fabric.table import table
from tests.bench.measure import has_one_thread, in_one_thread

MODULE = "tests.bench.fabric"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--facts", default="1000,10000,100000", help="sizes, with commas between")
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--cache", type=Path, help="keeps passages and vectors between runs")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    sizes = [int(size) for size in given.facts.split(",")]
    report = run(sizes, kind=given.embedder, cache=given.cache, say=_say)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if given.quiet:
        return
    for row in table(report):
        print("{:>7}  {:44} {:>10} {:>9} {:>7}  {}".format(*row))
    for bar in report["bars"]:
        said = {True: "met", False: "NOT MET", None: "not measured"}[bar["met"]]
        print(f"{said:12} {bar['name']}: {bar['measured']} (wanted {bar['wanted']})")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
