"""Stretches of candidates: a question has a thousand of them and looks at few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

Scores = Sequence[int] | npt.NDArray[np.int64]


class Stretch(NamedTuple):
    """A part of a candidate, about a sentence, that can be shown without the rest.

    Attributes:
        start, end: character offsets in the candidate's content.
        score: fixed point in [0, SCALE].
    """

    start: int
    end: int
    score: int


class Stretches(Sequence[Stretch]):
    """Stretches as columns, each made when it is asked for; equal to a tuple of the same ones.

    Attributes:
        starts, ends: character offsets.
        column: the scores as they were given.
    """

    __slots__ = ("column", "ends", "starts")

    def __init__(self, starts: Sequence[int], ends: Sequence[int], scores: Scores) -> None:
        """Take columns of one length, the scores in fixed point in [0, SCALE]."""
        self.starts = starts
        self.ends = ends
        self.column = scores

    @property
    def scores(self) -> Sequence[int]:
        """Fixed point in [0, SCALE]."""
        column = self.column
        if isinstance(column, np.ndarray):
            numbers: list[int] = column.tolist()
            return numbers
        return column

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Stretch]:
        return map(Stretch, self.starts, self.ends, self.scores)

    @overload
    def __getitem__(self, index: int) -> Stretch: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Stretch, ...]: ...

    def __getitem__(self, index: int | slice) -> Stretch | tuple[Stretch, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return Stretch(self.starts[index], self.ends[index], int(self.column[index]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | Stretches):
            return NotImplemented
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def scores_of(stretches: Sequence[Stretch]) -> Scores:
    """The scores of stretches, in their order."""
    if isinstance(stretches, Stretches):
        return stretches.column
    return [stretch.score for stretch in stretches]


def bounds(stretches: Sequence[Stretch], number: int) -> tuple[int, int]:
    """Where one of the stretches begins and ends."""
    if isinstance(stretches, Stretches):
        return stretches.starts[number], stretches.ends[number]
    return stretches[number][:2]


def flat(stretches: Sequence[Stretch]) -> list[int]:
    """Start, end and score of each stretch, one after the other."""
    if isinstance(stretches, Stretches):
        columns = zip(stretches.starts, stretches.ends, stretches.scores, strict=False)
        return [number for stretch in columns for number in stretch]
    return [number for stretch in stretches for number in stretch]
