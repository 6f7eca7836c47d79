"""Spans and sentences of a text, and its folded form with offsets into the original.

Rules read a folded text: curly quotes are straight, all dashes but the hyphen are an en
dash, all spaces are blanks, digits of any script are ASCII digits, letters have no accents,
Cyrillic and Greek look-alikes within Latin words are Latin, and invisible characters are
removed. Superscript digits stay, since 10² is not 102. Folding twice changes nothing. Rules that
read values also undo typesetting (`fold_case_and_space`). Quotations are searched in another
form, `folded_text.Folded`, which ignores lines, case and quotation marks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from crp_integrations.language.blocks import blocks
from crp_integrations.language.folded_text import HYPHENATION, undo_typesetting
from crp_integrations.language.memo import LONGEST, remembered, remembered_within
from crp_integrations.language.word_lists import LISTS


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open stretch [start, end) of character offsets in some text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """The part of the text that the span covers."""
        return text[self.start : self.end]

    def holds(self, other: Span) -> bool:
        """Whether the other span lies within this one."""
        return self.start <= other.start and other.end <= self.end


_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\u0300-\u036f]|\r(?=\n)"
)
# Repeated blanks, common in justified and extracted texts. Those between figures separate columns
# and stay, as does the indent of a line.
_WIDE = re.compile(r"(?<=[^\s\d] ) +|(?<=\d ) +(?![\d ])")
_SPECIAL = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4\u0060", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\ufe63\uff0d\u2043", "-"),
    **dict.fromkeys("\u2012\u2014\u2015", "\u2013"),
    "\u2212": "-",
    # Case-insensitive patterns match the dotless i as an i, so the word lists must too.
    "\u0131": "i",
    "\u2028": "\n",
    "\u2029": "\n",
    "\u066b": ".",
    "\u066c": ",",
}
# Letters of other scripts that look like Latin ones, each followed by its Latin letter.
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
# Only words that mix such letters with Latin ones are converted.
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
    """A folded text and the original offsets of its characters.

    Attributes:
        offsets: offset in the original of each folded character, and one more for the end;
            None when all offsets are equal.
        ends: offset just after each folded character; None when each stands for one character.
    """

    text: str
    offsets: tuple[int, ...] | None
    ends: tuple[int, ...] | None = None

    def start(self, place: int) -> int:
        """Offset in the original of the folded character at `place`."""
        return place if self.offsets is None else self.offsets[place]

    def end(self, place: int) -> int:
        """Offset in the original just after the folded character before `place`."""
        if self.offsets is None or place == 0:
            return place
        if self.ends is not None:
            return self.ends[place - 1]
        return self.offsets[place - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """The original span of the folded stretch [start, end)."""
        return Span(self.start(start), self.end(end))


class _Table(dict[int, str]):
    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code)) if code > 127 else chr(code)
        self[code] = folded
        return folded


_TABLE = _Table({13: "\r", 11: "\n", 12: "\n", 9: "\t"})


@remembered
def fold(text: str) -> FoldedText:
    r"""Fold a text for matching; the result maps offsets back to the original.

    >>> fold("caf\u00e9 \uff14\u200b2").text
    'cafe 42'
    """
    if text.isascii() and "\r" not in text:
        return FoldedText(text, None)
    folded = text.translate(_TABLE)
    offsets = None
    if _INVISIBLE.search(folded) is not None:
        places = _without(folded, _INVISIBLE)
        folded = "".join(folded[place] for place in places)
        offsets = (*places, len(text))
    return FoldedText(_undisguised(folded).replace("\r", "\n"), offsets)


def fold_case_and_space(text: str) -> FoldedText:
    """The folded text without typesetting, with single blanks within each line."""
    unset = undo_typesetting(text)
    folded = fold(text if unset is None else unset.text)
    places: Sequence[int] = range(len(folded.text))
    if "  " in folded.text and _WIDE.search(folded.text) is not None:
        places = _without(folded.text, _WIDE)
    if unset is None:
        if len(places) == len(folded.text):
            return folded
        offsets = (*(folded.start(place) for place in places), len(text))
        return FoldedText("".join(folded.text[place] for place in places), offsets)
    # A hyphen that may come from a line break is dropped.
    places = [place for place in places if folded.text[place] != HYPHENATION]
    return FoldedText(
        "".join(folded.text[place] for place in places),
        (*(unset.starts[folded.start(place)] for place in places), len(text)),
        tuple(unset.ends[folded.end(place + 1) - 1] for place in places),
    )


def _without(text: str, left_out: re.Pattern[str]) -> list[int]:
    """The offsets of a text outside of a pattern's matches."""
    places: list[int] = []
    place = 0
    for match in left_out.finditer(text):
        places.extend(range(place, match.start()))
        place = match.end()
    places.extend(range(place, len(text)))
    return places


def _undisguised(text: str) -> str:
    """The text with look-alike letters made Latin in words that mix them with Latin letters."""
    if _FOREIGN.search(text) is None:
        return text
    return _WORDS.sub(_in_latin, text)


def _in_latin(match: re.Match[str]) -> str:
    word = match.group()
    if _FOREIGN.search(word) is None or _ASCII.search(word) is None:
        return word
    return word.translate(_LATIN)


def plain(text: str) -> str:
    r"""The folded text in lower case with runs of white space as one blank, for comparing."""
    return " ".join(fold(text).text.casefold().split())


# Characters of texts whose sentences are cached: enough for an envelope, not for a loaded file.
_CACHE_SIZE: Final = 1 << 17
_MARK = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\u0964]+[\"')\]}\u201d\u2019\u00bb*_]*")
_WIDE_STOPS = frozenset("\u3002\uff01\uff1f\u0964")
_AHEAD = re.compile(r"\s*[\"'(\[{\u201c\u2018\u00ab*_\u00bf\u00a1]*")
_LAST = re.compile(r"[^\s\"'(\[{\u201c\u2018\u00ab/\u2013\u2014]+\Z")
_NEXT = re.compile(r"[^\W\d_]+")
# Source numbers after a sentence, "[2]" or "[1, 3]", belong to it.
_CITED = re.compile(r"(?:[ \t]*\[\d{1,4}(?:\s?[,;\u2013-]\s?\d{1,4}){0,9}\])+(?=\s|\Z)")
_LOOK_BACK = 24  # characters before a mark that are read

# A point after these never ends a sentence: a name or number follows.
_BEFORE_NAME = frozenset(LISTS["before_name"])
# After these a number or a lower-case word follows.
_BEFORE_NUMBER = frozenset(LISTS["before_number"])
# A point after these ends a sentence only before a word that commonly starts sentences.
_EITHER = frozenset(LISTS["abbreviations"])
_NEVER = frozenset({"e.g", "i.e", "eg", "ie", "viz", "cf", "vs"})
_STARTERS = frozenset(LISTS["starters"])


@remembered_within(_CACHE_SIZE, longest=LONGEST)
def split_sentences(text: str) -> tuple[Span, ...]:
    """The sentences of a text as spans, in order; they cover every non-space character.

    Table rows, list items, headings and lines of code are separate units.

    Args:
        text: any text.

    Returns:
        Spans without outer white space.

    >>> text = "Dr. Smith paid $3.50. He left."
    >>> [span.of(text) for span in split_sentences(text)]
    ['Dr. Smith paid $3.50.', 'He left.']
    """
    spans: list[Span] = []
    for block in blocks(text):
        if block.kind in ("paragraph", "item", "heading"):
            _split(text, block.start, block.end, spans)
        else:
            spans.append(Span(block.start, block.end))
    return tuple(spans)


# German writes a point after a day of the month: 14. März 2019.
_GERMAN_MONTHS: Final = frozenset(
    "januar februar märz april mai juni juli august september oktober november dezember".split()
)


def _split(text: str, start: int, end: int, spans: list[Span]) -> None:
    first = start
    for match in _MARK.finditer(text, start, end):
        place = match.end()
        if place >= end or place <= first:
            continue
        if _ends(text, first, match, end):
            cited = _CITED.match(text, place, end)
            first = _cut(text, first, cited.end() if cited else place, spans)
    _cut(text, first, end, spans)


def _cut(text: str, start: int, end: int, spans: list[Span]) -> int:
    while start < end and text[start].isspace():
        start += 1
    stop = end
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    if stop > start:
        spans.append(Span(start, stop))
    return end


def _ends(text: str, first: int, match: re.Match[str], end: int) -> bool:
    """Whether the mark ends the sentence that began at `first`."""
    place = match.end()
    marks = match.group()
    if marks[0] in _WIDE_STOPS:
        return True
    following = text[place]
    if not following.isspace():
        # Sentences without a space between: "it.The", but not "Node.Js" or "3.5".
        word = _NEXT.match(text, place, min(end, place + 12))
        return (
            marks == "."
            and word is not None
            and word.group()[0].isupper()
            and word.group().lower() in _STARTERS
            and text[match.start() - 1].islower()
        )
    ahead = _AHEAD.match(text, place, end)
    at = ahead.end() if ahead is not None else place
    if at >= end:
        return True
    opening = text[at]
    word = _NEXT.match(text, at, min(end, at + 16))
    starter = word is not None and word.group().lower() in _STARTERS
    before = _LAST.search(text, max(first, match.start() - _LOOK_BACK), match.start())
    token = before.group() if before is not None else ""
    if marks[0] == "\u2026" or marks.startswith(".."):
        return not opening.islower()
    if marks[0] != ".":
        # No sentence ends in "Really?" he asked, or in Yahoo! is a firm.
        quoted = marks[-1] not in "?!"
        named = marks == "!" and token[:1].isupper()
        return not (opening.islower() and (quoted or named))
    if not token:
        return not opening.islower()
    if opening.islower():
        return marks == "." and _ordinary(token)
    if before is not None and before.start() == first and _is_marker(token):
        return False
    lower = token.lower()
    if lower in _NEVER or lower in _BEFORE_NAME:
        return False
    if token.isdigit() and len(token) <= 2 and word and word.group().lower() in _GERMAN_MONTHS:
        return False
    if lower in _BEFORE_NUMBER:
        return not (opening.isdigit() or opening in "\u00a7(") and starter and lower != "v"
    if lower in _EITHER or ("." in token and _dotted(token)):
        return starter and opening.isupper()
    if len(token) == 1 and token.isalpha() and token.isupper():
        return (starter and opening.isupper() and token != "I") or token == "I"
    return True


def _ordinary(token: str) -> bool:
    """Whether a token before a point is a plain lower-case word, not an abbreviation."""
    return (
        len(token) > 3
        and token.isalpha()
        and token.islower()
        and token not in _EITHER
        and token not in _BEFORE_NAME
        and token not in _BEFORE_NUMBER
    )


def _is_marker(token: str) -> bool:
    return (token.isdigit() and len(token) <= 3) or len(token) == 1


def _dotted(token: str) -> bool:
    """Whether a token is letters with points between, such as "U.S" or "a.m"."""
    return all(len(part) <= 2 and part.isalpha() for part in token.split("."))


def has_text(text: str) -> bool:
    """Whether a text contains a letter or a digit."""
    return any(character.isalnum() for character in text)
