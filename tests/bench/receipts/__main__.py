"""`python -m tests.bench.receipts --packs 10000 --python PATH --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.bench.receipts.replays import run


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.receipts", description=__doc__)
    parser.add_argument("--packs", type=int, default=10_000, help="random packs")
    parser.add_argument(
        "--python", action="append", default=[], help="another interpreter; may be repeated"
    )
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    report = run(given.packs, pythons=given.python, say=lambda line: print(line, file=sys.stderr))
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for one in report["runs"]:
        print(
            f"Python {one['python']}, hash seed {one['hash_seed']}: "
            f"{one['equal']} of {one['receipts']} equal"
        )
        for line in one["broken"]:
            print(f"  {line}")
    sys.exit(0 if report["met"] else 1)


if __name__ == "__main__":
    main()
