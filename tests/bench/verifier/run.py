"""Runs the systems over files and puts the figures together."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crp_integrations import weights
from crp_integrations.seals import sha256_hex
from tests.bench.measure import machine, versions
from tests.bench.verifier.data import Case, name_of, read
from tests.bench.verifier.folds import by_folds, seen
from tests.bench.verifier.metrics import CUT, Figures, by_task, reliability
from tests.bench.verifier.systems import (
    System,
    Word,
    always_positive,
    ours,
    peers,
)

SEED = 0


def run(
    paths: Sequence[Path], names: Sequence[str], *, folds: Path | None, sample: int | None
) -> dict[str, Any]:
    """The whole report.

    Args:
        names: of `crp`, `features`, `alignment`, `literal`.
        folds: folder of fitted folds, None to score what ships.
        sample: at most so many cases of a file, by a fixed seed; None for all.
    """
    systems: dict[str, System] = {"always_positive": always_positive}
    if folds is not None:
        features = by_folds(folds)
        own = [name for name in names if name not in ("crp", "features")]
        systems |= {name: features for name in ("crp", "features") if name in names}
    else:
        own = list(names)
    systems |= ours(own) | peers()
    results: dict[str, dict[str, dict[str, Figures]]] = {name: {} for name in systems}
    curves: dict[str, Any] = {}
    fitted: dict[str, str] = {}
    for path in paths:
        name = name_of(path)
        cases = sampled(read(path), sample)
        fitted[name] = seen(cases, folds, fitted_on(), sha256_hex(path.read_bytes()))
        done: dict[int, tuple[list[Word], float]] = {}
        for system, say in systems.items():
            if id(say) not in done:
                done[id(say)] = _said(cases, say)
                sys.stderr.write(f"{name}: {system}\n")
            words, spent = done[id(say)]
            found = by_task(cases, words)
            found["all"]["cpu_ms"] = spent
            results[system][name] = found
            if system == "crp":
                curves[name] = reliability(
                    [w.probability for w in words], [c.hallucinated for c in cases]
                )
    return {
        "cut": CUT,
        "sample": sample,
        "folds": None if folds is None else len(list(folds.glob("fold-*.json"))),
        "fitted": fitted,
        "verifier": weights.describe("verifier").card.version,
        "machine": machine(),
        "versions": versions("numpy", "onnxruntime", "lettucedetect"),
        "reliability": curves,
        "results": results,
    }


def fitted_on() -> tuple[str, ...]:
    """SHA-256 of the files that the shipped verifier was fitted on."""
    content = json.loads(weights.describe("verifier").read("features.json"))
    return tuple(row["sha256"] for row in content.get("data", ()))


def sampled(cases: list[Case], sample: int | None) -> list[Case]:
    """At most so many cases; rows come in runs of one source, so they are drawn."""
    if not sample or sample >= len(cases):
        return cases
    return random.Random(SEED).sample(cases, sample)


def _said(cases: Sequence[Case], say: System) -> tuple[list[Word], float]:
    before = time.process_time()
    words = [say(case) for case in cases]
    return words, round((time.process_time() - before) * 1000 / max(1, len(cases)), 1)


COLUMNS = (
    "balanced_accuracy", "auroc", "precision", "recall", "f1", "sentence_auroc", "span_f1", "ece",
    "cpu_ms",
)  # fmt: skip


def markdown(report: Mapping[str, Any]) -> str:
    """The figures and the reliability curve as Markdown tables."""
    lines = [
        "| data set | task | system | " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * (3 + len(COLUMNS)),
    ]
    for system, sets in report["results"].items():
        for name, tasks in sets.items():
            for task, found in tasks.items():
                cells = [_cell(found.get(column)) for column in COLUMNS]
                lines.append(f"| {name} | {task} | {system} | " + " | ".join(cells) + " |")
    for name, curve in report["reliability"].items():
        lines += ["", f"Reliability on {name} ({report['fitted'][name]}):", ""]
        lines += ["| from | said | seen | answers |", "|---|---|---|---|"]
        lines += [f"| {low:.1f} | {said:.3f} | {got:.3f} | {n} |" for low, said, got, n in curve]
    return "\n".join(lines) + "\n"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 2 else f"{value:.1f}"
