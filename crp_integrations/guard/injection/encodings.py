"""Blobs that hold a text: Base64, Base32, hexadecimal, percent signs, escapes, entities, bits."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

# A run with digits, and letters of both cases, or padding: an ordinary word is none.
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}={0,2}")
_BASE32 = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{32,}={0,6}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0x)?(?:[0-9A-Fa-f]{2}[ :]?){16,}(?![0-9A-Za-z])")
_ESCAPED = re.compile(r"(?:\\x[0-9A-Fa-f]{2}|\\u\{?[0-9A-Fa-f]{4}\}?|\\[0-7]{3}){6,}")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}){8,}")
_ENTITIES = re.compile(r"(?:&#(?:x[0-9A-Fa-f]{2,5}|[0-9]{2,6});){6,}")
_BITS = re.compile(r"(?<![01])(?:[01]{8} ?){8,}(?![01])")
_DECIMALS = re.compile(r"(?<!\d)(?:(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6])[, ]{1,2}){12,}\d{2,3}")
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u\{?([0-9A-Fa-f]{4})\}?|\\([0-7]{3})")
_ENTITY = re.compile(r"&#(?:x([0-9A-Fa-f]{2,5})|([0-9]{2,6}));")
_WORDS = re.compile(r"[A-Za-z]{2,15}")
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
        found = _WORDS.findall(self.text)
        letters = sum(map(len, found))
        blanks = self.text.count(" ")
        return (
            len(found) >= _FEWEST_WORDS
            and blanks >= _FEWEST_WORDS - 1
            and letters + blanks >= 0.85 * len(self.text)
        )


def blobs(text: str, longest: int) -> Iterator[Blob]:
    """Every blob that decodes to readable text.

    Args:
        text: as given; folding would change what is encoded.
        longest: characters of a blob that are decoded.
    """
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
    ("percent signs", _PERCENT, unquote_to_bytes),
    ("character references", _ENTITIES, _from_entities),
    ("bits", _BITS, _from_bits),
    ("character codes", _DECIMALS, _from_decimals),
)
