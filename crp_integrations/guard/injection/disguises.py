"""Readings of a text that a disguise keeps from a plain search, and blobs that encode a text.

Each reading is a text with, for each of its characters, a place in the original: letters apart
are put together, digits for letters are undone, scrambled words are sorted back, pieces of a
string are joined, letters turned by thirteen places or written backwards are turned back.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

# Letters with one separator between, at least five of them, as words with wider gaps.
_APART = re.compile(r"(?<!\w)(?:\w[ .\-_*|/,]){4,400}\w(?!\w)")
_APART_WORDS = re.compile(r"(?<!\w)(?:\w(?:[ .\-_*|/,]{1,4})){6,400}\w(?!\w)")
_PIECES = re.compile(r"[\"'][ \n\t]{0,4}(?:\+|\.\.?|&|,)?[ \n\t]{0,4}[\"']")
_LEETS = (
    str.maketrans("0134578@$!|+", "oieastbasiit"),
    str.maketrans("0134578@$!|+9", "oleastbaslltg"),
)
_TOKEN = re.compile(r"[a-z0-9@$!|+]{4,24}")
_PERCENT = re.compile("%20")
_LONG = re.compile(r"\b[a-z]{5,16}\b")
_LIKE = "\u0430a\u0435e\u043eo\u0440p\u0441c\u0443y\u0445x\u0456i\u0458j\u0455s"
_LIKE += "\u0501d\u04bbh\u03bfo\u03b1a\u03bdv\u03c1p"
_LATIN = str.maketrans(_LIKE[::2], _LIKE[1::2])
_ALIKE = re.compile(rf"\b[{_LIKE[::2]}]{{2,20}}\b")
_ASCII = re.compile("[a-z ]")
_ROT13 = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM",
)
_KEYWORDS = (
    "ignore disregard forget bypass override previous prior above earlier instruction instructions "
    "prompt prompts rules guidelines system reveal print repeat output password secret developer "
    "unrestricted pretend everything restrictions commands directives following delete transfer "
    "conversation hidden original execute assistant without unfiltered developer message approve "
    "answer respond filters anything jailbreak preceding reveal credentials confidential"
).split()
# What a text must hold, read the other way, to be worth reading at all.
_TURNED = re.compile("|".join(word.translate(_ROT13) for word in _KEYWORDS if len(word) > 5))
_BACKWARDS = re.compile("|".join(word[::-1] for word in _KEYWORDS if len(word) > 5))


@dataclass(frozen=True, slots=True)
class DisguiseReading:
    """One way to read a text.

    Attributes:
        how: what was undone, for a reason.
        text: in lower case.
        places: for each character its offset in the original; None when both run in step.
        turned: whether the characters run backwards.
        length: of the original.
    """

    how: str
    text: str
    length: int
    places: Sequence[int] | None = None
    turned: bool = False

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The original's stretch for a stretch of the reading."""
        if self.turned:
            return self.length - end, self.length - start
        if self.places is None:
            return start, end
        return self.places[start], self.places[end - 1] + 1


def read_disguises(low: str) -> Iterator[DisguiseReading]:
    """Every reading that differs from the text."""
    size = len(low)
    if _APART.search(low) or _APART_WORDS.search(low):
        yield _close_gaps(low)
    if _PIECES.search(low):
        yield _without(low, _PIECES, "joined from pieces")
    plain = _unleeted(low)
    if plain != low:
        yield DisguiseReading("written with digits for letters", plain, size)
    if "%20" in low:
        yield _without(low, _PERCENT, "written with percent signs", " ")
    alike = _in_latin(low)
    if alike != low:
        yield DisguiseReading("written with letters of another script", alike, size)
    sorted_back = _unscrambled(low)
    if sorted_back != low:
        yield DisguiseReading("written with letters in another order", sorted_back, size)
    if _TURNED.search(low):
        yield DisguiseReading("turned by thirteen letters", low.translate(_ROT13), size)
    if _BACKWARDS.search(low):
        yield DisguiseReading("written backwards", low[::-1], size, turned=True)


def _close_gaps(low: str) -> DisguiseReading:
    """Letters apart, put together; two separators or more end a word."""
    kept: list[int] = []
    parts: list[str] = []
    last = 0

    def keep(start: int, end: int) -> None:
        parts.append(low[start:end])
        kept.extend(range(start, end))

    runs = sorted(
        {match.span() for pattern in (_APART_WORDS, _APART) for match in pattern.finditer(low)},
        key=lambda span: (span[0], -span[1]),
    )
    for start, end in runs:
        if start < last:
            continue
        keep(last, start)
        at = start
        while at < end:
            if low[at].isalnum():
                keep(at, at + 1)
                at += 1
                continue
            wide = at
            while at < end and not low[at].isalnum():
                at += 1
            if at - wide > 1:
                parts.append(" ")
                kept.append(wide)
        last = end
    keep(last, len(low))
    return DisguiseReading("written with letters apart", "".join(parts), len(low), kept)


def _without(low: str, pattern: re.Pattern[str], how: str, instead: str = "") -> DisguiseReading:
    """The text with what a pattern finds replaced by nothing or by one character."""
    kept: list[int] = []
    parts: list[str] = []
    last = 0
    for match in pattern.finditer(low):
        parts.append(low[last : match.start()])
        parts.append(instead)
        kept.extend(range(last, match.start() + len(instead)))
        last = match.end()
    parts.append(low[last:])
    kept.extend(range(last, len(low)))
    return DisguiseReading(how, "".join(parts), len(low), kept)


def _key(word: str) -> tuple[str, str]:
    return word[0] + word[-1] + str(len(word)), "".join(sorted(word[1:-1]))


_SORTED = {_key(word): word for word in _KEYWORDS}
_ENGLISH = frozenset(_KEYWORDS)


_LENGTHS = frozenset(len(word) for word in _KEYWORDS)


def _in_latin(low: str) -> str:
    """Words of look-alikes alone, in Latin letters, where most of the text is Latin."""
    if low.isascii() or len(_ASCII.findall(low)) * 2 < len(low):
        return low
    return _ALIKE.sub(lambda match: match.group().translate(_LATIN), low)


def _unleeted(low: str) -> str:
    """The text with keywords in letters that were written with digits and signs."""
    right: dict[str, str] = {}
    for token in set(_TOKEN.findall(low)):
        if token.isalpha() or token.isdecimal():
            continue
        bare = token.strip("!|+")
        for table in _LEETS:
            word = bare.translate(table)
            if word in _ENGLISH and word != bare:
                right[token] = token.replace(bare, word)
    if not right:
        return low
    return _TOKEN.sub(lambda match: right.get(match.group(), match.group()), low)


def _unscrambled(low: str) -> str:
    """The text with scrambled keywords as they are spelled; first and last letter stay."""
    wrong = {
        word: right
        for word in set(_LONG.findall(low))
        if len(word) in _LENGTHS
        and word not in _ENGLISH
        and (right := _SORTED.get(_key(word))) is not None
    }
    if not wrong:
        return low
    return _LONG.sub(lambda match: wrong.get(match.group(), match.group()), low)


# A run with digits, and letters of both cases, or padding: an ordinary word is none.
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}={0,2}")
_BASE32 = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{32,}={0,6}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0x)?(?:[0-9A-Fa-f]{2}[ :]?){16,}(?![0-9A-Za-z])")
_ESCAPED = re.compile(r"(?:\\x[0-9A-Fa-f]{2}|\\u\{?[0-9A-Fa-f]{4}\}?|\\[0-7]{3}){6,}")
_PERCENT_SIGNS = re.compile(r"(?:%[0-9A-Fa-f]{2}){8,}")
_ENTITIES = re.compile(r"(?:&#(?:x[0-9A-Fa-f]{2,5}|[0-9]{2,6});){6,}")
_BITS = re.compile(r"(?<![01])(?:[01]{8} ?){8,}(?![01])")
_DECIMALS = re.compile(r"(?<!\d)(?:(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6])[, ]{1,2}){12,}\d{2,3}")
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u\{?([0-9A-Fa-f]{4})\}?|\\([0-7]{3})")
_ENTITY = re.compile(r"&#(?:x([0-9A-Fa-f]{2,5})|([0-9]{2,6}));")
_TEXT_WORDS = re.compile(r"[A-Za-z]{2,15}")
_FEWEST_WORDS = 4


@dataclass(frozen=True, slots=True)
class Blob:
    """A stretch of a text that says something else when decoded.

    Attributes:
        how: the encoding, for a reason.
        text: what it says.
        start, end: offsets in the text that holds it.
    """

    how: str
    text: str
    start: int
    end: int

    @property
    def prose(self) -> bool:
        """Whether it reads as a sentence and not as data."""
        found = _TEXT_WORDS.findall(self.text)
        letters = sum(map(len, found))
        blanks = self.text.count(" ")
        return (
            len(found) >= _FEWEST_WORDS
            and blanks >= _FEWEST_WORDS - 1
            and letters + blanks >= 0.85 * len(self.text)
        )


def find_blobs(text: str, longest: int) -> Iterator[Blob]:
    """Every blob that decodes to readable text."""
    for how, pattern, decode in _KINDS:
        for match in pattern.finditer(text):
            said = _readable(decode(match.group()[:longest]))
            if said:
                yield Blob(how, said, *match.span())


def _readable(raw: bytes | None) -> str:
    """The text of bytes, empty when they are none."""
    if not raw:
        return ""
    for encoding in ("utf-8", "utf-16-le"):
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        shown = sum(character.isprintable() or character in "\n\r\t" for character in text)
        if shown == len(text) and text.isascii():
            return text
    return ""


def _from_base64(text: str) -> bytes | None:
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    if bare.isalpha() and (bare.islower() or bare.isupper()):
        return None
    bare = bare[: len(bare) - (len(bare) % 4 == 1)]
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _from_base32(text: str) -> bytes | None:
    bare = text.rstrip("=")
    try:
        return base64.b32decode(bare + "=" * (-len(bare) % 8))
    except (binascii.Error, ValueError):
        return None


def _from_hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text.removeprefix("0x").replace(":", " "))
    except ValueError:
        return None


def _from_escapes(text: str) -> bytes | None:
    codes = [
        int(hex2 or hex4 or octal, 8 if octal else 16)
        for hex2, hex4, octal in _ESCAPE.findall(text)
    ]
    return "".join(map(chr, codes)).encode("utf-8", "replace")


def _from_entities(text: str) -> bytes | None:
    codes = [int(hexa, 16) if hexa else int(deci) for hexa, deci in _ENTITY.findall(text)]
    return "".join(chr(min(code, 0x10FFFF)) for code in codes).encode("utf-8", "replace")


def _from_bits(text: str) -> bytes | None:
    bits = text.replace(" ", "")
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))


def _from_decimals(text: str) -> bytes | None:
    numbers = [int(one) for one in re.findall(r"\d+", text)]
    return bytes(numbers) if max(numbers) < 256 else None


_KINDS: tuple[tuple[str, re.Pattern[str], Callable[[str], bytes | None]], ...] = (
    ("Base64", _BASE64, _from_base64),
    ("Base32", _BASE32, _from_base32),
    ("hexadecimal digits", _HEX, _from_hex),
    ("escapes", _ESCAPED, _from_escapes),
    ("percent signs", _PERCENT_SIGNS, unquote_to_bytes),
    ("character references", _ENTITIES, _from_entities),
    ("bits", _BITS, _from_bits),
    ("character codes", _DECIMALS, _from_decimals),
)
