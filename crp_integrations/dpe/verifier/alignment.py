"""The verifier of `literal`: a claim laid beside the sentence of the context that it comes from.

The look-ups of the document, without weights: a value that stands nowhere has no source, and a
value, a denial or a condition that differs from the nearest sentence's is a distortion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.verifier.context import PassageContext, Unit
from crp_integrations.dpe.verifier.opposition import Slot, Slots, pair, slots_of
from crp_integrations.dpe.verifier.values import Value, ValueReading, read, same_name, same_value
from crp_integrations.language.negation import find_conditions, negations, polarity_differs
from crp_integrations.language.text import Span
from crp_integrations.language.words import content_stems

IDENTITY: Final = "alignment@1"
LONGEST_PASSAGE: Final = 4_000
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
# Share of the source's other words that the answer repeats when a condition was dropped, and of
# a condition's words that it repeats when it was not.
MUCH: Final = 0.6
KEPT: Final = 2 / 3
# Lexical alignment to probability of entailment, straight lines between these points.
CURVE: Final = (
    (0.0, 0.0), (0.15, 0.10), (0.3, 0.40), (0.5, 0.75), (0.7, 0.88), (0.9, 0.96), (1.0, 0.98),
)  # fmt: skip
CONTRADICTED: Final = 0.92
ENTAILED_BESIDE_CONFLICT: Final = 0.03


@dataclass(frozen=True, slots=True)
class AlignedChange:
    """A value of the claim, and the source's in its place with its offsets in the passage."""

    claim: Value
    source: Value
    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Flip:
    """A negation on one side only: its cue, and the whole text of the side that has none."""

    claim: Span
    source: Span


@dataclass(frozen=True, slots=True)
class Alignment:
    """A claim laid beside the context.

    Attributes:
        lexical: share of the claim's weighted words and values that the best sentences have,
            [0, 1]; a changed value counts as had, since its sentence is the source.
        units: the sentences it rests on, best first; empty when nothing is shared.
        flip: a negation on one side only, with offsets in the first unit.
        condition: where the first unit has a condition that the answer leaves out.
    """

    lexical: float
    units: tuple[Unit, ...]
    changes: tuple[AlignedChange, ...] = ()
    untraced: tuple[Value, ...] = ()
    flip: Flip | None = None
    condition: Span | None = None


@dataclass(frozen=True, slots=True)
class _Compared:
    """A claim beside one sentence; frame is the share of its words that are no values."""

    unit: Unit
    source: ValueReading
    frame: float
    support: float
    choice: float
    slots: Slots


def align(
    text: str,
    context: PassageContext,
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
    claim = read(text)
    asked = [value for known_text in known for value in read(known_text).values]
    allowed = {name.casefold() for name in common}

    def untraced(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(
            value
            for value in sorted(values, key=lambda v: v.start)
            if value.text.casefold() not in allowed and not _stands(value, context, asked)
        )

    weights = {word.stem: context.idf.get(word.stem, context.rarest) for word in claim.words}
    own = slots_of(claim)
    compared = [
        _compare(claim, unit, context, weights, own) for unit in context.nearest(text, CANDIDATES)
    ]
    if not compared:
        return Alignment(0.0, (), untraced=untraced(claim.values))
    # A claim that stands word for word in a passage changed nothing; it may lack a condition.
    whole = context.verbatim(text)
    best = max(
        compared,
        key=lambda c: (
            whole and context.holds(c.unit, text),
            round(c.choice, 6),
            -len(c.slots.rivals),
        ),
    )
    units, condition = _rests_on(best, compared, claim), _condition(sentence or text, best)
    if whole:
        return Alignment(_lexical(best, compared, weights), units, condition=condition)
    changes: list[AlignedChange] = []
    # A name that holds a known one, as "Captain Obama" does, may still say more than is known.
    open_ = [value for value in best.slots.matched if value.family == "name"]
    open_ += best.slots.missing
    for rival in best.slots.rivals:
        if _is_change(rival.claim, rival.strength, best, compared, context, asked):
            start = best.unit.start
            at, end = start + rival.source.start, start + rival.source.end
            changes.append(AlignedChange(rival.claim, rival.source, best.unit.passage, at, end))
        else:
            open_.append(rival.claim)
    # Even with a changed value this is the sentence that the claim was taken from.
    lexical = max(best.support, best.frame) if changes else _lexical(best, compared, weights)
    flip = None
    if best.frame >= THRESHOLDS["negation_frame"] and polarity_differs(text, best.source.text):
        flip = Flip(_cue(claim), _cue(best.source))
    return Alignment(lexical, units, tuple(changes), untraced(open_), flip, condition)


def _stands(value: Value, context: PassageContext, asked: Sequence[Value]) -> bool:
    """Whether a passage or the question has a value."""
    if value.family == "name":
        names = (other.text for other in asked if other.family == "name")
        return context.has_name(value.text) or any(same_name(value.text, name) for name in names)
    figures = (other for other in asked if other.family != "name")
    return context.has_figure(value) or any(same_value(value, other) for other in figures)


def _compare(
    claim: ValueReading,
    unit: Unit,
    context: PassageContext,
    weights: Mapping[str, float],
    own: list[Slot],
) -> _Compared:
    source = read(context.text(unit))
    slots = pair(claim, source, own)
    had = {id(value) for value in slots.matched}
    names = {
        word.stem: value
        for value in claim.values
        if value.family == "name"
        for word in claim.words
        if value.start <= word.start < value.end
    }
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
    else:
        frame = named_had / named_total if named_total else 1.0
    return _Compared(unit, source, frame, share(VALUE_WEIGHT), share(CHOICE_WEIGHT), slots)


def _is_change(
    value: Value,
    power: float,
    best: _Compared,
    compared: Sequence[_Compared],
    context: PassageContext,
    asked: Sequence[Value],
) -> bool:
    """Whether a value was put in another one's place, and is not true of this from elsewhere."""
    limits = THRESHOLDS
    if best.frame < limits["conflict_frame"] or power < limits["conflict_slot"]:
        return False
    if not _stands(value, context, asked):
        return True
    if best.frame < limits["firm_frame"] or power < limits["firm_slot"]:
        return False
    # Another sentence may say this of the same thing: it has the value and no rival.
    return not any(
        other.unit != best.unit
        and other.frame >= best.frame - 0.02
        and any(value is matched for matched in other.slots.matched)
        and all(rival.strength < limits["firm_slot"] for rival in other.slots.rivals)
        for other in compared
    )


def _lexical(best: _Compared, compared: Sequence[_Compared], weights: Mapping[str, float]) -> float:
    total = sum(weights.values())
    if not total:
        return best.support
    both = [
        sum(w for s, w in weights.items() if s in best.source.stems or s in other.source.stems)
        for other in compared
        if other.unit != best.unit
    ]
    return max(best.support, UNION * max(both, default=0.0) / total)


def _rests_on(
    best: _Compared, compared: Sequence[_Compared], claim: ValueReading
) -> tuple[Unit, ...]:
    """The best sentence, and the one that adds most to it."""
    missing = {word.stem for word in claim.words} - best.source.stems
    unit = best.unit
    apart = [
        other
        for other in compared
        if other.unit.passage != unit.passage
        or other.unit.start >= unit.end
        or unit.start >= other.unit.end
    ]
    more = max(apart, key=lambda other: len(missing & other.source.stems), default=None)
    if more is None or not missing & more.source.stems:
        return (unit,)
    return (unit, more.unit)


def _cue(reading: ValueReading) -> Span:
    """The first negation of a text, the whole text where it has none."""
    return next(iter(negations(reading.text)), Span(0, len(reading.text)))


def _condition(sentence: str, best: _Compared) -> Span | None:
    """A condition of the source that the answer's sentence leaves out."""
    if best.frame < THRESHOLDS["condition_frame"]:
        return None
    text, stated = best.source.text, set(content_stems(sentence))
    missing = []
    for span in find_conditions(text):
        governed = content_stems(span.of(text))
        if sum(stem in stated for stem in governed) < KEPT * max(1, len(governed)):
            missing.append(span)
    rest = {
        word.stem
        for word in best.source.words
        if not any(span.start <= word.start < span.end for span in missing)
    }
    # If the claim repeats little of a long sentence, the condition may belong to the rest.
    repeated = {word.stem for word in read(sentence).words}
    return next(iter(missing), None) if len(rest & repeated) >= MUCH * len(rest) else None


def curve(lexical: float) -> float:
    """How surely a claim of this alignment is entailed: straight lines through `CURVE`."""
    for (left, low), (right, high) in itertools.pairwise(CURVE):
        if lexical <= right:
            return low + (high - low) * (lexical - left) / (right - left)
    return CURVE[-1][1]


class AlignmentVerifier:
    """Judges by lexical alignment and typed values; deterministic, without weights."""

    identity = IDENTITY
    passage = LONGEST_PASSAGE
    thresholds: Mapping[str, float] = MappingProxyType({**THRESHOLDS, "contradicted": CONTRADICTED})

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on the best of the passages.

        A dropped condition is not among its grounds: a claim is one clause, and the condition may
        stand in another clause of its sentence. Stage 3 sees the sentence and bounds the score.

        Spec: CRP-SPEC-005 §6.2
        """
        alignment = align(claim, PassageContext(passages))
        if alignment.changes or alignment.flip is not None:
            contradiction, entailment = CONTRADICTED, ENTAILED_BESIDE_CONFLICT
        else:
            entailment = curve(alignment.lexical)
            contradiction = 0.02 * (1.0 - entailment)
        neutral = 1.0 - entailment - contradiction
        passage = alignment.units[0].passage if alignment.units else 0
        return Judgement(entailment, contradiction, neutral, passage)
