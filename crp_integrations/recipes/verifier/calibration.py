"""Calibration: from log odds to the probabilities and the scale that the engine speaks in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from crp_integrations.dpe.risk import grounding_pct
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.attribution import by_model, classify
from crp_integrations.dpe.verifier.fitted_model import (
    CONFLICT,
    SIGNALS,
    Curve,
    Floats,
    conflict_odds,
    probability,
)
from crp_integrations.recipes.verifier.labelled_answers import Row
from crp_integrations.recipes.verifier.layers import FittedLayers, balanced
from crp_integrations.vocabulary import Attribution

# Columns that tell the kind of the context, and so how often such answers are wrong.
KIND: Final = ("a_records", "a_question", "a_words", "a_context")
# Rows outside of answers by models count this much where rates are learned: how often they are
# wrong was chosen by whoever made the set.
OTHERS: Final = 0.15
# Share of the composite that the printed signals keep.
SHARE: Final = 0.1
# Evidence from which an answer is MEDIUM. One number for all files: searched anew in each fit it
# wandered from .48 to .58 and cost more than it won. Any from .49 to .53 does as well.
MEDIUM: Final = 0.52
KNOTS: Final = 12
SLOPE: Final = 1e-3
# Of answers that score as high, how many are wrong when half of all are.
HIGH, CRITICAL = 0.80, 0.93
CUTS: Final = (0.20, 0.45, 0.70)


def maps(rows: Sequence[Row], found: FittedLayers) -> dict[str, Any]:
    """Everything in a fitted file besides the trees."""
    least = [conflict_odds(row.measured, [True] * len(row.claims)) for row in rows]
    found = replace(found, answers=np.maximum(found.answers, least))
    wrong = np.array([float(row.answer.wrong) for row in rows])
    groups = [row.answer.group for row in rows]
    natural = np.array([1.0 if name.startswith("ragtruth") else OTHERS for name in groups])
    even = balanced(groups, np.arange(len(rows)), wrong)
    claim_map = _claim_map(rows, found, natural)
    rate = _rate(rows, found, wrong, natural)
    evidence = probability(found.answers)
    printed = _printed(rows, found, claim_map)
    likely = {name: _isotonic(values, wrong, even) for name, values in printed.items()}
    risk = _risk(evidence, wrong, even)
    return {
        "claim_map": claim_map,
        "rate": rate,
        "risk": risk,
        "signals": {name: _through(likely[name], risk) for name in SIGNALS},
        "share": SHARE,
        "spans": _word_cut(rows, found),
    }


def _claim_map(rows: Sequence[Row], found: FittedLayers, natural: Floats) -> list[list[float]]:
    sizes = [len(row.claims) for row in rows]
    weight = np.repeat(natural, sizes)
    y = np.concatenate([row.claims for row in rows])
    known = ~np.isnan(y)
    return _isotonic(np.concatenate(found.claims)[known], y[known], weight[known], low=-12.0)


def _rate(
    rows: Sequence[Row], found: FittedLayers, wrong: Floats, natural: Floats
) -> dict[str, float]:
    kinds = np.column_stack(
        [[float(row.measured.claims[name][0]) for row in rows] for name in KIND]
    )
    x = np.column_stack([found.answers, kinds])
    model = LogisticRegression(C=10.0, max_iter=2_000).fit(x, wrong, natural)
    weights = dict(zip(("odds", *KIND), model.coef_[0], strict=True))
    return {
        name: round(float(value), 6)
        for name, value in {"constant": model.intercept_[0], **weights}.items()
    }


def _printed(
    rows: Sequence[Row], found: FittedLayers, claim_map: list[list[float]]
) -> dict[str, Floats]:
    """The printed signals of each row, as the engine would print them."""
    curve, settings = Curve.of(claim_map), DpeSettings()
    made: dict[str, list[float]] = {name: [] for name in SIGNALS}
    for row, odds in zip(rows, found.claims, strict=True):
        columns = row.measured.claims
        kinds: list[Attribution] = []
        entailments = [1.0]
        for at, value in enumerate(odds):
            unsupported = curve(float(value))
            entailed = 1.0 - unsupported
            if row.typed[at]:
                entailed = min(
                    entailed,
                    settings.conflict_entailment
                    if row.typed[at] == 2
                    else settings.untraced_entailment,
                )
            if not columns["c_opinion_kind"][at] and not columns["c_meta"][at]:
                entailments.append(entailed)
            if columns["c_factual"][at]:
                conflict = bool(
                    columns["c_changes"][at] + columns["c_flip"][at] + columns["c_condition"][at]
                )
                score = by_model(unsupported, float(columns["c_lexical"][at]), conflict, settings)
                kind = classify(score, float(columns["c_specificity"][at]), settings)
                if kind is Attribution.CONTEXT_GROUNDED and columns["c_untraced"][at]:
                    kind = Attribution.MIXED
                kinds.append(kind)
        made["attribution"].append(
            1.0 - grounding_pct(kinds.count(Attribution.CONTEXT_GROUNDED), len(kinds))
        )
        made["fidelity"].append(1.0 - row.fidelity)
        made["entailment"].append(1.0 - min(entailments))
        made["specificity"].append(kinds.count(Attribution.UNVERIFIABLE) / max(1, len(kinds)))
    return {name: np.array(values) for name, values in made.items()}


def _isotonic(x: Floats, y: Floats, weight: Floats, low: float = 0.0) -> list[list[float]]:
    """A monotone map through a few points, by pooling of quantiles."""
    order = np.argsort(x, kind="stable")
    cuts = np.unique(np.quantile(x, np.linspace(0, 1, KNOTS + 1)[1:-1]))
    bins = np.searchsorted(cuts, x, side="right")
    used = sorted(set(bins.tolist()))
    xs = np.array([np.average(x[bins == b], weights=weight[bins == b] + 1e-12) for b in used])
    means = np.array([np.average(y[bins == b], weights=weight[bins == b] + 1e-12) for b in used])
    mass = np.array([weight[bins == b].sum() for b in used])
    fit = IsotonicRegression(y_min=0.0, y_max=1.0).fit(xs, means, sample_weight=mass)
    # A little slope keeps the order of what falls into one flat stretch.
    ys = np.clip(fit.predict(xs) + SLOPE * (np.arange(len(xs)) - len(xs)), 0.0, 1.0)
    ys = np.maximum.accumulate(ys)
    points = [(float(a), float(b)) for a, b in zip(xs, ys, strict=True)]
    highest = float(x[order[-1]])
    if points[-1][0] < highest:
        points.append((highest, min(1.0, points[-1][1] + SLOPE)))
    if points[0][0] > low:
        points.insert(0, (low, points[0][1]))
    return [[round(a, 6), round(b, 6)] for a, b in points]


def _risk(evidence: Floats, wrong: Floats, even: Floats) -> list[list[float]]:
    """Evidence to the scale of the composite, strictly rising."""
    steps = np.linspace(MEDIUM + 0.05, 0.97, 40)

    def first(precision: float, after: float) -> float:
        for step in steps:
            above = evidence >= step
            if step <= after or not even[above].sum() > 0:
                continue
            if np.average(wrong[above], weights=even[above] + 1e-12) >= precision:
                return float(step)
        return min(0.985, (after + 1.0) / 2)

    # An answer of typed conflicts alone is HIGH.
    high = min(first(HIGH, MEDIUM), float(probability(np.array([CONFLICT]))[0]) - 0.05)
    critical = max(high + 0.01, first(CRITICAL, high))
    points = [(0.0, 0.0), (MEDIUM, CUTS[0]), (high, CUTS[1]), (critical, CUTS[2]), (1.0, 1.0)]
    return [[round(a, 6), b] for a, b in points]


def _through(points: list[list[float]], risk: list[list[float]]) -> list[list[float]]:
    scale = Curve.of(risk)
    return [[x, scale(y)] for x, y in points]


def _word_cut(rows: Sequence[Row], found: FittedLayers) -> float:
    """The probability of a word from which marking agrees best with the marks of people."""
    places = [
        n for n, row in enumerate(rows)
        if row.answer.group.startswith("ragtruth") and not np.isnan(row.words).any()
    ]  # fmt: skip
    if not places:
        return 0.5
    y = np.concatenate([rows[n].words for n in places])
    p = probability(np.concatenate([found.words[n] for n in places]))
    size = np.concatenate([rows[n].measured.ends - rows[n].measured.starts for n in places])

    def agreement(cut: float) -> float:
        said = p >= cut
        hit = size[said & (y == 1)].sum()
        return float(2 * hit / max(1, size[said].sum() + size[y == 1].sum()))

    return float(max(np.round(np.linspace(0.3, 0.95, 66), 3), key=agreement))
