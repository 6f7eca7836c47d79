"""The three layers, fitted with LightGBM; each reads what the one below says out of its fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import lightgbm
import numpy as np

from crp_integrations.dpe.verifier.fitted_model import (
    Floats,
    Trees,
    answer_columns,
    joined_columns,
    table,
)
from crp_integrations.recipes.verifier.labelled_answers import Row

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
