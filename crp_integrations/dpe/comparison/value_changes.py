"""Which kind of change lies between two values, and what else explains the claim's value."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from crp_integrations.dpe.comparison.clause_words import Token, figures
from crp_integrations.dpe.comparison.evidence_index import EvidenceIndex
from crp_integrations.dpe.verifier.values import PERIOD, Value, same_value
from crp_integrations.language.dates import DateMention, compatible
from crp_integrations.language.measures import to_base
from crp_integrations.language.numerals import WORDED
from crp_integrations.language.quantities import Quantity, same_kind
from crp_integrations.vocabulary import DistortionType, ErrorKind

# Days, weeks and months of common periods, by which prices and durations are multiplied.
_PERIODS: Final = tuple(map(Decimal, (2, 4, 7, 12, 24, 30, 52, 60, 365)))
# A result may be rounded by so much.
_ROUNDED: Final = Decimal("0.005")
# With more figures about a matter, almost any number follows from two of them.
_MOST: Final = 60
# "24 years" is no multiple of "24 months".
_TIME: Final = to_base(Decimal(1), "h")[1]
Change = tuple[DistortionType, ErrorKind]


def change_kind(own: Value, other: Value) -> Change | None:
    """The kind of change from the evidence's value to a claim's; None where they are not of one.

    Two quantities of one dimension, one number in two units, or two dates that cannot be one.
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


def is_explained(
    value: Value, content: Sequence[str], evidence: EvidenceIndex, question: str
) -> bool:
    """Whether the question, a passage about the matter, or arithmetic over them gives a value.

    Args:
        content: the claim's content words; a sentence that shares none of them is about
            something else, so that it changes nothing.
    """
    asked = figures(question) if question else []
    near = [v for sentence in evidence.about(content) for v in figures(sentence.text)]
    if any(same_value(value, other) or _same_text(value, other) for other in (*asked, *near)):
        return True
    if not isinstance(value.of, Quantity):
        return False
    return follows(value.of, [v.of for v in (*asked, *near) if isinstance(v.of, Quantity)])


def stands_anywhere(token: Token, following: str, evidence: EvidenceIndex) -> bool:
    """Whether any sentence has the same value, with its unit or of the same things.

    Args:
        following: the word behind a number without a unit.
    """
    value = token.value
    assert value is not None
    for sentence in evidence.sentences:
        if not any(c.isdigit() for c in sentence.text) and not sentence.words & WORDED:
            continue
        for place, other in enumerate(sentence.tokens):
            if other.value is None or not same_value(value, other.value):
                continue
            after = sentence.tokens[place + 1].key if place + 1 < len(sentence.tokens) else ""
            if _unit(value) or isinstance(value.of, DateMention) or after == following:
                return True
    return False


def _unit(value: Value) -> str:
    return value.of.unit if isinstance(value.of, Quantity) else ""


def _same_text(one: Value, other: Value) -> bool:
    return one.text.casefold() == other.text.casefold()


def follows(own: Quantity, others: Iterable[Quantity]) -> bool:
    """Whether a quantity is the sum, difference, product or share of two others, or a multiple."""
    size, dimension = to_base(own.value, own.unit)
    known = {to_base(q.value, q.unit) for q in others if q.unit != "clock"}
    if own.unit == "clock" or not size:
        return own.unit == "clock"
    alike = sorted({number for number, kind in known if kind == dimension and number})[:_MOST]
    bare = sorted({number for number, kind in known if not kind and number})[:_MOST]
    made: set[Decimal] = set()
    for a, b in itertools.combinations(alike, 2):
        made |= {a + b, abs(a - b)}
    for a in alike:
        for b in (*bare, *(() if dimension == _TIME else _PERIODS)):
            made |= {a * b, a / b}
    made.add(sum(alike, Decimal(0)))
    if own.kind == "percent":
        for a, b in itertools.permutations({number for number, _ in known if number}, 2):
            made |= {100 * a / b, abs(100 * a / b - 100)}
    return any(abs(number - size) <= _ROUNDED * abs(size) for number in made)
