"""What a numeral counts: percent, money, a measure, or nothing but a number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from crp_integrations.language.numerals import TIMES, Numeral, read_numeral
from crp_integrations.language.units import SPELLINGS

Kind = Literal["number", "percent", "money", "measure", "ordinal"]

_I = re.IGNORECASE
_SIGNS = {
    "$": "USD",
    "us$": "USD",
    "a$": "AUD",
    "c$": "CAD",
    "hk$": "HKD",
    "s$": "SGD",
    "nz$": "NZD",
    "r$": "BRL",
    "\u20ac": "EUR",
    "\u00a3": "GBP",
    "\u00a5": "JPY",
    "\u20b9": "INR",
    "\u20bd": "RUB",
    "\u20a9": "KRW",
}
_CODES = """USD EUR GBP JPY CHF CNY RMB INR AUD CAD NZD HKD SGD SEK NOK DKK PLN BRL MXN ZAR
    KRW TRY""".split()
_COINS = {
    "dollar": "USD",
    "buck": "USD",
    "euro": "EUR",
    "pound sterling": "GBP",
    "pounds sterling": "GBP",
    "sterling": "GBP",
    "yen": "JPY",
    "yuan": "CNY",
    "renminbi": "CNY",
    "rupee": "INR",
    "franc": "CHF",
    "swiss franc": "CHF",
    "rouble": "RUB",
    "ruble": "RUB",
    "won": "KRW",
    "krona": "SEK",
    "krone": "NOK",
    "peso": "MXN",
    "rand": "ZAR",
}
_PREFIX = re.compile(
    rf"(?:(?<![A-Za-z])(?:us|hk|nz|[acsr])\$|[$\u20ac\u00a3\u00a5\u20b9\u20bd\u20a9]"
    rf"|(?<![A-Za-z])(?-i:{'|'.join(_CODES)}))\s?\Z",
    _I,
)
_MONEY_AFTER = re.compile(
    rf"\s?(?:(?-i:(?P<code>{'|'.join(_CODES)}))|(?P<sign>[\u20ac\u00a3\u00a5$\u20b9])"
    r"|[\s-]?(?:(?:US|U\.S\.|American)\s)?(?P<coin>dollars?|bucks?|euros?|pounds?\ssterling"
    r"|sterling"
    r"|yen|yuan|renminbi|rupees?|swiss\sfrancs?|francs?|rou?bles?|won(?=\s|$)|kronas?|krones?"
    r"|pesos?|rands?)|[\s-]?(?P<cents>(?:US\s)?cents?|pence))(?!\w)",
    _I,
)
_SHORT = re.compile(r"\s?(?P<scale>[kKmMbBtT])(?![\w/\u00b2\u00b3])")
_PERCENT = re.compile(
    r"\s?(?:(?P<points>percentage[\s-]points?|%[\s-]points?|pp(?!\w)|ppts?(?!\w))"
    r"|(?P<basis>basis[\s-]points?|bps?(?!\w))|%|[\s-]?per\s?cent(?!\w|age)|[\s-]?pct(?!\w))",
    _I,
)
_TIMES = re.compile(r"\s?(?:x|\u00d7)(?![\w-])|-?fold(?!\w)|\stimes(?!\w)", _I)
_UNIT = re.compile(
    r"[\s-]?(?P<unit>"
    + "|".join(
        # "5 t" is tonnes; "5 T" and "5 t-shirts" are not.
        "(?-i:t)(?!-)" if spelling == "t" else re.escape(spelling).replace(r"\ ", r"\s")
        for spelling in sorted(SPELLINGS, key=lambda name: (-len(name), name))
    )
    + r")(?![\w\u00b2\u00b3])",
    _I,
)

_PRONOUN_BEFORE = re.compile(
    r"\b(?:no|any|every|this|that|the|each|which|some|another|not|as|by|at|is|was)[\s-]\Z", _I
)
_NOUN_AFTER = re.compile(
    r"[\s-](?!of\b|or\b|and\b|can\b|must\b|may\b|is\b|to\b|by\b|another\b)[a-z]"
)


@dataclass(frozen=True, slots=True)
class CountedAmount:
    """A numeral with its unit, between places of a folded text."""

    start: int
    end: int
    value: Decimal
    kind: Kind
    unit: str
    numeral: Numeral
    scale: Decimal


def amount_at(text: str, place: int) -> CountedAmount | None:
    """The numeral at a place with what it counts, None when there is none."""
    numeral = read_numeral(text, place)
    if numeral is None:
        return None
    end, value, start = numeral.end, numeral.value, place
    before = text[max(0, place - 8) : place]
    prefix = _PREFIX.search(before)
    kind: Kind = "number"
    unit = ""
    if prefix is not None:
        kind = "money"
        start = place - len(prefix.group())
        sign = prefix.group().strip()
        unit = _SIGNS.get(sign.lower(), sign.upper())
    scale = Decimal(1)
    short = None if numeral.worded else _SHORT.match(text, end)
    if short is not None and not numeral.scaled and _means_scale(text, short, prefix is not None):
        scale = _LETTERS[short["scale"].lower()]
        value *= scale
        end = short.end()
    elif numeral.scaled:
        plain = read_numeral(text[place : _first_space(text, place, end)], 0)
        scale = value / plain.value if plain is not None and plain.value else Decimal(1)
    if prefix is None:
        plus = 1 if text.startswith("+", end) else 0
        after = _after(text, end + plus, value, numeral)
        if after[0] > end + plus or not plus:
            end, value, kind, unit = after
    else:
        again = _MONEY_AFTER.match(text, end)
        if again is not None and again["code"]:
            end, unit = again.end(), again["code"]
    if end < len(text) and (text[end].isalnum() or text[end] == "_"):
        return None
    if kind == "number" and numeral.worded and _is_pronoun(text, place, end, numeral):
        return None
    value, start = _signed(text, start, value)
    return CountedAmount(start, end, value, kind, unit, numeral, scale)


_LETTERS = {
    "k": Decimal(10**3),
    "m": Decimal(10**6),
    "b": Decimal(10**9),
    "t": Decimal(10**12),
}


def _first_space(text: str, place: int, end: int) -> int:
    for at in range(place, end):
        if text[at].isspace() or text[at] == "-":
            return at
    return end


def _means_scale(text: str, short: re.Match[str], money: bool) -> bool:
    """Whether a single letter after a number is a scale and no unit."""
    letter = short["scale"]
    glued = not short.group()[0].isspace()
    if money:
        return True
    if not glued:
        return False
    if letter in "kKMBT":
        return True
    follows = re.compile(r"\s(?:[a-z]+s|people|[a-z]+\s?-)\b").match(text, short.end())
    return letter == "b" or (letter == "m" and follows is not None)


def _after(text: str, end: int, value: Decimal, numeral: Numeral) -> tuple[int, Decimal, Kind, str]:
    percent = _PERCENT.match(text, end)
    if percent is not None:
        if percent["basis"]:
            return percent.end(), value / 100, "percent", "pp"
        return percent.end(), value, "percent", "pp" if percent["points"] else "%"
    money = _MONEY_AFTER.match(text, end)
    if money is not None:
        if money["cents"]:
            return money.end(), value / 100, "money", _cents(money["cents"])
        if money["code"]:
            return money.end(), value, "money", money["code"].upper()
        if money["sign"]:
            return money.end(), value, "money", _SIGNS[money["sign"]]
        coin = " ".join(money["coin"].lower().split())
        unit = _COINS.get(coin) or _COINS.get(coin.rstrip("s"), "")
        return money.end(), value, "money", unit
    if numeral.scaled:
        pounds = re.compile(r"\spounds?(?!\w)", _I).match(text, end)
        if pounds is not None:
            return pounds.end(), value, "money", "GBP"
    measure = _UNIT.match(text, end)
    # "Three us states" are no microseconds.
    if measure is not None and not (numeral.worded and measure["unit"].lower() == "us"):
        spelling = " ".join(measure["unit"].lower().split())
        return measure.end(), value, "measure", SPELLINGS[spelling].name
    times = _TIMES.match(text, end)
    if times is not None:
        return times.end(), value, "measure", "times"
    if numeral.worded and text[max(0, end - 6) : end].lower().endswith(tuple(TIMES)):
        return end, value, "measure", "times"
    if numeral.share:
        return end, value * 100, "percent", "%"
    return end, value, "number", ""


def _cents(written: str) -> str:
    return "GBP" if written.lower() == "pence" else "USD"


def _signed(text: str, start: int, value: Decimal) -> tuple[Decimal, int]:
    before = text[max(0, start - 9) : start]
    if before.endswith("-") and (len(before) == 1 or before[-2] in " \n\t([,;:=<>|"):
        return -value, start - 1
    if before.lower().endswith(("minus ", "negative ")):
        return -value, start
    return value, start


def _is_pronoun(text: str, place: int, end: int, numeral: Numeral) -> bool:
    if numeral.scaled or text[place:end].lower() not in ("one", "zero"):
        return False
    if text[place:end].lower() == "zero":
        return False
    if _PRONOUN_BEFORE.search(text[max(0, place - 10) : place]):
        return True
    return _NOUN_AFTER.match(text, end) is None
