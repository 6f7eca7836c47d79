"""Decay functions: how much a memory's age takes from it, in integers alone.

A function is written as `name@n:ISO duration`, such as `half-life@1:P30D`. A fact carries it in its
metadata under `decay_fn`; where it does, it stands in the place of freshness in the ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from crp_integrations.fabric.records import duration
from crp_integrations.scores import SCALE

DECAY_KEY = "decay_fn"

_MICROSECOND = timedelta(microseconds=1)
# 2^(-k/32) times 10^9, k from 0 to 32; between two of them it is a straight line.
_HALVES = (
    1000000000, 978572062, 957603281, 937083817, 917004043, 897354538, 878126080, 859309649,
    840896415, 822877739, 805245166, 787990423, 771105413, 754582214, 738413073, 722590403,
    707106781, 691954941, 677127773, 662618322, 648419777, 634525479, 620928906, 607623680,
    594603558, 581862429, 569394317, 557193371, 545253866, 533570200, 522136891, 510948574,
    500000000,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decay:
    """A decay function with its length.

    Attributes:
        written: as it stands in records.
        length: in microseconds, above zero.
    """

    written: str
    curve: Callable[[int, int], int]
    length: int

    def at(self, age: int) -> int:
        """What is left at an age."""
        return self.curve(max(0, age), self.length)


def decay(written: str) -> Decay:
    """The function that a text names.

    Spec: Summit §Unified MemoryItem Schema

    Raises:
        ValueError: names the functions there are.

    >>> decay("half-life@1:P30D").at(30 * 86_400 * 1_000_000)
    500000
    """
    found = known(written)
    if found is None:
        raise ValueError(
            f"decay function {written!r:.60} is none; wanted one of {', '.join(sorted(CURVES))} "
            "with an ISO 8601 duration behind a colon, such as half-life@1:P30D"
        )
    return found


@lru_cache(maxsize=1024)
def known(written: str) -> Decay | None:
    """The function that a text names, None when it names none."""
    name, _, length = written.partition(":")
    curve = CURVES.get(name)
    if curve is None:
        return None
    try:
        return Decay(written, curve, duration(length) // _MICROSECOND)
    except (ValueError, OverflowError):
        return None


def carried(metadata: Mapping[str, Any]) -> str | None:
    """The decay function that a fact's metadata name, None when they name none that is known."""
    written = metadata.get(DECAY_KEY)
    return written if isinstance(written, str) and known(written) else None


def _half_life(age: int, length: int) -> int:
    whole, rest = divmod(age, length)
    if whole > 60:
        return 0
    place, between = divmod(rest * 32, length)
    high = _HALVES[place]
    low = _HALVES[min(place + 1, 32)]
    value = high * length - (high - low) * between
    # Halves up, of 10^9 and the length down to SCALE.
    below = length * (10**9 // SCALE) << whole
    return (2 * value + below) // (2 * below)


def _linear(age: int, length: int) -> int:
    return max(0, SCALE - (2 * age * SCALE + length) // (2 * length))


def _step(age: int, length: int) -> int:
    return SCALE if age < length else 0


def _plateau(age: int, length: int) -> int:
    """Whole for its length, then falling to nothing within the same length again."""
    return SCALE if age <= length else _linear(age - length, length)


CURVES: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "half-life@1": _half_life,
        "linear@1": _linear,
        "step@1": _step,
        "plateau@1": _plateau,
    }
)
