"""How a claim stands to the context: the sentence it comes from, and what differs there.

The look-ups of `literal`: a value that stands nowhere has no source, and a value, a denial or a
condition that differs from the nearest sentence's is a distortion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.verifier.context import Context, Unit
from crp_integrations.dpe.verifier.slots import Slot, Slots, pair, slots_of
from crp_integrations.dpe.verifier.values import Reading, Value, read, same_name, same_value
from crp_integrations.language.negation import (
    dropped_conditions,
    negations,
    polarity_differs,
    without_answer,
)
from crp_integrations.language.text import Span

THRESHOLDS: Final[dict[str, float]] = {
    # Share of a claim's other words in the sentence from which a differing value is a changed one.
    "conflict_frame": 0.50,
    "conflict_slot": 0.40,
    # The same where the value is true of something else in the context.
    "firm_frame": 0.70,
    "firm_slot": 0.75,
    # From which a difference in negation or a dropped condition is read as one.
    "negation_frame": 0.80,
    "condition_frame": 0.85,
}
CANDIDATES: Final = 6
# A typed value counts as much as this many average words.
VALUE_WEIGHT: Final = 1.5
# When the source sentence is chosen it counts less than a word, so that a value that belongs
# to another thing does not lead to the sentence about that thing.
CHOICE_WEIGHT: Final = 0.5
# Two sentences that only together hold a claim's words support it a little less than one.
UNION: Final = 0.92
# Share of the source's other words that the answer repeats when a condition was dropped.
MUCH: Final = 0.6


@dataclass(frozen=True, slots=True)
class Change:
    """A value of the claim that stands where the source has another one.

    Attributes:
        start, end: character offsets in the passage of the source's value.
    """

    claim: Value
    source: Value
    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Flip:
    """A negation on one side only.

    Attributes:
        claim: the cue in the claim, the whole claim when it has none.
        source: the cue in the source, the whole source when it has none.
    """

    claim: Span
    source: Span


@dataclass(frozen=True, slots=True)
class Alignment:
    """A claim laid beside the context.

    Attributes:
        lexical: share of the claim's weighted words and values that the best sentences have,
            [0, 1]; a changed value counts as had, since its sentence is the source.
        units: the sentences it rests on, best first; empty when nothing is shared.
        changes: values that differ from the source's in the same place.
        untraced: values and names that no passage has.
        flip: a negation on one side only, with offsets in the first unit.
        condition: where the first unit has a condition that the answer leaves out.
    """

    lexical: float
    units: tuple[Unit, ...]
    changes: tuple[Change, ...] = ()
    untraced: tuple[Value, ...] = ()
    flip: Flip | None = None
    condition: Span | None = None


@dataclass(frozen=True, slots=True)
class _Compared:
    unit: Unit
    source: Reading
    frame: float
    support: float
    choice: float
    slots: Slots


def align(
    text: str,
    context: Context,
    *,
    sentence: str = "",
    known: Iterable[str] = (),
    common: Iterable[str] = (),
) -> Alignment:
    """Lay one claim beside the context.

    Spec: CRP-SPEC-005 §5.2, §5.3

    Args:
        sentence: of the answer, in which a condition may stand that the claim lacks.
        known: texts beside the passages whose values need no other source.
        common: names that need no source.
    """
    text, sentence = without_answer(text), without_answer(sentence)
    claim = read(text)
    found = _candidates(claim, context)
    if not found:
        return Alignment(0.0, (), untraced=_untraced(claim.values, context, known, common))
    # Words that stand in a passage as they are were not changed; only a condition may be gone.
    whole = context.verbatim(text)
    best = max(
        found,
        key=lambda c: (
            whole and context.holds(c.unit, text),
            round(c.choice, 6),
            -len(c.slots.rivals),
        ),
    )
    condition = _condition(sentence or text, best)
    rests_on = _rests_on(best, found, claim)
    if whole:
        support = _lexical(claim, best, found, context, 0)
        return Alignment(support, rests_on, condition=condition)
    changes: list[Change] = []
    # A name that holds a known one, as "Captain Obama" does, may still say more than is known.
    open_ = [value for value in best.slots.matched if value.family == "name"]
    open_ += best.slots.missing
    for rival in best.slots.rivals:
        if _is_change(rival.claim, rival.strength, best, found, context, known):
            start = best.unit.start
            at, end = start + rival.source.start, start + rival.source.end
            changes.append(Change(rival.claim, rival.source, best.unit.passage, at, end))
        else:
            open_.append(rival.claim)
    return Alignment(
        lexical=_lexical(claim, best, found, context, len(changes)),
        units=rests_on,
        changes=tuple(changes),
        untraced=_untraced(open_, context, known, common),
        flip=_flip(claim, best),
        condition=condition,
    )


def _untraced(
    values: Iterable[Value], context: Context, known: Iterable[str], common: Iterable[str]
) -> tuple[Value, ...]:
    """The values that stand nowhere, in order."""
    allowed = {name.casefold() for name in common}
    asked = [value for text in known for value in read(text).values]
    return tuple(
        value
        for value in sorted(values, key=lambda v: v.start)
        if value.text.casefold() not in allowed and not _stands(value, context, asked)
    )


def _stands(value: Value, context: Context, asked: list[Value]) -> bool:
    """Whether a passage or the question has a value."""
    if value.family == "name":
        names = (other.text for other in asked if other.family == "name")
        return context.has_name(value.text) or any(same_name(value.text, name) for name in names)
    figures = (other for other in asked if other.family != "name")
    return context.has_figure(value) or any(same_value(value, other) for other in figures)


def _weights(claim: Reading, context: Context) -> dict[str, float]:
    return {word.stem: context.idf.get(word.stem, context.rarest) for word in claim.words}


def _name_stems(claim: Reading) -> dict[str, Value]:
    return {
        word.stem: value
        for value in claim.values
        if value.family == "name"
        for word in claim.words
        if value.start <= word.start < value.end
    }


def _candidates(claim: Reading, context: Context) -> list[_Compared]:
    units = context.nearest(claim.text, CANDIDATES)
    if not units:
        return []
    weights, names, own = _weights(claim, context), _name_stems(claim), slots_of(claim)
    return [_compare(claim, unit, context, weights, names, own) for unit in units]


def _compare(
    claim: Reading,
    unit: Unit,
    context: Context,
    weights: dict[str, float],
    names: dict[str, Value],
    own: list[Slot],
) -> _Compared:
    source = read(context.text(unit))
    slots = pair(claim, source, own)
    had = {id(value) for value in slots.matched}
    plain_total = plain_had = named_total = named_had = 0.0
    for stem, weight in weights.items():
        present = stem in source.stems
        if stem in names:
            named_total += weight
            named_had += weight if present or id(names[stem]) in had else 0.0
        else:
            plain_total += weight
            plain_had += weight if present else 0.0
    figures = [value for value in claim.values if value.family != "name"]
    mean = (plain_total + named_total) / len(weights) if weights else 1.0
    matched = sum(id(value) in had for value in figures)

    def share(worth: float) -> float:
        total = plain_total + named_total + worth * mean * len(figures)
        return (plain_had + named_had + worth * mean * matched) / total if total else 0.0

    if plain_total:
        frame = plain_had / plain_total
    elif named_total:
        frame = named_had / named_total
    else:
        frame = 1.0
    return _Compared(unit, source, frame, share(VALUE_WEIGHT), share(CHOICE_WEIGHT), slots)


def _is_change(
    value: Value,
    power: float,
    best: _Compared,
    found: list[_Compared],
    context: Context,
    known: Iterable[str],
) -> bool:
    """Whether a value was put in another one's place, and is not true of this from elsewhere."""
    limits = THRESHOLDS
    if best.frame < limits["conflict_frame"] or power < limits["conflict_slot"]:
        return False
    if not _stands(value, context, [other for text in known for other in read(text).values]):
        return True
    if best.frame < limits["firm_frame"] or power < limits["firm_slot"]:
        return False
    return not any(
        other.frame >= best.frame - 0.02 and _fits(value, other)
        for other in found
        if other.unit != best.unit
    )


def _fits(value: Value, other: _Compared) -> bool:
    """Whether another sentence says this of the same thing: it has the value and no rival."""
    surely = THRESHOLDS["firm_slot"]
    matched = any(value is found for found in other.slots.matched)
    return matched and not any(rival.strength >= surely for rival in other.slots.rivals)


def _lexical(
    claim: Reading, best: _Compared, found: list[_Compared], context: Context, changed: int
) -> float:
    if changed:
        # The value is another, but this is the sentence that it was taken from.
        return max(best.support, best.frame)
    weights = _weights(claim, context)
    total = sum(weights.values())
    if not total:
        return best.support
    others = [
        sum(w for s, w in weights.items() if s in best.source.stems or s in other.source.stems)
        for other in found
        if other.unit != best.unit
    ]
    return max(best.support, UNION * max(others, default=0.0) / total)


def _rests_on(best: _Compared, found: list[_Compared], claim: Reading) -> tuple[Unit, ...]:
    """The best sentence, and the one that adds most to it."""
    missing = {word.stem for word in claim.words} - best.source.stems
    more = max(
        (
            other
            for other in found
            if other.unit.passage != best.unit.passage or not _overlap(other, best)
        ),
        key=lambda other: len(missing & other.source.stems),
        default=None,
    )
    if more is None or not missing & more.source.stems:
        return (best.unit,)
    return (best.unit, more.unit)


def _overlap(one: _Compared, other: _Compared) -> bool:
    return one.unit.start < other.unit.end and other.unit.start < one.unit.end


def _flip(claim: Reading, best: _Compared) -> Flip | None:
    """What one of the two denies and the other asserts in the same words."""
    if best.frame < THRESHOLDS["negation_frame"] or not polarity_differs(
        claim.text, best.source.text
    ):
        return None
    return Flip(_cue(claim), _cue(best.source))


def _cue(reading: Reading) -> Span:
    """The first negation of a text, the whole text where it has none."""
    return next(iter(negations(reading.text)), Span(0, len(reading.text)))


def _condition(sentence: str, best: _Compared) -> Span | None:
    """A condition of the source that the answer's sentence leaves out."""
    if best.frame < THRESHOLDS["condition_frame"]:
        return None
    missing = dropped_conditions(sentence, best.source.text)
    rest = {
        word.stem
        for word in best.source.words
        if not any(span.start <= word.start < span.end for span in missing)
    }
    # Of a long sentence that is hardly said the condition may belong to something else.
    said = {word.stem for word in read(sentence).words}
    return next(iter(missing), None) if len(rest & said) >= MUCH * len(rest) else None
