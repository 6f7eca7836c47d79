"""Readings of a text with a disguise or encoding undone: a table of the ways to undo one."""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote

from crp_integrations.guard.injection.records import RuleName

# A reading is searched only if it contains some of these, and no fewer than the text itself.
_KEYWORDS: Final = re.compile(
    "ignore|disregard|forget|bypass|reveal|print|previous|instruction|prompt|system|password"
    "|secret|rules|developer|guideline|restrict|without|assistant"
)


class DisguiseReading(NamedTuple):
    """A text with a disguise undone.

    Attributes:
        start, end: range of the original text that differs.
    """

    rule: RuleName
    how: str
    text: str
    start: int
    end: int


def read_disguises(text: str) -> Iterator[DisguiseReading]:
    """The readings, in lower case, that contain words of orders, and no fewer than the text."""
    low = text.lower()
    known = max(1, len(_KEYWORDS.findall(low)))
    for rule, how, undo in _DISGUISES:
        reading = undo(text)
        undone = reading.lower()
        if undone != low and len(_KEYWORDS.findall(undone)) >= known:
            start = _same_length(text, reading)
            end = len(text) - _same_length(text[::-1], reading[::-1])
            yield DisguiseReading(rule, how, undone, start, max(start, end))


def _same_length(left: str, right: str) -> int:
    """Number of characters that two texts have in common at their beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def _within(
    pattern: str, undo: Callable[[str], str | bytes], flags: int = 0
) -> Callable[[str], str]:
    """A function that undoes the matches of a pattern if the result is readable text."""
    compiled = re.compile(pattern, flags)

    def undone(match: re.Match[str]) -> str:
        try:
            plain = undo(match.group())
            plain = plain.decode("ascii") if isinstance(plain, bytes) else plain
        except (ValueError, binascii.Error):
            return match.group()
        return plain if plain.isascii() and plain.replace("\n", "").isprintable() else match.group()

    return lambda text: compiled.sub(undone, text)


def _from_base64(text: str) -> bytes:
    bare = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)


def _from_base32(text: str) -> bytes:
    bare = text.rstrip("=")
    return base64.b32decode(bare + "=" * (-len(bare) % 8))


def _from_bits(text: str) -> str:
    return "".join(chr(int(byte, 2)) for byte in re.findall("[01]{8}", text))


def _join_letters(text: str) -> str:
    """Join letters that are separated by one separator; wider gaps separate words."""
    words = re.split(r"[ .\-_*|/,]{2,6}", text)
    return " ".join(re.sub(r"[\W_]", "", word) for word in words)


_LEET: Final = str.maketrans("0134578@$!|", "oieastbasil")
_ALIKE: Final = str.maketrans("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455", "aeopcyxis")
_DISGUISES: Final[tuple[tuple[RuleName, str, Callable[[str], str]], ...]] = (
    ("encoded", "Base64", _within(r"[A-Za-z0-9+/_-]{20,}={0,2}", _from_base64)),
    ("encoded", "Base32", _within("[A-Z2-7]{32,}={0,6}", _from_base32)),
    ("encoded", "hexadecimal digits", _within("(?:[0-9A-Fa-f]{2} ?){16,}", bytes.fromhex)),
    (
        "encoded",
        "escapes",
        _within(
            r"(?:\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})+",
            lambda s: codecs.decode(s, "unicode_escape"),
        ),
    ),
    ("encoded", "percent signs", unquote),
    ("encoded", "character references", html.unescape),
    ("encoded", "bits", _within("(?:[01]{8} ?){8,}", _from_bits)),
    (
        "disguised",
        "letters apart",
        _within(r"(?<!\w)(?:\w[ .\-_*|/,]{1,6}){6,400}\w(?!\w)", _join_letters),
    ),
    ("disguised", "pieces", _within(r"['\"][ \n]{0,4}[+.,&]?[ \n]{0,4}['\"]", lambda _: "")),
    ("disguised", "digits for letters", lambda text: text.translate(_LEET)),
    ("disguised", "letters of another script", lambda text: text.translate(_ALIKE)),
    ("disguised", "letters turned by thirteen", lambda text: codecs.encode(text, "rot13")),
    ("disguised", "letters written backwards", lambda text: text[::-1]),
)
