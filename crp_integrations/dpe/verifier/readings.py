"""What a text commits itself to: its words, and its typed values with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from crp_integrations.language.dates import DateMention, dates
from crp_integrations.language.identifiers import gist, identifiers
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.names import names
from crp_integrations.language.quantities import Quantity, quantities
from crp_integrations.language.units import unit_of
from crp_integrations.language.words import ContentWord, content_words

Family = Literal["quantity", "date", "name"]

_URL = re.compile(r"https?://|www\.|\w@\w", re.IGNORECASE)
_CITATION = re.compile(
    r"(?i:sections?|articles?|art\.|chapters?|clauses?|paragraphs?|annex|appendix|figures?|tables?"
    r"|rfc|iso|doi|§|10\.\d{4})",
)
# The envelope numbers its facts "[1]", and models quote those numbers.
MARKER = re.compile(r"\[(\d{1,4})\]|\[(\d{1,4}(?:\s?,\s?\d{1,4})+)\]")
# "1.", "2)" or "Step 3:" before a list item counts the items of the list.
_LIST = re.compile(r"(?:^|\n)[ \t>*#-]*(\d{1,3}(?=[.)]\s)|(?i:step)\s\d{1,3}(?=[.):]))")
# A single capital between quotation marks is a title, where elsewhere it opens a sentence.
_TITLE = re.compile(r"[\"“]([A-Z][\w'-]{2,})[\"”]")
# How often: "twice daily", "per year". It is compared like a unit, and needs no source itself.
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
# "79 degrees" leaves open of which kind.
_HALF_UNITS = frozenset("degrees points times units cents".split())
_PLURAL = re.compile(r"\s([a-z]{2,}[a-rt-z]s|people|children|men|women)(?![\w-])(?:\s([a-z]{2,}))?")
_LEAD = re.compile(r"(?i:the|a|an)\s+")


@dataclass(frozen=True, slots=True)
class Value:
    """A name, date or quantity where it stands.

    Attributes:
        start, end: character offsets in the text that was read.
        family: what it can be compared with.
        kind: the record's word: `name`, `number`, `date`, `quantity`, `citation` or `url`.
        of: the parsed mention, None for a name.
        counts: a number without a unit stands right before the things that it counts.
    """

    start: int
    end: int
    text: str
    family: Family
    kind: str
    of: Quantity | DateMention | None = None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the verifier reads it.

    Attributes:
        words: content words outside quantities and dates.
        values: quantities, dates and names in order of place.
        stems: stem of each content word, also those inside values.
    """

    text: str
    words: tuple[ContentWord, ...]
    values: tuple[Value, ...]
    stems: frozenset[str] = field(default=frozenset())

    def of(self, *families: Family) -> list[Value]:
        """The values of some families."""
        return [value for value in self.values if value.family in families]


def values_of(text: str) -> list[Value]:
    """The typed values of a text in order of place; no two overlap."""
    look = gist(text)
    # One byte for each character, so that the work grows with the text and no faster.
    blocked = bytearray(len(text))
    if look.figures:
        for start, end in (
            *(match.span() for match in MARKER.finditer(text)),
            *(match.span(1) for match in _LIST.finditer(text)),
        ):
            blocked[start:end] = b"\x01" * (end - start)
    found: list[Value] = []

    def take(
        start: int, end: int, family: Family, kind: str, of: Quantity | DateMention | None
    ) -> None:
        if start < end and 1 not in blocked[start:end]:
            blocked[start:end] = b"\x01" * (end - start)
            counts = kind == "number" and _counts(text, end)
            found.append(Value(start, end, text[start:end], family, kind, of, counts))

    for date in dates(text):
        take(date.start, date.end, "date", "date", date)
    for quantity in quantities(text):
        kind = "number" if quantity.kind in ("number", "ordinal") else "quantity"
        take(quantity.start, quantity.end, "quantity", kind, quantity)
    for match in () if look.lacks(_PERIODS) else _PERIOD.finditer(text):
        name = (match["ly"] or match["noun"]).lower()
        unit = PERIOD + _PERIOD_OF.get(name, name.removesuffix("ly"))
        one = Decimal(1)
        often = Quantity(*match.span(), match.group(), one, one, one, "measure", unit)
        take(*match.span(), "quantity", "quantity", often)
    for span in identifiers(text):
        take(span.start, span.end, "name", _name_kind(span.of(text)), None)
    for name in names(text):
        lead = _LEAD.match(name.text)
        start = name.start + (lead.end() if lead else 0)
        take(start, name.end, "name", _name_kind(name.text), None)
    for title in _TITLE.finditer(text):
        take(title.start(1), title.end(1), "name", "name", None)
    return sorted(found, key=lambda value: value.start)


def _counts(text: str, place: int) -> bool:
    """Whether a plural follows that is no unit, as in "12 countries" but not in "12 work days"."""
    match = _PLURAL.match(text, place)
    if match is None or match[1] in _HALF_UNITS:
        return False
    return not any(unit_of(word) for word in match.groups() if word)


def _name_kind(text: str) -> str:
    if _URL.search(text):
        return "url"
    return "citation" if _CITATION.match(text) else "name"


@lru_cache(maxsize=4096)
def read(text: str) -> Reading:
    """Read a text once; the result is shared.

    >>> [value.text for value in read("Revenue was $4.2M in 2024.").values]
    ['$4.2M', '2024']
    """
    values = tuple(values_of(text))
    every = content_words(text)
    taken = [(value.start, value.end) for value in values if value.family != "name"]
    if gist(text).figures:
        taken += [match.span() for match in MARKER.finditer(text)]
    words = every
    if taken:
        inside = bytearray(len(text))
        for start, end in taken:
            inside[start:end] = b"\x01" * (end - start)
        words = tuple(word for word in every if not inside[word.start])
    return Reading(text, words, values, frozenset(word.stem for word in every))


forgotten_with(read.cache_clear)
