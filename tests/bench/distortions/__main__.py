"""`python -m tests.bench.distortions --data DIR --json OUT --part tune`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.errors import CRPError
from crp_integrations.relay.build import default_verifier
from tests.bench.distortions.case import CLEAN, KINDS, Case
from tests.bench.distortions.make import GENERATOR, digest, make
from tests.bench.distortions.score import figures, run
from tests.bench.distortions.text import read
from tests.bench.measure import has_one_thread, in_one_thread, machine

MODULE = "tests.bench.distortions"
COLUMNS = ("cases", "found", "named", "flagged", "either", "target", "met")


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of sets; without, what this Python holds")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--part", choices=("tune", "held"), default="tune")
    parser.add_argument("--kinds", default="", help="names, with commas between; default all")
    parser.add_argument("--most", type=int, help="at most so many cases of a kind")
    parser.add_argument("--cases", type=Path, help="where to write each case and what was found")
    parser.add_argument("--lexical", action="store_true", help="without the embedder")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    try:
        report = _measure(given)
    except (CRPError, OSError) as error:
        sys.exit(f"crp: {error}")
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(report)


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    cases = make(read(given.data), given.part)
    told = digest(cases)
    made = Counter(case.kind for case in cases)
    sources = Counter(case.source for case in cases)
    chosen = _chosen(cases, given.kinds, given.most)
    if given.lexical:
        embedder, settings = None, DpeSettings()
    else:
        from crp_integrations.engines.onnx import OnnxEmbedder

        embedder, settings = OnnxEmbedder(), DpeSettings()
    verifier = default_verifier()
    found, spent = run(chosen, embedder, verifier, settings, _say)
    # The cases of the held part are for scoring, not for reading.
    if given.cases and given.part == "tune":
        rows = [
            {**asdict(one.case), "at": one.at, "flagged": one.flagged, "risk": round(one.risk, 4),
             "reported": one.kinds}
            for one in found
        ]  # fmt: skip
        given.cases.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
    return {
        "generator": GENERATOR,
        "digest": told,
        "part": given.part,
        "made": dict(made),
        "total": len(cases),
        "sources": dict(sources),
        "verifier": verifier.identity,
        "settings": settings.model_dump(mode="json"),
        "cpu_ms": round(spent, 2),
        "machine": machine(),
        "results": figures(found),
    }


def _chosen(cases: Sequence[Case], kinds: str, most: int | None) -> list[Case]:
    wanted = [name.strip() for name in kinds.split(",") if name.strip()] or list(KINDS)
    unknown = [name for name in wanted if name not in KINDS]
    if unknown:
        from crp_integrations.errors import RequestError

        raise RequestError(f"--kinds has {unknown[0]!r:.40}, wanted some of {', '.join(KINDS)}")
    return [
        case
        for kind in wanted
        for case in [one for one in cases if one.kind == kind][: most or len(cases)]
    ]


def show(report: dict[str, Any]) -> None:
    """Print the figures as a table."""
    print(
        f"{report['generator']}, part {report['part']}: {report['total']} cases, "
        f"digest {report['digest']}, {report['cpu_ms']} ms a case, {report['verifier']}"
    )
    print(f"{'kind':24}" + "".join(f"{name:>9}" for name in COLUMNS))
    for kind, row in report["results"].items():
        cells = []
        for name in COLUMNS:
            value = row.get(name, "")
            cells.append(f"{value:9.3f}" if isinstance(value, float) else f"{value!s:>9}")
        word = " (false alarms)" if kind in CLEAN else ""
        print(f"{kind:24}" + "".join(cells) + word)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
