"""Spans of a text by character offsets, and its folded form with a way back to them.

Rules read a folded text: curly quotes are straight, all dashes but the hyphen are an en
dash, all spaces are blanks, digits of any script are ASCII digits, letters are without
accents, Cyrillic and Greek look-alikes within Latin words are Latin, and invisible characters
are gone. Superscript digits stay, since 10² is not 102.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from crp_integrations.language.memo import remembered


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open stretch [start, end) of character offsets in some text.

    >>> Span(0, 2).of("abc")
    'ab'
    """

    start: int
    end: int

    def of(self, text: str) -> str:
        """The characters of the text that the span covers."""
        return text[self.start : self.end]

    def holds(self, other: Span) -> bool:
        """Whether the other span lies within this one."""
        return self.start <= other.start and other.end <= self.end


_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\u0300-\u036f]|\r(?=\n)"
)
# Blanks after a blank, as justified and extracted texts have them; between figures they part
# columns. A line's indent stays.
_WIDE = re.compile(r"(?<=[^\s\d] ) +|(?<=\d ) +(?![\d ])")
_SPECIAL = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4\u0060", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\ufe63\uff0d\u2043", "-"),
    **dict.fromkeys("\u2012\u2014\u2015", "\u2013"),
    "\u2212": "-",
    # Patterns that look at no case take the dotless i for an i, and so must the word lists.
    "\u0131": "i",
    "\u2028": "\n",
    "\u2029": "\n",
    "\u066b": ".",
    "\u066c": ",",
}
# Letters of other scripts that look like Latin ones, in one row of pairs.
_LIKE = (
    "\u0430a\u0435e\u043eo\u0440p\u0441c\u0443y\u0445x\u0456i\u0458j\u0455s\u04bbh\u0501d\u051bq"
)
_LIKE += (
    "\u0410A\u0412B\u0415E\u041aK\u041cM\u041dH\u041eO\u0420P\u0421C\u0422T\u0425X\u0406I\u0408J"
)
_LIKE += (
    "\u0405S\u0423Y\u03b1a\u03b5e\u03bfo\u03c1p\u03c5u\u03bdv\u03b9i\u03bak\u0391A\u0392B\u0395E"
)
_LIKE += "\u0396Z\u0397H\u0399I\u039aK\u039cM\u039dN\u039fO\u03a1P\u03a4T\u03a5Y\u03a7X"
_LATIN = str.maketrans(_LIKE[::2], _LIKE[1::2])
# A word that mixes them with Latin letters is a word in disguise.
_WORDS = re.compile(r"[^\W\d_]+")
_FOREIGN = re.compile(r"[\u0370-\u0556]")
_ASCII = re.compile(r"[A-Za-z]")


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    special = _SPECIAL.get(character)
    if special is not None:
        return special
    if character.isspace():
        return "\n" if character in "\n\r\x0b\x0c\x85" else " "
    if unicodedata.category(character) == "No":
        return character
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    plain = unicodedata.normalize("NFKD", character)
    base = plain[0]
    if len(plain) > 1 and not all(unicodedata.combining(mark) for mark in plain[1:]):
        return character
    return _SPECIAL.get(base, base) if base != " " else " "


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A folded text and where its characters come from.

    Attributes:
        text: the folded text.
        offsets: for each folded character its offset in the original, and one more for the
            end; None when the two run in step.
    """

    text: str
    offsets: tuple[int, ...] | None

    def start(self, place: int) -> int:
        """Offset in the original of the folded character at `place`."""
        return place if self.offsets is None else self.offsets[place]

    def end(self, place: int) -> int:
        """Offset in the original just after the folded character before `place`."""
        if self.offsets is None or place == 0:
            return place
        return self.offsets[place - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """The original's stretch for the folded stretch [start, end)."""
        return Span(self.start(start), self.end(end))


class _Table(dict[int, str]):
    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code)) if code > 127 else chr(code)
        self[code] = folded
        return folded


_TABLE = _Table({13: "\n", 11: "\n", 12: "\n", 9: "\t"})


@remembered
def fold(text: str) -> FoldedText:
    r"""Fold a text for matching; offsets can always be led back.

    >>> fold("caf\u00e9 \uff14\u200b2").text
    'cafe 42'
    """
    if text.isascii() and "\r" not in text:
        return FoldedText(text, None)
    if _INVISIBLE.search(text) is None:
        return FoldedText(_undisguised(text).translate(_TABLE), None)
    kept = _without(text, _INVISIBLE)
    visible = "".join(text[place] for place in kept)
    return FoldedText(_undisguised(visible).translate(_TABLE), (*kept, len(text)))


def fold_case_and_space(text: str) -> FoldedText:
    """The folded text with one blank for a run of them within a line.

    >>> fold_case_and_space("about  7  inches").text
    'about 7 inches'
    """
    folded = fold(text)
    if "  " not in folded.text or _WIDE.search(folded.text) is None:
        return folded
    kept = _without(folded.text, _WIDE)
    offsets = (*(folded.start(place) for place in kept), len(text))
    return FoldedText("".join(folded.text[place] for place in kept), offsets)


def _without(text: str, left_out: re.Pattern[str]) -> list[int]:
    """The places of a text outside of what a pattern matches."""
    kept: list[int] = []
    place = 0
    for match in left_out.finditer(text):
        kept.extend(range(place, match.start()))
        place = match.end()
    kept.extend(range(place, len(text)))
    return kept


def _undisguised(text: str) -> str:
    """A text with the look-alikes of other scripts undone in words that mix them with Latin."""
    if _FOREIGN.search(text) is None:
        return text
    return _WORDS.sub(_in_latin, text)


def _in_latin(match: re.Match[str]) -> str:
    word = match.group()
    if _FOREIGN.search(word) is None or _ASCII.search(word) is None:
        return word
    return word.translate(_LATIN)


def plain(text: str) -> str:
    r"""The folded text in lower case with runs of white space as one blank, for comparing.

    >>> plain("The  \u201cFoo\u201d")
    'the "foo"'
    """
    return " ".join(fold(text).text.casefold().split())
