"""Figures of scores against labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from crp_integrations.dpe.settings import LEVEL_CUTS
from crp_integrations.language.sentences import split_sentences
from tests.bench.verifier.data import Case
from tests.bench.verifier.systems import Word

CUT: Final = min(cut for cut, _ in LEVEL_CUTS)
BINS: Final = 10
COUNTS: Final = ("cases", "hallucinated")
DIGITS: Final = 4
Figures = dict[str, Any]


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


def calibration_error(likely: Sequence[float], labels: Sequence[bool]) -> float:
    """Expected calibration error over ten equal bins."""
    return sum(
        abs(said - seen) * count / len(labels)
        for _, said, seen, count in reliability(likely, labels)
    )


def reliability(
    likely: Sequence[float], labels: Sequence[bool]
) -> list[tuple[float, float, float, int]]:
    """Lower bound, mean probability, share that is wrong and number of cases of each full bin."""
    bins: dict[int, list[int]] = {}
    for place, value in enumerate(likely):
        bins.setdefault(min(BINS - 1, int(value * BINS)), []).append(place)
    return [
        (
            number / BINS,
            sum(likely[p] for p in places) / len(places),
            sum(labels[p] for p in places) / len(places),
            len(places),
        )
        for number, places in sorted(bins.items())
    ]


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
    likely = [word.probability for word in words]
    found["ece"] = round(calibration_error(likely, labels), DIGITS)
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
