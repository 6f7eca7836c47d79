"""`python -m tests.bench.gateway --minutes 5 --at-once 32 --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.bench.gateway.run import AT_ONCE, FACTS, MINUTES, TENANTS, THREADS, run
from tests.bench.measure import has_one_thread, in_one_thread

MODULE = "tests.bench.gateway"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="callers")
    parser.add_argument("--facts", type=int, default=FACTS, help="passages of each tenant")
    parser.add_argument("--tenants", type=int, default=TENANTS, help="with a key each")
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--threads", type=int, default=THREADS, help="of the gateway")
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    report = run(
        given.minutes,
        at_once=given.at_once,
        facts=given.facts,
        tenants=given.tenants,
        embedder=given.embedder,
        threads=given.threads,
        say=_say,
    )
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({name: one for name, one in report.items() if name != "samples_mb"}, indent=2))
    if report["errors"] or report["memory_mb"]["steady"] is False:
        sys.exit(1)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
