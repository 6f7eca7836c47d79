"""Which values of a claim have no source in the context, and which stand in another's place."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, NamedTuple

from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.slots import slots_of
from crp_integrations.dpe.verifier.values import (
    PERIOD,
    Reading,
    Value,
    name_words,
    read,
    same_name,
    same_value,
)
from crp_integrations.language.dates import DateMention
from crp_integrations.language.measures import UNITS, to_base
from crp_integrations.language.memo import remembered
from crp_integrations.language.quantities import Quantity, same_kind
from crp_integrations.language.text import fold, plain
from crp_integrations.language.words import PAST_OF, STOP_WORDS, stem

# Plain whole numbers up to this are everywhere; they trace only to a place that shares a word.
SMALL: Final = 100
# Ends of the scales on which things are rated.
_SCALES = frozenset({Decimal(5), Decimal(10), Decimal(100)})
_RATED = re.compile(r"(?i)\b(?:rat(?:ed|es?|ings?)|stars?|scor(?:e[ds]?|ing))\b")
_WEEK = range(7)
_PAIR = 2
_A_WEEK = " a week"
# Share by which a converted figure may be rounded.
_CONVERTED = Decimal("0.02")
# Characters before a bracket in which the name stands that what is in it is short for.
_LONG_NAME = 120
# Degrees Celsius by which one may be: whole degrees have no share near nought.
_DEGREE = Decimal(1)


def untraced(
    values: Iterable[Value],
    claim: Reading,
    context: Context,
    known: Iterable[str],
    common: Iterable[str],
) -> tuple[Value, ...]:
    """The values that no passage has, in order."""
    allowed = [*common]
    asked = [name.text for text in known for name in read(text).of("name")]
    found = []
    for value in sorted(values, key=lambda v: v.start):
        if value.family == "name":
            if context.has_name(value.text) or any(same_name(value.text, n) for n in asked):
                continue
            if value.text.casefold() in {name.casefold() for name in allowed}:
                continue
            if explained(value, claim, context):
                continue
        elif _is_wording(value) or _traces(value, claim, context):
            continue
        found.append(value)
    return tuple(found)


def _traces(value: Value, claim: Reading, context: Context) -> bool:
    if context.has_clock(value):
        return True
    places = context.places(value)
    if not places:
        return _ends_trace(value, context) or follows(value, claim, context)
    if not _is_small(value):
        return True
    near = dict(zip((v.start for v in claim.values), slots_of(claim), strict=True))[value.start]
    if not near.around:
        return True
    return any(near.around & context.slots[p][other.start].around for p, other in places)


def follows(value: Value, claim: Reading, context: Context) -> bool:
    """Whether a figure follows from what the claim or the context says in another way.

    The end of a rating's scale ("4.5 out of 5 stars"), every day of a week whose days are named,
    or what stands in brackets behind its equal in another unit ("350 °F (175 °C)").
    """
    quantity = value.of
    if not isinstance(quantity, Quantity):
        return False
    before = plain(claim.text[max(0, value.start - 9) : value.start])
    if before.endswith("out of") and quantity.value in _SCALES and _RATED.search(claim.text):
        return True
    after = claim.text[value.end : value.end + 7].lower()
    if quantity.unit == "d" and quantity.value == len(_WEEK) and after == _A_WEEK:
        return context.whole_week
    if not before.endswith("(") or quantity.unit not in UNITS:
        return False
    own = to_base(quantity.value, quantity.unit)
    for other in claim.values:
        if other.end > value.start or not isinstance(other.of, Quantity):
            continue
        size, dimension = to_base(other.of.value, other.of.unit)
        if dimension == own[1] and other.of.unit != quantity.unit and context.places(other):
            least = _DEGREE if dimension == "temperature" else Decimal(0)
            return abs(size - own[0]) <= max(least, _CONVERTED * abs(size))
    return False


def explained(value: Value, claim: Reading, context: Context) -> bool:
    """Whether it is short for words of the context that it stands behind, as "Red Cross (RC)"."""
    letters = value.text.lower()
    before = claim.text[max(0, value.start - _LONG_NAME) : value.start]
    if not value.text.isupper() or not before.endswith("("):
        return False
    spelled = name_words(before[:-1])[-len(letters) :]
    return "".join(word[0] for word in spelled) == letters and all(map(context.has_word, spelled))


def _ends_trace(value: Value, context: Context) -> bool:
    """Whether both ends of an interval stand in the context, as in "2 h" and "3 h"."""
    quantity = value.of
    if not isinstance(quantity, Quantity) or quantity.low == quantity.high:
        return False
    return all(
        context.places(
            replace(
                value, of=replace(quantity, value=end, low=end, high=end, hedged=False, bound="")
            )
        )
        for end in (quantity.low, quantity.high)
    )


def _is_wording(value: Value) -> bool:
    """Whether it is "one", "two", "first" or "daily".

    These order a text, or count what it names anyway, more often than they state a figure.
    """
    quantity = value.of
    if isinstance(quantity, Quantity) and quantity.unit.startswith(PERIOD):
        return True
    spelled = not any(character.isdigit() for character in value.text)
    return (
        isinstance(quantity, Quantity)
        and spelled
        and (quantity.kind == "ordinal" or (quantity.value <= _PAIR and value.kind == "number"))
    )


def _is_small(value: Value) -> bool:
    quantity = value.of
    return (
        isinstance(quantity, Quantity)
        and value.kind == "number"
        and quantity.value == quantity.value.to_integral_value()
        and abs(quantity.value) <= SMALL
    )


_WORD = re.compile(r"[^\W_]+(?:['.&-][^\W_]+)*")
_NOT = re.compile(r"(ca|wo|sha)n't\Z|n't\Z")
_NUMBER = re.compile(r"\.?\s?\d")
_FULL = {"ca": "can", "wo": "will", "sha": "shall"}
# They come and go with a denial or a style, and say nothing.
_EMPTY = frozenset("a an the do does did that also any been".split())
_BE = dict.fromkeys("am is are was were 's".split(), "be") | {"has": "have"}
_JOINED = {"cannot": ("can", "not"), "never": ("not",)}
_DENIALS = frozenset(
    """not no without none nobody nothing nowhere nicht kein keine keinen keiner nie niemals pas
    jamais aucun aucune nunca""".split()
)
_FAILING = frozenset(stem(word) for word in "fail refuse decline unable cease neglect".split())
_TO = re.compile(r"\s+to\b")
_LESS = frozenset("hardly scarcely barely seldom rarely".split())


class Token(NamedTuple):
    """A word as it is compared, and where it stands."""

    norm: str
    lower: str
    start: int
    end: int

    @property
    def denies(self) -> bool:
        """Whether it is a denial by itself."""
        return self.norm in _DENIALS or self.lower in _LESS


@remembered
def tokens(text: str) -> tuple[Token, ...]:
    """The words of a text as they are compared: contractions undone, verbs in their base form."""
    folded = fold(text)
    shifted = folded.offsets is not None
    found: list[Token] = []
    skip = 0
    for match in _WORD.finditer(folded.text):
        start, end = match.span()
        if shifted:
            start, end = folded.start(start), folded.end(end)
        lower = match.group().casefold()
        if lower == "no" and _NUMBER.match(folded.text, match.end()):
            continue
        if stem(lower) in _FAILING and (to := _TO.match(folded.text, match.end())):
            # "Failed to pass" is "did not pass".
            found.append(Token("not", lower, start, folded.end(to.end())))
            skip = to.end()
            continue
        if match.start() < skip:
            continue
        if stem(lower) == "lack":
            # "Lacks a warranty" is "has no warranty".
            found += [Token("not", lower, start, end), Token(stem("have"), lower, start, end)]
            continue
        if lower == "nor":
            # After "neither" it only goes on with it.
            lower = "or" if any(token.lower == "neither" for token in found) else "not"
        elif lower == "neither":
            found.append(Token("not", lower, start, end))
            continue
        short = _NOT.search(lower) if lower.endswith("n't") else None
        if short is not None:
            head = _FULL.get(short[1] or "", lower[: short.start()])
            parts: tuple[str, ...] = (head, "not")
        else:
            parts = _JOINED.get(lower, (lower.removesuffix("'s"),))
        for part in parts:
            if part in _EMPTY:
                continue
            if part == "one" and found and found[-1].lower == "no":
                last = found.pop()
                found.append(Token("none", "none", last.start, end))
                continue
            if part == "longer" and found and found[-1].norm == "no":
                last = found.pop()
                found.append(Token("not", "no-longer", last.start, end))
                continue
            found.append(Token(_BE.get(part) or stem(PAST_OF.get(part, part)), part, start, end))
    return tuple(found)


def rare(token: Token, other: tuple[Token, ...]) -> bool:
    """Whether "rarely" is "in rare cases" on the other side."""
    root = token.lower.removesuffix("ly")
    return token.lower in _LESS and any(t.lower == root for t in other)


# Words between two values that may have been exchanged, and values looked at after each.
BETWEEN = 24
AHEAD = 4
# Between two values these leave it open which of them comes first.
_EITHER = frozenset(
    stem(PAST_OF.get(word, word))
    for word in """marry marriage wed meet border equal equivalent resemble adjoin adjacent face
    between versus vs v draw tie same similar differ different sibling cousin friend partner
    collaborate cooperate alongside together connect link divorce twin married wife husband
    tied merge merger compete share rival neighbour neighbor identical alike well respectively
    divided""".split()
)
# These say by themselves which of two values is which.
_ONE_WAY = frozenset(
    "to from by of than over into under above below before after against until for".split()
)
_AND = frozenset({"and", "or"})


@dataclass(frozen=True, slots=True)
class Swap:
    """Two values of the claim that stand in each other's place.

    Attributes:
        first, second: the claim's values in order.
        source: what the source has in the place of the first.
    """

    first: Value
    second: Value
    source: Value


@dataclass(frozen=True, slots=True)
class _Gap:
    """Two values of a text, by number, with the words between them."""

    one: int
    two: int
    words: tuple[str, ...]

    def tells(self, reading: Reading) -> bool:
        """Whether what stands between says which of the two is which: a list does not."""
        if any(word in _EITHER for word in self.words):
            return False
        first = reading.values[self.one]
        between = reading.values[self.one + 1 : self.two]
        if any(value.family != first.family for value in between):
            return True
        named = {token.norm for value in between for token in tokens(value.text)}
        words = [word for word in self.words if word not in named]
        if all(word in STOP_WORDS for word in words):
            return any(word in _ONE_WAY for word in words) and not set(words) & _AND
        return True


def _gaps(reading: Reading) -> list[_Gap]:
    """Pairs of values that stand near each other."""
    every = tokens(reading.text)
    values = reading.values
    places: list[tuple[int, int]] = []
    at = 0
    for value in values:
        while at < len(every) and every[at].end <= value.start:
            at += 1
        end = at
        while end < len(every) and every[end].start < value.end:
            end += 1
        places.append((at, end))
    found = []
    for one in range(len(values)):
        for two in range(one + 1, min(len(values), one + 1 + AHEAD)):
            low, high = places[one][1], places[two][0]
            if 0 < high - low <= BETWEEN:
                found.append(_Gap(one, two, tuple(token.norm for token in every[low:high])))
    return found


def swap(claim: Reading, source: Reading, others: list[Reading]) -> Swap | None:
    """Two values that the source has the other way round about the same words.

    "A defeated B" for "B defeated A", "from A to B" for "from B to A", "A earned 7 and B 5" for
    "A earned 5 and B 7"; not "B and A" for "A and B", nor what some sentence says this way.
    """
    if len(claim.values) < 2 or len(source.values) < 2:
        return None
    there: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for gap in _gaps(source):
        there.setdefault(gap.words, []).append((gap.one, gap.two))
    for gap in _gaps(claim):
        words = gap.words
        if words not in there or not gap.tells(claim):
            continue
        first, second = claim.values[gap.one], claim.values[gap.two]
        if first.family != second.family or same_value(first, second):
            continue
        found = [(source.values[a], source.values[b]) for a, b in there[words]]
        if not any(same_value(first, b) and same_value(second, a) for a, b in found):
            continue
        if any(_has(reading, first, second, words) for reading in (source, *others)):
            continue
        turned = next(a for a, b in found if same_value(first, b) and same_value(second, a))
        return Swap(first, second, turned)
    return None


def _has(reading: Reading, first: Value, second: Value, words: tuple[str, ...]) -> bool:
    return any(
        gap.words == words
        and same_value(first, reading.values[gap.one])
        and same_value(second, reading.values[gap.two])
        for gap in _gaps(reading)
    )


# Share by which a calculated figure may be rounded.
_ROUNDED: Final = Decimal("0.006")
_LOSS: Final = re.compile(
    r"(?i)\b(?:loss(?:es)?|lost|deficit|negative|minus|f[ea]ll\w*|declin\w+|decreas\w+|down"
    r"|drop\w*)\b"
)


def is_loss(value: Value, claim: Reading, context: Context) -> bool:
    """Whether "a loss of 4.2 million" is said of the source's "(4.2) million"."""
    if not isinstance(value.of, Quantity) or _LOSS.search(claim.text) is None:
        return False
    other = value.of
    turned = replace(other, value=-other.value, low=-other.high, high=-other.low)
    return bool(context.places(replace(value, of=turned)))


def same_measure(own: Value, other: Value, claim: Reading) -> bool:
    """Whether one value can stand in the other's place: both are of a kind or a size."""
    if isinstance(own.of, Quantity) and isinstance(other.of, Quantity):
        if own.of.value == -other.of.value and _LOSS.search(claim.text):
            return False
        return same_kind(own.of, other.of) or own.of.value == other.of.value
    return own.family == other.family


def is_calculated(value: Value, readings: Sequence[Reading]) -> bool:
    """Whether a figure is the sum, difference, product or share of others, or their growth."""
    if not isinstance(value.of, Quantity):
        return False
    size, dimension = to_base(value.of.value, value.of.unit)
    others = [
        to_base(one.of.value, one.of.unit)
        for reading in readings
        for one in reading.values
        if one is not value and isinstance(one.of, Quantity) and one.of.unit != "clock"
    ]
    years = {one.of.year for one in _dates(readings) if one.of.year}
    ages = {
        Decimal(late - early - short)
        for early, late in itertools.combinations(sorted(years), 2)
        for short in (0, 1)
    }
    if (value.of.unit == "y" or not dimension) and value.of.value in ages:
        return True
    alike = [number for number, kind in others if kind == dimension and number != size]
    bare = [number for number, kind in others if not kind]
    pairs = list(itertools.combinations(alike, 2))
    made = {a + b for a, b in pairs} | {abs(a - b) for a, b in pairs}
    made |= {a * b for a in alike for b in bare}
    if value.of.kind == "percent":
        kinds = {kind for _, kind in others}
        for kind in kinds:
            sizes = {number for number, other in others if other == kind and number}
            made |= {100 * a / b for a in sizes for b in sizes}
            made |= {abs(100 * a / b - 100) for a in sizes for b in sizes}
    return any(abs(one - size) <= _ROUNDED * abs(size) for one in made if one)


def _dates(readings: Iterable[Reading]) -> list[Any]:
    return [
        one for reading in readings for one in reading.of("date") if isinstance(one.of, DateMention)
    ]
