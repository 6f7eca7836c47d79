"""Where two values or two texts differ first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_LONGEST: Final = 80
_ABSENT: Final = object()
_PLAIN: Final = frozenset({str, int, bool, type(None), list})


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two values differ.

    Attributes:
        place: path of fields, or a byte with its line.
        recorded, replayed: what stands there; empty for a text, which is not told.
    """

    place: str
    recorded: str = ""
    replayed: str = ""


def first(recorded: Any, replayed: Any, path: str = "") -> Difference | None:
    """The first difference of two JSON values, fields in the recorded order.

    >>> first({"a": [1, 2]}, {"a": [1, 3]})
    Difference(place='a[1]', recorded='2', replayed='3')
    """
    if recorded is _ABSENT or replayed is _ABSENT:
        return Difference(path, _shown(recorded), _shown(replayed))
    if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
        for name in (*recorded, *(name for name in replayed if name not in recorded)):
            left, right = recorded.get(name, _ABSENT), replayed.get(name, _ABSENT)
            # Nearly all are equal, and the path of such is never read.
            if type(left) is type(right) and type(left) in _PLAIN and left == right:
                continue
            found = first(left, right, f"{path}.{name}" if path else str(name))
            if found:
                return found
        return None
    if isinstance(recorded, (list, tuple)) and isinstance(replayed, (list, tuple)):
        if recorded == replayed:
            return None
        for at in range(max(len(recorded), len(replayed))):
            left_value = recorded[at] if at < len(recorded) else _ABSENT
            right_value = replayed[at] if at < len(replayed) else _ABSENT
            found = first(left_value, right_value, f"{path}[{at}]")
            if found:
                return found
        return None
    if recorded == replayed and isinstance(recorded, bool) == isinstance(replayed, bool):
        return None
    return Difference(path, _shown(recorded), _shown(replayed))


def in_text(recorded: str, replayed: str, name: str) -> Difference | None:
    r"""The first byte at which two texts differ, with its line; their words are not told.

    >>> in_text("a\nbc", "a\nbd", "context")
    Difference(place='context, byte 3 (line 2)', recorded='', replayed='')
    """
    if recorded == replayed:
        return None
    at = next(
        (
            n
            for n, (left, right) in enumerate(zip(recorded, replayed, strict=False))
            if left != right
        ),
        min(len(recorded), len(replayed)),
    )
    byte = len(recorded[:at].encode("utf-8", "surrogatepass"))
    line = recorded.count("\n", 0, at) + 1
    return Difference(f"{name}, byte {byte} (line {line})")


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"
