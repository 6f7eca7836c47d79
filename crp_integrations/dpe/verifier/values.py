"""Reads the typed values of a text, and decides whether two values are equal."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from crp_integrations.language.dates import DateMention, compatible, dates, gives
from crp_integrations.language.identifiers import gist, identifiers
from crp_integrations.language.measures import to_base, unit_of
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.names import names
from crp_integrations.language.quantities import Quantity, agree, quantities, same_kind
from crp_integrations.language.text import plain
from crp_integrations.language.words import ContentWord, content_words, stem
from crp_integrations.vocabulary import DistortionType, ErrorKind

Family = Literal["quantity", "date", "name"]

_URL = re.compile(r"https?://|www\.|\w@\w", re.IGNORECASE)
_CITATION = re.compile(
    r"(?i:sections?|articles?|art\.|chapters?|clauses?|paragraphs?|annex|appendix|figures?|tables?"
    r"|rfc|iso|doi|§|10\.\d{4})",
)
# Citation forms of models, whose figures are not values: [1], [1, p. 3], [^2], [context-2],
# (source 2), 【4:2†source】, <sup>1</sup>, a superscript 1, a keycap, "Fact 1:".
MARKER = re.compile(
    r"\[\^?(?:(?:source|passage|context|document|fact|ref)s?[\s-]?)?"
    r"\d{1,4}(?:\s?[,;\u2013-]\s?(?:pp?\.\s?)?\d{1,4})*\]"
    r"|\((?:source|passage|context|document|fact)s?\s\d{1,3}(?:\s?(?:,|and)\s?\d{1,3})*\)"
    r"|\u3010[^\u3011\n]{1,60}\u3011|<sup>\[?\d{1,3}\]?</sup>"
    r"|(?<=[a-z]{3}|..[.,;:!?)\]\"\u201d])[\u00b9\u00b2\u00b3\u2070\u2074-\u2079]{1,3}(?!\w)"
    r"|\d\ufe0f?\u20e3|(?:^|(?<=\n))[\s>*_#-]*(?:fact|source|passage|point)\s\d{1,3}[*_]*:",
    re.I,
)
_POINTS = re.compile(r"[\d\u00b9\u00b2\u00b3\u2070\u2074-\u2079]")
# "1.", "2)" or "Step 3:" before a list item numbers it and is not a value.
_LIST = re.compile(r"(?:^|\n)[ \t>*#-]*(\d{1,3}(?=[.)]\s)|(?i:step)\s\d{1,3}(?=[.):]))")
# A single capitalised word in quotation marks is a title; elsewhere it may begin a sentence.
_TITLE = re.compile(r"[\"“]([A-Z][\w'-]{2,})[\"”]")
# Frequencies such as "twice daily" and "per year", which are compared like units.
_PERIOD = re.compile(
    r"(?i)\b(?P<ly>hourly|daily|weekly|fortnightly|monthly|quarterly|yearly|annually)\b"
    r"|(?:\b(?:per|each|every)\s|(?<=[a-z0-9])/|(?<=once )an?\s|(?<=twice )an?\s|(?<=times )an?\s)"
    r"(?P<noun>second|minute|hour|day|week|fortnight|month|quarter|year|annum)\b"
)
_PERIOD_OF = {"daily": "day", "annually": "year", "annum": "year"}
PERIOD = "per "
_PERIODS = frozenset(
    """hourly daily weekly fortnightly monthly quarterly yearly annually second minute hour day
    week fortnight month quarter year annum""".split()
)
# Words that do not fix a unit: "79 degrees" may be Celsius or Fahrenheit.
_HALF_UNITS = frozenset("degrees points times units cents".split())
_PLURAL = re.compile(r"\s([a-z]{2,}[a-rt-z]s|people|children|men|women)(?![\w-])(?:\s([a-z]{2,}))?")
_LEAD = re.compile(r"(?i:the|a|an)\s+")


@dataclass(frozen=True, slots=True)
class Value:
    """A name, date or quantity with its offsets.

    Attributes:
        family: values of one family can be compared with each other.
        kind: `name`, `number`, `date`, `quantity`, `citation` or `url`, as in records.
        of: the parsed mention; None for a name.
        counts: True for a number without a unit directly before the things that it counts.
    """

    start: int
    end: int
    text: str
    family: Family
    kind: str
    of: Quantity | DateMention | None = None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class ValueReading:
    """The words and values of a text.

    Attributes:
        words: content words outside quantities and dates.
        stems: stems of all content words, including those inside values.
    """

    text: str
    words: tuple[ContentWord, ...]
    values: tuple[Value, ...]
    stems: frozenset[str] = field(default=frozenset())

    def of(self, *families: Family) -> list[Value]:
        """The values of some families."""
        return [value for value in self.values if value.family in families]


def values_of(text: str) -> list[Value]:
    """The typed values of a text, in order and without overlaps."""
    look = gist(text)
    # One byte per character marks taken places, so that the time is linear in the text.
    blocked = bytearray(len(text))
    if look.figures or _POINTS.search(text):
        for start, end in (
            *(match.span() for match in MARKER.finditer(text)),
            *(match.span(1) for match in _LIST.finditer(text)),
        ):
            blocked[start:end] = b"\x01" * (end - start)
    values: list[Value] = []

    def take(
        start: int, end: int, family: Family, kind: str, of: Quantity | DateMention | None
    ) -> None:
        if start < end and 1 not in blocked[start:end]:
            blocked[start:end] = b"\x01" * (end - start)
            counts = kind == "number" and _counts(text, end)
            values.append(Value(start, end, text[start:end], family, kind, of, counts))

    for date in dates(text):
        take(date.start, date.end, "date", "date", date)
    for quantity in quantities(text):
        kind = "number" if quantity.kind in ("number", "ordinal") else "quantity"
        take(quantity.start, quantity.end, "quantity", kind, quantity)
    for match in () if look.lacks(_PERIODS) else _PERIOD.finditer(text):
        name = (match["ly"] or match["noun"]).lower()
        unit = PERIOD + _PERIOD_OF.get(name, name.removesuffix("ly"))
        once = Decimal(1)
        often = Quantity(*match.span(), match.group(), once, once, once, "measure", unit)
        take(*match.span(), "quantity", "quantity", often)
    for span in identifiers(text):
        take(span.start, span.end, "name", _name_kind(span.of(text)), None)
    for name in names(text):
        lead = _LEAD.match(name.text)
        start = name.start + (lead.end() if lead else 0)
        take(start, name.end, "name", _name_kind(name.text), None)
    for title in _TITLE.finditer(text):
        take(title.start(1), title.end(1), "name", "name", None)
    return sorted(values, key=lambda value: value.start)


def _counts(text: str, place: int) -> bool:
    """Whether a plural that is not a unit follows: "12 countries", but not "12 work days"."""
    match = _PLURAL.match(text, place)
    if match is None or match[1] in _HALF_UNITS:
        return False
    return not any(unit_of(word) for word in match.groups() if word)


def _name_kind(text: str) -> str:
    if _URL.search(text):
        return "url"
    return "citation" if _CITATION.match(text) else "name"


@lru_cache(maxsize=4096)
def read(text: str) -> ValueReading:
    """Read a text; results are cached and shared."""
    values = tuple(values_of(text))
    every = content_words(text)
    taken = [(value.start, value.end) for value in values if value.family != "name"]
    if gist(text).figures or _POINTS.search(text):
        taken += [match.span() for match in MARKER.finditer(text)]
    words = every
    if taken:
        inside = bytearray(len(text))
        for start, end in taken:
            inside[start:end] = b"\x01" * (end - start)
        words = tuple(word for word in every if not inside[word.start])
    return ValueReading(text, words, values, frozenset(word.stem for word in every))


forgotten_with(read.cache_clear)


_SCALE = re.compile(
    r"(?i:\b|\d)(?:(?P<k>k|thousand)|(?P<m>m|mn|million)|(?P<b>b|bn|billion)|(?P<t>t|tn|trillion))"
    r"(?![A-Za-z])",
    re.IGNORECASE,
)
_POWER = {"k": 3, "m": 6, "b": 9, "t": 12}
_WORD = re.compile(r"[^\W_]+(?:[.'&-][^\W_]+)*")
# Minimum significant digits of a rounded number: "5 million" for 5,400,000 is another number.
LEAST_DIGITS = 2
# Maximum digits of a rounded number; `Decimal` has a precision of 28.
MOST_DIGITS = 12
_GROUPED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:[.,'\u2009\u00a0\u202f ]\d{3})+(?![\d.,])")
_GLUED_M = re.compile(r"\dm\Z")
SMALL_WORDS = frozenset({"of", "the", "and", "for", "in", "on", "at", "a", "an", "de", "la", "&"})


def same_value(claim: Value, source: Value) -> bool:
    """Whether the source's value confirms the claim's."""
    if isinstance(claim.of, Quantity) and isinstance(source.of, Quantity):
        if _grouped_alike(claim.of, source.of):
            return True
        if claim.of.bound and claim.of.bound == source.of.bound and claim.of.unit == source.of.unit:
            # With the same bound on both sides, "about 630" does not confirm "about 650".
            same = (claim.of.low, claim.of.high) == (source.of.low, source.of.high)
            return same or rounded(claim.of, source.of)
        if _million(claim.of) != _million(source.of):
            # "3.4m" alone is metres, but means millions when compared with "3.4 million".
            pair = [_in_millions(q) if _million(q) else q for q in (claim.of, source.of)]
            if (pair[0].low, pair[0].high) == (pair[1].low, pair[1].high):
                return pair[0].unit == pair[1].unit
        return (
            (_bare(claim.of, source.of) and not _counts_else(claim, source))
            or agree(claim.of, source.of)
            or rounded(claim.of, source.of)
            or bounded(claim.of, source.of)
        )
    if isinstance(claim.of, DateMention) and isinstance(source.of, DateMention):
        return gives(source.of, claim.of)
    if claim.family == "name" and source.family == "name":
        return same_name(claim.text, source.text)
    if {claim.family, source.family} == {"quantity", "date"}:
        return plain(claim.text) == plain(source.text)
    return False


def change_kind(own: Value, other: Value) -> tuple[DistortionType, ErrorKind] | None:
    """How a claim changes the evidence's value; None if equal or not comparable.

    Comparable are quantities of one dimension, one number in two units, and two different dates.
    """
    first, second = own.of, other.of
    if isinstance(first, DateMention) and isinstance(second, DateMention):
        if compatible(first, second) or same_value(other, own):
            return None
        return DistortionType.DATE_SHIFTED, ErrorKind.DATE
    if not (isinstance(first, Quantity) and isinstance(second, Quantity)):
        return None
    if same_value(own, other) or same_value(other, own) or first.bound != second.bound:
        return None
    if (first.low == first.high) != (second.low == second.high):
        return None
    numbers = (first.low, first.high) == (second.low, second.high)
    if first.unit != second.unit and numbers:
        if not first.unit or not second.unit:
            return None
        return DistortionType.MAGNITUDE_ALTERED, ErrorKind.UNIT
    if first.unit.startswith(PERIOD) != second.unit.startswith(PERIOD):
        return None
    if not same_kind(first, second) or first.kind != second.kind:
        return None
    return DistortionType.NUMBER_CHANGED, ErrorKind.NUMBER


def _grouped_alike(claim: Quantity, source: Quantity) -> bool:
    """Whether two figures differ only in their thousands separators: 16.181 and 16,181."""
    left, right = _GROUPED.search(claim.text), _GROUPED.search(source.text)
    if left is None or right is None or claim.unit != source.unit:
        return False
    return re.sub(r"\D", "", left.group()) == re.sub(r"\D", "", right.group())


def _million(quantity: Quantity) -> bool:
    return quantity.unit == "m" and _GLUED_M.search(quantity.text) is not None


def _in_millions(quantity: Quantity) -> Quantity:
    low, high = (end.scaleb(6) for end in (quantity.low, quantity.high))
    return replace(quantity, low=low, high=high, kind="number", unit="")


def _bare(claim: Quantity, source: Quantity) -> bool:
    """Whether two numbers are equal and only one has a unit, as in a table."""
    units = {claim.unit, source.unit}
    return (
        len(units) == 2
        and "" in units
        and "ordinal" not in (claim.kind, source.kind)
        and (claim.low, claim.high) == (source.low, source.high)
    )


def _counts_else(claim: Value, source: Value) -> bool:
    """Whether one value counts things and the other does not: "12 countries" and "12 months".

    Values with "times" are exempt: "twice" may mean "two hits".
    """
    times = any(isinstance(v.of, Quantity) and v.of.unit == "times" for v in (claim, source))
    return (claim.counts or source.counts) and not times


def rounded(claim: Quantity, source: Quantity) -> bool:
    """Whether the claim's number is the source's, correctly rounded to the claim's digits.

    Only a number with a scale ("4.2 million") or with fewer decimals counts as rounded.

    >>> from crp_integrations.language.quantities import quantities
    >>> rounded(quantities("4.2 million")[0], quantities("4,213,000")[0])
    True
    >>> rounded(quantities("130")[0], quantities("127")[0])
    False
    """
    if claim.kind != source.kind or claim.unit != source.unit or claim.low != claim.high:
        return False
    power = _power(claim.text)
    shown = claim.value.scaleb(-power)
    exact = source.value.scaleb(-power)
    digits = max(0, -int(shown.normalize().as_tuple().exponent))
    written = re.search(r"\d\.(\d+)", claim.text)
    digits = max(digits, len(written[1])) if written else digits
    if digits > MOST_DIGITS or max(abs(exact), abs(shown)) >= 10**MOST_DIGITS:
        return False
    finer = exact != round(exact, digits)
    if not finer or (power == 0 and source.value == source.value.to_integral_value()):
        return False
    significant = len(str(abs(round(shown, digits))).replace(".", "").lstrip("0"))
    step = Decimal(1).scaleb(-digits)
    return significant >= LEAST_DIGITS and abs(shown - exact) * 2 <= step


def bounded(claim: Quantity, source: Quantity) -> bool:
    """Whether the source's number satisfies a bound, as in "more than 4 million"."""
    if (
        source.bound not in ("", "about")
        or claim.bound not in ("least", "most")
        or not same_kind(claim, source)
    ):
        return False
    own, other = to_base(claim.value, claim.unit)[0], to_base(source.value, source.unit)[0]
    return own <= other if claim.bound == "least" else other <= own


def _power(text: str) -> int:
    match = _SCALE.search(text)
    if match is None:
        return 0
    return next(power for name, power in _POWER.items() if match[name])


@lru_cache(maxsize=16_384)
def name_words(text: str) -> tuple[str, ...]:
    """The identifying words of a name, folded, in lower case, without possessives."""
    return tuple(
        word.removesuffix("'s").replace(".", "")
        for word in _WORD.findall(plain(text))
        if word not in SMALL_WORDS
    )


@lru_cache(maxsize=65_536)
def same_name(claim: str, source: str) -> bool:
    """Whether two names can be the same: equal, contained, an acronym, or a short form.

    >>> same_name("NIST", "National Institute of Standards and Technology")
    True
    >>> same_name("Obama", "Barack Obama"), same_name("NIST", "ISO")
    (True, False)
    """
    if not name_words(claim) or not name_words(source):
        return plain(claim) == plain(source)
    return is_form_of(claim, source) or is_form_of(source, claim)


def is_form_of(name: str, whole: str) -> bool:
    """Whether a name adds nothing to another: equal, a part, its acronym, or spelled out.

    >>> is_form_of("Obama", "Barack Obama"), is_form_of("Captain Obama", "Obama")
    (True, False)
    """
    left, right = name_words(name), name_words(whole)
    if not left or not right:
        return False
    if re.sub(r"\W", "", "".join(left)) == re.sub(r"\W", "", "".join(right)):
        return True
    if any(character.isdigit() for character in name + whole):
        return False
    if {stem(word) for word in left} <= {stem(word) for word in right}:
        return True
    return _is_acronym(left, whole) or _is_acronym(right, name)


def _is_acronym(words: tuple[str, ...], name: str) -> bool:
    if len(words) != 1 or len(words[0]) < 2:
        return False
    # With and without small words: "POV" includes the "of", "NIST" does not.
    forms = name_words(name), _WORD.findall(plain(name))
    return words[0] in ("".join(word[0] for word in form) for form in forms)


for _memory in (name_words, same_name):
    forgotten_with(_memory.cache_clear)
