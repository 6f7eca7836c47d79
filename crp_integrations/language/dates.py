"""Dates in running text, read by rules.

A date may be partial, such as "March 2024". "03/12/2024" has two readings; both are recorded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

from crp_integrations.language.identifiers import gist, identifiers
from crp_integrations.language.measures import unit_of
from crp_integrations.language.memo import remembered
from crp_integrations.language.text import FoldedText, fold_case_and_space
from crp_integrations.language.word_lists import LISTS


def _months(name: str) -> dict[str, int]:
    rows = enumerate(LISTS[name], 1)
    return {month: number for number, names in rows for month in names.split("/")}


MONTHS: dict[str, int] = _months("months")
# Spanish, German and French spellings that differ from English, without accents.
_OTHER_MONTHS: dict[str, int] = _months("other_months")


@dataclass(frozen=True, slots=True)
class DateMention:
    """A complete or partial date.

    Attributes:
        year, month, day: parts of the date; None where the text does not state them.
        swapped: other reading as (month, day) of a date such as "03/12/2024"; None when there
            is only one reading.
    """

    start: int
    end: int
    text: str
    year: int | None
    month: int | None
    day: int | None
    swapped: tuple[int, int] | None = None


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_M = rf"(?P<month>{_MONTH})"
_Y = r"(?P<year>1[0-9]{3}|2[01][0-9]{2})(?!\d)"
_TH = r"(?:st|nd|rd|th)?"
_D = rf"(?P<day>[0-3]?[0-9]){_TH}"
_GAP = r"(?:\s{1,3}|-)"
_SPAN = r"\s?(?:-|\u2013|to|and|through)\s?"
_DAYS = rf"(?:(?P<before>[0-3]?[0-9]){_TH}{_SPAN})?"
_NO_NUMBER = r"(?!\w|[.,]\d|\s?(?:%|percent|million|billion|thousand|trillion))"
_I = re.IGNORECASE

_ALL = (
    # 20240312
    re.compile(
        r"(?<![\w.-])(?P<year>(?:19|20)\d{2})(?P<month>0[1-9]|1[0-2])"
        r"(?P<day>0[1-9]|[12]\d|3[01])(?!\w|[.-]\w)"
    ),
    # 5 de marzo de 2024, 5. März 2024
    re.compile(
        rf"(?<![\w.])(?P<day>[0-3]?\d)\.?\s(?:de\s)?(?P<month>{'|'.join(_OTHER_MONTHS)})"
        r"(?:\s(?:de\s|del\s)?(?P<year>1[0-9]{3}|2[01][0-9]{2}))?(?!\w)",
        _I,
    ),
    # 12-03-2024
    re.compile(
        r"(?<![\w/.-])(?P<a>[0-3]?\d)(?P<mark>-)(?P<b>[0-3]?\d)-(?P<year>(?:19|20)\d{2})(?![\w/-])"
    ),
    # 2024-03-12, 2024/03/12
    re.compile(
        rf"(?<![\w.-]){_Y}(?P<mark>[-/.])(?P<month>0?[1-9]|1[0-2])(?P=mark)"
        r"(?P<day>[0-3]?[0-9])(?![\d-])"
    ),
    # 12 March 2024, 12-14 March 2024, 12-Mar-2024
    re.compile(rf"(?<![\w.]){_DAYS}{_D}{_GAP}(?:of\s{{1,3}})?{_M},?{_GAP}{_Y}(?!\w)", _I),
    # March 12, 2024, March 12-14, 2024
    re.compile(rf"(?<!\w){_M}\s{{1,3}}{_DAYS}{_D},?\s{{1,3}}{_Y}(?!\w)", _I),
    # March 2024
    re.compile(
        rf"(?<!\w)(?:(?P<earlier>{_MONTH}){_SPAN})?{_M},?{_GAP}(?:of\s{{1,3}})?{_Y}(?!\w)", _I
    ),
    # 03/12/2024, 12.03.2024, 3/12/24
    re.compile(
        r"(?<![\w/.])(?P<a>[0-3]?\d)(?P<mark>[/.])(?P<b>[0-3]?\d)(?P=mark)"
        r"(?P<year>[12]\d{3}|\d{2})(?![\w/])"
    ),
    # 2024-03
    re.compile(rf"(?<![\w.-]){_Y}-(?P<month>0[1-9]|1[0-2])(?![\w-])"),
    # FY2023, FY 23
    re.compile(
        r"(?<!\w)FY\s?'?(?P<year>1[0-9]{3}|2[01][0-9]{2}|[0-9]{2})(?![\w/\u2013-]|[.,]\d)", _I
    ),
    # 12 March
    re.compile(rf"(?<![\w.]){_DAYS}{_D}\s{{1,3}}(?:of\s{{1,3}})?{_M}(?!\w)"),
    # March 12
    re.compile(rf"(?<!\w){_M}\s{{1,3}}{_DAYS}{_D}{_NO_NUMBER}"),
    # 2019-2020, 2019-20, 2019/20
    re.compile(rf"(?<![\w.,-]){_Y}(?:-|\u2013|/)(?P<until>\d{{4}}|\d{{2}})(?![\w-]|[.,]\d)"),
)
_TENS = ("", "", "twent", "thirt", "fort", "fift", "sixt", "sevent", "eight", "ninet")
_DECADE = re.compile(rf"\b({'|'.join(filter(None, _TENS))})ies\b", _I)
_DECADES = frozenset(f"{ten}ies" for ten in _TENS if ten)
_NAMED = frozenset(MONTHS)
# Each pattern, and whether it needs the name of a month.
_PATTERNS = tuple((pattern, _MONTH in pattern.pattern) for pattern in _ALL)
_YEAR = re.compile(
    r"(?<![\w.,$\u20ac\u00a3\u00a5#/:])(?:1[0-9]{3}|2[01][0-9]{2})"
    r"(?=s?(?![\w%]|[.,]\d|[/:]\d))"
)
_YEAR_BEFORE = re.compile(
    r"(?:\b(?:in|since|by|during|until|till|of|year|years|fy|early|late|mid|before|after|from|for"
    r"|to|and|or|between|through|circa|c\.|around|spring|summer|autumn|fall|winter|q[1-4]|h[12]"
    r"|founded|established|born|copyright|\u00a9|version|the|quarter)[\s-]+|[(\u2013-])\Z",
    _I,
)
_COUNTED = re.compile(
    r"\s(?:%|percent|million|billion|thousand|trillion|people|men|women|children|pct|km|kg|mm|ml"
    r"|(?!was\b|is\b|has\b|its\b|this\b|plus\b|versus\b|thus\b|as\b|sees\b|census\b)[a-z-]{2,}s)\b"
)
_UNIT = re.compile(r"\s([A-Za-z\u00b5\u03bc]+)")
_SURE_BEFORE = re.compile(
    r"\b(?:in|since|during|until|year|fy|early|late|mid|before|after|from|spring|summer|autumn"
    r"|winter|q[1-4]|founded|established|born|by)[\s-]+\Z",
    _I,
)


@remembered
def dates(text: str) -> tuple[DateMention, ...]:
    """The dates of a text in order.

    >>> [(d.year, d.month, d.day) for d in dates("From 2024-03-12 to May 2025")]
    [(2024, 3, 12), (2025, 5, None)]
    """
    folded = fold_case_and_space(text)
    look = gist(folded.text)
    if not look.figures and look.lacks(_DECADES):
        return ()
    monthless = look.lacks(_NAMED)
    taken = [(span.start, span.end) for span in identifiers(text)]
    mentions: list[DateMention] = []
    for pattern, named in _PATTERNS:
        if named and monthless:
            continue
        fresh: list[DateMention] = []
        for match in pattern.finditer(folded.text):
            start, end = folded.start(match.start()), folded.end(match.end())
            if not _overlaps(taken, start, end):
                fresh.extend(_read(match, folded, text))
        mentions.extend(fresh)
        taken.extend((mention.start, mention.end) for mention in fresh)
        taken.sort()
    for match in _DECADE.finditer(folded.text):
        span = folded.span(*match.span())
        year = 1900 + 10 * _TENS.index(match[1].lower())
        mentions.append(DateMention(span.start, span.end, span.of(text), year, None, None))
    for match in _YEAR.finditer(folded.text):
        start, end = folded.start(match.start()), folded.end(match.end())
        if not _overlaps(taken, start, end) and _is_year(folded.text, match):
            mentions.append(
                DateMention(start, end, text[start:end], int(match.group()), None, None)
            )
    return tuple(sorted(mentions, key=lambda mention: (mention.start, mention.end)))


def _overlaps(taken: list[tuple[int, int]], start: int, end: int) -> bool:
    low, high = 0, len(taken)
    while low < high:
        middle = (low + high) // 2
        if taken[middle][1] <= start:
            low = middle + 1
        else:
            high = middle
    return low < len(taken) and taken[low][0] < end


def _is_year(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - 16) : match.start()]
    after = _UNIT.match(text, match.end())
    if after is not None and unit_of(after[1]) is not None:
        return False
    counted = _COUNTED.match(text, match.end()) is not None
    if _SURE_BEFORE.search(before):
        return True
    if counted:
        return False
    return 1900 <= int(match.group()) <= 2099 or _YEAR_BEFORE.search(before) is not None


def _read(match: re.Match[str], folded: FoldedText, text: str) -> list[DateMention]:
    groups = match.groupdict()
    year = _year(groups.get("year"))
    if groups.get("a"):
        return _numeric(match, folded, text, year)
    if groups.get("until"):
        return _years(match, folded, text)
    month = _month(groups.get("month"))
    day = int(groups["day"]) if groups.get("day") else None
    if day is not None and not 1 <= day <= 31:
        return []
    mentions = []
    first = match.start()
    if groups.get("before"):  # 12-14 March 2024
        other = int(groups["before"])
        if not 1 <= other <= 31:
            return []
        first = match.start("day")
        # In "March 12-14" the month comes before both days.
        opening = min(match.start("month"), match.start("before"))
        span = folded.span(opening, match.end("before"))
        mentions.append(DateMention(span.start, span.end, span.of(text), year, month, other))
    elif groups.get("earlier"):  # March to May 2024
        first = match.start("month")
        span = folded.span(match.start("earlier"), match.end("earlier"))
        earlier = _month(groups["earlier"])
        mentions.append(DateMention(span.start, span.end, span.of(text), year, earlier, None))
    span = folded.span(first, match.end())
    mentions.append(DateMention(span.start, span.end, span.of(text), year, month, day))
    return mentions


def _year(written: str | None) -> int | None:
    if written is None:
        return None
    if len(written) == 2:
        return int(written) + (2000 if int(written) < 70 else 1900)
    return int(written)


def _month(written: str | None) -> int | None:
    if written is None:
        return None
    if written.isdigit():
        return int(written)
    name = written.lower().rstrip(".")
    return MONTHS.get(name) or _OTHER_MONTHS[name]


def _numeric(
    match: re.Match[str], folded: FoldedText, text: str, year: int | None
) -> list[DateMention]:
    first, second = int(match["a"]), int(match["b"])
    if match["mark"] == ".":  # in dates with points the day comes first
        first, second = second, first
    swapped = None
    month, day = first, second
    if month > 12:
        month, day = day, month
    elif match["mark"] in "/-" and day <= 12 and day != month:
        swapped = (day, month)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return []
    span = folded.span(match.start(), match.end())
    return [DateMention(span.start, span.end, span.of(text), year, month, day, swapped)]


def _years(match: re.Match[str], folded: FoldedText, text: str) -> list[DateMention]:
    first = int(match["year"])
    written = match["until"]
    last = int(written) if len(written) == 4 else first - first % 100 + int(written)
    if not first < last <= first + 150:
        return []
    mentions = []
    for name, year in (("year", first), ("until", last)):
        span = folded.span(match.start(name), match.end(name))
        mentions.append(DateMention(span.start, span.end, span.of(text), year, None, None))
    return mentions


def compatible(a: DateMention, b: DateMention) -> bool:
    """Whether two mentions can mean the same date.

    They must share a year, month or day and disagree in none; a missing part fits anything.
    """
    return any(_agree(first, second) for first in readings_of(a) for second in readings_of(b))


DateParts = tuple[int | None, int | None, int | None]
"""Year, month and day; None for a part that a date lacks."""


def gives(source: DateMention, claim: DateMention) -> bool:
    """Whether the source's date states every part of the claim's date with the same value."""
    return not stated(source).isdisjoint(readings_of(claim))


def stated(date: DateMention) -> frozenset[DateParts]:
    """What a date states: its readings, each with and without each of its parts."""
    return frozenset(
        parts
        for year, month, day in readings_of(date)
        for parts in product((year, None), (month, None), (day, None))
    )


def _agree(first: DateParts, second: DateParts) -> bool:
    shared = [(x, y) for x, y in zip(first, second, strict=True) if x is not None and y is not None]
    return bool(shared) and all(x == y for x, y in shared)


def readings_of(mention: DateMention) -> list[DateParts]:
    """A date's parts; twice where day and month may be swapped."""
    readings: list[DateParts] = [(mention.year, mention.month, mention.day)]
    if mention.swapped is not None:
        readings.append((mention.year, *mention.swapped))
    return readings
