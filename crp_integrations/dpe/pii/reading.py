"""A text as recognisers read it: plain digits and letters, with the way back to the original.

Characters without width are left out, digits and letters of full width or of other scripts'
digits become ASCII, signs that look like a hyphen become one, and within a word that mixes
scripts a letter that looks like a Latin one is read as that.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

_LOOKALIKES: Final = dict(
    zip(
        "АВЕКМНОРСТУХІЈЅаеорсухіјѕԁһԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοναι",
        "ABEKMHOPCTYXIJSaeopcyxijsdhqwABEZHIKMNOPTYXovai",
        strict=True,
    )
)
_HYPHENS: Final = frozenset("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d")
_BLANKS: Final = frozenset("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")  # fmt: skip
_APOSTROPHES: Final = frozenset("\u2018\u2019\u02bc\uff07")
_MIXED: Final = re.compile(r"[^\W\d_]+")
_OTHERS: Final = re.compile(r"[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class Reading:
    """A text and what is read of it.

    Attributes:
        plain: what is searched.
        at: for each character of `plain` its offset in the text; empty when they are equal.
        size: characters of the text.
    """

    plain: str
    at: tuple[int, ...]
    size: int

    def back(self, start: int, end: int) -> tuple[int, int]:
        """Offsets in the text of a stretch of `plain`, not empty."""
        if not self.at:
            return start, end
        return self.at[start], self.at[end - 1] + 1


def read(text: str) -> Reading:
    """The reading of a text, in time linear in it."""
    if text.isascii():
        return Reading(text, (), len(text))
    others = {character: _plain(character) for character in set(_OTHERS.findall(text))}
    if all(others.values()):
        # One character for one: the offsets are the same.
        return Reading(
            _unmixed(text.translate({ord(a): b for a, b in others.items()})), (), len(text)
        )
    kept: list[str] = []
    at: list[int] = []
    for place, character in enumerate(text):
        plain = others.get(character, character)
        if plain:
            kept.append(plain)
            at.append(place)
    joined = _unmixed("".join(kept))
    return Reading(joined, tuple(at), len(text))


def _plain(character: str) -> str:
    """One character for one, or none."""
    kind = unicodedata.category(character)
    if kind in ("Cf", "Mn") and (kind == "Cf" or "\ufe00" <= character <= "\ufe0f"):
        return ""
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    if character in _HYPHENS:
        return "-"
    if character in _BLANKS:
        return " "
    if character in _APOSTROPHES:
        return "'"
    composed = unicodedata.normalize("NFKC", character)
    return composed if len(composed) == 1 else character


def _unmixed(text: str) -> str:
    """The text with lookalikes as Latin letters in words that have such letters too."""

    def latin(found: re.Match[str]) -> str:
        word = found.group()
        if word.isascii() or not any(letter.isascii() for letter in word):
            return word
        return "".join(_LOOKALIKES.get(letter, letter) for letter in word)

    return _MIXED.sub(latin, text)
