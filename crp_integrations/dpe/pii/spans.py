"""Kinds of personal data, the places where they occur, and the rules that find numbers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crp_integrations.language.word_lists import read_word_lists
from crp_integrations.vocabulary import PersonalCategory

LISTS: Final = read_word_lists(__package__)
"""Word lists by name: names, titles, illnesses, and words that occur near a number."""

KINDS: Final[Mapping[str, PersonalCategory]] = MappingProxyType(
    {
        kind: category
        for category, kinds in (
            (
                PersonalCategory.DIRECT,
                "person email phone ssn itin passport driving_licence national_id",
            ),
            (
                PersonalCategory.QUASI,
                "date_of_birth age street_address postcode employee_id ip mac url",
            ),
            (PersonalCategory.SENSITIVE, "health politics ethnicity religion orientation union"),
            (PersonalCategory.FINANCIAL, "credit_card iban bank_account crypto salary"),
        )
        for kind in kinds.split()
    }
)
"""Every kind that the package's own recognisers look for, by its category.

Spec: CRP-SPEC-005 §13.2
"""

NEVER_CHECKED: Final = (
    "biometric",
    "criminal_record",
    "genetic",
    "image",
    "location_trace",
    "voice",
)
"""Kinds of personal data that nothing here looks for; a report lists them."""

# The words of a name, without initials.
_WORDS: Final = re.compile(r"[^\W\d_]{3,}")
_SIGNS: Final = re.compile(r"[\W_]+")
_NUMBERED: Final = re.compile(r"[\d@]")


@dataclass(frozen=True, slots=True)
class PersonalSpan:
    """A place that contains personal data; the text itself is not stored.

    Attributes:
        kind: one of `KINDS`, or a kind of another recogniser.
        recogniser: `name@n` of the recogniser that found it.
        score: the recogniser's confidence, [0, 1]; 1 for a valid checksum.
    """

    category: PersonalCategory
    kind: str
    start: int
    end: int
    recogniser: str
    score: float


def span(kind: str, start: int, end: int, recogniser: str, score: float) -> PersonalSpan:
    """A place of a kind in `KINDS`."""
    return PersonalSpan(KINDS[kind], kind, start, end, recogniser, score)


def apart(places: list[PersonalSpan]) -> list[PersonalSpan]:
    """The places without overlaps: the higher score stays, else the longer, else the earlier.

    Makes one pass over the sorted places, with the taken stretches in order.
    """
    from bisect import bisect_left, insort

    chosen: list[PersonalSpan] = []
    taken: list[tuple[int, int]] = []
    for place in sorted(places, key=lambda s: (-s.score, s.start - s.end, s.start, s.kind)):
        at = bisect_left(taken, (place.start, place.start))
        before = taken[at - 1] if at else (0, 0)
        after = taken[at] if at < len(taken) else (place.end, place.end)
        if before[1] > place.start or after[0] < place.end:
            continue
        insort(taken, (place.start, place.end))
        chosen.append(place)
    return sorted(chosen, key=lambda s: (s.start, s.end))


# Characters before and after a place in which a word counts as near it.
BEFORE: Final = 60
AFTER: Final = 24
_DIGIT: Final = re.compile(r"\d")
_DIGITS_TOGETHER: Final = re.compile(r"\d(?:\D{0,2}\d)*")
_SEPARATORS: Final = re.compile(r"[^0-9A-Za-z]")


def beside(plain: str, start: int, end: int, words: re.Pattern[str]) -> bool:
    """Whether a word of the pattern occurs shortly before a place, or just after it."""
    first, last = max(0, start - BEFORE), min(len(plain), end + AFTER)
    # A word that the limits would cut is left out: "post" is no word of "reports".
    while 0 < first < start and plain[first - 1 : first + 1].isalnum():
        first += 1
    while end < last < len(plain) and plain[last - 1 : last + 1].isalnum():
        last -= 1
    before = plain[first:start]
    # Another line or sentence is about something else, except for a heading on the line above.
    before = "\n".join(re.split(r"(?<=[.!?;])\s", before)[-1].split("\n")[-2:])
    after = re.split(r"[.!?;\n]", plain[end:last], maxsplit=1)[0]
    return words.search(before) is not None or words.search(after) is not None


def any_of(words: str) -> re.Pattern[str]:
    """A pattern of whole words or phrases in any case; `_` matches up to two blanks or signs."""
    parts = [re.escape(word).replace("_", r"[\s'./-]{0,2}") for word in words.split()]
    return re.compile(r"(?<![^\W_])(?:" + "|".join(parts) + r")(?![^\W_])", re.IGNORECASE)


def listed(name: str) -> re.Pattern[str]:
    """The pattern of a list of words."""
    return any_of(" ".join(LISTS[name]))


def _compact(text: str) -> str:
    return _SEPARATORS.sub("", text).upper()


def _always(text: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of number is found.

    Attributes:
        pattern: matches the number, as its group `n` or, without that group, as a whole.
        valid: checks the number without separators, letters in upper case.
        words: pattern of words that may occur near it; None for no such words.
        bare: score without such a word; 0 to reject the number.
        labelled: score with such a word.
        digits: minimum number of its digits; of five or more, no two neighbours are more than
            two characters apart.
    """

    kind: str
    name: str
    pattern: re.Pattern[str]
    valid: Callable[[str], bool] = _always
    words: re.Pattern[str] | None = None
    bare: float = 0.0
    labelled: float = 1.0
    digits: int = 1

    def find(self, plain: str) -> Iterator[PersonalSpan]:
        """Every place of the kind."""
        for match in self.pattern.finditer(plain):
            group: str | int = "n" if "n" in match.re.groupindex else 0
            start, end = match.span(group)
            score = self.bare
            if self.words is not None and beside(plain, start, end, self.words):
                score = self.labelled
            if score and self.valid(_compact(match.group(group))):
                yield span(self.kind, start, end, self.name, score)


_LONG: Final = 5


def found_by(rules: Sequence[Rule], plain: str) -> list[PersonalSpan]:
    """The places that the rules find.

    A rule is skipped where too few digits stand together for it, or none of the words that it
    needs occurs: most texts have no long number.
    """
    longest = max(
        (len(_DIGIT.findall(match.group())) for match in _DIGITS_TOGETHER.finditer(plain)),
        default=0,
    )
    return [
        place
        for rule in rules
        if (rule.digits < _LONG or rule.digits <= longest)
        and (rule.bare or rule.words is None or rule.words.search(plain))
        for place in rule.find(plain)
    ]


_LOOKALIKES: Final = dict(
    zip(
        "АВЕКМНОРСТУХІЈЅаеорсухіјѕԁһԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοναι",
        "ABEKMHOPCTYXIJSaeopcyxijsdhqwABEZHIKMNOPTYXovai",
        strict=True,
    )
)
_HYPHENS: Final = frozenset("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d")
_BLANKS: Final = frozenset("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")  # fmt: skip
_APOSTROPHES: Final = frozenset("\u2018\u2019\u02bc\uff07")
_MIXED: Final = re.compile(r"[^\W\d_]+")
_SIGNSS: Final = re.compile(r"[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class ReadableText:
    """A normalised text, with the offset in the original of each character unless all are equal."""

    plain: str
    at: tuple[int, ...]
    size: int

    def back(self, start: int, end: int) -> tuple[int, int]:
        """Offsets in the text of a non-empty stretch of `plain`."""
        if not self.at:
            return start, end
        return self.at[start], self.at[end - 1] + 1


def read(text: str) -> ReadableText:
    """Normalise a text, in linear time."""
    if text.isascii():
        return ReadableText(text, (), len(text))
    others = {character: _plain(character) for character in set(_SIGNSS.findall(text))}
    if all(others.values()):
        # Each character has one replacement, so the offsets are the same.
        return ReadableText(
            _latinised(text.translate({ord(a): b for a, b in others.items()})), (), len(text)
        )
    characters: list[str] = []
    at: list[int] = []
    for place, character in enumerate(text):
        plain = others.get(character, character)
        if plain:
            characters.append(plain)
            at.append(place)
    joined = _latinised("".join(characters))
    return ReadableText(joined, tuple(at), len(text))


def _plain(character: str) -> str:
    """The replacement of a character: one character, or an empty string."""
    kind = unicodedata.category(character)
    if kind in ("Cf", "Mn") and (kind == "Cf" or "\ufe00" <= character <= "\ufe0f"):
        return ""
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    if character in _HYPHENS:
        return "-"
    if character in _BLANKS:
        return " "
    if character in _APOSTROPHES:
        return "'"
    composed = unicodedata.normalize("NFKC", character)
    return composed if len(composed) == 1 else character


def _latinised(text: str) -> str:
    """The text with lookalike letters made Latin in words that also have Latin letters."""

    def latin(match: re.Match[str]) -> str:
        word = match.group()
        if word.isascii() or not any(letter.isascii() for letter in word):
            return word
        return "".join(_LOOKALIKES.get(letter, letter) for letter in word)

    return _MIXED.sub(latin, text)


def is_repeated(datum: str, known: str) -> bool:
    """Whether a text already contains a datum: a name by its words, other data as a whole.

    >>> is_repeated("Schmidt", "Anna Schmidt pays."), is_repeated("Ann Lee", "Anna Schmidt pays.")
    (True, False)
    >>> is_repeated("+1 202 555-0142", "Her number is +1 (202) 555 0142.")
    True
    """
    datum, known = datum.lower(), known.lower()
    words = _WORDS.findall(datum)
    if words and not _NUMBERED.search(datum):
        # The first test is fast and excludes most data that the text does not contain.
        return all(map(known.__contains__, words)) and set(_WORDS.findall(known)).issuperset(words)
    return _SIGNS.sub("", datum) in _SIGNS.sub("", known)
