"""The verifier beside the literal rule and peers, on labelled answers and pairs.

python -m tests.bench.verifier --data FILE --json OUT --folds 5
python -m tests.bench.verifier --speed
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from crp_integrations import weights
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import CRPError, RequestError
from crp_integrations.language import memo
from crp_integrations.language.text import sentence_runs
from crp_integrations.seals import sha256_hex
from crp_integrations.vectors import unit_rows
from tests.bench.measure import machine, versions
from tests.bench.verifier_systems import (
    CUT,
    Case,
    Figures,
    System,
    Word,
    always_positive,
    by_folds,
    by_task,
    fit,
    name_of,
    ours,
    peers,
    read,
    reliability,
    seen,
    shipped,
)

# A token of English is about so many characters.
CHARACTERS: Final = 4.5
CONTEXTS: Final = (500, 2_000, 8_000, 32_000, 100_000)
ANSWERS: Final = (75, 150, 300, 600, 1_200)
REPEATS: Final = 5
_GAP: Final = re.compile(r"\s+")
_SENTENCE: Final = re.compile(r"[A-Z][a-z][^.`*\"|]{40,260}\.(?= )")


def sentences() -> list[str]:
    """Real sentences, of this Python's own language reference, in order, none twice."""
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    whole = _GAP.sub(" ", " ".join(topics[name] for name in sorted(topics)))
    return list(dict.fromkeys(_SENTENCE.findall(whole)))


def sized(characters: int, every: int = 1) -> str:
    """A text of about so many characters, of every nth sentence; it starts over at the end."""
    found: list[str] = []
    length = 0
    for sentence in itertools.cycle(sentences()[::every]):
        if length >= characters:
            return " ".join(found)
        found.append(sentence)
        length += len(sentence) + 1
    return ""


def cost(words: int, tokens: int, stored: bool) -> float:
    """Processor milliseconds of one verdict, the median of a few.

    Args:
        words: of the answer.
        tokens: of the context, about.
        stored: whether the dossier brings the facts' vectors.
    """
    verifier, settings, embedder = shipped(), DpeSettings(), OnnxEmbedder()
    given = sentence_runs(sized(round(tokens * CHARACTERS)))
    answer = sized(words * 6, 3)
    rows = None
    if stored:
        rows = unit_rows(np.eye(len(given), embedder.dimensions) + 0.01)
    taken = []
    for _ in range(REPEATS):
        # What was remembered of these texts would make every round after the first too cheap.
        memo.forget()
        passages = tuple((f"context-{n}", fact) for n, fact in enumerate(given, 1))
        before = time.process_time()
        examine(
            Dossier("", answer, passages, rows), embedder=embedder, verifier=verifier,
            settings=settings,
        )  # fmt: skip
        taken.append((time.process_time() - before) * 1000)
    return round(statistics.median(taken), 1)


def curve(
    contexts: Sequence[int] = CONTEXTS, answers: Sequence[int] = ANSWERS
) -> dict[str, dict[str, Any]]:
    """The cost over lengths of context for 300 words, and over answers for 2,000 tokens."""
    return {
        "context_tokens": {str(n): cost(300, n, stored=True) for n in contexts},
        "answer_words": {str(n): cost(n, 2_000, stored=True) for n in answers},
        "without_vectors": {"2000": cost(300, 2_000, stored=False)},
    }


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
