r"""Counts of texts in numbered blocks, as facts are rendered, from the counts of the blocks.

A byte-pair encoding splits a text by a pattern and merges within the pieces alone. So a count is
the sum of the counts of two parts wherever the pattern ends a piece between them, whatever stands
on either side. At a marker such as `[3] `, behind an empty line or at the beginning of a text, the
patterns of `ENDING` do so in two places:

before `[`  A run of white space that ends in a line break is taken up to that break, by
            `\s*[\r\n]+`, or by the line breaks that may follow signs; no other part of a pattern
            takes a line break that something follows, and none begins with one and goes on. What
            begins at `[` cannot be a word, since a digit follows.
behind `]`  A space follows, so that `]` is neither the first sign of a word nor followed by line
            breaks; and the digits before it end there.

Behind the last block of a part stands nothing, so that a piece which looks ahead could see another
thing than in the whole; a run of white space with a line break at its end never comes to looking.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable

from crp_integrations.language.memo import forgotten_with

# Names in `patterns.PATTERNS`. The others split a run of line breaks by what follows it.
ENDING = frozenset({"cl100k", "o200k", "llama-3", "qwen"})
# Characters of blocks that are remembered together, and of the longest.
_KEPT, _LONGEST_KEPT = 2_000_000, 8_000
_EMPTY_LINE = "\n\n"
# Digits of a marker, at most; patterns end a number there.
_DIGITS = 3


class Blocks:
    """The counts of the last blocks; safe between threads."""

    def __init__(self, count: Callable[[str], int]) -> None:
        """Remember nothing yet.

        Args:
            count: tokens of a text, by a pattern of `ENDING`.
        """
        self._count = count
        self._kept: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._used = 0
        self._forgotten = 0
        _EVERY.add(self)

    def count(self, text: str) -> int:
        """Tokens of a text; a block that was counted lately is not counted again."""
        parts = _parts(text)
        if len(parts) == 1:
            return self._count(text)
        kept = self._kept
        with self._lock:
            begun = self._forgotten
            found = [kept.get(part) for part in parts]
            for part, tokens in zip(parts, found, strict=True):
                if tokens is not None:
                    kept.move_to_end(part)
        total = 0
        for part, tokens in zip(parts, found, strict=True):
            total += self._read(part, begun) if tokens is None else tokens
        return total

    def clear(self) -> None:
        """Let go of everything, and of what is being counted meanwhile."""
        with self._lock:
            self._kept.clear()
            self._used = 0
            self._forgotten += 1

    def _read(self, part: str, begun: int) -> int:
        tokens = self._count(part)
        if len(part) > _LONGEST_KEPT:
            return tokens
        with self._lock:
            if part not in self._kept and begun == self._forgotten:
                self._kept[part] = tokens
                self._used += len(part)
            while self._used > _KEPT:
                gone, _ = self._kept.popitem(last=False)
                self._used -= len(gone)
        return tokens


def _parts(text: str) -> list[str]:
    r"""A text cut before each marker and behind it; together unchanged, and none empty.

    >>> _parts("[1] One.\n\n[2] Two.\n\n[x] Three.")
    ['[1]', ' One.\n\n', '[2]', ' Two.\n\n[x] Three.']
    """
    # Far quicker than an expression, which tries every character.
    first, *others = text.split("\n\n[")
    if first[:1] == "[" and (end := _marked(first[1:])):
        found = [first[: end + 1], first[end + 1 :]]
    else:
        found = [first]
    for other in others:
        found[-1] += _EMPTY_LINE
        end = _marked(other)
        if end:
            found += "[" + other[:end], other[end:]
        else:
            found[-1] += "[" + other
    return found


def _marked(text: str) -> int:
    """Where a marker whose `[` stands before a text ends in it; 0 where none stands there."""
    end = text.find("] ", 1, _DIGITS + 2)
    digits = text[:end] if end > 0 else ""
    return end + 1 if digits.isascii() and digits.isdigit() else 0


_EVERY: weakref.WeakSet[Blocks] = weakref.WeakSet()


def _forget_all() -> None:
    for blocks in list(_EVERY):
        blocks.clear()


forgotten_with(_forget_all)
