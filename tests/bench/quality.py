"""Measures the thresholds of stages 7 and 8 for an embedder, and what their shortcuts lose.

`python -m tests.bench.quality --data DIR` reads `verification/ragtruth_half.jsonl.gz` in
the folder: several models' answers to each question. A sentence of one answer against the nearest
of another answer to the same question is what a repetition looks like; against the nearest other
sentence of its own answer it is none. A question against an answer to it is a covered need;
against the answer to the most similar other question it is none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from crp_integrations.dpe.dossier import Dossier, PriorWindow
from crp_integrations.dpe.settings import COVERED_NEED, REPEATED, QualitySettings
from crp_integrations.dpe.stages.coherence import repeated
from crp_integrations.dpe.state import SessionSentences, SessionText
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.evaluation.data_sets import rows_of
from crp_integrations.language.negation import differ
from crp_integrations.vectors import FloatRows
from tests.bench.embedder import GRID, Report, separation

# Sentences of one answer that are taken for a repetition at the chosen threshold, at most.
FALSE_REPEATS: Final = 0.05
LEAST_WORDS: Final = 5


class Embedded:
    """Texts and their rows, each embedded once."""

    def __init__(self, embedder: OnnxEmbedder) -> None:
        self._embedder = embedder
        self._rows: dict[str, FloatRows] = {}

    def rows(self, texts: list[str]) -> FloatRows:
        """Unit rows, shape (n, d)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if new:
            self._rows |= dict(zip(new, self._embedder.embed_passages(new), strict=True))
        return np.stack([self._rows[text] for text in texts])


def questions(path: Path, limit: int) -> dict[str, list[str]]:
    """The first questions of the file, each with its answers that answer something."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows_of(path):
        if row["task"] == "QA" and (row["question"] in found or len(found) < limit):
            found[row["question"]].append(row["answer"])
    told = {q: [a for a in answers if SessionText(a).sentences] for q, answers in found.items()}
    return {question: answers for question, answers in told.items() if len(answers) > 1}


def sentences(answer: str) -> list[str]:
    """The sentences of an answer that are long enough to be compared."""
    return [text for text in SessionText(answer).sentences if len(text.split()) >= LEAST_WORDS]


def repeats(asked: dict[str, list[str]], texts: Embedded) -> Report:
    """Where a threshold tells a repeated sentence from one that only stays with its topic."""
    own: list[float] = []
    other: list[float] = []
    for answers in asked.values():
        first, second = sentences(answers[0]), sentences(answers[1])
        if len(first) < 2 or not second:
            continue
        rows, there = texts.rows(first), texts.rows(second)
        inner = rows @ rows.T
        np.fill_diagonal(inner, -1.0)
        across = rows @ there.T
        for at, place in enumerate(across.argmax(axis=1)):
            if not differ(first[at], second[int(place)]):
                other.append(float(across[at, place]))
        for at, place in enumerate(inner.argmax(axis=1)):
            if not differ(first[at], first[int(place)]):
                own.append(float(inner[at, place]))
    one, two = np.array(other, np.float32), np.array(own, np.float32)
    fit = (float(t) for t in GRID if float((two >= t).mean()) <= FALSE_REPEATS)
    card = next(fit, float(GRID[-1]))
    report = separation({"ragtruth": (one, two)}, REPEATED, card)
    return {"pairs": [len(one), len(two)], **report}


def coverage(asked: dict[str, list[str]], texts: Embedded) -> Report:
    """Where a threshold tells an answered question from its most similar neighbour's answer."""
    needs = list(asked)
    rows = texts.rows(needs)
    alike = rows @ rows.T
    np.fill_diagonal(alike, -1.0)

    def best(need: int, whose: int) -> float:
        answers = SessionText(asked[needs[whose]][0]).sentences
        return float((texts.rows(answers) @ rows[need]).max()) if answers else -1.0

    covered = np.array([best(at, at) for at in range(len(needs))], np.float32)
    open_ = np.array([best(at, int(alike[at].argmax())) for at in range(len(needs))], np.float32)
    return {"needs": len(needs), **separation({"ragtruth": (covered, open_)}, COVERED_NEED, None)}


def lost(asked: dict[str, list[str]], embedder: OnnxEmbedder) -> Report:
    """Repeated sentences that comparing only pairs with common words does not find."""
    settings = QualitySettings().in_force(embedder.thresholds)
    every = settings.model_copy(update={"near_words": 0.0})
    all_, near = 0, 0
    for answers in asked.values():
        prior = (PriorWindow("w1", 1, answers[0]),)
        session = SessionSentences(Dossier("", answers[1], (), prior=prior), embedder)
        wide = set(repeated(session, every, embedded=True))
        all_ += len(wide)
        near += len(wide & set(repeated(session, settings, embedded=True)))
    return {"all_pairs": all_, "found": near}


def run(data: Path, limit: int = 100) -> dict[str, Any]:
    """All measurements."""
    asked = questions(data / "verification" / "ragtruth_half.jsonl.gz", limit)
    embedder = OnnxEmbedder()
    texts = Embedded(embedder)
    return {
        "identity": embedder.identity,
        "questions": len(asked),
        "repeated_sentence": repeats(asked, texts),
        "covered_need": coverage(asked, texts),
        "shortcut": lost(asked, embedder),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with verification/")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    text = json.dumps(run(given.data, given.questions), indent=2) + "\n"
    sys.stdout.write(text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
