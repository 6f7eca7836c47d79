"""Where a quotation stands in a text, typography aside.

Aside are letter case, white space, the form of quotation marks, dashes and spaces, compatibility
forms of characters, and the asterisks and backticks of Markdown. Words and figures are not.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

QUOTES: Final = frozenset("\"'`´‘’‚‛“”„‟«»‹›*\\")
DASHES: Final = frozenset("‐‑‒–—―−-")
NOTHING: Final = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
# What a quotation may be cut off with at its ends.
EDGES: Final = " .,;:…!?"
# Digits of a group of thousands.
GROUP: Final = 3
_BEFORE: Final = re.compile(r"[0-9][.,]\Z")
_DIGITS: Final = re.compile(r"[0-9]*")
_AFTER: Final = re.compile(r"[.,]([0-9]+)")
# A number whose point is no group's, so that a comma behind it ends it.
_DECIMAL: Final = re.compile(r"\.(?:[0-9]{1,2}|[0-9]{4,})\Z")
# Letters from here on are written without blanks between words.
UNSPACED: Final = 0x0E00


class Folded:
    """A text in the form in which quotations are compared.

    Attributes:
        text: the folded text.
        places: offset in the original of each of its characters, and the end behind the last.
    """

    __slots__ = ("places", "text")

    def __init__(self, original: str) -> None:
        kept: list[str] = []
        places: list[int] = []
        blank = True
        for place, character in enumerate(original):
            if character in QUOTES or character in NOTHING:
                continue
            if character.isspace():
                if not blank:
                    kept.append(" ")
                    places.append(place)
                    blank = True
                continue
            blank = False
            if character in DASHES:
                kept.append("-")
                places.append(place)
                continue
            for folded in _folded(character):
                kept.append(folded)
                places.append(place)
        self.text = "".join(kept)
        self.places = places

    def find(self, words: str, start: int = 0) -> tuple[int, int] | None:
        """Where folded words stand, as places in the folded text; None where they do not.

        Args:
            start: place from which they are looked for.
        """
        at = self.text.find(words, start)
        while at >= 0:
            end = at + len(words)
            if self._whole(at, end):
                return at, end
            at = self.text.find(words, at + 1)
        return None

    def original(self, at: int, end: int) -> tuple[int, int]:
        """Offsets in the original of a stretch of the folded text that is not empty."""
        return self.places[at], self.places[end - 1] + 1

    def _whole(self, at: int, end: int) -> bool:
        """Whether no word or figure is cut: `2` does not stand in `12`, nor in `2.5`."""
        text = self.text
        if at and self._joined(at) and _inner(text[at - 1]) and _inner(text[at]):
            return False
        if end < len(text) and self._joined(end) and _inner(text[end]) and _inner(text[end - 1]):
            return False
        if _BEFORE.search(text, max(0, at - 2), at) and self._joined(at) and text[at].isdigit():
            grouped = len(_DIGITS.match(text, at)[0]) == GROUP  # type: ignore[index]
            if text[at - 1] == "." or grouped:
                return False
        after = _AFTER.match(text, end)
        if after is not None and self._joined(end) and text[end - 1].isdigit():
            return text[end] == "," and (
                len(after[1]) > GROUP or _DECIMAL.search(text[at:end]) is not None
            )
        return True

    def _joined(self, place: int) -> bool:
        """Whether nothing was left out in front of a character."""
        return self.places[place] == self.places[place - 1] + 1


@lru_cache(maxsize=4096)
def _folded(character: str) -> str:
    # Not longer than four characters, so that places stay near.
    return unicodedata.normalize("NFKC", character).casefold().replace("\u2044", "/")


def _inner(character: str) -> bool:
    return character.isalnum() and ord(character) < UNSPACED


def folded_words(quotation: str) -> str:
    """A quotation's words as `Folded.find` takes them; empty where nothing can be looked for.

    >>> folded_words("“4.2  million”.")
    '4.2 million'
    """
    return Folded(quotation).text.strip(EDGES)


def locate(quotation: str, text: Folded) -> tuple[int, int] | None:
    """Offsets of a quotation in a text.

    Words that were left out with an ellipsis may be missing: the pieces must follow each other.

    >>> locate("4.2 MILLION", Folded("It was **4.2** million."))
    (9, 21)
    >>> locate("2 million", Folded("It was 4.2 million.")) is None
    True
    """
    whole = folded_words(quotation)
    if not any(character.isalnum() for character in whole):
        return None
    found = text.find(whole)
    if found is None:
        found = _in_pieces(quotation, text)
    return None if found is None else text.original(*found)


def _in_pieces(quotation: str, text: Folded) -> tuple[int, int] | None:
    """Where words stand that an ellipsis shortens: the pieces follow each other."""
    pieces = [folded_words(one) for one in quotation.replace("...", "…").split("…")]
    pieces = [one for one in pieces if any(character.isalnum() for character in one)]
    if len(pieces) < 2:
        return None
    first, last = -1, 0
    for piece in pieces:
        here = text.find(piece, last)
        if here is None:
            return None
        first, last = here[0] if first < 0 else first, here[1]
    return first, last
