"""Metrics of one packed context: evidence found, text wasted, properties of CFS-021.

Shares count only characters that are not white space, so that joining and stripping do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt

from crp_integrations.evaluation.data_sets import EvidenceSpan, SetDocument, SetQuestion

# Minimum characters without white space (about 100 with it) at which equal text elsewhere counts as
# the evidence, and minimum length of a shorter piece that counts as a whole. With lower minimums,
# phrases that many texts share would count as evidence.
LEAST_RUN = 80
LEAST_PIECE = 16
_SEED = LEAST_RUN // 2
# Maximum number of occurrences looked up for a piece, so that rows of dashes stay cheap.
_MOST = 2_000
_BETWEEN = "\x00"

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AxisSpan:
    """A half-open stretch of a `TextAxis`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ContextUnit:
    """A stretch of text that is packed as a whole.

    Attributes:
        tokens: tokens of its text with marker and separator, as rendered.
        stretches: its places on the collection's axis; empty if no document contains it.
    """

    unit_id: str
    doc_id: str
    text: str
    tokens: int
    stretches: tuple[AxisSpan, ...]


@dataclass(frozen=True, slots=True)
class EvidencePlaces:
    """A piece of evidence and every place where all or much of it occurs.

    Attributes:
        stretch: the marked place.
        starts, ends: places on the axis that contain some of it, the marked one first.
        shifts: offset of each place's first character within the piece.
    """

    stretch: AxisSpan
    starts: Offsets
    ends: Offsets
    shifts: Offsets

    @property
    def length(self) -> int:
        """Number of characters that are not white space."""
        return self.stretch.end - self.stretch.start

    def covered(self, starts: Offsets, ends: Offsets) -> npt.NDArray[np.bool_]:
        """Which of its characters occur in any of the given stretches, shape (length,)."""
        low = np.maximum(self.starts[:, None], starts[None, :])
        high = np.minimum(self.ends[:, None], ends[None, :])
        mask = np.zeros(self.length, dtype=np.bool_)
        for place, stretch in np.argwhere(low < high):
            first = low[place, stretch] - self.starts[place] + self.shifts[place]
            mask[first : first + high[place, stretch] - low[place, stretch]] = True
        return mask


def squeezed(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())


class TextAxis:
    """The characters of a collection's documents in order, without white space."""

    def __init__(self, texts: Sequence[SetDocument]) -> None:
        parts, self._sums, self._begins, base = [], {}, {}, 0
        for document in texts:
            parts.append(squeezed(document.text))
            # The lengths agree, as str.split() and isspace() define white space alike.
            solid = np.fromiter(
                (not c.isspace() for c in document.text), np.int64, len(document.text)
            )
            self._sums[document.doc_id] = np.concatenate([[0], np.cumsum(solid)])
            self._begins[document.doc_id] = base
            base += len(parts[-1]) + 1
        self.text = _BETWEEN.join(parts)

    def at(self, doc_id: str, start: int, end: int) -> AxisSpan:
        """The stretch on the axis of a document's characters [start, end)."""
        sums, base = self._sums[doc_id], self._begins[doc_id]
        last = len(sums) - 1
        return AxisSpan(
            base + int(sums[min(max(0, start), last)]), base + int(sums[min(max(0, end), last)])
        )

    def of(self, stretch: AxisSpan) -> str:
        """The characters of a stretch."""
        return self.text[stretch.start : stretch.end]

    def place(self, content: str, doc_id: str | None, start: int, end: int) -> AxisSpan | None:
        """Find a text: at its stated place, else in its document, else anywhere."""
        wanted = squeezed(content)
        if not wanted:
            return None
        if doc_id in self._begins:
            stated = self.at(doc_id, start, end)
            whole = self.at(doc_id, 0, len(self._sums[doc_id]) - 1)
            for stretch in (stated, whole):
                position = self.text.find(wanted, stretch.start, stretch.end)
                if position >= 0:
                    return AxisSpan(position, position + len(wanted))
        position = self.text.find(wanted)
        return AxisSpan(position, position + len(wanted)) if position >= 0 else None

    def piece(self, evidence: EvidenceSpan) -> EvidencePlaces | None:
        """A piece of evidence with every place that contains it; None if it is white space."""
        marked = self.at(evidence.doc_id, evidence.start, evidence.end)
        if marked.start == marked.end:
            return None
        places = [(marked.start, marked.end, 0), *self._elsewhere(marked)]
        starts, ends, shifts = np.array(places, dtype=np.int64).T
        return EvidencePlaces(marked, starts, ends, shifts)

    def _elsewhere(self, marked: AxisSpan) -> list[tuple[int, int, int]]:
        """Other places with the piece's text, as start, end and offset within the piece."""
        wanted = self.of(marked)
        if len(wanted) < LEAST_PIECE:
            return []
        least = min(LEAST_RUN, len(wanted))
        seed = min(_SEED, len(wanted))
        # Of seeds laid end to end, a run of `least` characters contains at least one whole seed.
        firsts = range(0, len(wanted) - seed + 1, seed) if least > seed else (0,)
        by_diagonal: dict[int, list[tuple[int, int]]] = {}
        looked = 0
        for first in firsts:
            place = self.text.find(wanted[first : first + seed])
            while place >= 0 and looked < _MOST:
                looked += 1
                diagonal = place - first
                runs_there = by_diagonal.setdefault(diagonal, [])
                known = any(low <= place < high for low, high in runs_there)
                if diagonal != marked.start and not known:
                    runs_there.append(self._run(wanted, place, first, seed))
                place = self.text.find(wanted[first : first + seed], place + 1)
        return [
            (low, high, low - diagonal)
            for diagonal, runs in by_diagonal.items()
            for low, high in runs
            if high - low >= least
        ]

    def _run(self, wanted: str, place: int, first: int, length: int) -> tuple[int, int]:
        """The longest run around a place that equals the wanted text around `first`."""
        before = self.text[max(0, place - first) : place]
        after = self.text[place + length : place + len(wanted) - first]
        left = _alike(wanted[:first][::-1], before[::-1])
        right = _alike(wanted[first + length :], after)
        return place - left, place + length + right


def _alike(text: str, other: str) -> int:
    """The length of two texts' common prefix."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# Minimum share of each piece that must be packed for full recall.
FULL = 0.90
# A unit is a hit if it contains this share of a piece, or if this share of it is evidence.
HIT = 0.50
RANKS = 10
# Number of equal consecutive words at which text counts as repeated.
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
    "tokens",
)
MRR = f"mrr@{RANKS}"


@dataclass(frozen=True, slots=True)
class MeasuredContext:
    """The context that one system packs for one question and budget.

    Attributes:
        units: its units in text order.
        ranked: ids of the units in rank order.
        tokens: tokens of the whole rendered text.
    """

    units: tuple[ContextUnit, ...]
    ranked: tuple[str, ...]
    tokens: int


class WantedEvidence:
    """The evidence of one question, prepared for the search in contexts.

    Attributes:
        length: characters of all pieces; a character marked twice counts once.
    """

    def __init__(self, question: SetQuestion, axis: TextAxis) -> None:
        marked = dict.fromkeys(question.evidence)
        self._pieces = [piece for span in marked if (piece := axis.piece(span)) is not None]
        own = [np.arange(piece.stretch.start, piece.stretch.end) for piece in self._pieces]
        self.length = len(np.unique(np.concatenate(own))) if own else 0

    def found(self, units: Sequence[ContextUnit]) -> tuple[int, bool]:
        """How many characters of the evidence are in the units, and whether nearly all are."""
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
        """Whether much of a unit is evidence, or the unit contains much of a piece."""
        characters, _ = self.found([unit])
        if not characters:
            return False
        starts, ends = _spans([unit])
        return characters >= HIT * int((ends - starts).sum()) or any(
            float(piece.covered(starts, ends).mean()) >= HIT for piece in self._pieces
        )


def reciprocal_rank(wanted: WantedEvidence, ranked: Sequence[ContextUnit]) -> float:
    """One over the rank of the first hit among the best `RANKS` units; 0 without a hit."""
    for rank, unit in enumerate(ranked[:RANKS], 1):
        if wanted.is_hit(unit):
            return 1.0 / rank
    return 0.0


def measure(wanted: WantedEvidence, packed: MeasuredContext, budget: int) -> dict[str, float]:
    """The metrics of one context, by the names in `PER_BUDGET`."""
    characters, full = wanted.found(packed.units)
    packed_characters = sum(len(squeezed(unit.text)) for unit in packed.units)
    twice = repeated([unit.text for unit in packed.units])
    order = [unit.unit_id for unit in packed.units]
    top = packed.ranked[:TOP]
    return {
        "evidence_recall": characters / wanted.length if wanted.length else 0.0,
        "full_recall": float(full),
        "precision": characters / packed_characters if packed_characters else 0.0,
        "duplicates": twice,
        "compliance": float(packed.tokens <= budget),
        "adjacency": adjacency([unit.doc_id for unit in packed.units]),
        "top3_in_first5": (len(set(top) & set(order[:FIRST])) / len(top) if top else float("nan")),
        "coverage": packed.tokens * (1.0 - twice) / budget if budget else 0.0,
        "tokens": float(packed.tokens),
    }


def repeated(texts: Sequence[str]) -> float:
    """Share of the runs of `SHINGLE` words that occurred before in the texts; 0 without texts.

    >>> round(repeated(["One and the same.", "Another.", "One and the same."]), 3)
    0.333
    """
    runs = [run for text in texts for run in _runs(text)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


@lru_cache(maxsize=50_000)
def _runs(text: str) -> tuple[int, ...]:
    words = text.split()
    last = max(1, len(words) - SHINGLE + 1)
    # Hashes are only compared for equality, so the hash seed does not matter.
    return tuple(hash(tuple(words[n : n + SHINGLE])) for n in range(last))


def adjacency(documents: Sequence[str]) -> float:
    """Share of the units that follow a unit of their own document, of those that could.

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
