"""The three layers, fitted with LightGBM, and the maps that calibrate what they say.

Each layer reads what the one below says out of its fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import lightgbm
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
    Trees,
    answer_columns,
    conflict_odds,
    joined_columns,
    probability,
    table,
)
from crp_integrations.vocabulary import Attribution
from tests.recipes.verifier.labelled_answers import Row

INNER: Final = 4
# How much a group weighs beside the others; what is not named weighs as many rows as it has.
WEIGHT: Final = {"ragtruth_half": 4_000.0}
MOST: Final = 3_000.0
COMMON: Final = {
    "objective": "binary", "bagging_freq": 1, "bagging_fraction": 0.7, "max_bin": 63,
    "verbose": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True,
    "max_depth": 6,
}  # fmt: skip
CLAIM: Final = {
    "learning_rate": 0.03, "num_leaves": 31, "min_data_in_leaf": 60, "feature_fraction": 0.5,
    "lambda_l2": 10.0, "max_depth": 8,
}  # fmt: skip
WORD: Final = {
    "learning_rate": 0.08, "num_leaves": 31, "min_data_in_leaf": 150, "feature_fraction": 0.5,
    "lambda_l2": 10.0,
}  # fmt: skip
# Cuts drawn by chance: what the layer reads is noisy, and exact cuts follow the noise.
ANSWER: Final = {
    "learning_rate": 0.03, "num_leaves": 7, "min_data_in_leaf": 25, "feature_fraction": 0.2,
    "lambda_l2": 10.0, "extra_trees": True,
}  # fmt: skip
# The answers' rows are few, and one seed's trees differ from another's by as much as measures do.
SEEDS: Final = {"claim": (7,), "word": (7,), "answer": (7, 1, 2)}
# More of these never makes a claim or word less, or more, suspicious: what few rows suggest
# otherwise does not hold for other texts.
CLEARING: Final = frozenset(
    """c_coverage c_rare_coverage c_best c_two c_three c_six c_near_best c_together c_run_share
    c_run_mean c_pairs c_lexical c_yes w_known w_prefix w_pair_next w_pair_before w_run w_run_near
    w_known_near w_known_left w_known_right w_best w_top3 w_top6 w_near_best w_together""".split()
)
ALARMING: Final = frozenset(
    """c_unknown_prefix c_untraced c_changes c_flip c_condition c_no c_wrong_times c_wrong_rated
    w_untraced w_changed w_flipped s_claim s_top s_second s_three s_any s_sum s_mean s_words_five
    s_words_fifteen s_words_sum""".split()
)
ROUNDS: Final = {"claim": 400, "word": 120, "answer": 600}
# Share of words without a mark that are kept; the others weigh more for it.
KEPT: Final = 0.4
DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class FittedLayers:
    """The layers, and what they say of the rows they were fitted on, out of their fold.

    Attributes:
        claims, words: log odds for each row.
        answers: log odds of each row.
    """

    claim: Trees
    word: Trees
    answer: Trees
    claims: list[Floats]
    words: list[Floats]
    answers: Floats


def fold_of(source: str, folds: int) -> int:
    """The fold of a context, by its hash."""
    return int(source, 16) % folds


def layers(rows: Sequence[Row], say: Callable[[str], None]) -> FittedLayers:
    """Fit all layers on rows."""
    inner = np.array([fold_of(row.answer.source[::-1], INNER) for row in rows])
    claim_names = tuple(rows[0].measured.claims)
    claims_at = np.repeat(np.arange(len(rows)), [len(row.claims) for row in rows])
    x = np.concatenate([table(row.measured.claims, claim_names, 0) for row in rows])
    y = np.concatenate([row.claims for row in rows])
    weight = balanced([row.answer.group for row in rows], claims_at, y)
    odds, claim = out_of_fold(x, y, weight, inner[claims_at], claim_names, "claim")
    claims = split(odds, claims_at, len(rows))
    say("claims fitted")
    marked = [n for n, row in enumerate(rows) if len(row.words) and _spanned(row)]
    joined = [joined_columns(rows[n].measured, claims[n]) for n in marked]
    word_names = tuple(joined[0])
    words_at = np.repeat(np.array(marked), [len(rows[n].words) for n in marked])
    xw = np.concatenate([table(columns, word_names, 0) for columns in joined])
    yw = np.concatenate([rows[n].words for n in marked])
    weight = balanced([row.answer.group for row in rows], words_at, yw)
    keep = (yw == 1) | (np.random.default_rng(0).random(len(yw)) < KEPT)
    weight = np.where(keep, weight * np.where(yw == 1, 1.0, 1.0 / KEPT), 0.0)
    odds, word = out_of_fold(xw, yw, weight, inner[words_at], word_names, "word")
    known = dict(zip(marked, split(odds, words_at, len(rows), marked), strict=True))
    words = [
        known[n] if n in known else word(
            table(joined_columns(row.measured, claims[n]), word_names, 0)
        )
        for n, row in enumerate(rows)
    ]  # fmt: skip
    say("words fitted")
    table_rows = [
        answer_columns(row.measured, claims[n], words[n], np.ones(len(row.claims), dtype=np.bool_))
        for n, row in enumerate(rows)
    ]
    names = tuple(table_rows[0])
    xa = np.concatenate([table(columns, names, 1) for columns in table_rows])
    ya = np.array([float(row.answer.wrong) for row in rows])
    weight = balanced([row.answer.group for row in rows], np.arange(len(rows)), ya)
    answers, answer = out_of_fold(xa, ya, weight, inner, names, "answer")
    say("answers fitted")
    return FittedLayers(claim, word, answer, claims, words, answers)


def _spanned(row: Row) -> bool:
    return not np.isnan(row.words).any()


def balanced(groups: Sequence[str], at: Any, y: Floats) -> Floats:
    """Weights under which both classes weigh the same within each group; 0 without a label."""
    names = np.array(groups)[at]
    weight = np.zeros(len(y))
    for name in sorted(set(groups)):
        own = (names == name) & ~np.isnan(y)
        total = WEIGHT.get(name.split(":")[0], min(MOST, float(own.sum())))
        for label in (0.0, 1.0):
            those = own & (y == label)
            if those.any():
                weight[those] = total / 2 / those.sum()
    return weight


def out_of_fold(
    x: Floats, y: Floats, weight: Floats, fold: Any, names: tuple[str, ...], layer: str
) -> tuple[Floats, Trees]:
    """Log odds of every row by trees that did not see its fold, and the trees of all rows."""
    odds = np.zeros(len(y))
    used = weight > 0
    for number in range(INNER):
        train = used & (fold != number)
        odds[fold == number] = grow(x[train], y[train], weight[train], names, layer)(
            x[fold == number]
        )
    return odds, grow(x[used], y[used], weight[used], names, layer)


def grow(x: Floats, y: Floats, weight: Floats, names: tuple[str, ...], layer: str) -> Trees:
    """Trees for a layer, in the engine's arrays: the mean over its seeds."""
    own: dict[str, Any] = {"claim": CLAIM, "word": WORD, "answer": ANSWER}[layer]
    scaled = weight * (len(weight) / weight.sum())
    ways = [int(name in ALARMING) - int(name in CLEARING) for name in names]
    trees: list[Any] = []
    for seed in SEEDS[layer]:
        told = {**COMMON, **own, "seed": seed, "monotone_constraints": ways}
        trees += lightgbm.train(
            told, lightgbm.Dataset(x, y, weight=scaled), ROUNDS[layer]
        ).dump_model()["tree_info"]
    return Trees.of(arrays(trees, names, 1.0 / len(SEEDS[layer])))


def arrays(trees: Sequence[Any], names: tuple[str, ...], share: float = 1.0) -> dict[str, Any]:
    """LightGBM's nested trees as flat arrays, each node before its left and its right ones."""
    found: dict[str, Any] = {
        "columns": list(names), "roots": [], "feature": [], "threshold": [], "right": [],
        "value": [], "depth": 0,
    }  # fmt: skip

    def place(node: Any, depth: int) -> int:
        at = len(found["feature"])
        found["depth"] = max(found["depth"], depth)
        leaf = "leaf_value" in node
        found["feature"].append(0 if leaf else int(node["split_feature"]))
        found["threshold"].append(0.0 if leaf else _short(node["threshold"]))
        found["value"].append(_short(share * node["leaf_value"]) if leaf else 0.0)
        found["right"].append(0)
        if not leaf:
            place(node["left_child"], depth + 1)
            found["right"][at] = place(node["right_child"], depth + 1)
        return at

    for tree in trees:
        found["roots"].append(place(tree["tree_structure"], 0))
    return found


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def split(values: Floats, at: Any, count: int, only: Sequence[int] | None = None) -> list[Floats]:
    """Values cut by the row that they belong to, in order."""
    sizes = np.bincount(at, minlength=count)
    pieces = np.split(values, np.cumsum(sizes)[:-1])
    return [pieces[n] for n in only] if only is not None else list(pieces)


def as_json(trees: Trees) -> dict[str, Any]:
    """Trees as a fitted file holds them; numbers without a fraction are written short."""
    leaf = trees.right == np.arange(len(trees.right))
    return {
        "columns": list(trees.columns),
        "roots": trees.roots.tolist(),
        "feature": trees.feature.tolist(),
        "threshold": _briefly(trees.threshold),
        "right": np.where(leaf, 0, trees.right).tolist(),
        "value": _briefly(trees.value),
        "depth": trees.depth,
    }


def _briefly(values: Floats) -> list[float | int]:
    return [int(v) if v == int(v) else v for v in values.tolist()]


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
