"""Quantities: numerals with units, so that "4.2 million" and "4,200,000" are equal.

Dates, years and identifiers are left to `dates.py` and `identifiers.py`; times of day are
measures with the unit "clock", in minutes since midnight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import Literal

from crp_integrations.language.dates import dates
from crp_integrations.language.identifiers import gist, identifiers
from crp_integrations.language.measures import CONTEXT, CountedAmount, Kind, amount_at, to_base
from crp_integrations.language.memo import remembered
from crp_integrations.language.numerals import ONES, ORDINALS, START, WORDED
from crp_integrations.language.text import Span, fold_case_and_space

Bound = Literal["", "about", "least", "most"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or interval with its unit.

    Attributes:
        value: number in `unit`, scale words applied; the middle of an interval.
        low, high: ends of an interval, both equal to `value` for a single number.
        unit: canonical unit, currency code, "%" or "pp" (percentage points), or "".
        hedged: whether the number is inexact, as in "about 5" or "at least 5".
        bound: direction of the hedge; "" for an exact number.
    """

    start: int
    end: int
    text: str
    value: Decimal
    low: Decimal
    high: Decimal
    kind: Kind
    unit: str = ""
    hedged: bool = False
    bound: Bound = ""


_I = re.IGNORECASE
_CLOCK = re.compile(
    r"(?:(?<!\w)|(?<=\dT))(?P<h>[01]?\d|2[0-4]):(?P<m>[0-5]\d)(?::[0-5]\d)?"
    r"(?:\s?(?P<half>[ap])(?:m\b|\.m\b\.?))?(?![\d:])"
    r"|(?<![\w.,$])(?P<hour>1[0-2]|[1-9])\s?(?P<part>[ap])(?:m\b|\.m\b\.?)"
    r"|(?<![\w.,$])(?P<oclock>1[0-2]|[1-9])\so'clock",
    _I,
)
_RATIO = re.compile(r"(?<![\w:.])(\d{1,4}):(\d{1,4})(?![\d:])")
_LINK = re.compile(r"\s?(?P<dash>-|\u2013|~)\s?|\s(?P<to>to|through|up to)\s|\s(?P<and>and)\s", _I)
_BETWEEN = re.compile(r"\bbetween\s[^\d\w]*\Z", _I)
_FROM = re.compile(r"\bfrom\s(?:about\s|around\s|roughly\s)?[^\d\w]*\Z", _I)
_MOVES = re.compile(
    r"\b(?:r[io]se[ns]?|rising|fell|falls?|fallen|falling|gr[eo]w[ns]?|growing|increas\w+"
    r"|decreas\w+|declin\w+|dropp?\w*|climb\w*|jump\w*|cut\w*|rais\w+|reduc\w+|went|mov\w+"
    r"|chang\w+|improv\w+|slid\w*|shr[aiu]nk\w*|expand\w*|lower\w*|up|down|doubl\w+)\b",
    _I,
)
_BEFORE: tuple[tuple[Bound, re.Pattern[str]], ...] = (
    (
        "most",
        re.compile(
            r"(?:\b(?:at most|up to|no more than|not more than|no later than|less than|fewer than"
            r"|under|below|maximum of|a maximum of|within|nearly|almost|just under)\s"
            r"|[<\u2264]\s?)\Z",
            _I,
        ),
    ),
    (
        "least",
        re.compile(
            r"(?:\b(?:at least|no less than|not less than|no fewer than|more than|greater than"
            r"|over|above|exceed(?:s|ed|ing)?|minimum of|a minimum of|upwards of|in excess of"
            r"|as many as|as much as|just over)\s|[>\u2265]\s?)\Z",
            _I,
        ),
    ),
    (
        "about",
        re.compile(
            r"(?:\b(?:about|around|approximately|approx\.?|roughly|some|circa|c\.|ca\."
            r"|an? estimated"
            r"|estimated at|close to|an average of|typically|in the region of|on the order of)\s"
            r"|[~\u2248\u00b1]\s?)\Z",
            _I,
        ),
    ),
)
_AFTER = re.compile(
    r"(?P<least>\+(?!\w)|\s(?:or|and) (?:more|above|over|higher|older)\b)"
    r"|(?P<most>\s(?:or|and) (?:less|fewer|below|under|lower|younger)\b)|(?P<about>\sor so\b)",
    _I,
)
_ORDINAL = re.compile(
    rf"(?<![\w.,])(?P<digits>\d{{1,3}}(?:,\d{{3}})*|\d+)(?:st|nd|rd|th)(?!\w)"
    rf"|(?<![\w-])(?:(?P<tens>twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-)?"
    rf"(?P<word>{'|'.join(ORDINALS)})(?![\w])",
    _I,
)
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70}
_TENS |= {"eighty": 80, "ninety": 90}
# "[1]", "[^1]" and "passage 2" refer to a source, and "1." opens a list item: not quantities.
_MARKER = re.compile(
    r"(?<!\w)(?i:passages?|documents?|sources?|excerpts?|snippets?|context)\s\d{1,3}"
    r"(?:(?:\s?[,;&\u2013-]\s?(?:and\s|or\s)?|\s(?:and|or|to)\s)\d{1,3})*(?!\w|[.,]\d)"
    r"|\[\^\w{1,16}\]|\[\d{1,3}(?:\s?[,;\u2013-]\s?\d{1,3})*\]|^[ \t]{0,24}\(?\d{1,3}[.)](?=\s)",
    re.MULTILINE,
)
_CONNECTIVE = re.compile(r"\s*(?:,|:|of all\b|and foremost\b|name\b|person\b|hand\b|place,)", _I)


@remembered
def quantities(text: str) -> tuple[Quantity, ...]:
    """The quantities of a text in order; dates and identifiers are left out.

    >>> [(str(q.value), q.kind, q.unit) for q in quantities("$4.2M, up 15% in 3 hours")]
    [('4200000.0', 'money', 'USD'), ('15', 'percent', '%'), ('3', 'measure', 'h')]
    """
    with localcontext(CONTEXT):
        return _all(text)


def _all(text: str) -> tuple[Quantity, ...]:
    folded = fold_case_and_space(text)
    body = folded.text
    look = gist(body)
    if not look.figures and look.lacks(WORDED):
        return ()
    taken = [Span(s.start, s.end) for s in identifiers(text)]
    taken += [Span(mention.start, mention.end) for mention in dates(text)]
    taken += [folded.span(*match.span()) for match in _MARKER.finditer(body)]
    blocked = bytearray(len(text) + 1)
    for span in taken:
        blocked[span.start : span.end] = b"\x01" * (span.end - span.start)
    free = [not blocked[folded.start(place)] for place in range(len(body))]
    amounts: list[Quantity] = []
    for start, end, quantity in (*_clocks(body, free), *_ordinals(body, free)):
        amounts.append(quantity)
        free[start:end] = [False] * (end - start)
    place = 0
    while (match := START.search(body, place)) is not None:
        place = match.end()
        if not all(free[match.start() : match.end()]):
            continue
        made = _at(body, match.start(), free)
        if made is not None:
            place = max(place, made[-1].end)
            amounts.extend(made)
    amounts.sort(key=lambda quantity: quantity.start)
    result = []
    for quantity in amounts:
        span = folded.span(quantity.start, quantity.end)
        result.append(replace(quantity, start=span.start, end=span.end, text=span.of(text)))
    return tuple(result)


def _at(text: str, place: int, free: list[bool]) -> list[Quantity] | None:
    """The point or interval that begins at a place."""
    first = amount_at(text, place)
    if first is None:
        return None
    if not all(free[place : first.end]):
        # In "45 mL/min/1.73" the unit looks like a code; the figure before it is kept without it.
        numeral = first.numeral
        if not all(free[place : numeral.end]):
            return None
        bare = CountedAmount(place, numeral.end, numeral.value, "number", "", numeral, first.scale)
        return [_quantity(text, bare)]
    before = text[max(0, first.start - 24) : first.start]
    link = _LINK.match(text, first.end)
    if link is not None and (link["and"] is None or _BETWEEN.search(before)):
        jump = _PREFIX_AHEAD.match(text, link.end())
        at = jump.end() if jump is not None else link.end()
        start = START.match(text, at)
        second = amount_at(text, at) if start is not None else None
        if second is not None and all(free[at : second.end]):
            joined = _interval(text, first, second, before)
            if joined is not None:
                return joined
    return [_quantity(text, first)]


_PREFIX_AHEAD = re.compile(r"(?:us\$|[$\u20ac\u00a3\u00a5\u20b9]|USD\s|EUR\s|GBP\s)", _I)


def _interval(
    text: str, first: CountedAmount, second: CountedAmount, before: str
) -> list[Quantity] | None:
    if (not first.unit and second.unit) or (first.unit == "USD" and second.unit == first.unit):
        scale = Decimal(1) if first.scale != 1 else second.scale
        value = first.value * scale if first.value * scale <= second.value else first.value
        first = replace(first, value=value, kind=second.kind, unit=second.unit)
    elif (not second.unit and first.kind == "money") or not (first.unit or second.unit):
        scale = Decimal(1) if first.scale != 1 else second.scale
        value = first.value * scale if first.value * scale <= second.value else first.value
        first = replace(first, value=value)
        second = replace(second, kind=first.kind, unit=first.unit)
    if first.unit != second.unit or first.kind != second.kind:
        return None
    moved = _FROM.search(before) and _MOVES.search(text[max(0, first.start - 60) : first.start])
    if moved or first.value >= second.value:
        return [_quantity(text, first), _quantity(text, second)]
    point = _quantity(text, first)
    after = _quantity(text, second)
    middle = (first.value + second.value) / 2
    return [
        replace(
            point,
            end=second.end,
            value=middle,
            low=first.value,
            high=second.value,
            bound=point.bound or after.bound,
            hedged=point.hedged or after.hedged,
        )
    ]


def _quantity(text: str, piece: CountedAmount) -> Quantity:
    bound: Bound = "least" if "+" in text[piece.start + 1 : piece.end] else ""
    before = " ".join(text[max(0, piece.start - 28) : piece.start].split("\n"))
    for name, pattern in _BEFORE:
        if pattern.search(before):
            bound = name
            break
    after = _AFTER.match(text, piece.end)
    if not bound and after is not None:
        bound = "least" if after["least"] else "most" if after["most"] else "about"
    return Quantity(
        piece.start,
        piece.end,
        "",
        piece.value,
        piece.value,
        piece.value,
        piece.kind,
        piece.unit,
        bool(bound),
        bound,
    )


def _clocks(text: str, free: list[bool]) -> Iterator[tuple[int, int, Quantity]]:
    for match in _CLOCK.finditer(text):
        if not all(free[match.start() : match.end()]):
            continue
        hour = int(match["h"] or match["hour"] or match["oclock"])
        half = (match["half"] or match["part"] or "").lower()
        if half and hour <= 12:
            hour = hour % 12 + (12 if half == "p" else 0)
        value = Decimal(hour * 60 + int(match["m"] or 0))
        quantity = Quantity(match.start(), match.end(), "", value, value, value, "measure", "clock")
        yield match.start(), match.end(), quantity
    for match in _RATIO.finditer(text):
        if not all(free[match.start() : match.end()]) or int(match[2]) == 0:
            continue
        if _CLOCK.match(text, match.start()) is not None:
            continue
        value = Decimal(int(match[1])) / int(match[2])
        quantity = Quantity(match.start(), match.end(), "", value, value, value, "measure", "ratio")
        yield match.start(), match.end(), quantity


def _ordinals(text: str, free: list[bool]) -> Iterator[tuple[int, int, Quantity]]:
    for match in _ORDINAL.finditer(text):
        if not all(free[match.start() : match.end()]):
            continue
        if match["digits"]:
            value = Decimal(match["digits"].replace(",", ""))
        else:
            word = match["word"].lower()
            before = text[max(0, match.start() - 12) : match.start()].lower()
            counted = re.search(r"(?:\b(?:a|an|one|per|\d+)[\s-])\Z", before)
            if _CONNECTIVE.match(text, match.end()) or before.endswith("at "):
                continue
            if counted and word in ("second", "third", "fourth", "fifth", "tenth", "eighth"):
                continue
            if counted is None and re.search(rf"\b(?:{'|'.join(ONES)})[\s-]\Z", before):
                continue
            value = Decimal(ORDINALS[word] + _TENS.get((match["tens"] or "").lower(), 0))
        quantity = Quantity(match.start(), match.end(), "", value, value, value, "ordinal")
        yield match.start(), match.end(), quantity


def same_kind(a: Quantity, b: Quantity) -> bool:
    """Whether two quantities have the same dimension or currency, or are both plain numbers."""
    return to_base(a.low, a.unit)[1] == to_base(b.low, b.unit)[1] and (
        (a.kind == "ordinal") == (b.kind == "ordinal")
    )


def agree(claim: Quantity, source: Quantity, *, tolerance: Decimal = Decimal("0.005")) -> bool:
    """Whether a claim's quantity equals the source's, after conversion of units.

    Values in different units, or hedged on either side, may differ by the tolerance; other
    values must be equal. A claim that says "about" may differ by at least 5 %.

    Args:
        claim: quantity in the answer.
        source: quantity in the context.
        tolerance: relative difference that conversion or a hedge allows, at least 0.
    """
    if not same_kind(claim, source):
        return False
    if {claim.bound, source.bound} == {"least", "most"}:
        return False
    loose = claim.unit != source.unit or claim.hedged or source.hedged
    allowed = max(tolerance, Decimal("0.05")) if claim.bound == "about" else tolerance
    for own, other in ((claim.low, source.low), (claim.high, source.high)):
        first, second = to_base(own, claim.unit)[0], to_base(other, source.unit)[0]
        if first == second:
            continue
        largest = max(abs(first), abs(second))
        if not loose or abs(first - second) > allowed * largest:
            return False
    return True
