"""Records the engines' results during an examination, so that it can be replayed without them.

All results of embedders, models and policy engines pass through a `Signals` object. It rounds
numbers to integers of a millionth, in the live run as well, so that a replay from the recorded
entries computes with exactly the same numbers and gives the same report, byte for byte.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from crp_integrations.errors import CRPError
from crp_integrations.scores import SCALE

# Numbers, and the position or offset that belongs to each.
Near: TypeAlias = tuple[list[float], list[int]]
# Maximum difference of a fixed-point number when an engine runs on another machine: .005.
TOLERANCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class SignalEntry:
    """One recorded result of an engine.

    Attributes:
        at: stage and kind of the request, such as `entailment.judgement`.
        value: integers (numbers in fixed point), strings of closed lists, and lists and maps of
            them; never text of a fact, a question or an answer.
    """

    at: str
    value: Any


class SignalsMissing(CRPError):
    """The recorded entries do not match the requests."""

    status_hint = 409

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


class Signals(Protocol):
    """Access to engines during one examination."""

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """An engine's result, in the form of `SignalEntry.value`."""
        ...


@dataclass(slots=True)
class Live:
    """Asks the engines and records their results."""

    entries: list[SignalEntry] = field(default_factory=list)

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """Call `ask` and record its result."""
        value = ask()
        self.entries.append(SignalEntry(at, value))
        return value


class RecordedSignals:
    """Returns recorded results in order, without asking an engine."""

    def __init__(self, entries: Sequence[SignalEntry]) -> None:
        self._entries = tuple(entries)
        self._next = 0

    @property
    def left(self) -> int:
        """The number of recorded entries that were not requested yet."""
        return len(self._entries) - self._next

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """The value of the next entry."""
        number = self._next
        if number >= len(self._entries):
            raise SignalsMissing(f"{at} is asked for, but no entry is left", number)
        entry = self._entries[number]
        if entry.at != at:
            raise SignalsMissing(f"{at} is asked for, but the next entry is {entry.at}", number)
        self._next = number + 1
        return entry.value


@dataclass(frozen=True, slots=True)
class Deviation:
    """An engine's result that differs from the recorded one."""

    entry: int
    at: str
    most: int | None


class Compared(RecordedSignals):
    """Returns recorded results, and asks the engines again to compare."""

    def __init__(self, entries: Sequence[SignalEntry], *rooms: str) -> None:
        """Compare only the requests whose `at` begins with one of `rooms`."""
        super().__init__(entries)
        self._rooms = rooms
        self.deviations: list[Deviation] = []
        self.asked = 0

    def said(self, at: str, ask: Callable[[], Any]) -> Any:
        """The value of the next entry; a different result today becomes a deviation."""
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
    """The largest difference of numbers at the same position, and whether all else is equal."""
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
    """An engine's numbers, rounded to a millionth."""
    scaled = signals.said(at, lambda: [fixed(float(value)) for value in ask()])
    return [value / SCALE for value in scaled]


def near(signals: Signals, at: str, ask: Callable[[], Near]) -> Near:
    """An engine's numbers, rounded to a millionth, and their positions."""

    def asked() -> list[list[int]]:
        values, places = ask()
        return [[fixed(float(value)) for value in values], [int(place) for place in places]]

    values, places = signals.said(at, asked)
    return [value / SCALE for value in values], list(places)
