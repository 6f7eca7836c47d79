"""The verifier of the `literal` preset: compares a claim with its closest context sentence.

Implements CRP-SPEC-005 §5 without model weights: a value that occurs nowhere has no source, and a
value, negation or condition that differs from the closest sentence's is a distortion.
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
    # Minimum overlap of other words, and of neighbouring words, at which a value counts as changed.
    "conflict_frame": 0.50,
    "conflict_slot": 0.40,
    # The minimum if the context has the value elsewhere: it is more likely to be right then.
    "firm_frame": 0.70,
    "firm_slot": 0.75,
    # Minimum overlap at which a difference in negation or a dropped condition is reported.
    "negation_frame": 0.80,
    "condition_frame": 0.85,
}
CANDIDATES: Final = 6
# Weight of a typed value in the support, in average words.
VALUE_WEIGHT: Final = 1.5
# Its weight when the source sentence is chosen: less than a word, so that a value that belongs
# to another thing does not select the sentence about that thing.
CHOICE_WEIGHT: Final = 0.5
# Factor for two sentences that only together contain a claim's words: weaker support than one.
JOINT_SUPPORT_FACTOR: Final = 0.92
# Minimum share of the source's other words that the answer repeats if it drops a condition, and
# of a condition's words if it keeps the condition.
MIN_REPEATED: Final = 0.6
MIN_CONDITION_KEPT: Final = 2 / 3
# Maps lexical alignment to probability of entailment, linear between these points.
CURVE: Final = (
    (0.0, 0.0), (0.15, 0.10), (0.3, 0.40), (0.5, 0.75), (0.7, 0.88), (0.9, 0.96), (1.0, 0.98),
)  # fmt: skip
CONTRADICTED: Final = 0.92
ENTAILED_BESIDE_CONFLICT: Final = 0.03


@dataclass(frozen=True, slots=True)
class AlignedChange:
    """A value of the claim, and the source's value instead, with its offsets in the passage."""

    claim: Value
    source: Value
    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NegationMismatch:
    """A negation on one side only: its word there, and the whole text of the other side."""

    claim: Span
    source: Span


@dataclass(frozen=True, slots=True)
class Alignment:
    """A claim compared with the context.

    Attributes:
        lexical: share of the claim's weighted words and values in the best sentences, [0, 1];
            a changed value counts as present, since its sentence is the source.
        units: the supporting sentences, best first; empty if no word is shared.
        flip: a negation in the claim or the first unit only; offsets in the text of each.
        condition: offsets in the first unit of a condition that the answer leaves out.
    """

    lexical: float
    units: tuple[Unit, ...]
    changes: tuple[AlignedChange, ...] = ()
    untraced: tuple[Value, ...] = ()
    flip: NegationMismatch | None = None
    condition: Span | None = None


@dataclass(frozen=True, slots=True)
class _Compared:
    """A claim compared with one sentence; `frame` is the overlap of its words without values."""

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
    """Compare one claim with the context.

    Spec: CRP-SPEC-005 §5.2, §5.3

    Args:
        sentence: the answer's sentence, which may have a condition that the claim lacks.
        known: further texts whose values count as a source.
        common: names that need no source.
    """
    claim = read(text)
    asked = [value for known_text in known for value in read(known_text).values]
    allowed = {name.casefold() for name in common}

    def untraced(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(
            value
            for value in sorted(values, key=lambda v: v.start)
            if value.text.casefold() not in allowed and not _occurs(value, context, asked)
        )

    weights = {word.stem: context.idf.get(word.stem, context.rarest) for word in claim.words}
    own = slots_of(claim)
    compared = [
        _compare(claim, unit, context, weights, own) for unit in context.nearest(text, CANDIDATES)
    ]
    if not compared:
        return Alignment(0.0, (), untraced=untraced(claim.values))
    # A claim that occurs verbatim in a passage changes nothing, but may lack a condition.
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
    # A name that contains a known one, like "Captain Obama", may say more than the source.
    open_ = [value for value in best.slots.matched if value.family == "name"]
    open_ += best.slots.missing
    for rival in best.slots.rivals:
        if _is_change(rival.claim, rival.strength, best, compared, context, asked):
            start = best.unit.start
            at, end = start + rival.source.start, start + rival.source.end
            changes.append(AlignedChange(rival.claim, rival.source, best.unit.passage, at, end))
        else:
            open_.append(rival.claim)
    # With a changed value, too, the best sentence is the source of the claim.
    lexical = max(best.support, best.frame) if changes else _lexical(best, compared, weights)
    flip = None
    if best.frame >= THRESHOLDS["negation_frame"] and polarity_differs(text, best.source.text):
        flip = NegationMismatch(_cue(claim), _cue(best.source))
    return Alignment(lexical, units, tuple(changes), untraced(open_), flip, condition)


def _occurs(value: Value, context: PassageContext, asked: Sequence[Value]) -> bool:
    """Whether a value occurs in a passage or the question."""
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
    """Whether a value replaces another one, and no other sentence confirms it."""
    limits = THRESHOLDS
    if best.frame < limits["conflict_frame"] or power < limits["conflict_slot"]:
        return False
    if not _occurs(value, context, asked):
        return True
    if best.frame < limits["firm_frame"] or power < limits["firm_slot"]:
        return False
    # Another sentence with the value and without a rival may be about the same thing.
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
    return max(best.support, JOINT_SUPPORT_FACTOR * max(both, default=0.0) / total)


def _rests_on(
    best: _Compared, compared: Sequence[_Compared], claim: ValueReading
) -> tuple[Unit, ...]:
    """The best sentence, and the one that adds most of the claim's other words."""
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
    """The first negation of a text; the whole text if it has none."""
    return next(iter(negations(reading.text)), Span(0, len(reading.text)))


def _condition(sentence: str, best: _Compared) -> Span | None:
    """A condition of the source that the answer's sentence leaves out."""
    if best.frame < THRESHOLDS["condition_frame"]:
        return None
    text, stated = best.source.text, set(content_stems(sentence))
    missing = []
    for span in find_conditions(text):
        governed = content_stems(span.of(text))
        if sum(stem in stated for stem in governed) < MIN_CONDITION_KEPT * max(1, len(governed)):
            missing.append(span)
    rest = {
        word.stem
        for word in best.source.words
        if not any(span.start <= word.start < span.end for span in missing)
    }
    # If the claim repeats little of a long sentence, the condition may belong to the rest.
    repeated = {word.stem for word in read(sentence).words}
    return next(iter(missing), None) if len(rest & repeated) >= MIN_REPEATED * len(rest) else None


def curve(lexical: float) -> float:
    """The probability of entailment for a lexical alignment, interpolated from `CURVE`."""
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
        """Judge the claim by the best of the passages.

        A dropped condition is ignored: a claim is one clause, and the condition may be in another
        clause of its sentence. Stage 3 reads the sentence and limits the score.

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
