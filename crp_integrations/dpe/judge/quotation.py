"""Where a quotation stands in a text, typography aside.

Aside are letter case, white space, the form of quotation marks, dashes and spaces, compatibility
forms of characters, and the asterisks and backticks of Markdown. Words and figures are not.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

QUOTES: Final = frozenset("\"'`´‘’‚‛“”„‟«»‹›*\\")
DASHES: Final = frozenset("‐‑‒–—―−-")
NOTHING: Final = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
# What a quotation may be cut off with at its ends.
EDGES: Final = " .,;:…!?"
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

    def find(self, words: str) -> tuple[int, int] | None:
        """First and last offset in the original of folded words; None where they do not stand."""
        at = self.text.find(words)
        while at >= 0:
            end = at + len(words)
            if self._whole(at, end):
                return self.places[at], self.places[end - 1] + 1
            at = self.text.find(words, at + 1)
        return None

    def _whole(self, at: int, end: int) -> bool:
        """Whether no word or figure is cut: `2` does not stand in `12`, nor in `2.5`."""
        text = self.text
        if at and _inner(text[at - 1]) and _inner(text[at]):
            return False
        if end < len(text) and _inner(text[end]) and _inner(text[end - 1]):
            return False
        digits = text[end - 1].isdigit() and text[end : end + 1] in (".", ",")
        if digits and text[end + 1 : end + 2].isdigit():
            return False
        before = text[at].isdigit() and at > 1 and text[at - 1] in ".,"
        return not (before and text[at - 2].isdigit())


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
    pieces = [folded_words(one) for one in quotation.replace("...", "…").split("…")]
    pieces = [one for one in pieces if any(character.isalnum() for character in one)]
    if not pieces:
        return None
    found: tuple[int, int] | None = None
    for piece in pieces:
        here = text.find(piece)
        if here is None or (found is not None and here[1] < found[0]):
            return None
        found = here if found is None else (min(found[0], here[0]), max(found[1], here[1]))
    return found
