"""The fitted model: boosted trees that turn measures of claims and words into probabilities.

Three layers. The first reads each claim, the second each word with its claim, the third the
answer: what the first two said, and the claims' measures at their mean, highest and lowest. The
first two are fitted with both classes of equal weight in every data set, so they tell evidence
and not how often a kind of text is wrong; how often is said by the maps at the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crp_integrations.dpe.verifier.claim_measures import Measured
from crp_integrations.errors import EngineError

Floats = npt.NDArray[np.float64]
# Sums of small floats differ in their last bits between processors; these decimals do not.
DECIMALS = 9


@dataclass(frozen=True, slots=True)
class Trees:
    """A sum of decision trees, the nodes of each in the order of a walk that goes left first.

    A file names the node to the right of each, 0 for a leaf; the one to the left is the next.

    Attributes:
        columns: names of the columns that are read, in the order of the numbers in `feature`.
        roots: node at which each tree starts.
        feature: column of each node; leaves have 0.
        threshold: a row with at most this goes left.
        left, right: the next node; a leaf points to itself.
        ways: the same in one row, of each node the right one and then the left one.
        value: what a leaf adds, 0 for other nodes.
        depth: most steps from a root to a leaf.
    """

    columns: tuple[str, ...]
    roots: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: Floats
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    ways: npt.NDArray[np.int64]
    value: Floats
    depth: int

    def __call__(self, rows: Floats) -> Floats:
        """The sum over all trees for each row."""
        count = len(rows)
        if not count:
            return np.zeros(0)
        flat = np.ascontiguousarray(rows, dtype=np.float64).ravel()
        node = np.tile(self.roots, (count, 1))
        first = (np.arange(count) * rows.shape[1])[:, None]
        for _ in range(self.depth):
            left = flat.take(self.feature.take(node) + first) <= self.threshold.take(node)
            node = self.ways.take(2 * node + left)
        total: Floats = np.round(self.value.take(node).sum(axis=1), DECIMALS)
        return total

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Trees:
        """The trees of a fitted file."""
        try:
            roots, feature, right = (
                np.array(given[name], dtype=np.int64) for name in ("roots", "feature", "right")
            )
            threshold, value = (
                np.array(given[name], dtype=np.float64) for name in ("threshold", "value")
            )
            place = np.arange(len(right), dtype=np.int64)
            leaf = right == 0
            left, right = np.where(leaf, place, place + 1), np.where(leaf, place, right)
            found = cls(
                tuple(given["columns"]), roots, feature, threshold, left, right,
                np.stack([right, left], axis=1).ravel(), value, int(given["depth"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError("a fitted file holds no trees", engine="features") from error
        size = len(feature)
        pointers = (roots, left, right)
        whole = all(len(a) == size for a in (threshold, left, right, value))
        if not whole or any(len(p) and (p.min() < 0 or p.max() >= size) for p in pointers):
            raise EngineError("the trees of a fitted file point outside", engine="features")
        if size and (feature.min() < 0 or feature.max() >= len(found.columns)):
            raise EngineError("the trees of a fitted file name no column", engine="features")
        return found


def table(columns: Mapping[str, Floats], names: Sequence[str], count: int) -> Floats:
    """Columns side by side, rounded so that float dust decides no branch."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise EngineError(f"the column {missing[0]!r} was not measured", engine="features")
    if not names:
        return np.zeros((count, 0))
    side: Floats = np.column_stack([columns[name] for name in names]).astype(np.float64)
    rounded: Floats = np.round(side, 6)
    return rounded


def probability(log_odds: Floats) -> Floats:
    """Log odds as probabilities."""
    odds: Floats = np.clip(log_odds, -30.0, 30.0)
    found: Floats = 1.0 / (1.0 + np.exp(-odds))
    return found


SCHEMA: Final = "verifier-fit/1"
# Log odds of an answer that holds no claim.
NEVER: Final = -30.0
# Half of the claims of fact or procedure put another value or the opposite in a source's place,
# or leave out a condition of it: four in five such answers are wrong where half of all are.
CONFLICT: Final = 1.3
CONFLICT_SHARE: Final = 0.5
SIGNALS: Final = ("attribution", "fidelity", "entailment", "specificity")


@dataclass(frozen=True, slots=True)
class Curve:
    """A monotone map through points, straight between them and flat outside."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """The map of a value."""
        return round(float(np.interp(value, self.xs, self.ys)), 6)

    @classmethod
    def of(cls, points: Sequence[Sequence[float]]) -> Curve:
        """The map of a fitted file."""
        xs, ys = zip(*((float(x), float(y)) for x, y in points), strict=True)
        if list(xs) != sorted(xs) or list(ys) != sorted(ys):
            raise EngineError("a map of a fitted file does not rise", engine="features")
        return cls(xs, ys)


@dataclass(frozen=True, slots=True)
class Said:
    """What the model says of one answer.

    Attributes:
        claims: probability that each claim is not supported, [0, 1].
        words: the same for each word.
        evidence: log odds that the answer holds an unsupported claim, as if half of all did.
        probability: calibrated probability of that.
    """

    claims: Floats
    words: Floats
    evidence: float
    probability: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted file.

    Attributes:
        name: `features@1`.
        claim, word, answer: the three layers.
        claim_map: log odds of the first layer to the probability of a claim.
        rate: how log odds of the answer become its probability: a constant, the weight of the
            odds, and weights of columns of the answer that tell the kind of the context.
        risk: probability on the scale of evidence to the scale of the composite.
        signals: for each signal its printed value to the same scale.
        share: weight of the printed signals in the composite, [0, 1).
        spans: probability of a word from which it is marked.
    """

    name: str
    claim: Trees
    word: Trees
    answer: Trees
    claim_map: Curve
    rate: Mapping[str, float]
    risk: Curve
    signals: Mapping[str, Curve]
    share: float
    spans: float

    @property
    def columns(self) -> frozenset[str]:
        """The measured columns that the file reads; layers' own words start with `s_`."""
        read = {*self.claim.columns, *self.word.columns}
        read |= {name.partition(" ")[0] for name in self.answer.columns}
        return frozenset(name for name in read if not name.startswith("s_"))

    def claim_odds(self, measured: Measured, count: int) -> Floats:
        """Log odds of each claim."""
        return self.claim(table(measured.claims, self.claim.columns, count))

    def word_odds(self, measured: Measured, claims: Floats) -> Floats:
        """Log odds of each word."""
        joined = joined_columns(measured, claims)
        return self.word(table(joined, self.word.columns, len(measured.starts)))

    def answer_odds(
        self, measured: Measured, claims: Floats, words: Floats, kept: Sequence[bool]
    ) -> float:
        """Log odds of the answer over the claims that are kept."""
        row = answer_columns(measured, claims, words, np.array(kept, dtype=np.bool_))
        return float(self.answer(table(row, self.answer.columns, 1))[0])

    def say(self, measured: Measured, count: int, kept: Sequence[bool] | None = None) -> Said:
        """Everything that the model says of an answer."""
        if not count:
            none = np.zeros(0)
            return Said(none, np.zeros(len(measured.starts)), NEVER, 0.0)
        claims = self.claim_odds(measured, count)
        words = self.word_odds(measured, claims)
        counted = [True] * count if kept is None else list(kept)
        odds = NEVER
        if any(counted):
            odds = self.answer_odds(measured, claims, words, counted)
            odds = max(odds, conflict_odds(measured, counted))
        likely = np.array([self.claim_map(value) for value in claims])
        return Said(likely, np.round(probability(words), 6), odds, self.rated(odds, measured))

    def rated(self, odds: float, measured: Measured) -> float:
        """The calibrated probability that log odds of an answer stand for."""
        if odds <= NEVER:
            return 0.0
        total = self.rate["constant"] + self.rate["odds"] * odds
        for name, weight in self.rate.items():
            if name not in ("constant", "odds"):
                total += weight * float(measured.claims[name][0])
        return round(float(probability(np.array([total]))[0]), 6)

    @classmethod
    def of(cls, content: bytes) -> Fitted:
        """The model of a fitted file."""
        try:
            given: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise EngineError("a fitted file is no JSON", engine="features") from error
        if given.get("schema") != SCHEMA:
            raise EngineError(
                f"a fitted file has schema {given.get('schema')!r:.40}, wanted {SCHEMA!r}",
                engine="features",
            )
        rate = {str(name): float(weight) for name, weight in given["rate"].items()}
        if rate["odds"] < 0.0 or not 0.0 <= given["share"] < 1.0:
            raise EngineError("a fitted file's calibration does not rise", engine="features")
        return cls(
            name=str(given["name"]),
            claim=Trees.of(given["claim"]),
            word=Trees.of(given["word"]),
            answer=Trees.of(given["answer"]),
            claim_map=Curve.of(given["claim_map"]),
            rate=rate,
            risk=Curve.of(given["risk"]),
            signals={name: Curve.of(given["signals"][name]) for name in SIGNALS},
            share=float(given["share"]),
            spans=float(given["spans"]),
        )


def conflict_odds(measured: Measured, kept: Sequence[bool]) -> float:
    """The least log odds of an answer by the typed conflicts of its claims."""
    columns = measured.claims
    stated = columns["c_factual"] + columns["c_procedural"] > 0
    counted = np.array(kept, dtype=np.bool_) & stated
    named = columns["c_changes"] + columns["c_flip"] + columns["c_condition"]
    conflicts = (named > 0) & counted
    many = counted.any() and conflicts.sum() >= CONFLICT_SHARE * counted.sum()
    return CONFLICT if many else NEVER


def joined_columns(measured: Measured, claims: Floats) -> dict[str, Floats]:
    """Columns of the words with those of each word's claim; 0 outside of claims."""
    inside = measured.word_claim >= 0
    place = np.maximum(measured.word_claim, 0)

    def spread(values: Floats) -> Floats:
        if not len(values):
            return np.zeros(len(place))
        found: Floats = np.where(inside, values[place], 0.0)
        return found

    joined = dict(measured.words)
    joined |= {name: spread(values) for name, values in measured.claims.items()}
    joined["s_claim"] = spread(claims)
    return joined


def answer_columns(
    measured: Measured, claims: Floats, words: Floats, kept: Any
) -> dict[str, Floats]:
    """One row for the answer: what the layers said, and the measures of the claims together."""
    inside = measured.word_claim >= 0
    counted = words[inside & kept[np.maximum(measured.word_claim, 0)]]
    ordered = np.sort(probability(claims[kept]))[::-1]
    marked = np.sort(probability(counted))[::-1] if len(counted) else np.zeros(1)
    row = {
        "s_top": ordered[0],
        "s_second": ordered[1] if len(ordered) > 1 else 0.0,
        "s_three": ordered[:3].mean(),
        "s_any": -np.log1p(-np.minimum(ordered, 0.99)).sum(),
        "s_sum": ordered.sum(),
        "s_mean": ordered.mean(),
        "s_words_five": marked[:5].mean(),
        "s_words_fifteen": marked[:15].mean(),
        "s_words_sum": marked.sum() ** 0.5,
    }
    for name, values in measured.claims.items():
        if name.startswith("a_"):
            row[name] = values[0]
        elif name.startswith("c_"):
            own = values[kept]
            row[f"{name} mean"] = own.mean()
            row[f"{name} most"] = own.max()
            row[f"{name} least"] = own.min()
    return {name: np.array([float(value)]) for name, value in row.items()}
