"""Remembering of results for short texts; long ones are read anew and not kept in memory.

What is remembered holds texts, so `forget` lets go of all of it when something was erased.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

Result = TypeVar("Result")

LONGEST = 4_000  # characters

_FORGETTING: list[Callable[[], None]] = []


def remembered(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """The function of a text with its last results for texts of up to `LONGEST` characters."""
    kept = lru_cache(maxsize=2048)(function)
    forgotten_with(kept.cache_clear)

    @wraps(function)
    def read(text: str) -> Result:
        return kept(text) if len(text) <= LONGEST else function(text)

    return read


def remembered_within(
    characters: int, *, longest: int
) -> Callable[[Callable[[str], Result]], Callable[[str], Result]]:
    """The function of a text with its last results; safe between threads.

    Args:
        characters: most that the remembered texts have together; the one used longest ago goes.
        longest: characters above which a text is not remembered.
    """

    def remembering(function: Callable[[str], Result]) -> Callable[[str], Result]:
        kept: OrderedDict[str, Result] = OrderedDict()
        lock = threading.Lock()
        used = 0

        def clear() -> None:
            nonlocal used
            with lock:
                kept.clear()
                used = 0

        @wraps(function)
        def read(text: str) -> Result:
            nonlocal used
            if len(text) > longest:
                return function(text)
            with lock:
                if text in kept:
                    kept.move_to_end(text)
                    return kept[text]
            # Read outside the lock: another thread that does the same gets an equal result.
            found = function(text)
            with lock:
                if text not in kept:
                    kept[text] = found
                    used += len(text)
                while used > characters:
                    gone, _ = kept.popitem(last=False)
                    used -= len(gone)
            return found

        forgotten_with(clear)
        return read

    return remembering


def forgotten_with(clear: Callable[[], None]) -> None:
    """Have `forget` clear another memory of texts as well."""
    _FORGETTING.append(clear)


def forget() -> None:
    """Let go of every text that is remembered in this process."""
    for clear in _FORGETTING:
        clear()
