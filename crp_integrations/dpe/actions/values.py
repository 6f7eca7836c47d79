"""Finds a value of an argument in a text, whatever form it is written in.

One value are: a text in other case, marks and spaces; a date, a time of day or a moment in other
notations; a number with other separators, in words or with a scale; an amount in its minor unit;
and a telephone number, IBAN, hash or version with other separators, case or prefix. A telephone
number also stands without its country code, and a hash that is abbreviated in the whole one. A
figure beside a sign or a word such as "tausend" is another number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Final

from crp_integrations.language.dates import dates, readings_of
from crp_integrations.language.folded_text import SEPARATED, Folded, folded_words
from crp_integrations.language.memo import remembered_within
from crp_integrations.language.numerals import SCALES
from crp_integrations.language.quantities import Quantity, quantities

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
_SECONDS: Final = re.compile(r"\d?\d:\d\d(:\d\d(?:[.,]\d+)?)")
_COMMA_BEFORE: Final = re.compile(r"\d,\Z")
_COMMA_AFTER: Final = re.compile(r",\d")
_THOUSANDS: Final = re.compile(r"(?<![\d.,])\d{1,3}\.\d{3}(?![\d.,])")
_TWO_DECIMALS: Final = re.compile(r"[.,]\d\d(?!\d)")
_FIGURES: Final = r"(?<![\w.,:/-]){}(?!\w|[.,:/-]\d)"
_GAP: Final = r"[ \u00a0\u202f()-]"
_GROUP: Final = r"[^\W_]*[0-9][^\W_]*"
_GROUP_BEFORE: Final = re.compile(rf"{_GROUP}{_GAP}\Z")
_GROUP_AFTER: Final = re.compile(rf"{_GAP}{_GROUP}")
# Signs that join the parts of one name or address, and those of a path.
_MARKS: Final = r"._@+\-\u2010\u2011"
_PATH_MARKS: Final = rf"{_MARKS}/?#&="
# A number that is written in digits alone; one with a zero first is an identifier.
_FIGURE: Final = re.compile(r"(?:0|[1-9]\d*)(?:[.,]\d{1,2})?")
# Maximum characters of a value that is sought in other forms than its own words.
LONGEST_FORM: Final = 200
# Characters before an identifier that are looked at.
LONGEST_GROUP: Final = 24
# Words that multiply the figure before them; `quantities` reads the English ones.
_MAGNITUDES: Final = "|".join(SCALES) + (
    "|hundert|tausend|tsd|mio|million(?:en)?|mia|mrd|mlrd|mld|mds|milliard(?:en?)?"
    "|billion(?:en)?|dutzend|[tkm]eur|mill[eoó]n(?:es)?|mil(?:le|a)?|mili(?:oni|ard[io])"
    "|[mb]ilh(?:ão|ões)|cientos|docenas?|douzaines?"
)
_CURRENCY: Final = r"(?:[$\u20ac\u00a3\u00a5\u20b9]|(?:EUR|USD|GBP|CHF|JPY|PLN|SEK)(?![^\W\d]))"
# "Mill" and "Md" are also names and titles: they count before a stop or a currency.
_SHORT: Final = rf"(?:mill|md)(?=\.|[ \u00a0\u202f]?(?:{_CURRENCY}|euro|dollar|d['\u2019]))"
# A word that multiplies, or the minus of a bookkeeper: "40,00-".
_MULTIPLIED: Final = re.compile(
    rf"[ \u00a0\u202f-]?(?:(?i:{_MAGNITUDES}|{_SHORT})s?|[kKMT])(?![\w-])"
    rf"|-(?![\w-]|{_CURRENCY}\s?\d)"
)
_CURRENCY_AT: Final = re.compile(_CURRENCY)
_CURRENCY_BEFORE: Final = re.compile(rf"{_CURRENCY}\s?\Z")
_SIGN: Final = re.compile(r"(?:(?i:\b(?:minus|moins|menos))|([-\u2010-\u2014])|\u2212)(\s?)\Z")
# No sign: a range's dash, one that begins a line, or a long one between blanks.
_UNSIGNED: Final = re.compile(
    rf"(?:{_CURRENCY}\s?\d[\d.,']*|\d\s?{_CURRENCY})(\s?)[-\u2010-\u2014]\1\Z"
    r"|\n\s*[-\u2010\u2011]\s\Z|\s[\u2012-\u2014]\s\Z"
)
# After one of these, or before a currency, a hyphen with a blank is a sign: "Rent - 40 EUR" is not.
_OPENS: Final = re.compile(r"[:|(=,;\[]\s?\Z")
# A text that states a number.
_AMOUNT: Final = re.compile(rf"(?:{_CURRENCY}\s?)?\d[\d.,' ]*(?:\s?(?:{_CURRENCY}|[^\W\d]+))?")
# Characters before a figure that may contain a sign and a currency.
LONGEST_SIGN: Final = 24
# Maximum characters of the texts whose readings are cached.
CACHED: Final = 1_000_000
_DROPPED: Final = frozenset(SEPARATED) | {"\u202f"}
_ALGORITHM: Final = re.compile(r"(?:sha-?\d{1,3}|md5):(?=[0-9a-f]+\Z)")

_PHONE: Final = re.compile(r"(?<![\w+.,-])(?:\+|\()?[0-9][0-9 \u00a0()/-]{6,}[0-9](?![\w.,]?[0-9])")
# Lengths of "+" and a country code (E.164).
_COUNTRY_CODE: Final = range(2, 5)
# The beginning of a hash with at least the seven digits that git shows, and a whole one.
_SHORT_HASH: Final = re.compile(r"[0-9a-fA-F]{7,64}")
_HASH: Final = re.compile(r"(?<!\w)(?:[0-9a-f]{40}|[0-9a-f]{64})(?!\w)")

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
    if _FIGURE.fullmatch(body := value.strip()):
        place = _place_of_number(Decimal(body.replace(",", ".")), text, minor=False)
    else:
        place = _place_of_words(value, text)
    if place or len(body) > LONGEST_FORM:
        return place
    place = _place_of_form(value, text) or _place_of_code(value, text)
    return place or _place_of_short_form(value, text)


def _place_of_words(value: str, text: str) -> tuple[int, int] | None:
    words = folded_words(value)
    if not any(map(str.isalnum, words)):
        return None
    places = _read(text).folded.every(words)
    return next((place for place in places if not _is_joined(value, text, *place)), None)


def _is_joined(value: str, text: str, start: int, end: int) -> bool:
    """Whether a longer name, address, path or number goes on beside a place."""
    if _AMOUNT.fullmatch(value) and _is_changed(text, start, end):
        return True
    marks = _PATH_MARKS if "/" in value else _MARKS
    later = f"{marks}:" if ":" in value else marks
    before = text[max(0, start - 3) : start]
    after = text[end : end + 3]
    return bool(
        re.search(rf"[^\W_][{marks}]+\Z", before) or re.match(rf"[{later}]{{1,2}}[^\W_]", after)
    )


def _place_of_number(number: Decimal, text: str, minor: bool) -> tuple[int, int] | None:
    wanted = {("number", _plain(number)), *([("minor", _plain(number))] if minor else [])}
    if place := _first(text, wanted):
        return place
    for bare in re.finditer(_FIGURES.format(re.escape(_plain(number))), text):
        # What is read as another number, and a group of digits beside others, is only a part.
        start, end = bare.span()
        if _is_changed(text, start, end):
            continue
        if _read(text).dated[start] or not (
            _read(text).counted[start] or _is_grouped(text, start, end)
        ):
            return start, end
    return None


def _is_changed(text: str, start: int, end: int) -> bool:
    """Whether a sign or a word such as "tausend" makes a figure another number."""
    if text[end - 1].isdigit() and _MULTIPLIED.match(text, end):
        return True
    before = ("\n" * (start <= LONGEST_SIGN)) + text[max(0, start - LONGEST_SIGN) : start]
    money = _CURRENCY_AT.match(text, start) or _CURRENCY_BEFORE.search(before)
    before = _CURRENCY_BEFORE.sub("", before)
    sign = _SIGN.search(before)
    if sign is None or _UNSIGNED.search(before):
        return False
    apart = sign[1] and sign[2] and not money
    return not apart or _OPENS.search(before[: sign.start()]) is not None


def _first(text: str, keys: set[tuple[str, str]]) -> tuple[int, int] | None:
    """The first place of a text that states one of the canonical forms."""
    stated = _read(text).stated
    return min((stated[key] for key in keys if key in stated), default=None)


def _place_of_form(value: str, text: str) -> tuple[int, int] | None:
    """Offsets of a date, time, moment or number that is written in another form."""
    body = value.strip()
    # A text with a unit must have its unit too.
    own = [mention for mention in _read(body).mentions if mention[2][0] not in ("minor", "number")]
    keys = {key for start, end, key in own if (start, end) == (0, len(body))}
    if body.isdecimal() and body[0] == "0":
        return None  # an identifier: its zeros count
    if place := _first(text, keys):
        return place
    if not _MOMENT.fullmatch(body) or any(key[0] == "moment" and "+" in key[1] for key in keys):
        return None
    parts = {key[0]: key for _, _, key in own if key[0] in ("date", "time")}
    # A day and a time that are near each other are neighbours in the order of both.
    both = sorted(mention for mention in _read(text).mentions if mention[2] in parts.values())
    for (start, middle, kind), (other, end, second) in pairwise(both):
        if kind != second and other - middle <= BESIDE:
            return start, max(middle, end)
    return None


class _Figures:
    """A text, and what it states."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def folded(self) -> Folded:
        return Folded(self.text)

    @cached_property
    def mentions(self) -> tuple[Mention, ...]:
        return _mentions(self.text)

    @cached_property
    def stated(self) -> dict[tuple[str, str], tuple[int, int]]:
        """The first place of each canonical form."""
        return {key: (start, end) for start, end, key in reversed(self.mentions)}

    @cached_property
    def dated(self) -> bytearray:
        """Whether there is a date, by offset."""
        return _marked(self.text, [m for m in self.mentions if m[2][0] == "date"])

    @cached_property
    def counted(self) -> bytearray:
        """Whether there is a number, by offset."""
        return _marked(self.text, [m for m in self.mentions if m[2][0] == "number"])


_read = remembered_within(CACHED, longest=CACHED)(_Figures)


def _marked(text: str, spans: Iterable[tuple[int, int, *tuple[object, ...]]]) -> bytearray:
    """For each offset of a text whether it is in one of the spans."""
    marks = bytearray(len(text) + 1)
    for start, end, *_ in spans:
        marks[start:end] = b"\x01" * (end - start)
    return marks


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
    counted = quantities(text)
    paid = _marked(text, [(item.start, item.end) for item in counted if item.kind == "money"])
    spans = [match.span() for match in _GROUPED.finditer(text)]
    grouped = _marked(text, spans)
    for start, end in spans:
        figures = re.sub(r"[ \u00a0\u202f'\u2019]", "", text[start:end]).replace(",", ".")
        if not _is_changed(text, start, end):
            money = any(paid[start:end])
            mentions += _numbers(start, end, text[start:end], Decimal(figures), "", money)
    for quantity in counted:
        start, end, money = quantity.start, quantity.end, quantity.kind == "money"
        if quantity.low != quantity.high or any(grouped[start:end]):
            continue
        if quantity.unit == "clock":
            hour, minute = divmod(int(quantity.value), 60)
            seconds = _SECONDS.match(text, start)
            rest = seconds[1] if seconds and seconds[1].strip(":0.,") else ""
            mentions.append((start, end, ("time", f"{hour:02}:{minute:02}{rest}")))
        elif not _is_cut(text, quantity, money):
            mentions += _numbers(start, end, quantity.text, quantity.value, quantity.unit, money)
    return tuple(mentions)


def _is_cut(text: str, quantity: Quantity, money: bool) -> bool:
    """Whether a number may be read wrong: half of `40,5`, or 40 of `40.000 EUR`."""
    beside = _COMMA_BEFORE.search(text[max(0, quantity.start - 2) : quantity.start])
    return bool(
        beside
        or _COMMA_AFTER.match(text, quantity.end)
        or (money and _THOUSANDS.search(quantity.text))
        or (quantity.unit == "m" and quantity.text[-1] == "M")  # millions
        or (quantity.value >= 0 and _is_changed(text, quantity.start, quantity.end))
    )


def _numbers(
    start: int, end: int, text: str, value: Decimal, unit: str, money: bool
) -> Iterator[Mention]:
    yield start, end, ("number", _plain(value))
    yield start, end, ("amount", f"{_plain(value)} {unit}")
    if money and _TWO_DECIMALS.search(text):
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
    # A group of digits beside groups of digits may belong to them: part of an IBAN is none.
    grouped = re.search(_GAP, match.group()) is not None and _is_grouped(text, start, end)
    return grouped or _is_joined(match.group(), text, start, end)


def _is_grouped(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - LONGEST_GROUP) : start]
    return bool(_GROUP_BEFORE.search(before) or _GROUP_AFTER.match(text, end))


def _place_of_short_form(value: str, text: str) -> tuple[int, int] | None:
    """Offsets of a telephone number without its country code, or of a hash that is abbreviated."""
    body = value.strip()
    if _SHORT_HASH.fullmatch(body):
        hashes = _HASH.finditer(text)
        return next((m.span() for m in hashes if m.group().startswith(body.lower())), None)
    number = _phone(body) if _PHONE.fullmatch(body) else ""
    for match in _PHONE.finditer(text) if number else ():
        other = _phone(match.group())
        long, short = (number, other) if number[0] == "+" else (other, number)
        code = len(long) - len(short)
        if long[0] == "+" != short[0] and long.endswith(short) and code in _COUNTRY_CODE:
            return match.span()
    return None


def _phone(text: str) -> str:
    """The digits of a telephone number; with "+" if they begin with a country code."""
    digits = "".join(filter(str.isdigit, text))
    if text[0] == "+":
        return f"+{digits}"
    return digits.removeprefix("0")
