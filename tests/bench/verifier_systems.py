"""Labelled cases, the systems that score them, and figures of scores against labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import LEVEL_CUTS, DpeSettings
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.evaluation.data_sets import each
from crp_integrations.language.text import split_sentences
from crp_integrations.ports import Embedder

CUT: Final = min(cut for cut, _ in LEVEL_CUTS)
COUNTS: Final = ("cases", "hallucinated")
DIGITS: Final = 4
Figures = dict[str, Any]


def sentence_runs(text: str, most: int = 800) -> list[str]:
    """A text cut into runs of sentences of at most so many characters, where sentences allow."""
    found: list[str] = []
    start = end = 0
    for span in split_sentences(text):
        if span.end - start > most and end > start:
            found.append(text[start:end])
            start = span.start
        end = span.end
    if end > start:
        found.append(text[start:end])
    return found


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
    """What a score says of whole answers, called hallucinated from the cut on."""
    said = [score >= cut for score in scores]
    hit = sum(s and label for s, label in zip(said, labels, strict=True))
    positive = sum(labels)
    negative = len(labels) - positive
    false = sum(said) - hit
    sensitivity = hit / positive if positive else 0.0
    specificity = (negative - false) / negative if negative else 0.0
    found = {
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "auroc": auroc(scores, labels),
        "precision": hit / sum(said) if hit else 0.0,
        "recall": sensitivity,
        "f1": 2 * hit / (sum(said) + positive) if hit else 0.0,
        "flagged": sum(said) / len(said) if said else 0.0,
    }
    counts = {"cases": len(labels), "hallucinated": positive}
    return {**counts, **{name: round(value, DIGITS) for name, value in found.items()}}


def measured(cases: Sequence[Case], words: Sequence[Word]) -> Figures:
    """All figures of a system over cases."""
    labels = [case.hallucinated for case in cases]
    found = figures([word.score for word in words], labels)
    found["unread"] = round(sum(word.unread for word in words) / max(1, len(words)), DIGITS)
    if all(case.spans is not None for case in cases):
        scores, wrong = sentence_scores(cases, words)
        found["sentence_auroc"] = round(auroc(scores, wrong), DIGITS)
        found["span_f1"] = round(span_f1(cases, words), DIGITS)
    return found


def sentence_scores(cases: Sequence[Case], words: Sequence[Word]) -> tuple[list[float], list[bool]]:
    """For every sentence the score of its worst claim, and whether a person marked it."""
    scores, labels = [], []
    for case, word in zip(cases, words, strict=True):
        for span in split_sentences(case.answer):
            scores.append(
                max((p for a, b, p in word.claims if a < span.end and span.start < b), default=0.0)
            )
            labels.append(any(a < span.end and span.start < b for a, b in case.spans or ()))
    return scores, labels


def span_f1(cases: Sequence[Case], words: Sequence[Word]) -> float:
    """F1 of marked characters over all answers."""
    hit = said = wanted = 0
    for case, word in zip(cases, words, strict=True):
        own, gold = bytearray(len(case.answer)), bytearray(len(case.answer))
        for start, end in word.spans:
            own[start:end] = b"\x01" * (end - start)
        for start, end in case.spans or ():
            gold[start:end] = b"\x01" * (end - start)
        said += sum(own)
        wanted += sum(gold)
        hit += sum(a & b for a, b in zip(own, gold, strict=True))
    return 2 * hit / (said + wanted) if said + wanted else 0.0


def by_task(cases: Sequence[Case], words: Sequence[Word]) -> dict[str, Figures]:
    """The figures of each task, of all together, and where there are several their mean."""
    groups: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        groups.setdefault(case.task, []).append(place)
    found = {
        name: measured([cases[p] for p in places], [words[p] for p in places])
        for name, places in sorted(groups.items())
    }
    if len(groups) > 1:
        names = [
            name for name in next(iter(found.values())) if name not in ("cases", "hallucinated")
        ]
        found["macro"] = {
            name: round(sum(f[name] for f in found.values()) / len(found), DIGITS) for name in names
        }
    found["all"] = measured(cases, words)
    return found


FORM = "answer, context, hallucinated, or with claim, evidence, label"


@dataclass(frozen=True, slots=True)
class Case:
    """One answer or claim with its context and gold label.

    Attributes:
        task: the file's word, for grouping figures; no system is told.
        spans: unsupported stretches of the answer; None where the file marks none.
    """

    task: str
    question: str
    context: str
    answer: str
    hallucinated: bool
    spans: tuple[tuple[int, int], ...] | None = None

    @property
    def passages(self) -> tuple[tuple[str, str], ...]:
        """The context as facts with ids."""
        return tuple(
            (f"context-{n}", text) for n, text in enumerate(sentence_runs(self.context), 1)
        )


def name_of(path: Path) -> str:
    """The data set's name, the file's without its endings."""
    return path.name.split(".")[0]


def read(path: Path) -> list[Case]:
    """The labelled cases of a file; pairs without a label are left out.

    Raises:
        RequestError: the file cannot be read, or a line is not of one of the two shapes.
    """
    made = each(path, FORM, lambda row: _case(row, row.get("task") or name_of(path)))
    cases = [case for case in made if case is not None]
    if any(case.spans for case in cases):
        return cases
    return [Case(c.task, c.question, c.context, c.answer, c.hallucinated) for c in cases]


def _case(row: dict[str, Any], task: str) -> Case | None:
    """The case of a row; None for a pair without a label."""
    if "answer" in row:
        spans = tuple((s["start"], s["end"]) for s in row.get("spans") or ())
        wrong = bool(row["hallucinated"])
        return Case(task, row.get("question") or "", row["context"], row["answer"], wrong, spans)
    if row["label"] is None:
        return None
    return Case(task, "", row["evidence"], row["claim"], row["label"] != "supported")


# A claim entailed less than this marks its stretch where a verifier marks no words.
LEAST_ENTAILED: Final = 0.5
# A folder with a LettuceDetect model; nothing is downloaded.
LETTUCE: Final = "CRP_BENCH_LETTUCEDETECT"


@dataclass(frozen=True, slots=True)
class Word:
    """What a system says of one answer.

    Attributes:
        score: [0, 1], hallucinated from .20 on.
        claims: start, end and risk of each claim.
        spans: what it marks.
        unread: nothing wrong was found, and not all of it was read.
    """

    score: float
    claims: tuple[tuple[int, int, float], ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    unread: bool = False


System = Callable[[Case], Word]


def always_positive(case: Case) -> Word:
    """Calls everything hallucinated."""
    whole = (0, len(case.answer))
    return Word(1.0, ((*whole, 1.0),), (whole,))


def engine(verifier: Verifier | None, embedder: Embedder | None, settings: DpeSettings) -> System:
    """The provenance engine with a verifier."""

    def say(case: Case) -> Word:
        dossier = Dossier(case.question, case.answer, case.passages)
        return word_of(examine(dossier, embedder=embedder, verifier=verifier, settings=settings))

    return say


def word_of(report: Report) -> Word:
    """A report as the bench compares it."""
    claims = tuple(
        (c.start, c.end, 1.0 - c.entailment) for c in report.claims if c.entailment is not None
    )
    marked = {(f.start, f.end) for f in report.findings}
    marked |= {(a, b) for a, b, risk in claims if 1.0 - risk < LEAST_ENTAILED}
    score = 0.0 if report.risk_score is None else report.risk_score
    return Word(score, claims, tuple(sorted(marked)), report.risk_score is None)


def ours(names: Sequence[str]) -> dict[str, System]:
    """The systems of this package by name: `crp`, without a judge, and `literal`."""
    found: dict[str, System] = {}
    if "crp" in names:
        found["crp"] = engine(None, None, DpeSettings())
    if "literal" in names:
        found["literal"] = engine(AlignmentVerifier(), Once(), DpeSettings.preset("literal"))
    return found


def peers() -> dict[str, System]:
    """Peers that are installed and whose model lies on this machine."""
    folder = os.environ.get(LETTUCE, "")
    if not folder or find_spec("lettucedetect") is None:
        return {}
    library: Any = import_module("lettucedetect.models.inference")
    detector = library.HallucinationDetector(method="transformer", model_path=folder)

    def say(case: Case) -> Word:
        found = detector.predict(
            context=[case.context], question=case.question, answer=case.answer,
            output_format="spans",
        )  # fmt: skip
        spans = tuple((span["start"], span["end"]) for span in found)
        score = max((float(span.get("confidence", 1.0)) for span in found), default=0.0)
        claims = tuple((s["start"], s["end"], float(s.get("confidence", 1.0))) for s in found)
        return Word(score, claims, spans)

    return {"lettucedetect": say}


class Once:
    """The shipped embedder, which embeds a text that comes again only once."""

    def __init__(self) -> None:
        self._of = OnnxEmbedder()
        self._rows: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def embed_query(self, text: str) -> Any:
        """A unit vector."""
        if text not in self._rows:
            self._rows[text] = self._of.embed_query(text)
        return self._rows[text]

    def embed_passages(self, texts: Sequence[str]) -> Any:
        """Unit rows."""
        import numpy as np

        rows = [self.embed_query(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self._of.dimensions)
