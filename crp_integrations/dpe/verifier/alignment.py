"""How a claim stands to the context: what supports it, what contradicts it, what has no source.

This is the one comparison of the room. Stages 2 and 3 run it over the whole context; the
default verifier runs it over the windows that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.verifier.context import Context, Unit
from crp_integrations.dpe.verifier.opposition import (
    Flip,
    denied_before,
    flipped,
    likeness,
    stripped,
)
from crp_integrations.dpe.verifier.slots import Slot, Slots, pair, slots_of
from crp_integrations.dpe.verifier.value_origins import explained, follows, swap
from crp_integrations.dpe.verifier.value_origins import untraced as untraced_in
from crp_integrations.dpe.verifier.values import Reading, Value, read, same_name
from crp_integrations.dpe.verifier.word_edits import Edits
from crp_integrations.language.negation import negations, without_answer
from crp_integrations.language.quantities import Quantity
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
# "validated: False" denies what it names, without a word that a sentence would deny it by.
_FIELD_DENIED = re.compile(r"(?i):\s*[\"']?(?:false|none|no|null|n/a)\b")
_UNLESS = re.compile(r"(?i)\bunless\b")
_IF = re.compile(r"(?i)\b(?:if|when|where|as long as|so long as|provided|providing)\b")
# Share of the source's words that a freely worded claim has before a denial is missed in it.
_MUTUAL = 0.4


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

    @property
    def contradicted(self) -> bool:
        """Whether the source says something else."""
        return bool(self.changes) or self.flip is not None or self.condition is not None


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
    """
    text, sentence = without_answer(text), without_answer(sentence)
    claim = read(text)
    found = _candidates(claim, context)
    if not found:
        if (unit := context.quoted(text)) is not None:
            return Alignment(1.0, (unit,))
        return Alignment(0.0, (), untraced=untraced_in(claim.values, claim, context, known, common))
    # Quoted words keep their values; only a sentence quoted to its end keeps its sense.
    whole = context.verbatim(text)
    best = max(
        found,
        key=lambda c: (
            whole and context.holds(c.unit, text),
            not (whole and denied_before(text, c.source)),
            round(c.choice, 6),
            -len(c.slots.rivals),
        ),
    )
    full = whole and context.within(best.unit, sentence or text)
    changes: list[Change] = []
    open_: list[Value] = list(best.slots.missing)
    # A name that holds a known one, as "Captain Obama" does, may still say more than is known.
    open_ += [value for value in best.slots.matched if value.family == "name"]
    for rival in best.slots.rivals:
        if whole or not _is_change(rival.claim, rival.strength, best, found, claim, context, known):
            if not whole:
                open_.append(rival.claim)
            continue
        at = best.unit.start + rival.source.start
        end = best.unit.start + rival.source.end
        changes.append(Change(rival.claim, rival.source, best.unit.passage, at, end))
    edits = Edits(claim, best.source)
    if not whole:
        changes += _edited(claim, best, edits, found, changes, context)
    untraced = () if whole else untraced_in(open_, claim, context, known, common)
    return Alignment(
        lexical=_lexical(claim, best, found, context, len(changes)),
        units=_rests_on(best, found, claim),
        changes=tuple(changes),
        untraced=untraced,
        flip=None
        if full
        else _flip(claim, best, edits, found, whole, bool(sentence), bool(changes)),
        condition=None if full else _condition(claim, sentence or text, best),
    )


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
    claim: Reading,
    context: Context,
    known: Iterable[str],
) -> bool:
    """Whether a value was put in another one's place, and is not true of this from elsewhere."""
    limits = THRESHOLDS
    if best.frame < limits["conflict_frame"] or power < limits["conflict_slot"]:
        return False
    if value.family == "name":
        if explained(value, claim, context):
            return False
        elsewhere = context.has_name(value.text) or any(same_name(value.text, k) for k in known)
    else:
        if follows(value, claim, context):
            return False
        elsewhere = bool(context.places(value)) or context.has_clock(value)
    if not elsewhere:
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


def _edited(
    claim: Reading,
    best: _Compared,
    edits: Edits,
    found: list[_Compared],
    known: list[Change],
    context: Context,
) -> list[Change]:
    """Units and names replaced in a near copy, and two values in each other's place."""

    def change(own: Value, other: Value) -> Change:
        start = best.unit.start
        return Change(own, other, best.unit.passage, start + other.start, start + other.end)

    changes = []
    for own, other in edits.units():
        if any(c.claim.start < own.end and own.start < c.claim.end for c in known):
            continue
        mine, theirs = (
            Value(span.start, span.end, span.of(text), "quantity", "quantity")
            for span, text in ((own, claim.text), (other, best.source.text))
        )
        changes.append(change(mine, theirs))
    for own, name in edits.renamed():
        if not any(context.has_word(word) for word in own.of(claim.text).split()):
            changes.append(
                change(Value(own.start, own.end, own.of(claim.text), "name", "name"), name)
            )
    if best.frame >= THRESHOLDS["firm_frame"] and not known:
        swapped = swap(claim, best.source, [c.source for c in found if c is not best])
        if swapped is not None:
            changes.append(change(swapped.first, swapped.source))
    return changes


def _flip(
    claim: Reading,
    best: _Compared,
    edits: Edits,
    found: list[_Compared],
    whole: bool,
    known: bool,
    changed: bool,
) -> Flip | None:
    if whole:
        # Without its sentence a quoted clause may have left its own "not" in the next clause.
        return denied_before(claim.text, best.source) if known else None
    if _says_unless(claim.text, best.source.text) or _says_unless(best.source.text, claim.text):
        return None
    flip = _opposed(claim, best, edits, changed)
    if flip is None:
        return None
    # Another sentence may say just this.
    others = (Edits(claim, other.source) for other in found if other is not best)
    return None if any(other.same for other in others) else flip


def _opposed(claim: Reading, best: _Compared, edits: Edits, changed: bool) -> Flip | None:
    if edits.nearly:
        seen = edits.denied() or (None if changed else edits.turned())
        if seen is not None or not edits.moved:
            return Flip(*seen) if seen is not None else None
    if edits.silent or _FIELD_DENIED.search(best.source.text):
        return None
    if len(claim.stems & best.source.stems) < _MUTUAL * len(best.source.stems):
        # It says a small part of the sentence, and the denial is as likely in another part.
        return None
    frame = best.frame if best.slots.rivals else max(best.frame, likeness(claim, best.source))
    if frame < THRESHOLDS["negation_frame"]:
        return None
    # "At least" for "at most" is a changed figure already.
    turned = any(
        isinstance(rival.claim.of, Quantity)
        and isinstance(rival.source.of, Quantity)
        and {rival.claim.of.bound, rival.source.of.bound} == {"least", "most"}
        for rival in best.slots.rivals
    )
    return flipped(claim, best.source, opposites=not turned)


def _says_unless(one: str, other: str) -> bool:
    """Whether one says "unless" where the other says "if" and denies something."""
    if _UNLESS.search(one) is None or _UNLESS.search(other) is not None:
        return False
    return _IF.search(other) is not None and bool(negations(other))


def _condition(claim: Reading, sentence: str, best: _Compared) -> Span | None:
    if best.frame < THRESHOLDS["condition_frame"]:
        return None
    return stripped(claim, sentence, best.source)
