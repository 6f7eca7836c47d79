"""Traces: which values of a claim have no source anywhere in the context."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Final

from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.slots import slots_of
from crp_integrations.dpe.verifier.values import PERIOD, Reading, Value, name_words, read, same_name
from crp_integrations.language.quantities import Quantity
from crp_integrations.language.text import plain
from crp_integrations.language.units import UNITS, to_base

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
