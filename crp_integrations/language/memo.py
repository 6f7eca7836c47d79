"""The cache of results for short texts; results for long texts are not kept.

What is kept holds texts, so `forget` drops all of it when something was erased.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Generic, TypeVar

Result = TypeVar("Result")

LONGEST = 4_000  # characters
# Of what gives a record for each word: a sentence or a claim is read often, a passage twice.
SENTENCE = 600

_FORGETTING: list[Callable[[], None]] = []


def remembered(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """The function of a text with its last results for texts of up to `LONGEST` characters."""
    return _kept(function, LONGEST)


def remembered_of_sentences(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """The same for texts of up to `SENTENCE` characters, where a result is larger than its text."""
    return _kept(function, SENTENCE)


def _kept(function: Callable[[str], Result], longest: int) -> Callable[[str], Result]:
    cached = lru_cache(maxsize=2048)(function)
    forgotten_with(cached.cache_clear)

    @wraps(function)
    def read(text: str) -> Result:
        return cached(text) if len(text) <= longest else function(text)

    return read


class Memory(Generic[Result]):
    """The last results of a function of a text; safe between threads."""

    def __init__(self, function: Callable[[str], Result], characters: int, *, longest: int) -> None:
        """Remember nothing yet."""
        self._function = function
        self._characters = characters
        self._longest = longest
        self._kept: OrderedDict[str, Result] = OrderedDict()
        self._lock = threading.Lock()
        self._used = 0
        self._forgotten = 0
        forgotten_with(self.clear)

    def of(self, texts: Sequence[str]) -> list[Result]:
        """The results for texts, in their order; each is looked for once."""
        stored = self._kept
        with self._lock:
            begun = self._forgotten
            results = [stored.get(text) for text in texts]
            for text, result in zip(texts, results, strict=True):
                if result is not None:
                    stored.move_to_end(text)
        # Read outside the lock: another thread that does the same gets an equal result.
        return [
            self._read(text, begun) if result is None else result
            for text, result in zip(texts, results, strict=True)
        ]

    def clear(self) -> None:
        """Let go of everything, and of what is being read meanwhile."""
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
    """The function of a text with its last results, as a `Memory` holds them."""

    def remembering(function: Callable[[str], Result]) -> Callable[[str], Result]:
        memory = Memory(function, characters, longest=longest)

        @wraps(function)
        def read(text: str) -> Result:
            return memory.of((text,))[0]

        return read

    return remembering


def forgotten_with(clear: Callable[[], None]) -> None:
    """Have `forget` clear another memory of texts as well."""
    _FORGETTING.append(clear)


def forget() -> None:
    """Let go of every text that is remembered in this process."""
    for clear in _FORGETTING:
        clear()
