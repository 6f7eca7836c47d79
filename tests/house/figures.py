"""Figures of selection and of verification over small samples: `python -m tests.house.figures DATA`.

DATA is a folder with `retrieval/` and `field/`, as the commands take them. Prints JSON. The
commands are called as a user calls them, so that the figures outlive what stands behind them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SETS = "chunking_eval,hotpot"
CRP = "import sys; from crp_integrations.cli.app import main; sys.argv[0] = 'crp'; main()"
# The first that the command line knows.
SELECTION = (("eval", "selection"), ("bench", "selection"))
ANSWERS = (("eval", "answers"),)


def figures(data: Path, *, sets: str = SETS, queries: int = 40, most: int = 10) -> dict[str, Any]:
    """The figures of a sample.

    Args:
        sets: names of retrieval sets, with commas between.
        queries: of each retrieval set, at most.
        most: answers of each file, at most.
    """
    began = time.perf_counter()
    wanted = ["--sets", sets, "--systems", "crp", "--budgets", "512,2048"]
    selection = called(
        SELECTION, ["--data", str(data / "retrieval"), *wanted, "--queries", str(queries)]
    )
    files = [
        part for path in sorted((data / "field").glob("*.gz")) for part in ("--data", str(path))
    ]
    screen = called(ANSWERS, [*files, "--most", str(most)])
    judged = called(ANSWERS, [*files, "--most", str(most), "--oracle", "judge", "--errs", "0.1"])
    return {
        "queries": queries,
        "most": most,
        "selection": selection.get("results", selection),
        "screen": {**screen["all"], "kind": screen["kind"]},
        "judged": judged["all"],
        "seconds": round(time.perf_counter() - began),
    }


def called(names: Sequence[tuple[str, ...]], options: Sequence[str]) -> dict[str, Any]:
    """What a command writes into its `--json`.

    Raises:
        RuntimeError: no command of these names worked; says what the last one printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        for name in names:
            command = [sys.executable, "-c", CRP, *name, *options, "--json", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
            if path.exists():
                found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
                return found
    raise RuntimeError(f"{' '.join(name)} ended with {done.returncode}: {done.stderr[-800:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--most", type=int, default=10)
    told = parser.parse_args(arguments)
    print(
        json.dumps(
            figures(told.data, sets=told.sets, queries=told.queries, most=told.most), indent=1
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
