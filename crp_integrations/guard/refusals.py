"""What is said of a field of a governed exception that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# In the place of the checker's own words, by the kind of problem.
_WANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "is missing",
        "extra_forbidden": "is no field of an exception",
        "model_type": "wanted an object",
        "tuple_type": "wanted a list",
        "too_short": "wanted at least one",
        "string_type": "wanted a text",
        "datetime_type": "wanted a time such as 2026-05-25T10:00:00Z",
        "datetime_parsing": "wanted a time such as 2026-05-25T10:00:00Z",
        "datetime_from_date_parsing": "wanted a time such as 2026-05-25T10:00:00Z",
        "timezone_aware": "wanted a time with its zone, such as 2026-05-25T10:00:00Z",
    }
)


def said(kind: str, problem: str) -> str:
    """What is wrong with a field, in words of this package."""
    found = _WANTED.get(kind) or problem.removeprefix("Value error, ")
    return found.replace("Input should be", "wanted")
