"""`python -m tests.bench.selection --data DIR --json OUT`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from crp_integrations.errors import CRPError, RequestError
from tests.bench.measure import has_one_thread, in_one_thread
from tests.bench.selection.data import find
from tests.bench.selection.run import run
from tests.bench.selection.settle import plan
from tests.bench.selection.table import below, headings, markdown, table

MODULE = "tests.bench.selection"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a set's folder, or one of sets")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--systems", default="", help="names, with commas between; default all")
    parser.add_argument("--sets", default="", help="names, with commas between; default all")
    parser.add_argument("--budgets", default="", help="tokens, with commas between")
    parser.add_argument("--queries", type=int, help="at most so many questions of each set")
    parser.add_argument("--cache", type=Path, help="keeps vectors between runs")
    parser.add_argument("--ablate", action="store_true", help="crp, and it with parts left out")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    try:
        chosen = plan(
            _names(given.systems), _numbers(given.budgets), given.queries, ablate=given.ablate
        )
        folders = find(given.data, _names(given.sets))
        cache = given.cache or Path(tempfile.gettempdir()) / "crp-bench-selection"
        report = run(folders, chosen, cache=cache, say=_say)
        if given.json:
            given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except (CRPError, OSError) as error:
        sys.exit(f"crp: {error}")
    if given.quiet:
        return
    if given.markdown:
        print(markdown(report))
        return
    rows = [headings(report), *table(report)]
    wide = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, wide, strict=True))
        print("  ".join((first.strip().ljust(wide[0]), *others)))
    for line in below(report):
        print(f"surely below: {line}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    names = _names(text)
    if not all(name.isdecimal() for name in names):
        raise RequestError(f"--budgets is {text!r:.40}, wanted numbers with commas between")
    return [int(name) for name in names]


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
