"""`python -m tests.bench.verifier --data FILE… --json OUT [--folds N]`.

An answer is called hallucinated from MEDIUM on. AUROC uses the composite before amplifiers, the
calibration error the calibrated probability. `crp` is the verifier that ships. With `--folds` the
recipe refits everything, and each answer is read by a file that did not see its context; without,
the JSON's `fitted` says which data the shipped file has seen. The file holds
`{"results": {system: {dataset: {task or "macro" or "all": {metric: value}}}}}`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from crp_integrations.errors import CRPError, RequestError
from tests.bench.verifier.folds import fit
from tests.bench.verifier.run import markdown, run
from tests.bench.verifier.speed import curve

SYSTEMS = ("crp", "features", "alignment", "literal")


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.verifier", description=__doc__)
    parser.add_argument(
        "--data", type=Path, nargs="+", action="extend", default=[], help="gzip JSON lines"
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--folds", type=int, help="refit, and score what was left out")
    parser.add_argument("--fit-data", type=Path, help="folder to fit on; default: the files'")
    parser.add_argument("--kept", type=Path, help="folder that keeps the fitted folds")
    parser.add_argument("--cache", type=Path, help="folder that keeps measures between runs")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="names with commas between")
    parser.add_argument("--sample", type=int, help="at most so many cases a file, by a fixed seed")
    parser.add_argument("--markdown", action="store_true", help="print tables in the place of JSON")
    parser.add_argument("--speed", action="store_true", help="the cost over lengths instead")
    given = parser.parse_args(arguments)
    names = [name for name in given.systems.split(",") if name]
    try:
        if unknown := sorted(set(names) - set(SYSTEMS)):
            raise RequestError(f"--systems names {unknown[0]!r:.40}, wanted some of {SYSTEMS}")
        report: dict[str, Any]
        if given.speed:
            report = {"speed": curve()}
        elif not given.data:
            raise RequestError("--data names no file")
        else:
            report = _report(given, names)
    except CRPError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(markdown(report) if given.markdown and "results" in report else text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


def _report(given: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    if given.folds is None and given.kept is None:
        return run(given.data, names, folds=None, sample=given.sample)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.kept or Path(temporary)
        if not (folder / "folds.json").exists():
            if not given.folds or given.folds < 2:
                raise RequestError(f"--folds is {given.folds}, wanted at least 2")
            fit(given.fit_data or given.data[0].parent, given.folds, folder, given.cache)
        return run(given.data, names, folds=folder, sample=given.sample)


if __name__ == "__main__":
    main()
