"""Text that a reader does not see: tag, selector and zero-width characters that carry data."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final, Literal

HiddenKind = Literal["tags", "variation selectors", "zero width", "bidirectional override"]


@dataclass(frozen=True, slots=True)
class HiddenText:
    """An invisible stretch [start, end) of a text.

    Attributes:
        decoded: hidden words, escaped to printable ASCII; empty if none could be decoded.
    """

    start: int
    end: int
    kind: HiddenKind
    decoded: str = ""


_TAGS = re.compile("[\U000e0000-\U000e007f]+")
# The only tag sequences that Unicode recommends: the flags of England, Scotland, Wales.
_FLAGS: Final = frozenset({"gbeng", "gbsct", "gbwls"})
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
_ZERO_WIDTH = (
    "\u034f\u115f\u1160\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
)
_RUN = re.compile(f"[{_ZERO_WIDTH}]+")
# Shorter runs are left by editors; fewer than eight in total cannot encode one letter.
_MIN_RUN: Final = 3
_MIN_TOTAL: Final = 8
# Scripts that use zero-width characters to join and separate letters: Hebrew to Myanmar,
# Hangul letters, Khmer and Mongolian, and their extension blocks.
_JOINED = re.compile(
    "[\u0590-\u11ff\u1780-\u18af\u1950-\u1aaf\u3130-\u318f\ua840-\uabff\uac00-\ud7ff\ufb1d-\ufdff\ufe70-\ufefc\U00010a00-\U00010fff\U00011000-\U00011fff]"
)
_OVERRIDE = re.compile("[\u202d\u202e][^\u202c\n\u2028\u2029]*\u202c?")
_RIGHT_TO_LEFT = re.compile("[\u202b\u2067][^\u202c\u2069\n\u2028\u2029]*[\u202c\u2069]?")


def hidden_text(text: str) -> tuple[HiddenText, ...]:
    r"""The stretches of a text that hide something, in order.

    Ordinary uses are not reported: flags, joiners in emoji and in scripts that join letters, a
    variation selector after a character that has variants, direction marks, and isolates around
    right-to-left text.
    """
    if text.isascii():
        return ()
    stretches = [*_tags(text), *_selectors(text), *_zero_width(text), *_directions(text)]
    return tuple(sorted(stretches, key=lambda stretch: (stretch.start, stretch.end)))


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


def _tags(text: str) -> Iterator[HiddenText]:
    for match in _TAGS.finditer(text):
        words = "".join(chr(ord(sign) - 0xE0000) for sign in match.group())
        flag = text[match.start() - 1 : match.start()] == "\U0001f3f4"
        if flag and words[-1] == "\x7f" and words[:-1] in _FLAGS:
            continue
        words = "".join(sign for sign in words if " " <= sign <= "~")
        yield HiddenText(match.start(), match.end(), "tags", words)


def _selectors(text: str) -> Iterator[HiddenText]:
    for match in _SELECTORS.finditer(text):
        run = match.group()
        if len(run) == 1 and _has_variants(text[: match.start()][-1:], run):
            continue
        # The usual encoding: the first 16 selectors are bytes 0 to 15, the supplement 16 to 255.
        codes = [ord(sign) for sign in run]
        data = bytes(code - 0xFE00 if code < 0xE0000 else code - 0xE00F0 for code in codes)
        yield HiddenText(match.start(), match.end(), "variation selectors", _printable(data))


def _has_variants(base: str, selector: str) -> bool:
    """Whether a selector may follow a character: an emoji, a sign, a keycap digit, or Han."""
    if not base or selector >= "\U000e0100":
        return bool(base) and unicodedata.category(base) == "Lo"
    if base.isalnum() and base.isascii():
        return base.isdigit() and selector in "\ufe0e\ufe0f"
    return unicodedata.category(base)[0] != "L" or unicodedata.category(base) == "Lo"


def _printable(data: bytes) -> str:
    try:
        words = data.decode()
    except UnicodeDecodeError:
        return ""
    return _escaped(words) if words.isprintable() else ""


def _zero_width(text: str) -> Iterator[HiddenText]:
    scattered: list[int] = []
    for match in _RUN.finditer(text):
        start, end = match.span()
        if end - start >= _MIN_RUN:
            yield HiddenText(start, end, "zero width", _bits(match.group()))
        elif not (_JOINED.match(text[start - 1 : start]) or _JOINED.match(text, end)):
            joins = text[start:end] == "\u200d" and _is_emoji(text, start, end)
            scattered.extend(() if joins else range(start, end))
    signs = "".join(text[place] for place in scattered)
    # One kind of sign only marks line-break places; two kinds can encode bits.
    if len(signs) >= _MIN_TOTAL and len(set(signs)) > 1:
        yield HiddenText(scattered[0], scattered[-1] + 1, "zero width", _bits(signs))


def _is_emoji(text: str, start: int, end: int) -> bool:
    """Whether a joiner is between symbols, as in a family or profession emoji."""
    before = text[max(0, start - 2) : start].rstrip("\ufe0f")[-1:]
    after = text[end : end + 1]
    return all(
        sign and unicodedata.category(sign) in ("So", "Sk", "Sm", "Po") for sign in (before, after)
    )


def _bits(signs: str) -> str:
    """The words that zero-width signs encode as bits; tries every choice of signs for 0 and 1."""
    kinds = sorted(set(signs))
    best = ""
    if not 2 <= len(kinds) <= 3:
        return best
    for zero_sign, one_sign, *parting in permutations(kinds):
        bits = signs.translate({ord(zero_sign): "0", ord(one_sign): "1"})
        groups = bits.split(parting[0]) if parting else re.findall(".{8}", bits)
        codes = [int(group, 2) for group in groups if 0 < len(group) <= 21]
        if codes and all(32 <= code < 0xD800 for code in codes):
            words = "".join(map(chr, codes))
            data = words if max(codes) > 255 else _utf8(words)
            if data.isprintable() and _weight(data) > _weight(best):
                best = data
    return _escaped(best)


def _utf8(words: str) -> str:
    try:
        return words.encode("latin-1").decode()
    except UnicodeDecodeError:
        return words


def _weight(words: str) -> int:
    return sum(sign.isascii() and (sign.isalpha() or sign == " ") for sign in words)


def _directions(text: str) -> Iterator[HiddenText]:
    for match in _OVERRIDE.finditer(text):
        yield HiddenText(match.start(), match.end(), "bidirectional override")
    for match in _RIGHT_TO_LEFT.finditer(text):
        # Without right-to-left characters inside, it only reverses other text.
        if not any(unicodedata.bidirectional(sign) in ("R", "AL", "AN") for sign in match.group()):
            yield HiddenText(match.start(), match.end(), "bidirectional override")
