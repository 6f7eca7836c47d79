"""Near-identical candidates, found in blocks when they are asked for, decided in fixed point.

Comparing every pair costs more than everything else in an envelope together, and most pairs
never matter: a fact that does not fit is left out whatever it resembles. So a row of the
comparison is computed when a fact is about to be shown, many rows in one product.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from crp_integrations.envelope.pairs import NONE, Pairs, Places
from crp_integrations.language.differences import Statement, statement
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vectors import FloatRows

_BLOCK = 512
_ROWS = 128
# Products of so many rows at once are done in half of the time.
_LANES = 16
# A product of whole blocks may round differently from a product of two rows.
_SLACK = 1e-4
_SLACK_A_DIMENSION = 1.2e-7
_NEITHER = (NONE, NONE)


def near_pairs(vectors: FloatRows, threshold: float) -> tuple[tuple[int, int], ...]:
    """Pairs of rows whose cosine is above a threshold: the plain definition, over all pairs.

    Spec: CRP-SPEC-003 §6.6

    Args:
        vectors: unit rows, shape (n, d).
        threshold: cosine in [0, 1]; a cosine equal to it in fixed point is not above it.

    Returns:
        Positions (i < j), sorted.
    """
    left, right = _all_pairs(vectors, threshold)
    return tuple(zip(left.tolist(), right.tolist(), strict=True))


def duplicates_and_conflicts(
    contents: Sequence[str], vectors: FloatRows, threshold: float
) -> tuple[Pairs, Pairs]:
    """Near-identical pairs, split into those that say the same and those that do not.

    Spec: CRP-SPEC-003 §6.6 (decision E11)

    Args:
        contents: n texts.
        vectors: their unit rows, shape (n, d).
        threshold: cosine above which two facts are near-identical.

    Returns:
        Two relations between positions that are worked out when asked: duplicates, and
        conflicts whose numbers, dates, names or negation differ.
    """
    found = Similar(contents, vectors, threshold)
    return _Half(found, 0), _Half(found, 1)


class Similar:
    """What is near-identical to a candidate, remembered once it was asked for."""

    def __init__(self, contents: Sequence[str], vectors: FloatRows, threshold: float) -> None:
        self._contents = contents
        self._vectors = vectors
        self._threshold = threshold
        self._near: dict[int, Places] = {}
        # A copy has its original's row; the original is whichever was met first.
        self._original: dict[int, int] = {}
        self._split: dict[int, tuple[Places, Places]] = {}
        self._statements: dict[str, Statement] = {}
        self._whole = False
        # Candidates that are known are handed to several turns at once.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._contents)

    def fetch(self, positions: Sequence[int]) -> None:
        """Compare the candidates at these positions with all, in blocks."""
        with self._lock:
            self._fetch(positions)

    def fetch_all(self) -> None:
        """Compare every candidate with every other, each pair once and copies not at all."""
        with self._lock:
            self._fetch_all()

    def compared(self) -> list[int]:
        """Positions that were compared with all so far and resemble any."""
        with self._lock:
            near = [at for at, partners in self._near.items() if partners is not NONE]
            return sorted({*near, *self._original})

    def split(self, position: int) -> tuple[Places, Places]:
        """Near-identical positions that say the same, and those that do not; both ascending."""
        known = self._split.get(position)
        if known is not None:
            return known
        # Most have been compared with all and resemble none: said without waiting for anybody.
        if self._near.get(position) is NONE:
            return _NEITHER
        with self._lock:
            return self._told(position)

    def _fetch(self, positions: Sequence[int]) -> None:
        if self._whole:
            return
        todo = [at for at in positions if at not in self._near and at not in self._original]
        if 2 * len(todo) > len(self._contents) > _ROWS:
            self._fetch_all()
            return
        for start in range(0, len(todo), _ROWS):
            block = [at for at in todo[start : start + _ROWS] if at not in self._original]
            if not block:
                continue
            rows, columns = self._above(np.array(block, dtype=np.intp))
            self._near.update(dict.fromkeys(block, NONE))
            # Rows ascend, so that the partners of each stand together.
            starts = np.flatnonzero(np.diff(rows, prepend=-1)).tolist()
            for start, end in pairwise([*starts, len(rows)]):
                number = block[rows[start]]
                self._near[number] = columns[start:end]
                self._share(number)

    def _fetch_all(self) -> None:
        if len(self._near) + len(self._original) >= len(self._contents):
            # Each is one or the other, so that all were compared by and by.
            self._whole = True
        if self._whole:
            return
        groups = self._copies()
        first = np.array([group[0] for group in groups], dtype=np.intp)
        left, right = _all_pairs(self._vectors[first], self._threshold)
        at = np.concatenate([left, right])
        partner = np.concatenate([right, left])
        order = np.lexsort((partner, at))
        at, partner = at[order], partner[order]
        # Rows ascend, so that the partners of each stand together; most have none.
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        partners = dict(zip(at[starts].tolist(), np.split(partner, starts[1:]), strict=False))
        for number, group in enumerate(groups):
            # One of its copies may have been met first.
            self._original.pop(group[0], None)
            near = partners.get(number)
            if near is None and len(group) == 1:
                self._near[group[0]] = NONE
                continue
            self._original.update(dict.fromkeys(group[1:], group[0]))
            alike = group[1:]
            for other in () if near is None else near.tolist():
                alike += groups[other]
            self._near[group[0]] = np.array(sorted(alike), dtype=np.intp)
        self._whole = True

    def alone(self, positions: Sequence[int]) -> list[int]:
        """Those that were compared with all and have nothing near them."""
        with self._lock:
            return [at for at in positions if self._near.get(at) is NONE]

    def within(self, positions: Sequence[int]) -> list[tuple[int, int, bool]]:
        """Near-identical pairs among a few candidates alone, and whether the two differ."""
        kept = sorted(set(positions))
        left, right = _all_pairs(self._vectors[kept], self._threshold)
        pairs = [(kept[i], kept[j]) for i, j in zip(left.tolist(), right.tolist(), strict=True)]
        texts = self._contents
        return [(i, j, texts[i] != texts[j] and self._differ(texts[i], texts[j])) for i, j in pairs]

    def _told(self, position: int) -> tuple[Places, Places]:
        known = self._split.get(position)
        if known is None:
            if self._near.get(position) is NONE:
                return _NEITHER
            self._fetch((position,))
            original = self._original.get(position)
            if original is None:
                known = self._sorted_out(position)
            else:
                same, other = self._told(original)
                exchanged = np.where(same == position, original, same)
                known = np.sort(exchanged), other
            self._split[position] = known
        return known

    def _sorted_out(self, position: int) -> tuple[Places, Places]:
        near = self._near[position]
        if near is NONE:
            return _NEITHER
        own, contents = self._contents[position], self._contents
        same: list[int] = []
        other: list[int] = []
        for at in near.tolist():
            text = contents[at]
            (same if own == text or not self._differ(own, text) else other).append(at)
        return (
            np.array(same, dtype=np.intp) if same else NONE,
            np.array(other, dtype=np.intp) if other else NONE,
        )

    def _differ(self, left: str, right: str) -> bool:
        return self._statement(left).differs(self._statement(right))

    def _statement(self, text: str) -> Statement:
        # Here as well as there: thousands of texts would push one another out.
        found = self._statements.get(text)
        if found is None:
            found = self._statements[text] = statement(text)
        return found

    def _above(self, block: Places) -> tuple[Places, Places]:
        """Rows of the block and positions that are above the threshold, without each itself."""
        vectors = self._vectors
        # Many rows times few columns is the quicker way round.
        count = len(block)
        if count % _LANES > _LANES // 2:
            # A row or two too many cost less than a product of an odd shape.
            block = np.resize(block, count + _LANES - count % _LANES)
        product = vectors @ vectors[block].T
        flat = np.flatnonzero(product > self._threshold - _slack(vectors))
        columns, rows = np.divmod(flat, len(block))
        other = np.flatnonzero((block[rows] != columns) & (rows < count))
        other = other[np.argsort(rows[other], kind="stable")]
        rows, columns, flat = rows[other], columns[other], flat[other]
        sure = _sure(vectors, self._threshold, product.ravel()[flat], block[rows], columns)
        return rows[sure], columns[sure]

    def _share(self, original: int) -> None:
        """Give the original's row to its copies, so that a thousand copies cost one row."""
        for at in self._near[original].tolist():
            if at not in self._near and at not in self._original and self._copy(original, at):
                self._original[at] = original

    def _copy(self, one: int, other: int) -> bool:
        vectors = self._vectors
        return self._contents[one] == self._contents[other] and bool(
            (vectors[one] == vectors[other]).all()
        )

    def _copies(self) -> list[list[int]]:
        """All positions in groups of the same text and vector, by their first."""
        threshold = to_fixed(self._threshold)
        groups: dict[tuple[str, bytes], list[int]] = {}
        texts: dict[str, int] = {}
        for text in self._contents:
            texts[text] = texts.get(text, 0) + 1
        for at, text in enumerate(self._contents):
            key = (text, b"")
            if texts[text] > 1:
                row = self._vectors[at]
                own = np.einsum("i,i->", row, row, dtype=np.float64)
                # A row that is not near to itself, as a row of zeros, makes no group.
                near = np.rint(own * SCALE) > threshold
                key = (text, row.tobytes() if near else at.to_bytes(8))
            groups.setdefault(key, []).append(at)
        return list(groups.values())


class _Half(Pairs):
    """One of the two halves of what is near-identical."""

    __slots__ = ("_found", "_which")

    def __init__(self, found: Similar, which: int) -> None:
        self._found = found
        self._which = which

    def of(self, position: int) -> Places:
        """Positions paired with this one, ascending."""
        return self._found.split(position)[self._which]

    def fetch(self, positions: Sequence[int]) -> None:
        """Compare many candidates in one product."""
        self._found.fetch(positions)

    def alone(self, positions: Sequence[int]) -> list[int]:
        """Those that are known to have nothing near them."""
        return self._found.alone(positions)

    def within(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """The pairs of which both are among these positions, sorted; nothing else is compared."""
        found = self._found.within(positions)
        return [(left, right) for left, right, differs in found if differs == bool(self._which)]

    def asked(self) -> list[tuple[int, int]]:
        """The pairs of which one was compared with all so far, sorted."""
        pairs = (
            (min(one, other), max(one, other))
            for one in self._found.compared()
            for other in self.of(one).tolist()
        )
        return sorted(set(pairs))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self._found.fetch_all()
        for left in self._found.compared():
            for right in self.of(left).tolist():
                if right > left:
                    yield left, right


def _all_pairs(vectors: FloatRows, threshold: float) -> tuple[Places, Places]:
    """Left and right positions of all pairs above the threshold, sorted."""
    lefts, rights = [NONE], [NONE]
    for start in range(0, len(vectors), _BLOCK):
        block, after = vectors[start : start + _BLOCK], vectors[start:]
        product = block @ after.T
        flat = np.flatnonzero(product > threshold - _slack(vectors))
        rows, columns = np.divmod(flat, len(after))
        upper = columns > rows
        if not upper.any():
            # Mostly none resembles any but itself.
            continue
        rows, columns, flat = rows[upper] + start, columns[upper] + start, flat[upper]
        sure = _sure(vectors, threshold, product.ravel()[flat], rows, columns)
        lefts.append(rows[sure])
        rights.append(columns[sure])
    return np.concatenate(lefts), np.concatenate(rights)


def _sure(
    vectors: FloatRows, threshold: float, cosines: FloatRows, left: Places, right: Places
) -> Places:
    """Places of the pairs that are above the threshold, exact where rounding could decide."""
    least = to_fixed(threshold)
    above = np.ones(len(cosines), dtype=bool)
    close = np.flatnonzero(cosines < threshold + _slack(vectors))
    for at in range(0, len(close), 65_536):
        some = close[at : at + 65_536]
        exact = np.einsum("ij,ij->i", vectors[left[some]], vectors[right[some]], dtype=np.float64)
        above[some] = np.rint(exact * SCALE) > least
    return np.flatnonzero(above)


def _slack(vectors: FloatRows) -> float:
    return float(_SLACK + _SLACK_A_DIMENSION * vectors.shape[1])
