"""What engines say while an answer is examined, in fixed point, so that it can be done again.

Vectors, models and policy engines are asked through one door. It hands their numbers on as
integers of a millionth, in the live run as well, so that an examination from what was remembered
computes with exactly the same numbers and comes to the same report, byte for byte, without them.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from crp_integrations.errors import CRPError
from crp_integrations.scores import SCALE

# Numbers and, beside them, positions or offsets.
Near: TypeAlias = tuple[list[float], list[int]]
# What a fixed-point number may differ when an engine is asked again on another machine: .005.
TOLERANCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class SignalEntry:
    """What was said to one question.

    Attributes:
        at: stage and what was asked, such as `entailment.judgement`.
        value: integers, texts of closed lists, and lists and maps of them; numbers are in fixed
            point. No text of a fact, a question or an answer is among them.
    """

    at: str
    value: Any


class SignalsMissing(CRPError):
    """What was remembered does not fit what is asked."""

    status_hint = 409

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


class Signals(Protocol):
    """The door to engines during one examination."""

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """What an engine says, as `SignalEntry.value` has it."""
        ...


@dataclass(slots=True)
class Live:
    """Asks, and remembers what was said."""

    entries: list[SignalEntry] = field(default_factory=list)

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """Ask and remember."""
        value = ask()
        self.entries.append(SignalEntry(at, value))
        return value


class Remembered:
    """Answers from what was remembered, in its order; nothing is asked."""

    def __init__(self, entries: Sequence[SignalEntry]) -> None:
        self._entries = tuple(entries)
        self._next = 0

    @property
    def left(self) -> int:
        """How much was not asked for."""
        return len(self._entries) - self._next

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """The next entry."""
        number = self._next
        if number >= len(self._entries):
            raise SignalsMissing(f"{at} is asked for and nothing more was remembered", number)
        entry = self._entries[number]
        if entry.at != at:
            raise SignalsMissing(f"{at} is asked for where {entry.at} was remembered", number)
        self._next = number + 1
        return entry.value


@dataclass(frozen=True, slots=True)
class Deviation:
    """An engine that says something else than what was remembered."""

    entry: int
    at: str
    most: int | None


class Compared(Remembered):
    """Answers from what was remembered, and asks the engines as well to compare."""

    def __init__(self, entries: Sequence[SignalEntry], *rooms: str) -> None:
        """Take what was remembered."""
        super().__init__(entries)
        self._rooms = rooms
        self.deviations: list[Deviation] = []
        self.asked = 0

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """The next entry, with what is said today laid beside it."""
        number = self._next
        value = super().said(at, ask)
        if not at.startswith(self._rooms):
            return value
        self.asked += 1
        most, same = _difference(value, ask())
        if not same or most:
            self.deviations.append(Deviation(number, at, most if same else None))
        return value


def _difference(left: Any, right: Any) -> tuple[int, bool]:
    """The largest difference of two numbers in the same place, and whether all else is equal."""
    if isinstance(left, int) and isinstance(right, int):
        return abs(left - right), True
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() != right.keys():
            return 0, False
        pairs = [(left[name], right[name]) for name in left]
    elif _listed(left) and _listed(right):
        if len(left) != len(right):
            return 0, False
        pairs = list(zip(left, right, strict=True))
    else:
        return 0, left == right
    differences = [_difference(value, other) for value, other in pairs]
    return max((most for most, _ in differences), default=0), all(same for _, same in differences)


def _listed(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def fixed(value: float) -> int:
    """A number in fixed point, whatever its range; NaN counts as 0."""
    return 0 if math.isnan(value) else round(value * SCALE)


def numbers(signals: Signals, at: str, ask: Callable[[], Sequence[float]]) -> list[float]:
    """Numbers that an engine gives, to a millionth."""
    scaled = signals.said(at, lambda: [fixed(float(value)) for value in ask()])
    return [value / SCALE for value in scaled]


def near(signals: Signals, at: str, ask: Callable[[], Near]) -> Near:
    """Numbers that an engine gives, to a millionth, and positions beside them."""

    def asked() -> list[list[int]]:
        values, places = ask()
        return [[fixed(float(value)) for value in values], [int(place) for place in places]]

    values, places = signals.said(at, asked)
    return [value / SCALE for value in values], list(places)
