"""Finds a value of an argument in a text, whatever form it is written in.

One value are: a text in other case, marks and spaces; a date, a time of day or a moment in other
notations; a number with other separators, in words or with a scale; an amount in its minor unit;
and a telephone number, IBAN, hash or version with other separators, case or prefix. A telephone
number also stands without its country code, and a hash that is abbreviated in the whole one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

from crp_integrations.language.dates import dates, readings_of
from crp_integrations.language.folded_text import SEPARATED, Folded, locate
from crp_integrations.language.quantities import quantities

# A code is compared without its separators if it has at least this many letters and digits.
LEAST_CODE: Final = 6
# Maximum characters between a date and a time of day that are one moment, as in "at" or "um".
BESIDE: Final = 8
# Minimum digits after "00" of a telephone number in the international form.
LEAST_PHONE: Final = 9
_MOMENT: Final = re.compile(
    r"(?<![\d-])\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?(?![\d:])"
)
# A number whose thousands are set apart by blanks or apostrophes.
_GROUPED: Final = re.compile(
    r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u202f'\u2019]\d{3})+(?:[.,]\d{1,2})?(?![\w])"
)
_TWO_DECIMALS: Final = re.compile(r"[.,]\d\d(?!\d)")
_FIGURES: Final = r"(?<![\w.,:/-]){}(?!\w|[.,:/-]\d)"
_GAP: Final = r"[ \u00a0\u202f()-]"
_GROUP: Final = r"[^\W_]*[0-9][^\W_]*"
_GROUP_BEFORE: Final = re.compile(rf"{_GROUP}{_GAP}\Z")
_GROUP_AFTER: Final = re.compile(rf"{_GAP}{_GROUP}")
_JOINED_BEFORE: Final = re.compile(r"[^\W_][._]\Z")
_JOINED_AFTER: Final = re.compile(r"[._][^\W_]")
# Characters before an identifier that are looked at.
LONGEST_GROUP: Final = 24
_DROPPED: Final = frozenset(SEPARATED) | {"\u202f"}
_ALGORITHM: Final = re.compile(r"(?:sha-?\d{1,3}|md5):(?=[0-9a-f]+\Z)")

_PHONE: Final = re.compile(r"(?<![\w+.,-])(?:\+|\()?[0-9][0-9 \u00a0()/-]{6,}[0-9](?![\w.,]?[0-9])")
# Lengths of "+" and a country code (E.164).
_COUNTRY_CODE: Final = range(2, 5)
# A hash, or the beginning of one, with at least the seven digits that git shows.
_HASH: Final = re.compile(r"(?<!\w)[0-9a-fA-F]{7,64}(?!\w)")
LEAST_DIGEST: Final = 20

Mention = tuple[int, int, tuple[str, str]]


def place_of(value: object, text: str, *, minor: bool = False) -> tuple[int, int] | None:
    """Offsets of a value in a text; None if it does not stand there.

    Args:
        value: a string or a number of JSON; other values stand nowhere.
        minor: whether the value may be an amount of money in its minor unit.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _place_of_number(Decimal(repr(value)), text, minor)
    if not isinstance(value, str) or not value.strip():
        return None
    place = locate(value, _folded(text)) or _place_of_form(value, text)
    return place or _place_of_code(value, text) or _place_of_short_form(value, text)


def _place_of_number(number: Decimal, text: str, minor: bool) -> tuple[int, int] | None:
    wanted = {("number", _plain(number)), *([("minor", _plain(number))] if minor else [])}
    if place := _first(text, wanted):
        return place
    bare = re.search(_FIGURES.format(re.escape(_plain(number))), text)
    return bare.span() if bare else None


def _first(text: str, keys: set[tuple[str, str]]) -> tuple[int, int] | None:
    """The first place of a text that states one of the canonical forms."""
    stated = _stated(text)
    return min((stated[key] for key in keys if key in stated), default=None)


def _place_of_form(value: str, text: str) -> tuple[int, int] | None:
    """Offsets of a date, time, moment or number that is written in another form."""
    body = value.strip()
    # A text with a unit must have its unit too.
    own = [mention for mention in _mentions(body) if mention[2][0] not in ("minor", "number")]
    keys = {key for start, end, key in own if (start, end) == (0, len(body))}
    if body.isdecimal() and body[0] == "0":
        return None  # an identifier: its zeros count
    if place := _first(text, keys):
        return place
    if not _MOMENT.fullmatch(body) or any(key[0] == "moment" and "+" in key[1] for key in keys):
        return None
    parts = {key[0]: key for _, _, key in own if key[0] in ("date", "time")}
    days = [mention for mention in _mentions(text) if mention[2] == parts.get("date")]
    times = [mention for mention in _mentions(text) if mention[2] == parts.get("time")]
    for day in days:
        for time in times:
            start, end = min(day[0], time[0]), max(day[1], time[1])
            if max(day[0], time[0]) - min(day[1], time[1]) <= BESIDE:
                return start, end
    return None


@lru_cache(maxsize=64)
def _stated(text: str) -> dict[tuple[str, str], tuple[int, int]]:
    """The first place of each canonical form that a text states."""
    return {key: (start, end) for start, end, key in reversed(_mentions(text))}


@lru_cache(maxsize=64)
def _mentions(text: str) -> tuple[Mention, ...]:
    """Start, end and canonical form of each date, time of day, moment and number of a text."""
    mentions: list[Mention] = []
    for date in dates(text):
        for year, month, day in readings_of(date):
            if year and month and day:
                key = f"{year:04}-{month:02}-{day:02}"
                mentions.append((date.start, date.end, ("date", key)))
    mentions += [
        (*match.span(), ("moment", moment))
        for match in _MOMENT.finditer(text)
        if (moment := _moment(match.group()))
    ]
    grouped = [match.span() for match in _GROUPED.finditer(text)]
    for start, end in grouped:
        figures = re.sub(r"[ \u00a0\u202f'\u2019]", "", text[start:end]).replace(",", ".")
        mentions += _numbers(start, end, text[start:end], Decimal(figures), "")
    for quantity in quantities(text):
        start, end = quantity.start, quantity.end
        if quantity.low != quantity.high or any(a < end and start < b for a, b in grouped):
            continue
        if quantity.unit == "clock":
            hour, minute = divmod(int(quantity.value), 60)
            mentions.append((start, end, ("time", f"{hour:02}:{minute:02}")))
        else:
            mentions += _numbers(start, end, quantity.text, quantity.value, quantity.unit)
    return tuple(mentions)


def _numbers(start: int, end: int, text: str, value: Decimal, unit: str) -> Iterator[Mention]:
    yield start, end, ("number", _plain(value))
    yield start, end, ("amount", f"{_plain(value)} {unit}")
    if _TWO_DECIMALS.search(text):
        yield start, end, ("minor", _plain(value * 100))


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}" if number else "0"


def _moment(text: str) -> str:
    """A moment in UTC if its zone is stated; empty for one that the calendar does not have."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat()


def _code(value: str) -> str:
    """An identifier without separators, in lower case; empty for a text that is none."""
    body = _ALGORITHM.sub("", value.strip().casefold())
    code = "".join(sign for sign in body if sign not in _DROPPED)
    if code[:2] == "00" and code.isdecimal() and len(code) > LEAST_PHONE:
        code = f"+{code[2:]}"
    code = code[1:] if code[:1] == "v" and code[1:2].isdigit() else code
    long = sum(map(str.isalnum, code)) >= LEAST_CODE or "." in code
    return code if long and any(map(str.isdigit, code)) else ""


def _place_of_code(value: str, text: str) -> tuple[int, int] | None:
    """Offsets of an identifier that is written with other separators."""
    code = _code(value)
    if not code:
        return None
    head = r"(?:\+|00)" if code[0] == "+" else "v?"
    body = f"{_GAP}{{0,2}}".join(map(re.escape, code.lstrip("+")))
    pattern = re.compile(rf"(?<![^\W_]){head}{body}(?![^\W_])", re.IGNORECASE)
    matches = pattern.finditer(text)
    return next((match.span() for match in matches if not _continues(match)), None)


def _continues(match: re.Match[str]) -> bool:
    """Whether an identifier goes on before or after its match."""
    text, (start, end) = match.string, match.span()
    before = text[max(0, start - LONGEST_GROUP) : start]
    if _JOINED_BEFORE.search(before) or _JOINED_AFTER.match(text, end):
        return True
    # A group of digits beside groups of digits may belong to them: part of an IBAN is none.
    grouped = re.search(_GAP, match.group()) is not None
    return grouped and bool(_GROUP_BEFORE.search(before) or _GROUP_AFTER.match(text, end))


def _place_of_short_form(value: str, text: str) -> tuple[int, int] | None:
    """Offsets of a telephone number without its country code, or of a hash that is abbreviated."""
    body = value.strip()
    if _HASH.fullmatch(body):
        matches = _HASH.finditer(text)
        return next((m.span() for m in matches if _abbreviates(body, m.group())), None)
    number = _phone(body) if _PHONE.fullmatch(body) else ""
    for match in _PHONE.finditer(text) if number else ():
        other = _phone(match.group())
        long, short = (number, other) if number[0] == "+" else (other, number)
        code = len(long) - len(short)
        if long[0] == "+" != short[0] and long.endswith(short) and code in _COUNTRY_CODE:
            return match.span()
    return None


def _abbreviates(short: str, digest: str) -> bool:
    whole = len(digest) >= LEAST_DIGEST
    return whole and len(short) < len(digest) and digest.lower().startswith(short.lower())


def _phone(text: str) -> str:
    """The digits of a telephone number; with "+" if they begin with a country code."""
    digits = "".join(filter(str.isdigit, text))
    if text[0] == "+":
        return f"+{digits}"
    return digits.removeprefix("0")


@lru_cache(maxsize=64)
def _folded(text: str) -> Folded:
    return Folded(text)
