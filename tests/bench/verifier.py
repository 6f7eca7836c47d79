"""The engine without a judge beside the literal rule and peers, on labelled answers and pairs.

python -m tests.bench.verifier --data FILE --json OUT
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
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import CRPError, RequestError
from crp_integrations.language import memo
from crp_integrations.vectors import unit_rows
from tests.bench.measure import machine, versions
from tests.bench.verifier_systems import (
    CUT,
    Case,
    Figures,
    System,
    Word,
    always_positive,
    by_task,
    name_of,
    ours,
    peers,
    read,
    sentence_runs,
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
    settings, embedder = DpeSettings(), OnnxEmbedder()
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
            Dossier("", answer, passages, rows), embedder=embedder, verifier=None,
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


def run(paths: Sequence[Path], names: Sequence[str], *, sample: int | None) -> dict[str, Any]:
    """The whole report.

    Args:
        names: of `crp` and `literal`.
        sample: at most so many cases of a file, by a fixed seed; None for all.
    """
    systems = {"always_positive": always_positive, **ours(names), **peers()}
    results: dict[str, dict[str, dict[str, Figures]]] = {name: {} for name in systems}
    for path in paths:
        name = name_of(path)
        cases = sampled(read(path), sample)
        for system, say in systems.items():
            words, spent = _said(cases, say)
            sys.stderr.write(f"{name}: {system}\n")
            found = by_task(cases, words)
            found["all"]["cpu_ms"] = spent
            results[system][name] = found
    return {
        "cut": CUT,
        "sample": sample,
        "machine": machine(),
        "versions": versions("numpy", "onnxruntime", "lettucedetect"),
        "results": results,
    }


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
    "balanced_accuracy", "auroc", "precision", "recall", "f1", "sentence_auroc", "span_f1",
    "unread", "cpu_ms",
)  # fmt: skip


def markdown(report: Mapping[str, Any]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| data set | task | system | " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * (3 + len(COLUMNS)),
    ]
    for system, sets in report["results"].items():
        for name, tasks in sets.items():
            for task, found in tasks.items():
                cells = [_cell(found.get(column)) for column in COLUMNS]
                lines.append(f"| {name} | {task} | {system} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 2 else f"{value:.1f}"


SYSTEMS = ("crp", "literal")


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.verifier", description=__doc__)
    parser.add_argument(
        "--data", type=Path, nargs="+", action="extend", default=[], help="gzip JSON lines"
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
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
            report = run(given.data, names, sample=given.sample)
    except CRPError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(markdown(report) if given.markdown and "results" in report else text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
