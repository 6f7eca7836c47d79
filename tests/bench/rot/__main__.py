"""`python -m tests.bench.rot`: see `python -m tests.bench.rot`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from crp_integrations.errors import CRPError
from tests.bench.rot.data import find
from tests.bench.rot.plots import plots
from tests.bench.rot.report import page
from tests.bench.rot.run import BUDGET, BUDGETS, NAMES, QUESTIONS, SIZES, Plan, run
from tests.bench.rot.systems import SYSTEMS


def main(arguments: list[str] | None = None) -> int:
    """Measure, write what was asked for, and print the points; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--scenarios", default=",".join(NAMES))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--model", default="")
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args(arguments)
    plan = Plan(
        scenarios=_words(given.scenarios),
        systems=_words(given.systems),
        questions=given.questions,
        sizes=[int(one) for one in _words(given.sizes)],
        budgets=[int(one) for one in _words(given.budgets)],
        budget=given.budget,
        model=given.model,
    )
    try:
        (path, *_) = find(given.data)
        report = run(path, plan, cache=given.cache, say=lambda line: print(line, file=sys.stderr))
        if given.json:
            given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if given.html or given.plots:
            drawn = plots(report["results"])
            if given.html:
                given.html.write_text(page(report, drawn), encoding="utf-8")
            if given.plots:
                given.plots.mkdir(parents=True, exist_ok=True)
                for number, svg in enumerate(drawn.values(), 1):
                    (given.plots / f"{number:02}.svg").write_text(svg, encoding="utf-8")
    except (CRPError, OSError) as error:
        print(f"crp: {error}", file=sys.stderr)
        return 1
    for name, points in report["results"].items():
        print(name)
        for point in points:
            print("  " + "  ".join(f"{key} {value}" for key, value in point.items()))
    return 0


def _words(text: str) -> list[str]:
    return [word for one in text.split(",") if (word := one.strip())]


if __name__ == "__main__":
    sys.exit(main())
