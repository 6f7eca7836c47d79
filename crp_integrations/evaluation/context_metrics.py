"""What is counted of one packed context: evidence found, text wasted, properties of CFS-021.

All shares are of characters that are no white space, so that joining and stripping cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from crp_integrations.evaluation.selection_data import SetQuestion
from crp_integrations.evaluation.text_axis import ContextUnit, Offsets, TextAxis, squeezed

# A question counts as wholly answered when this share of each of its pieces is packed.
FULL = 0.90
# A unit is a hit when it holds so much of a piece, or when so much of it is evidence.
HIT = 0.50
RANKS = 10
# Words in a row that make two stretches of text the same.
SHINGLE = 8
TOP, FIRST = 3, 5

PER_BUDGET = (
    "evidence_recall",
    "full_recall",
    "precision",
    "duplicates",
    "compliance",
    "adjacency",
    "top3_in_first5",
    "coverage",
)
MRR = f"mrr@{RANKS}"


@dataclass(frozen=True, slots=True)
class MeasuredContext:
    """A context as one system packs it for one question and budget.

    Attributes:
        units: in the order of the text.
        ranked: ids of the units in rank order.
        tokens: of the whole rendered text.
    """

    units: tuple[ContextUnit, ...]
    ranked: tuple[str, ...]
    tokens: int


class WantedEvidence:
    """The evidence of one question, ready to be looked for.

    Attributes:
        length: characters of all pieces; one that is marked twice counts once.
    """

    def __init__(self, question: SetQuestion, axis: TextAxis) -> None:
        marked = dict.fromkeys(question.evidence)
        self._pieces = [piece for one in marked if (piece := axis.piece(one)) is not None]
        own = [np.arange(one.stretch.start, one.stretch.end) for one in self._pieces]
        self.length = len(np.unique(np.concatenate(own))) if own else 0

    def found(self, units: Sequence[ContextUnit]) -> tuple[int, bool]:
        """How many characters of the evidence stand in the units, and whether nearly all do."""
        if not self.length or not units:
            return 0, False
        starts, ends = _spans(units)
        masks = [piece.covered(starts, ends) for piece in self._pieces]
        full = min(float(mask.mean()) for mask in masks) >= FULL
        if len(masks) == 1:
            return int(masks[0].sum()), full
        places = [
            np.flatnonzero(mask) + piece.stretch.start
            for piece, mask in zip(self._pieces, masks, strict=True)
        ]
        # Pieces may overlap; a character of the documents counts once.
        return len(np.unique(np.concatenate(places))), full

    def is_hit(self, unit: ContextUnit) -> bool:
        """Whether a unit is worth finding: much of it is evidence, or it holds much of a piece."""
        characters, _ = self.found([unit])
        if not characters:
            return False
        starts, ends = _spans([unit])
        return characters >= HIT * int((ends - starts).sum()) or any(
            float(piece.covered(starts, ends).mean()) >= HIT for piece in self._pieces
        )


def reciprocal_rank(wanted: WantedEvidence, ranked: Sequence[ContextUnit]) -> float:
    """One over the rank of the first hit among the best `RANKS`, 0 without one."""
    for rank, unit in enumerate(ranked[:RANKS], 1):
        if wanted.is_hit(unit):
            return 1.0 / rank
    return 0.0


def measure(wanted: WantedEvidence, packed: MeasuredContext, budget: int) -> dict[str, float]:
    """The values of one context by the names of `PER_BUDGET`."""
    characters, full = wanted.found(packed.units)
    held = sum(len(squeezed(unit.text)) for unit in packed.units)
    twice = repeated([unit.text for unit in packed.units])
    order = [unit.unit_id for unit in packed.units]
    top = packed.ranked[:TOP]
    return {
        "evidence_recall": characters / wanted.length if wanted.length else 0.0,
        "full_recall": float(full),
        "precision": characters / held if held else 0.0,
        "duplicates": twice,
        "compliance": float(packed.tokens <= budget),
        "adjacency": adjacency([unit.doc_id for unit in packed.units]),
        "top3_in_first5": (len(set(top) & set(order[:FIRST])) / len(top) if top else float("nan")),
        "coverage": packed.tokens * (1.0 - twice) / budget,
    }


def repeated(texts: Sequence[str]) -> float:
    """Share of the runs of `SHINGLE` words that stood in the texts before, 0 without texts.

    >>> round(repeated(["One and the same.", "Another.", "One and the same."]), 3)
    0.333
    """
    runs = [run for text in texts for run in _runs(text)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


@lru_cache(maxsize=50_000)
def _runs(text: str) -> tuple[int, ...]:
    words = text.split()
    last = max(1, len(words) - SHINGLE + 1)
    # Only whether two are equal is looked at, so the seed of the hash decides nothing.
    return tuple(hash(tuple(words[n : n + SHINGLE])) for n in range(last))


def adjacency(documents: Sequence[str]) -> float:
    """Share of the units that could stand behind one of their own document and do.

    Spec: CFS-021 §Desired Properties (4)

    Args:
        documents: the document of each unit, in the order of the text.

    Returns:
        NaN when no document has two units.

    >>> adjacency(["a", "a", "b", "a"])
    0.5
    """
    runs = sum(1 for _ in groupby(documents))
    possible = len(documents) - len(set(documents))
    return (len(documents) - runs) / possible if possible else float("nan")


def _spans(units: Sequence[ContextUnit]) -> tuple[Offsets, Offsets]:
    spans = [(s.start, s.end) for unit in units for s in unit.stretches]
    table = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
