"""Where text stands in a collection, with all white space left out.

White space is where packed text and documents differ although they say the same: a cutter strips
it, a loader joins blocks by empty lines. So everything is placed on an axis of the characters
that are no white space, one document behind another, with a character between them that no
text holds. Evidence that stands a second time elsewhere is known there as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.evaluation.selection_data import EvidenceSpan, SetDocument

# Equal content elsewhere counts as a run of at least so many characters that are no white space
# (about 100 with it), or as a whole piece of evidence that is shorter but not a mere word or two.
# Below it, phrases that many texts share would count as evidence.
LEAST_RUN = 80
LEAST_PIECE = 16
_SEED = LEAST_RUN // 2
# Occurrences of a piece that are looked at, so that rows of dashes stay cheap.
_MOST = 2_000
_BETWEEN = "\x00"

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AxisSpan:
    """A half-open stretch of the axis."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ContextUnit:
    """A stretch of text that is packed as a whole.

    Attributes:
        tokens: of its text with marker and separator, as rendered.
        stretches: where it stands on the collection's axis; empty when no document holds it.
    """

    unit_id: str
    doc_id: str
    text: str
    tokens: int
    stretches: tuple[AxisSpan, ...]


@dataclass(frozen=True, slots=True)
class EvidencePlaces:
    """A piece of evidence and every place where all or much of it stands.

    Attributes:
        stretch: where it is marked.
        starts, ends: places on the axis that hold some of it, the marked one first.
        shifts: offset of each place's first character within the piece.
    """

    stretch: AxisSpan
    starts: Offsets
    ends: Offsets
    shifts: Offsets

    @property
    def length(self) -> int:
        """Characters that are no white space."""
        return self.stretch.end - self.stretch.start

    def covered(self, starts: Offsets, ends: Offsets) -> npt.NDArray[np.bool_]:
        """Which of its characters stand in any of the stretches given, shape (length,)."""
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
    """The characters of a collection that are no white space, in order of its documents."""

    def __init__(self, texts: Sequence[SetDocument]) -> None:
        parts, self._sums, self._begins, base = [], {}, {}, 0
        for one in texts:
            parts.append(squeezed(one.text))
            # str.split() and isspace() agree on what white space is.
            solid = np.fromiter((not c.isspace() for c in one.text), np.int64, len(one.text))
            self._sums[one.doc_id] = np.concatenate([[0], np.cumsum(solid)])
            self._begins[one.doc_id] = base
            base += len(parts[-1]) + 1
        self.text = _BETWEEN.join(parts)

    def at(self, doc_id: str, start: int, end: int) -> AxisSpan:
        """The stretch of a document's characters [start, end)."""
        sums, base = self._sums[doc_id], self._begins[doc_id]
        last = len(sums) - 1
        return AxisSpan(
            base + int(sums[min(max(0, start), last)]), base + int(sums[min(max(0, end), last)])
        )

    def of(self, stretch: AxisSpan) -> str:
        """The characters of a stretch."""
        return self.text[stretch.start : stretch.end]

    def place(self, content: str, doc_id: str | None, start: int, end: int) -> AxisSpan | None:
        """Where a text stands: where it is said to, else in its document, else anywhere."""
        wanted = squeezed(content)
        if not wanted:
            return None
        if doc_id in self._begins:
            said = self.at(doc_id, start, end)
            whole = self.at(doc_id, 0, len(self._sums[doc_id]) - 1)
            for room in (said, whole):
                found = self.text.find(wanted, room.start, room.end)
                if found >= 0:
                    return AxisSpan(found, found + len(wanted))
        found = self.text.find(wanted)
        return AxisSpan(found, found + len(wanted)) if found >= 0 else None

    def piece(self, evidence: EvidenceSpan) -> EvidencePlaces | None:
        """A piece of evidence with every place that holds it; None when it is white space."""
        marked = self.at(evidence.doc_id, evidence.start, evidence.end)
        if marked.start == marked.end:
            return None
        places = [(marked.start, marked.end, 0), *self._elsewhere(marked)]
        starts, ends, shifts = np.array(places, dtype=np.int64).T
        return EvidencePlaces(marked, starts, ends, shifts)

    def _elsewhere(self, marked: AxisSpan) -> list[tuple[int, int, int]]:
        """Other places as start, end and offset within the piece."""
        wanted = self.of(marked)
        if len(wanted) < LEAST_PIECE:
            return []
        least = min(LEAST_RUN, len(wanted))
        seed = min(_SEED, len(wanted))
        # A run of `least` characters holds one of the seeds that lie end to end, whole.
        firsts = range(0, len(wanted) - seed + 1, seed) if least > seed else (0,)
        found: dict[int, list[tuple[int, int]]] = {}
        looked = 0
        for first in firsts:
            place = self.text.find(wanted[first : first + seed])
            while place >= 0 and looked < _MOST:
                looked += 1
                diagonal = place - first
                held = found.setdefault(diagonal, [])
                known = any(low <= place < high for low, high in held)
                if diagonal != marked.start and not known:
                    held.append(self._run(wanted, place, first, seed))
                place = self.text.find(wanted[first : first + seed], place + 1)
        return [
            (low, high, low - diagonal)
            for diagonal, runs in found.items()
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


def _alike(one: str, other: str) -> int:
    """How many characters two texts share at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
