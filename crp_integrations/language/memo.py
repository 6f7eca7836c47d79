"""Caches of results for short texts; results for long texts are not cached.

The caches contain texts, so `forget` must clear them when something was erased.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache, wraps
from typing import Generic, TypeVar

Result = TypeVar("Result")

LONGEST = 4_000  # characters
# Limit for results with a record per word: sentences are read often, passages rarely.
SENTENCE = 600

# For each cache: what clears it, and what clears only its part in memory.
_FORGETTING: list[tuple[Callable[[], None], Callable[[], None]]] = []


def remembered(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """Cache the last results of a function for texts of up to `LONGEST` characters."""
    return _kept(function, LONGEST)


def remembered_of_sentences(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """Cache results only up to `SENTENCE` characters; for results larger than their text."""
    return _kept(function, SENTENCE)


def _kept(function: Callable[[str], Result], longest: int) -> Callable[[str], Result]:
    cached = lru_cache(maxsize=2048)(function)
    forgotten_with(cached.cache_clear)

    @wraps(function)
    def read(text: str) -> Result:
        return cached(text) if len(text) <= longest else function(text)

    return read


class Memory(Generic[Result]):
    """A thread-safe cache of a function's last results, limited by total characters of text."""

    def __init__(self, function: Callable[[str], Result], characters: int, *, longest: int) -> None:
        """Start with an empty cache."""
        self._function = function
        self._characters = characters
        self._longest = longest
        self._kept: OrderedDict[str, Result] = OrderedDict()
        self._lock = threading.Lock()
        self._used = 0
        self._forgotten = 0
        forgotten_with(self.clear)

    def of(self, texts: Sequence[str]) -> list[Result]:
        """The results for texts, in their order."""
        stored = self._kept
        with self._lock:
            begun = self._forgotten
            results = [stored.get(text) for text in texts]
            for text, result in zip(texts, results, strict=True):
                if result is not None:
                    stored.move_to_end(text)
        # Computed outside the lock: a thread that does the same work gets an equal result.
        return [
            self._read(text, begun) if result is None else result
            for text, result in zip(texts, results, strict=True)
        ]

    def clear(self) -> None:
        """Drop all results, including those that are being computed now."""
        with self._lock:
            self._kept.clear()
            self._used = 0
            self._forgotten += 1

    def _read(self, text: str, begun: int) -> Result:
        made = self._function(text)
        if len(text) > self._longest:
            return made
        with self._lock:
            if text not in self._kept and begun == self._forgotten:
                self._kept[text] = made
                self._used += len(text)
            while self._used > self._characters:
                gone, _ = self._kept.popitem(last=False)
                self._used -= len(gone)
        return made


def remembered_within(
    characters: int, *, longest: int
) -> Callable[[Callable[[str], Result]], Callable[[str], Result]]:
    """Cache a function's last results in a `Memory` of that many characters."""

    def remembering(function: Callable[[str], Result]) -> Callable[[str], Result]:
        memory = Memory(function, characters, longest=longest)

        @wraps(function)
        def read(text: str) -> Result:
            return memory.of((text,))[0]

        return read

    return remembering


def forgotten_with(clear: Callable[[], None], in_memory: Callable[[], None] | None = None) -> None:
    """Register a further cache that `forget` clears; `in_memory` leaves its files."""
    _FORGETTING.append((clear, in_memory or clear))


def forget(lasting: bool = True) -> None:
    """Clear all caches of texts in this process; the files of caches only with `lasting`.

    An error does not prevent the other caches from being cleared.
    """
    with ExitStack() as clearing:
        for clear, in_memory in _FORGETTING:
            clearing.callback(clear if lasting else in_memory)
