"""Measures the provenance engine on labelled answers and pairs.

`python -m crp_integrations.bench.verifier --data FILE… --json OUT --sample 200` reads gzip JSON
lines of two shapes: answers (`task, question, context, answer, hallucinated`) and pairs
(`evidence, claim, label`, where everything but `supported` counts as hallucinated). Three systems
are measured: `crp`, the default engine; `literal`, the rule of CRP-SPEC-005 §4.3 to the letter;
and `always_positive`, which always says "hallucinated". An answer is called hallucinated from
MEDIUM on; AUROC uses the composite score. The file holds
`{"results": {system: {dataset: {task or "all": {metric: value}}}}}`.

The engine's `lexical_grounded`, `lexical_mixed` and entailment curve were set by eye on every
seventh row of RAGTruth, so its figures there are not held out. The other files were only measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import LEVEL_CUTS, DpeSettings
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.language.sentences import split_sentences
from crp_integrations.ports import Embedder

# Characters of one fact when a context is cut as ingestion would cut it.
FACT = 800
SEED = 0
CUT = min(cut for cut, _ in LEVEL_CUTS)
PRESETS = {"crp": "default", "literal": "literal"}
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One answer or claim with its context and gold label."""

    task: str
    question: str
    context: str
    answer: str
    hallucinated: bool


def read(path: Path) -> list[Case]:
    """The labelled cases of a file; pairs without a label are left out."""
    cases = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "answer" in row:
                label: bool | None = row["hallucinated"]
                text, context = row["answer"], row["context"]
            else:
                label = None if row["label"] is None else row["label"] != "supported"
                text, context = row["claim"], row["evidence"]
            if label is not None:
                task = row.get("task") or path.name.split(".")[0]
                cases.append(Case(task, row.get("question") or "", context, text, label))
    return cases


def facts(context: str, size: int = FACT) -> list[str]:
    """A context in runs of sentences of at most `size` characters where sentences allow."""
    found: list[str] = []
    start = end = 0
    for span in split_sentences(context):
        if span.end - start > size and end > start:
            found.append(context[start:end])
            start = span.start
        end = span.end
    if end > start:
        found.append(context[start:end])
    return found


def judge(case: Case, embedder: Embedder | None, settings: DpeSettings) -> Report:
    """The report on one case."""
    passages = tuple((f"context-{n}", text) for n, text in enumerate(facts(case.context), 1))
    return examine(
        Dossier(case.question, case.answer, passages),
        embedder=embedder,
        verifier=AlignmentVerifier(),
        settings=settings,
    )


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Probability that a hallucinated case scores above a clean one, ties counted half."""
    order = sorted(range(len(scores)), key=lambda place: scores[place])
    ranks = [0.0] * len(scores)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and scores[order[end]] == scores[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + end + 1) / 2
        start = end
    positive = sum(labels)
    negative = len(labels) - positive
    if not positive or not negative:
        return 0.5
    total = sum(rank for rank, label in zip(ranks, labels, strict=True) if label)
    return (total - positive * (positive + 1) / 2) / (positive * negative)


def figures(scores: Sequence[float], labels: Sequence[bool], cut: float = CUT) -> Figures:
    """Balanced accuracy, F1 and share flagged at the cut, AUROC without one."""
    said = [score >= cut for score in scores]
    both = list(zip(said, labels, strict=True))
    hit = sum(s and label for s, label in both)
    false = sum(s and not label for s, label in both)
    positive = sum(labels)
    negative = len(labels) - positive
    sensitivity = hit / positive if positive else 0.0
    specificity = (negative - false) / negative if negative else 0.0
    return {
        "cases": len(labels),
        "hallucinated": positive,
        "balanced_accuracy": round((sensitivity + specificity) / 2, 3),
        "auroc": round(auroc(scores, labels), 3),
        "f1": round(2 * hit / (2 * hit + false + positive - hit), 3) if hit else 0.0,
        "flagged": round(sum(said) / len(said), 3) if said else 0.0,
    }


def by_task(cases: Sequence[Case], scores: Sequence[float]) -> dict[str, Figures]:
    """The figures of each task and of all together."""
    groups: dict[str, list[int]] = {"all": list(range(len(cases)))}
    for place, case in enumerate(cases):
        groups.setdefault(case.task, []).append(place)
    return {
        name: figures([scores[p] for p in places], [cases[p].hallucinated for p in places])
        for name, places in sorted(groups.items())
    }


def measure(
    cases: Sequence[Case], embedder: Embedder | None, rules: Iterable[str]
) -> dict[str, dict[str, Figures]]:
    """For each system the figures of each task and of all, with processor milliseconds a case.

    Args:
        rules: of `PRESETS`, the systems that are run beside `always_positive`.
    """
    found = {"always_positive": by_task(cases, [1.0] * len(cases))}
    for name in rules:
        settings = DpeSettings.preset(PRESETS[name])
        before = time.process_time()
        scores = [judge(case, embedder, settings).composite_score for case in cases]
        spent = time.process_time() - before
        found[name] = by_task(cases, scores)
        found[name]["all"]["cpu_ms"] = round(1000 * spent / max(1, len(cases)), 1)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="crp_integrations.bench.verifier", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--sample", type=int, help="at most so many cases a file, by a fixed seed")
    parser.add_argument("--lexical", action="store_true", help="without an embedder")
    given = parser.parse_args(arguments)
    embedder = None if given.lexical else OnnxEmbedder()
    rules = ("crp",) if given.lexical else ("crp", "literal")
    results: dict[str, dict[str, dict[str, Figures]]] = {}
    for path in given.data:
        cases = read(path)
        if given.sample:
            # Rows come in runs of one source, so even steps would pick one model's answers.
            chooser = random.Random(SEED)  # noqa: S311
            cases = chooser.sample(cases, min(given.sample, len(cases)))
        for system, by_name in measure(cases, embedder, rules).items():
            results.setdefault(system, {})[path.name.split(".")[0]] = by_name
    identity = embedder.identity if embedder else "none"
    report = {"embedder": identity, "cut": CUT, "sample": given.sample, "results": results}
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
