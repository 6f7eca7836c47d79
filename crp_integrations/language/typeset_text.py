r"""What typesetting did to a text, undone with offsets: the first half of every folding.

Words cut by a hyphen at a line's end are joined, references of HTML and settings of LaTeX are
read, separators within an IBAN or a telephone number are left out. `folding.Folded` (for finding
words) and `text.fold_case_and_space` (for reading values) both begin with it. The patterns mean
the same in JavaScript, where the page of a receipt has them from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.entities import name2codepoint
from typing import Final

# Stands where a hyphen may be the word's own or the line's: Unicode's own sign for such a place.
HYPHENATION: Final = "\u2027"
REFERENCES: Final = {name: chr(code) for name, code in sorted(name2codepoint.items())}
SYMBOLS: Final = {
    "approx": "≈", "cdot": "·", "circ": "°", "degree": "°", "euro": "€", "ge": "≥", "geq": "≥",
    "ldots": "…", "le": "≤", "leq": "≤", "pm": "±", "pounds": "£", "times": "×",
}  # fmt: skip
# Commands that set their argument in another type; words and figures stay as they are.
_TYPES = "emph|mathbf|mathit|mathrm|mathsf|mbox|operatorname|text(?:bf|it|rm|sf|tt)?"
SETTINGS: Final = "|".join(
    (
        r"&(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8}[0-9]{0,2});",
        # Escaped, a sign is itself: no dollar sign of a formula, no brace of a command.
        r"\\([{}$%&#_])",
        rf"(\\(?:{_TYPES})[ ]{{0,4}}\{{|\^\{{(?=\\circ))",
        # `4{,}200`: a comma that no space follows.
        r"\{([.,])\}",
        rf"\^?\\({'|'.join(SYMBOLS)})(?![A-Za-z])",
        # Thin and wide spaces.
        r"(\\[,; ]|\\q?quad(?![A-Za-z]))",
        r"([{}])",
        r"(\$)",
        # At a line's end, or where a line's end was made a blank. "Short- and long-term" is whole.
        (
            r"([-\u2010\u00ad])(?:[ \t\u00a0]*\r?\n[ \t]*|[ \t\u00a0]+)"
            r"(?!(?:and|or|nor|to|und|oder|bis|noch|et|ou)[ \t\r\n\u00a0])"
        ),
        # An IBAN in groups of four (ISO 13616), and a telephone number with its country's code
        # (E.123): with or without their separators they are one identifier.
        (
            r"(?<![0-9A-Za-z])([A-Z]{2}[0-9]{2}(?:[ \u00a0][A-Z]{4})?"
            r"(?:[ \u00a0](?=[A-Z]{0,3}[0-9])[0-9A-Z]{4}){2,7}(?:[ \u00a0][0-9]{1,2}[0-9A-Z]?)?"
            r"(?![0-9A-Za-z])|\+[0-9]{1,3}(?:[ \u00a0-]\(?[0-9]{2,8}\)?){2,5}(?![0-9]))"
        ),
    )
)
# What makes a dollar sign that of a formula: a command before the next one, or a bare number.
FORMULA: Final = (
    rf"\$(?:[^$\n\\]*\\(?:[,;%$]|(?:{_TYPES}|{'|'.join(SYMBOLS)}|q?quad)(?![A-Za-z]))"
    r"(?:[^$\n\\]|\\[^\n])*\$|[0-9][0-9.,{}]*\$(?![0-9]))"
)
_SETTINGS = re.compile(SETTINGS)
_FORMULA = re.compile(FORMULA)
SEPARATED: Final = " \u00a0-()"


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text without its typesetting, and for each of its characters where it stood."""

    text: str
    starts: list[int]
    ends: list[int]


def undo_typesetting(text: str) -> PlainText | None:
    r"""The text as it was before it was set; None where nothing was done to it.

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
    braces: list[bool] = []  # of each open brace, whether it belongs to a command

    def keep(start: int, end: int) -> None:
        pieces.append(text[start:end])
        starts.extend(range(start, end))
        ends.extend(range(start + 1, end + 1))

    for match in _SETTINGS.finditer(text):
        start, end = match.span()
        keep(place, start)
        place = end
        sign: str | None = None  # None where it stays as it is
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


def _hyphen(hyphen: str, before: str, behind: str) -> str | None:
    """What a hyphen before a line's end stands for; None where it is a dash or a bullet."""
    if not (before.isalnum() and behind.isalnum()):
        return None
    if hyphen == "\u00ad":
        return ""
    # A name and a figure keep their hyphen; in other words it may have come with the line's end.
    return HYPHENATION if before.isalpha() and behind.islower() else "-"
