"""Remembering of results for short texts; long ones are read anew and not kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

Result = TypeVar("Result")

LONGEST = 4_000  # characters


def remembered(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """The function of a text with its last results for texts of up to `LONGEST` characters."""
    kept = lru_cache(maxsize=2048)(function)

    @wraps(function)
    def read(text: str) -> Result:
        return kept(text) if len(text) <= LONGEST else function(text)

    return read
