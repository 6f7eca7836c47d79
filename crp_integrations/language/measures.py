"""What a numeral counts: percent, money, a unit of measure, or a plain number."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from importlib.resources import files
from typing import Literal

from crp_integrations.language.numerals import SCALES, TIMES, Numeral, read_numeral

# Values must not depend on the decimal context that a caller has set.
CONTEXT = Context(prec=28)


@dataclass(frozen=True, slots=True)
class MeasureUnit:
    """A unit of measure."""

    name: str
    dimension: str
    factor: Decimal
    offset: Decimal = Decimal(0)


def _table() -> dict[str, MeasureUnit]:
    table: dict[str, MeasureUnit] = {}
    for row in json.loads(files(__package__).joinpath("units.json").read_text("utf-8")):
        dimension, name, factor, *spellings = row.split()
        unit = MeasureUnit(name, dimension, Decimal(factor))
        for spelling in spellings:
            table[spelling] = unit
    celsius = MeasureUnit("\u00b0C", "temperature", Decimal(1))
    scale = Decimal(5) / Decimal(9)
    fahrenheit = MeasureUnit("\u00b0F", "temperature", scale, -32 * scale)
    table |= dict.fromkeys(("\u00b0c", "celsius", "degrees celsius", "degree celsius"), celsius)
    table |= dict.fromkeys(
        ("\u00b0f", "fahrenheit", "degrees fahrenheit", "degree fahrenheit"), fahrenheit
    )
    table["kelvin"] = MeasureUnit("K", "temperature", Decimal(1), Decimal("-273.15"))
    table["nautical miles"] = table["nautical mile"] = table["nmi"]
    table["metric tons"] = table["metric ton"] = table["tonne"]
    for short, long in (("m2", "metre"), ("km2", "kilometre"), ("ft2", "feet")):
        for form in (long, long + "s", long.replace("tre", "ter"), long.replace("tre", "ters")):
            table[f"square {form}"] = table[short]
    table["square foot"] = table["ft2"]
    mile = MeasureUnit("mi2", "area", Decimal("2589988.110336"))
    table["square mile"] = table["square miles"] = mile
    table["kilometres per hour"] = table["kilometers per hour"] = table["km/h"]
    table["miles per hour"] = table["mph"]
    return table


SPELLINGS: dict[str, MeasureUnit] = _table()
UNITS: dict[str, MeasureUnit] = {unit.name: unit for unit in SPELLINGS.values()}


def unit_of(spelling: str) -> MeasureUnit | None:
    """The unit that a spelling stands for; None if the table does not contain it."""
    return SPELLINGS.get(spelling.casefold())


def to_base(value: Decimal, unit: str) -> tuple[Decimal, str]:
    """A value in the base unit of its dimension, and the dimension.

    Args:
        value: a number in the unit.
        unit: a canonical unit name, or anything else (returned unchanged).
    """
    known = UNITS.get(unit)
    if known is None:
        return value, unit
    with localcontext(CONTEXT):
        return value * known.factor + known.offset, known.dimension


Kind = Literal["number", "percent", "money", "measure", "ordinal"]

_I = re.IGNORECASE
_SIGNS = dict(
    pair.split(":")
    for pair in "$:USD us$:USD a$:AUD c$:CAD hk$:HKD s$:SGD nz$:NZD r$:BRL \u20ac:EUR \u00a3:GBP "
    "\u00a5:JPY \u20b9:INR \u20bd:RUB \u20a9:KRW".split()
)
_CODES = """USD EUR GBP JPY CHF CNY RMB INR AUD CAD NZD HKD SGD SEK NOK DKK PLN BRL MXN ZAR
    KRW TRY""".split()
_COINS = dict(
    pair.replace("_", " ").split(":")
    for pair in """dollar:USD buck:USD euro:EUR pound_sterling:GBP pounds_sterling:GBP sterling:GBP
    yen:JPY yuan:CNY renminbi:CNY rupee:INR franc:CHF swiss_franc:CHF rouble:RUB ruble:RUB won:KRW
    krona:SEK krone:NOK peso:MXN rand:ZAR""".split()
)
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

_BRACKETED = re.compile(r"[$\u20ac\u00a3\u00a5]\(\Z")
_SCALE_WORD = re.compile(r"\s?(thousand|million|billion|trillion|mn|bn)(?!\w)", _I)

_PRONOUN_BEFORE = re.compile(
    r"\b(?:no|any|every|this|that|the|each|which|some|another|not|as|by|at|is|was)[\s-]\Z"
    # "The east one", "a more recent one": the word after an article is not a verb.
    r"|\b(?:the|an?|every|my|your|his|her|its|our|their)\s(?:(?:most|more|less|least|very)\s)?"
    r"[a-z][a-z-]{0,20}\s\Z",
    _I,
)
# "One" before a noun is a number; before a verb or conjunction of these lists it is a pronoun.
_NOUN_AFTER = re.compile(
    r"[\s-](?!(?:of|or|and|but|is|was|are|were|has|had|have|does|did|do|can|cannot|could|may|might"
    r"|must|shall|should|will|would|to|by|than|that|which|who|whose|if|when|because|another)\b)[a-z]"
)


@dataclass(frozen=True, slots=True)
class CountedAmount:
    """A numeral with its unit; offsets are into the folded text."""

    start: int
    end: int
    value: Decimal
    kind: Kind
    unit: str
    numeral: Numeral
    scale: Decimal


def amount_at(text: str, place: int) -> CountedAmount | None:
    """The numeral at a place with its unit; None when there is none."""
    numeral = read_numeral(text, place)
    if numeral is None:
        return None
    end, value, start = numeral.end, numeral.value, place
    before = text[max(0, place - 8) : place]
    bracketed = _BRACKETED.search(before) is not None and text[numeral.end : numeral.end + 1] == ")"
    if bracketed:
        # "$(4.2) million" is a loss.
        before, end = before[:-1], end + 1
    prefix = _PREFIX.search(before)
    kind: Kind = "number"
    unit = ""
    if prefix is not None:
        kind = "money"
        start = place - len(prefix.group()) - bracketed
        sign = prefix.group().strip()
        unit = _SIGNS.get(sign.lower(), sign.upper())
    scale = Decimal(1)
    short = None if numeral.worded else _SHORT.match(text, end)
    if short is not None and not numeral.scaled and _means_scale(text, short, prefix is not None):
        scale = _LETTERS[short["scale"].lower()]
        value *= scale
        end = short.end()
    elif bracketed and (word := _SCALE_WORD.match(text, end)) is not None:
        scale = SCALES[word[1].lower()]
        value *= scale
        end = word.end()
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
    value, start = (-value, start) if bracketed else _signed(text, start, value)
    return CountedAmount(start, end, value, kind, unit, numeral, scale)


_LETTERS = {letter: Decimal(10**power) for letter, power in zip("kmbt", (3, 6, 9, 12), strict=True)}


def _first_space(text: str, place: int, end: int) -> int:
    for at in range(place, end):
        if text[at].isspace() or text[at] == "-":
            return at
    return end


def _means_scale(text: str, short: re.Match[str], money: bool) -> bool:
    """Whether a single letter after a number is a scale rather than a unit."""
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
    # "Three us states" are not microseconds.
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
    if _PRONOUN_BEFORE.search(text[max(0, place - 40) : place]):
        return True
    return _NOUN_AFTER.match(text, end) is None
