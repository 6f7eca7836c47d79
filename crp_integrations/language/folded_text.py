"""Find quotations in a text: the normalized form for comparison, with offsets into the original.

The comparison ignores letter case, white space, the form of quotation marks, dashes and spaces,
composed and compatibility forms of characters, the asterisks and backticks of Markdown, and
whatever `undo_typesetting` undoes. A word or figure must match as a whole: `2` does not occur in
`12`, `2.5` or `-2`. Rules that read values use `text.fold` instead, which keeps lines, case and
quotation marks.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from html.entities import name2codepoint
from typing import Final

# Replaces a hyphen that may belong to the word or only to the line break (Unicode's own sign).
HYPHENATION: Final = "\u2027"
REFERENCES: Final = {name: chr(code) for name, code in sorted(name2codepoint.items())}
SYMBOLS: Final = {
    "approx": "≈", "cdot": "·", "circ": "°", "degree": "°", "euro": "€", "ge": "≥", "geq": "≥",
    "ldots": "…", "le": "≤", "leq": "≤", "pm": "±", "pounds": "£", "times": "×",
}  # fmt: skip
# LaTeX commands that only change the font of their argument.
_TYPES = "emph|mathbf|mathit|mathrm|mathsf|mbox|operatorname|text(?:bf|it|rm|sf|tt)?"
SETTINGS: Final = "|".join(
    (
        r"&(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8}[0-9]{0,2});",
        # An escaped sign is literal: it opens neither a formula nor a command.
        r"\\([{}$%&#_])",
        rf"(\\(?:{_TYPES})[ ]{{0,4}}\{{|\^\{{(?=\\circ))",
        # `4{,}200`: LaTeX for a comma without space after it.
        r"\{([.,])\}",
        rf"\^?\\({'|'.join(SYMBOLS)})(?![A-Za-z])",
        # Thin and wide spaces.
        r"(\\[,; ]|\\q?quad(?![A-Za-z]))",
        r"([{}])",
        r"(\$)",
        # A hyphen before a line break or the blank that replaced one, except "short- and long-".
        (
            r"([-\u2010\u00ad])(?:[ \t\u00a0]*\r?\n[ \t]*|[ \t\u00a0]+)"
            r"(?!(?:and|or|nor|to|und|oder|bis|noch|et|ou)[ \t\r\n\u00a0])"
        ),
        # An IBAN in groups of four (ISO 13616), and a telephone number with its country code
        # (E.123): each is one identifier with or without separators.
        (
            r"(?<![0-9A-Za-z])([A-Z]{2}[0-9]{2}(?:[ \u00a0][A-Z]{4})?"
            r"(?:[ \u00a0](?=[A-Z]{0,3}[0-9])[0-9A-Z]{4}){2,7}(?:[ \u00a0][0-9]{1,2}[0-9A-Z]?)?"
            r"(?![0-9A-Za-z])|\+[0-9]{1,3}(?:[ \u00a0-]\(?[0-9]{2,8}\)?){2,5}(?![0-9]))"
        ),
    )
)
# A dollar sign opens a formula if a command or a bare number comes before the next dollar sign.
FORMULA: Final = (
    rf"\$(?:[^$\n\\]*\\(?:[,;%$]|(?:{_TYPES}|{'|'.join(SYMBOLS)}|q?quad)(?![A-Za-z]))"
    r"(?:[^$\n\\]|\\[^\n])*\$|[0-9][0-9.,{}]*\$(?![0-9]))"
)
_SETTINGS = re.compile(SETTINGS)
_FORMULA = re.compile(FORMULA)
SEPARATED: Final = " \u00a0-()"


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text without typesetting, and the original offsets of each of its characters."""

    text: str
    starts: list[int]
    ends: list[int]


def undo_typesetting(text: str) -> PlainText | None:
    r"""The text without HTML and LaTeX typesetting; None when nothing had to be undone.

    >>> undo_typesetting(r"R&amp;D cost $4.2\,\text{million}$").text
    'R&D cost 4.2 million'
    >>> undo_typesetting("Jean-\nPaul's pro-\nvision").text
    "Jean-Paul's pro‧vision"
    """
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    place = 0
    formula = changed = False
    braces: list[bool] = []  # for each open brace, whether it belongs to a command

    def keep(start: int, end: int) -> None:
        pieces.append(text[start:end])
        starts.extend(range(start, end))
        ends.extend(range(start + 1, end + 1))

    for match in _SETTINGS.finditer(text):
        start, end = match.span()
        keep(place, start)
        place = end
        sign: str | None = None  # replacement; None keeps the match as it is
        reference, escaped, command, comma, symbol, space, brace, dollar, hyphen, identifier = (
            match.groups()
        )
        if reference:
            sign = _referred(reference)
        elif symbol:
            sign = SYMBOLS[symbol]
        elif escaped or comma or space:
            sign = " " if space else escaped or comma
        elif command:
            braces.append(True)
            sign = ""
        elif brace == "{":
            braces.append(False)
        elif brace:
            sign = "" if braces and braces.pop() else None
        elif dollar:
            if formula or _FORMULA.match(text, start):
                formula, sign = not formula, ""
        elif hyphen:
            sign = _hyphen(hyphen, text[start - 1 : start] if start else "", text[end : end + 1])
        elif identifier:
            for at in range(start, end):
                if text[at] not in SEPARATED:
                    keep(at, at + 1)
            changed = True
            continue
        if sign is None:
            keep(start, end)
            continue
        changed = True
        if sign:
            pieces.append(sign)
            starts.append(start)
            ends.append(end)
    if not changed:
        return None
    keep(place, len(text))
    return PlainText("".join(pieces), starts, ends)


def _referred(name: str) -> str | None:
    if name[0] != "#":
        return REFERENCES.get(name)
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return chr(code) if 0 < code < 0xD800 or 0xDFFF < code < 0x110000 else None


def _hyphen(hyphen: str, before: str, after: str) -> str | None:
    """Replacement for a hyphen before a line break; None where it is a dash or a bullet."""
    if not (before.isalnum() and after.isalnum()):
        return None
    if hyphen == "\u00ad":
        return ""
    # Names and figures keep their hyphen; in other words it may come from the line break.
    return HYPHENATION if before.isalpha() and after.islower() else "-"


# Removed, except between two digits, where the mark is a separator or a sign.
APOSTROPHES: Final = frozenset("'`´‘’‚‛‹›")
MARKS: Final = APOSTROPHES | frozenset('"“”„‟«»*\\')
DASHES: Final = frozenset("‐‑‒–—―−-")
NOTHING: Final = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
# Characters that are stripped from both ends of a quotation.
EDGES: Final = f" .,;:…!?{HYPHENATION}"
STOPS: Final = frozenset(EDGES) - {" "}
# Between two digits these join them to one figure.
SEPARATORS: Final = frozenset(".,'\"^٫٬·*")
# Digits of a group of thousands.
GROUP: Final = 3
_FIGURES: Final = re.compile(r"\d*")
# A number with a decimal point: a comma after it ends it.
_DECIMAL: Final = re.compile(r"\.(?:\d{1,2}|\d{4,})\Z")
# Scripts without blanks between words: Thai to Burmese, Khmer, the syllabaries, Chinese.
UNSPACED: Final = (
    (0x0E00, 0x109F), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1950, 0x1AAF), (0x2E80, 0xA4CF),
    (0xA960, 0xA97F), (0xAA00, 0xAADF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0x1B000, 0x1B2FF),
    (0x20000, 0x3FFFF),
)  # fmt: skip
# Characters that folding leaves as they are except for case, with single blanks between them,
# and with no combining mark after the last.
_SELF: Final = r"[0-9A-Za-z.,;:!?()\[\]{}/%&+<=>@_|#$~^]"
_PLAIN: Final = re.compile(rf"{_SELF}+(?: {_SELF}+)*(?![^\x00-\x7f])")
HAN_FIGURES: Final = frozenset("〇零一二三四五六七八九十百千万億亿兆两")


class Folded:
    """A text in the normalized form in which quotations are compared.

    Attributes:
        starts, ends: start and end offset in the original of each folded character.
    """

    __slots__ = ("_apart", "ends", "starts", "text")

    def __init__(self, original: str) -> None:
        unset = undo_typesetting(original)
        if unset is not None:
            original = unset.text
        folded: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        # Places in the folded text before which a mark was removed.
        self._apart: set[int] = set()
        blank = True
        place, size = 0, len(original)
        while place < size:
            first = place
            # Most of a text is such runs; handling a run in one step cuts the time to a third.
            if plain := _PLAIN.match(original, place):
                place = plain.end()
                folded.extend(plain[0].lower())
                starts.extend(range(first, place))
                ends.extend(range(first + 1, place + 1))
                blank = False
                continue
            character = original[place]
            place += 1
            if character in NOTHING:
                continue
            if character.isspace():
                if not blank:
                    folded.append(" ")
                    starts.append(first)
                    ends.append(place)
                    blank = True
                continue
            if character in MARKS:
                while place < size and original[place] in MARKS:
                    place += 1
                around = original[first - 1 : first] + original[place : place + 1]
                if len(around) < 2 or not around.isdigit():
                    self._apart.add(len(folded))
                    continue
                character = "'" if character in APOSTROPHES else character
                character = character if character in "'*" else '"'
                folded.append(character)
                starts.append(first)
                ends.append(place)
                continue
            blank = False
            while place < size and _joins(original[place]):
                place += 1
            form = "-" if character in DASHES else _folded(original[first:place], character)
            if folded and folded[-1].isdigit() and form[:1].isdigit() and not character.isdecimal():
                # A superscript or fraction after a digit is not another digit of the same number.
                form = (" " if "/" in form else "^") + form
            folded.extend(form)
            starts += [first] * len(form)
            ends += [place] * len(form)
        self.text = "".join(folded)
        if unset is not None:
            starts = [unset.starts[first] for first in starts]
            ends = [unset.ends[last - 1] for last in ends]
        # Not lists, which take five times the memory: readings of passages are cached.
        self.starts, self.ends = array("I", starts), array("I", ends)

    def every(self, words: str) -> Iterator[tuple[int, int]]:
        """Start and end offset in the original of each whole occurrence of folded words."""
        for at, end in self._places(words):
            if self._whole(at, end):
                yield self.starts[at], self.ends[end - 1]

    def _places(self, words: str) -> Iterator[tuple[int, int]]:
        text = self.text
        if HYPHENATION not in text and HYPHENATION not in words:
            at = text.find(words) if words else -1
            while at >= 0:
                yield at, at + len(words)
                at = text.find(words, at + 1)
            return
        first = words[:1]
        for at, sign in enumerate(text):
            if sign == first or HYPHENATION in (sign, first):
                end = self._end(words, at)
                if end > at:
                    yield at, end

    def _end(self, words: str, at: int) -> int:
        """End of the words if they begin at `at`, else 0; a line-break hyphen may be missing."""
        text = self.text
        place = at
        for word in words:
            sign = text[place : place + 1]
            if word == HYPHENATION:
                place += sign in ("-", HYPHENATION)
                continue
            if sign == HYPHENATION and word != "-" and place > at:
                place += 1
                sign = text[place : place + 1]
            if sign != word and not (word == "-" and sign == HYPHENATION):
                return 0
            place += 1
        return place

    def find(self, words: str, after: int = 0) -> tuple[int, int] | None:
        """The first occurrence that begins at or after an offset of the original, or None."""
        return next((place for place in self.every(words) if place[0] >= after), None)

    def _whole(self, at: int, end: int) -> bool:
        """Whether no character, word or figure is cut: `2` does not occur in `12` or `2.5`."""
        if self._cut(at) or self._cut(end) or self._signed(at):
            return False
        return not (self._after_separator(at) or self._before_separator(at, end))

    def _cut(self, at: int) -> bool:
        """Whether the characters before and after a place in the folded text belong together."""
        text = self.text
        if not 0 < at < len(text) or at in self._apart:
            return False
        before, after = text[at - 1], text[at]
        if _joins(after) or HYPHENATION in (before, after):
            return True
        if self.starts[at - 1] == self.starts[at] and not {before, after} & STOPS:
            return True
        if at + 1 < len(text) and after in " ^" and self.starts[at] == self.starts[at + 1]:
            return True
        if _inner(before) and _inner(after):
            return True
        return before in HAN_FIGURES and after in HAN_FIGURES

    def _after_separator(self, at: int) -> bool:
        """Whether a separator joins the figure that begins here to the one before it.

        A comma joins only if exactly three digits follow and at most three precede it; otherwise
        it separates list items.
        """
        text = self.text
        if at in self._apart or at < 1:
            return False
        before, figures = text[at - 1], len(_FIGURES.match(text, at)[0])  # type: ignore[index]
        if text[at] in SEPARATORS:
            return before.isdigit() and text[at + 1 : at + 2].isdigit()
        if before not in SEPARATORS or not text[at].isdigit():
            return False
        if before == "." and not (_word(text, at - 2) or text[max(0, at - 2) : at - 1] == "."):
            return True
        if before == "," and _in_list(text, at):
            return False
        behind_figure = text[max(0, at - 2) : at - 1].isdigit()
        return behind_figure and (before != "," or (figures == GROUP and not _many(text, at - 1)))

    def _before_separator(self, at: int, end: int) -> bool:
        """Whether a separator joins the figure that ends here to the one after it."""
        text = self.text
        if end + 1 >= len(text) or end in self._apart or text[end] not in SEPARATORS:
            return False
        figures = len(_FIGURES.match(text, end + 1)[0])  # type: ignore[index]
        if not figures or not text[end - 1].isdigit():
            return False
        if text[end] != ",":
            return True
        if _in_list(text, end):
            return False
        apart = figures == GROUP and _many(text, end)
        return not (apart or figures > GROUP or _DECIMAL.search(text[at:end]))

    def _signed(self, at: int) -> bool:
        """Whether a figure with a minus sign begins here: `5` does not occur in `-5`."""
        text = self.text
        if not 0 < at < len(text) or text[at - 1] != "-":
            return False
        figure = text[at].isdigit() or unicodedata.category(text[at]) == "Sc"
        return figure and not _word(text, at - 2)


def _many(text: str, end: int) -> bool:
    """Whether more than three digits end at a place, so that no thousands group follows."""
    figures = text[max(0, end - GROUP - 1) : end]
    return len(figures) > GROUP and figures.isdecimal()


def _in_list(text: str, at: int) -> bool:
    """Whether a comma separates list items, as in `38,12,26`, not groups of thousands."""
    first = last = at
    while first and (text[first - 1].isdigit() or text[first - 1] == ","):
        first -= 1
    while last < len(text) and (text[last].isdigit() or text[last] == ","):
        last += 1
    figures = text[first:last].strip(",").split(",")
    return len(figures) > 2 and any(len(figure) != GROUP for figure in figures[1:])


def _word(text: str, at: int) -> bool:
    """Whether there is a letter, a digit or a closing sign at a place."""
    return at >= 0 and (text[at].isalnum() or text[at] in ")]%°-")


@lru_cache(maxsize=8192)
def _folded(cluster: str, character: str) -> str:
    """A character with its combining marks, normalized and casefolded."""
    whole = character + cluster[1:]
    normalized = unicodedata.normalize("NFKC", whole)
    # NFKC turns a spacing accent into a blank plus the accent, so such a sign is kept.
    return (whole if normalized[:1].isspace() else normalized).casefold().replace("\u2044", "/")


@lru_cache(maxsize=8192)
def _joins(character: str) -> bool:
    """Whether a character combines with the one before it."""
    if character < "\u0300":
        return False
    jamo = "\u1160" <= character <= "\u11ff" or character in "ﾞﾟ"
    return jamo or (unicodedata.category(character)[0] == "M")


@lru_cache(maxsize=8192)
def _inner(character: str) -> bool:
    """Whether a character belongs to a figure, or to a word of a script that uses blanks."""
    if character.isdigit():
        return True
    if not (character.isalnum() or _joins(character)):
        return False
    code = ord(character)
    return not any(low <= code <= high for low, high in UNSPACED)


def folded_words(quotation: str) -> str:
    """A quotation's words as `Folded.find` expects them; empty if nothing is left to search."""
    whole = Folded(quotation).text
    trimmed = whole.strip(EDGES)
    before = whole[: len(whole) - len(whole.lstrip(EDGES))]
    # The point of `.5` belongs to the figure, and a combining mark to its base character.
    point = trimmed[:1].isdigit() and before.endswith(".") and not before.endswith("..")
    return before[-1:] + trimmed if point or _joins(trimmed[:1]) else trimmed


def locate(
    quotation: str, text: Folded, outside: tuple[tuple[int, int], ...] = ()
) -> tuple[int, int] | None:
    """Offsets of a quotation in a text.

    An ellipsis in the quotation stands for omitted words: its pieces must occur in order.

    Args:
        outside: spans to avoid: an occurrence outside of them is preferred.

    >>> locate("4.2 MILLION", Folded("It was **4.2** million."))
    (9, 22)
    >>> locate("2 million", Folded("It was 4.2 million.")) is None
    True
    """
    whole = folded_words(quotation)
    if not any(character.isalnum() for character in whole):
        return None
    first: tuple[int, int] | None = None
    for place in text.every(whole):
        if not any(start <= place[0] and place[1] <= end for start, end in outside):
            return place
        first = first or place
    return first or _in_pieces(quotation, text)


def _in_pieces(quotation: str, text: Folded) -> tuple[int, int] | None:
    """Offsets of a quotation with ellipses: its pieces must occur in order."""
    pieces = [folded_words(piece) for piece in quotation.replace("...", "…").split("…")]
    pieces = [piece for piece in pieces if any(character.isalnum() for character in piece)]
    if len(pieces) < 2:
        return None
    span: tuple[int, int] | None = None
    for piece in pieces:
        here = text.find(piece, span[1] if span else 0)
        if here is None:
            return None
        span = here if span is None else (span[0], here[1])
    return span
