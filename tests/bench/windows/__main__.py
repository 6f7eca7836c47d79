"""`python -m tests.bench.windows --data DIR --json OUT`."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import CRPError
from crp_integrations.ports import Embedder
from crp_integrations.relay.build import default_verifier
from tests.bench.distortions.text import read
from tests.bench.measure import has_one_thread, in_one_thread, machine
from tests.bench.windows.data import GENERATOR, articles, sessions
from tests.bench.windows.score import ALARM, figures, run

MODULE = "tests.bench.windows"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of sets; without, what this Python holds")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--part", choices=("tune", "held"), default="tune")
    parser.add_argument("--most", type=int, default=80, help="sessions before any is broken")
    parser.add_argument("--sessions", type=Path, help="where to write each session of part tune")
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
    made = sessions(
        [one for one in articles(read(given.data)) if one.part == given.part], given.most
    )
    rows = json.dumps([asdict(one) for one in made], ensure_ascii=False, sort_keys=True)
    embedder: Embedder | None = None if given.lexical else OnnxEmbedder()
    verifier = default_verifier()
    found, spent = run(made, embedder, verifier, DpeSettings(), _say)
    if given.sessions and given.part == "tune":
        given.sessions.write_text(
            "".join(
                json.dumps({**asdict(one.session), "signals": one.signals}) + "\n" for one in found
            ),
            encoding="utf-8",
        )
    return {
        "generator": GENERATOR,
        "digest": hashlib.sha256(rows.encode()).hexdigest()[:16],
        "part": given.part,
        "made": dict(Counter(one.kind for one in made)),
        "verifier": verifier.identity,
        "embedder": embedder.identity if embedder else "none",
        "cpu_ms": round(spent, 1),
        "machine": machine(),
        "results": figures(found),
    }


def show(report: dict[str, Any]) -> None:
    """Print the figures as a table."""
    print(
        f"{report['generator']}, part {report['part']}, digest {report['digest']}, "
        f"{report['cpu_ms']} ms a session"
    )
    print(f"{'stage':14}{'whole':>7}{'broken':>8}{'AUROC':>8}{'met':>7}  by rule")
    for stage, row in report["results"].items():
        rules = ", ".join(f"{name} {value:.3f}" for name, value in row["rules"].items())
        head = f"{stage:14}{row['whole']:>7}{row['broken']:>8}{row['auroc']:>8.3f}"
        print(f"{head}{row['met']!s:>7}  {rules}")
        if stage in ALARM:
            alarms = ", ".join(f"{kind} {share:.3f}" for kind, share in row["alarms"].items())
            print(f"{'':14}a remedy is recommended: {alarms}, broken {row['seen']:.3f}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
