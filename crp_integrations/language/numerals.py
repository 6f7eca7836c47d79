"""Numerals at a given place of a text: digits, fractions, number words and scales."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from crp_integrations.language.word_lists import LISTS


def _rows(name: str) -> list[list[str]]:
    return [row.split(":") for row in LISTS[name]]


ONES = {word: number for number, word in enumerate(LISTS["ones"])}
TENS = {word: number * 10 for number, word in enumerate(LISTS["tens"], 2)}
SCALES = {"dozen": Decimal(12)} | {word: Decimal(10 ** int(n)) for word, n in _rows("scales")}
TIMES = {"once": 1, "twice": 2, "thrice": 3}
ORDINALS = {word: number for number, word in enumerate(LISTS["ordinals"], 1)} | {
    word: number * 10 for number, word in enumerate(LISTS["tenth_ordinals"], 3)
}
_PARTS = {word: 1 / Decimal(whole) for word, whole in _rows("parts")}
_SPANS = frozenset({"decade", "century", "fortnight"})
_GLYPHS = {glyph: int(part) / Decimal(whole) for glyph, part, whole in _rows("glyphs")}
_RAISED = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u207a", "0123456789-+"
)

_BELOW_HUNDRED = frozenset({*ONES, *TENS})
_WORDS = "|".join(sorted(_BELOW_HUNDRED, key=lambda word: (-len(word), word)))
START = re.compile(
    r"(?<![\w])(?:\.?\d|[\u00bc-\u00be\u2150-\u215e]"
    rf"|(?:{_WORDS})(?![a-z])|(?<!first )(?<!second )(?<!latter )half(?!\w)"
    r"|(?:a|an)\s(?:(?:couple\s)?hundred|thousand|million|billion"
    r"|trillion|dozen|third|quarter|fifth|tenth|half|decade|century|fortnight)(?!\w)|twice(?!\w)|thrice(?!\w)"
    r"|once(?=\s(?:(?:hour|dai|week|month|year)ly|annually|(?:an?|per|every|each)\s(?:hour|day|week"
    r"|month|quarter|year)|per\sannum)\b))",
    re.IGNORECASE,
)
# A text without any of these words and without a digit contains no quantity.
WORDED = frozenset({*ONES, *TENS, *SCALES, *TIMES, *ORDINALS, *_PARTS, *_SPANS})
# Groups are bounded where the numeral is longer than `_LONGEST`, so that a long list of figures is
# not read again from each of them.
_DIGITS = re.compile(
    r"\d{1,3}(?:\.\d{3}){2,10}(?:,\d+)?(?!\d)"  # 1.234.567,89
    r"|\d{1,3}\.\d{3},\d{1,2}(?!\d)"  # 1.410,00
    r"|0,\d+(?!\d)"  # 0,188
    r"|\d{1,3}(?:,\d{2,3}){0,12},\d{3}(?:\.\d+)?(?!\d)"  # 4,200,000.5 and 12,34,567
    r"|\d{1,3}(?: \d{3}){1,10}(?:\.\d+)?(?![\d,])"  # 4 200 000
    r"|\d{1,3}(?:'\d{3}){1,10}(?:\.\d+)?(?!\d)"  # 4'200'000
    # 4,2 million, 3,5 Stunden: a unit follows, and not a word that continues a list.
    r"|\d+,\d{1,2}(?![\d,])(?=\s?(?:[%\u2030\u00b0$\u20ac\u00a3\u00a5\u20b9]|(?!(?:and|or|to|of|in|on"
    r"|at|by|for|from|with|as|is|are|was|were|und|oder|bis|et|ou|[a-z])\b)[^\W\d_]|(?:[mgltshAVWJ])\b))"
    # EUR 4,50: after a currency.
    r"|(?:(?<=[$\u20ac\u00a3])|(?<=[$\u20ac\u00a3]\s)|(?<=(?:EUR|CHF|PLN|SEK)\s))\d+,\d{2}(?![\d,])"
    r"|\d+(?:\.\d+)?|\.\d+"
)
_FRACTION = re.compile(r"(?:(?<=\d)\s(\d{1,3})/(\d{1,3})|/(\d{1,3}))(?![\w/]|[.,]\d)")
_POWER = re.compile(
    r"[eE]([+-]?\d{1,3})(?!\w)"
    r"|\s?[x\u00d7*]\s?10(?:\^?([+-]?\d{1,2})"
    r"|([\u207b\u207a]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]{1,2}))(?!\w)"
)
_COMMA = re.compile(r"\d+,\d{1,2}|0,\d+|\d{1,3}\.\d{3},\d{1,2}")
_LONGEST = 40  # characters of digits; longer runs are not numbers
_RAISED_RUN = re.compile(r"[\u00b9\u00b2\u00b3\u2070\u2074-\u2079]{1,2}(?!\w)")
_WORD = re.compile(r"[A-Za-z]+")
_JOIN = re.compile(r"[\s-]{1,3}")
_SCALE = re.compile(rf"[\s-]?(?:{'|'.join(SCALES)})(?![A-Za-z])", re.IGNORECASE)
_AND_PART = re.compile(r"\s+and\s+(?:a|one|three)\s+(half|quarters?|third)(?!\w)", re.IGNORECASE)
_FRACTION_WORD = re.compile(
    r"[\s-](half|halves|third|quarter|fourth|fifth|sixth|eighth|tenth)s?(?=\s+of\b|[.,;]|\s*$)",
    re.IGNORECASE,
)
_A = re.compile(r"an?\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Numeral:
    """A numeral of a folded text.

    Attributes:
        scaled: whether it contains a scale word such as "million".
        worded: whether it is written in letters.
        share: whether it is a fraction in words, such as "two thirds".
    """

    end: int
    value: Decimal
    scaled: bool = False
    worded: bool = False
    share: bool = False


def read_numeral(text: str, place: int) -> Numeral | None:
    """The numeral that begins at a place of a folded text; None when there is none."""
    first = text[place]
    if first in _GLYPHS:
        return _scaled(text, place + 1, _GLYPHS[first])
    if first.isdigit() or first == ".":
        return _digits(text, place)
    return _worded(text, place)


def _digits(text: str, place: int) -> Numeral | None:
    match = _DIGITS.match(text, place)
    if match is None:
        return None
    written, end = match.group(), match.end()
    if len(written) > _LONGEST:
        return None
    if written.count(".") > 1 or _COMMA.fullmatch(written):
        written = written.replace(".", "").replace(",", ".")
    value = Decimal(re.sub(r"[, ']", "", written))
    if end < len(text) and text[end] in _GLYPHS:
        return _scaled(text, end + 1, value + _GLYPHS[text[end]])
    fraction = _FRACTION.match(text, end)
    if fraction is not None and value == value.to_integral_value():
        upper, lower = (fraction[1], fraction[2]) if fraction[1] else (None, fraction[3])
        if int(lower) > 1 and upper is not None and int(upper) < int(lower):
            return _scaled(text, fraction.end(), value + Decimal(upper) / int(lower))
        if int(lower) > 1 and upper is None and value < int(lower):
            return _scaled(text, fraction.end(), value / int(lower))
    power = _POWER.match(text, end)
    if power is not None:
        exponent = int((power[1] or power[2] or power[3]).translate(_RAISED))
        return Numeral(power.end(), value.scaleb(exponent))
    raised = _RAISED_RUN.match(text, end)
    if raised is not None and value <= 10**6:
        return Numeral(raised.end(), value ** int(raised.group().translate(_RAISED)))
    return _scaled(text, end, value)


def _scaled(text: str, end: int, value: Decimal, *, worded: bool = False) -> Numeral:
    scaled = False
    half = _AND_PART.match(text, end)
    if half is not None:
        part = half[1].lower().rstrip("s")
        value += _PARTS[part] * (3 if "three" in half.group().lower() else 1)
        end = half.end()
    while (match := _SCALE.match(text, end)) is not None:
        value *= SCALES[match.group().strip(" \t\n-").lower()]
        end, scaled = match.end(), True
    return Numeral(end, value, scaled, worded)


def _worded(text: str, place: int) -> Numeral | None:
    article = _A.match(text, place)
    start = article.end() if article is not None else place
    match = _WORD.match(text, start)
    if match is None:
        return None
    word = match.group().lower()
    if word in TIMES:
        return Numeral(match.end(), Decimal(TIMES[word]), worded=True)
    if word == "couple":
        match = _WORD.match(text, match.end() + 1)
        return None if match is None else Numeral(match.end(), Decimal(200), True, True)
    if word == "half":
        over = re.compile(r"\s+an?\s+|[\s-]").match(text, match.end())
        scale = _SCALE.match(text, over.end()) if over is not None else None
        if scale is not None:
            return _scaled(text, over.end() if over else 0, _PARTS["half"], worded=True)
        return Numeral(match.end(), _PARTS["half"], worded=True, share=True)
    if word in SCALES:
        return _scaled(text, start, Decimal(1), worded=True)
    if article is not None and word in _SPANS:
        # "A decade": the article is the numeral, and the word is its unit.
        return Numeral(article.end() - 1, Decimal(1), worded=True)
    if article is not None and word in _PARTS:
        end = match.end()
        return Numeral(end, _PARTS[word], worded=True, share=True) if _of(text, end) else None
    return _sum(text, start)


def _of(text: str, place: int) -> bool:
    return re.compile(r"\s+of\b").match(text, place) is not None


def _sum(text: str, place: int) -> Numeral | None:
    """A numeral of several number words, such as "two hundred and five thousand"."""
    total = current = Decimal(0)
    end = place
    last = ""
    at = place
    scaled = False
    while (match := _WORD.match(text, at)) is not None:
        word = match.group().lower()
        if word == "and" and last in ("scale", "hundred"):
            joint = _JOIN.match(text, match.end())
            following = _WORD.match(text, joint.end()) if joint is not None else None
            if following is None or following.group().lower() not in _BELOW_HUNDRED:
                break
            at = following.start()
            continue
        kind = _fits(word, last)
        if kind is None:
            break
        if kind == "one":
            current += ONES[word]
        elif kind == "ten":
            current += TENS[word]
        elif kind == "hundred":
            current = max(current, Decimal(1)) * SCALES[word]
            scaled = True
        else:
            total += max(current, Decimal(1)) * SCALES[word]
            current = Decimal(0)
            scaled = True
        last = "teen" if kind == "one" and ONES[word] > 9 else kind
        end = match.end()
        joint = _JOIN.match(text, end)
        if joint is None:
            break
        at = joint.end()
    if not last:
        return None
    value = total + current
    part = _FRACTION_WORD.match(text, end)
    if part is not None and 0 < value < 20:
        return Numeral(part.end(), value * _PARTS[part[1].lower()], worded=True, share=True)
    rest = _scaled(text, end, value, worded=True)
    return Numeral(rest.end, rest.value, scaled or rest.scaled, True)


def _fits(word: str, last: str) -> str | None:
    if word in ONES:
        small = 0 < ONES[word] < 10
        fits = last in ("", "hundred", "scale") or (last == "ten" and small)
        return "one" if fits else None
    if word in TENS:
        return "ten" if last in ("", "hundred", "scale") else None
    if word in ("hundred", "dozen"):
        return "hundred" if last in ("one", "ten", "teen") else None
    if word in SCALES:
        return "scale" if last else None
    return None
