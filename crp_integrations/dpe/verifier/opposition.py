"""Pairs the values of two texts, and decides whether two statements oppose each other.

Two values share a slot when they have the same neighbouring content words. This works for edited
sentences and reordered clauses without a parser. Statements with the same words oppose each other
if they differ in one value or in a negation.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from crp_integrations.dpe.verifier.values import PERIOD, Value, ValueReading, same_value
from crp_integrations.language.dates import DateMention, compatible
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.negation import negations, polarity_differs, sense_of
from crp_integrations.language.quantities import Quantity, same_kind

# Number of content words on each side of a value that describe its slot.
REACH = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """The position of a value, described by the words around it.

    Attributes:
        left, right: content stems on each side, nearest first; empty at an edge.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def around(self) -> frozenset[str]:
        """All stems near the value."""
        return frozenset(self.left + self.right)


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim's value, and a different value of the source in the same slot."""

    claim: Value
    source: Value
    strength: float


@dataclass(frozen=True, slots=True)
class Slots:
    """The values of a claim, paired with those of a source.

    Attributes:
        matched: the claim's values that the source has.
        rivals: different values of the source in the slot of a claim's value, the best for each.
        missing: the claim's values that the source neither has nor contradicts.
    """

    matched: tuple[Value, ...]
    rivals: tuple[Pair, ...]
    missing: tuple[Value, ...]


def slots_of(reading: ValueReading) -> list[Slot]:
    """The slot of each value of a text, in order.

    Figures and dates count as neighbours like words: a table row may have no others.
    """
    if not reading.values:
        return []
    tokens = [(word.start, word.end, word.stem) for word in reading.words]
    tokens += [(v.start, v.end, canonical(v)) for v in reading.values if v.family != "name"]
    tokens.sort()
    starts = [start for start, _, _ in tokens]
    slots = []
    for value in reading.values:
        before = bisect_left(starts, value.start)
        after = bisect_left(starts, value.end)
        left = tuple(token for _, _, token in reversed(tokens[max(0, before - REACH) : before]))
        right = tuple(token for _, _, token in tokens[after : after + REACH])
        slots.append(Slot(left, right))
    return slots


def canonical(value: Value) -> str:
    """A figure or date in a normal form; a name unchanged."""
    if isinstance(value.of, Quantity):
        return f"#{value.of.value.normalize()}{value.of.unit}"
    if isinstance(value.of, DateMention):
        return f"#{value.of.year}-{value.of.month}-{value.of.day}"
    return value.text


def strength(claim: Slot, source: Slot, *, name: bool = False) -> float:
    """How similar two slots are, [0, 1].

    1 if the nearest words on both sides are equal, about one half if they are on one side.
    """
    sides = (_side(claim.left, source.left) + _side(claim.right, source.right)) / 2
    if name:
        return sides
    shared = claim.around & source.around
    smaller = min(len(claim.around), len(source.around))
    return max(sides, 0.9 * len(shared) / smaller if smaller else 0.0)


def _side(claim: tuple[str, ...], source: tuple[str, ...]) -> float:
    if not claim:
        # A claim is often a clause cut from a longer sentence, so its edge says little.
        return 0.5
    if not source:
        return 0.0
    if claim[0] == source[0]:
        return 1.0
    return 0.5 if claim[0] in source or source[0] in claim else 0.0


def comparable(claim: Value, source: Value) -> bool:
    """Whether one value can replace the other: a name a name, a figure a figure."""
    if isinstance(claim.of, DateMention) and isinstance(source.of, DateMention):
        return not compatible(claim.of, source.of)
    if isinstance(claim.of, Quantity) and isinstance(source.of, Quantity):
        # Ordinals, times of day, frequencies and amounts do not replace each other.
        kinds = [
            (q.kind == "ordinal", q.unit == "clock", q.unit.startswith(PERIOD))
            for q in (claim.of, source.of)
        ]
        return kinds[0] == kinds[1]
    if claim.family == source.family:
        return True
    # A changed year may no longer look like a year, and a changed number may look like one.
    if claim.family != "name" and source.family != "name":
        return claim.kind == "number" or source.kind == "number"
    # "GPT-4" may have been changed into "4" or the other way round.
    digits = any(c.isdigit() for c in claim.text) and any(c.isdigit() for c in source.text)
    return digits and "date" not in (claim.family, source.family)


def pair(claim: ValueReading, source: ValueReading, own: list[Slot] | None = None) -> Slots:
    """Match the values of a claim with those of one source sentence."""
    if not claim.values:
        return Slots((), (), ())
    own = slots_of(claim) if own is None else own
    places = {id(v): s for v, s in zip(claim.values, own, strict=True)}
    places |= {id(v): s for v, s in zip(source.values, slots_of(source), strict=True)}

    def power(value: Value, other: Value) -> float:
        name = "name" in (value.family, other.family)
        return strength(places[id(value)], places[id(other)], name=name)

    same_values = {
        id(value): [other for other in source.values if same_value(value, other)]
        for value in claim.values
    }
    partner: dict[int, Value] = {}
    used: set[int] = set()
    equal = [(power(v, o), v, o) for v in claim.values for o in same_values[id(v)]]
    for _, value, other in sorted(equal, key=lambda row: (-row[0], row[1].start, row[2].start)):
        if id(value) not in partner and id(other) not in used:
            partner[id(value)] = other
            used.add(id(other))
    free = [other for other in source.values if id(other) not in used]
    for value in claim.values:
        # "ten seats" does not confirm the claim's "£10" if the claim has "ten seats" too.
        if id(value) not in partner and all(
            _only_bare(value, other) for other in same_values[id(value)]
        ):
            same_values[id(value)] = []
    left = [value for value in claim.values if not same_values[id(value)]]
    scored = sorted(
        ((power(v, o), v, o) for v in left for o in free if comparable(v, o)),
        key=lambda row: (
            -row[0] - _likeness(row[1], row[2]),
            row[1].start,
            row[2].start,
        ),
    )
    taken: set[int] = set()
    rivals: list[Pair] = []
    for score, value, other in scored:
        if score > 0.0 and id(value) not in taken and id(other) not in taken:
            taken |= {id(value), id(other)}
            rivals.append(Pair(value, other, score))
    return Slots(
        tuple(value for value in claim.values if same_values[id(value)]),
        tuple(rivals),
        tuple(value for value in left if id(value) not in taken),
    )


def _only_bare(value: Value, other: Value) -> bool:
    """Whether one of two agreeing numbers has a unit and the other has none."""
    if not isinstance(value.of, Quantity) or not isinstance(other.of, Quantity):
        return False
    return value.of.unit != other.of.unit and "" in (value.of.unit, other.of.unit)


def _likeness(claim: Value, source: Value) -> float:
    return 0.3 if claim.kind == source.kind else 0.0


OPPOSED: Final = "opposed@1"
# Minimum similarity of a shared slot; low, as the statements share most of their words anyway.
SLOT: Final = 0.4
_HEDGE = re.compile(r"(?i)\b(?:about|around|approximately|roughly|nearly|almost|some)\b|~|≈")
# Number of characters before a figure in which a hedge applies to it.
HEDGE_REACH: Final = 16
# The stances that the specification names (§8.2).
_STANCES: Final = frozenset({"positive", "negative"})

Sense = tuple[str, bool]


class OppositionKind(StrEnum):
    """How two statements contradict each other."""

    NUMERIC = "numeric"
    LOGICAL = "logical"
    TEMPORAL = "temporal"
    STANCE = "stance"
    MINOR = "minor"


@lru_cache(maxsize=4096)
def senses(reading: ValueReading) -> frozenset[Sense]:
    """The content words without negations and adverbs; opposites are one word with two signs."""
    cues = [(cue.start, cue.end) for cue in negations(reading.text)]
    written = (
        reading.text[word.start : word.end].lower()
        for word in reading.words
        if not any(start <= word.start < end for start, end in cues)
    )
    return frozenset(sense_of(word) for word in written if not word.endswith("ly"))


forgotten_with(senses.cache_clear)


class Opposed(NamedTuple):
    """The comparison of two statements.

    Attributes:
        kind: how they contradict each other; None if they do not.
        apart: True if they are about different things, so that nothing can be concluded.
    """

    kind: OppositionKind | None
    apart: bool = False


APART: Final = Opposed(None, apart=True)
AGREED: Final = Opposed(None)


def compare(
    current: ValueReading, prior: ValueReading, minor: float, *, alike: bool = True
) -> Opposed:
    """Compare two statements.

    They contradict each other if they have nearly the same words and differ in exactly one figure
    or date in the same slot, or in a negation.

    Spec: CRP-SPEC-005 §5.4, §8.2 (decision D21)

    Args:
        minor: maximum relative difference of figures that is minor next to a hedge.
        alike: whether they share enough words to contradict each other.
    """
    there, back = pair(current, prior), pair(prior, current)
    own, other = senses(current), senses(prior)
    turned = [word for word, sign in own - other if (word, not sign) in other]
    if len(turned) > 1 or (there.missing and back.missing):
        # "Exports grew", "imports fell": two opposite words mean another subject.
        return APART
    if not alike or there.missing or back.missing:
        return APART if there.rivals else AGREED
    denied = polarity_differs(prior.text, current.text)
    if not there.rivals:
        stance = turned and _STANCES & _words(current) and _STANCES & _words(prior)
        return (
            Opposed(OppositionKind.STANCE if stance else OppositionKind.LOGICAL)
            if denied
            else AGREED
        )
    rival = there.rivals[0]
    if len(there.rivals) > 1 or len(back.rivals) > 1 or rival.strength < SLOT:
        return APART
    if rival.claim.family == rival.source.family == "date":
        return APART if denied else Opposed(OppositionKind.TEMPORAL)
    now, before = rival.claim.of, rival.source.of
    if (
        not isinstance(now, Quantity)
        or not isinstance(before, Quantity)
        or not same_kind(now, before)
        or "ordinal" in (now.kind, before.kind)
    ):
        return APART
    slight = not denied and _is_slight(now, before, minor) and _is_hedged(rival, current, prior)
    return Opposed(OppositionKind.MINOR if slight else OppositionKind.NUMERIC)


def _words(reading: ValueReading) -> frozenset[str]:
    return frozenset(reading.text[word.start : word.end].lower() for word in reading.words)


def _is_slight(quantity: Quantity, other: Quantity, minor: float) -> bool:
    largest = max(abs(quantity.value), abs(other.value))
    if quantity.unit != other.unit or not largest:
        return False
    return abs(quantity.value - other.value) / largest <= minor


def _is_hedged(rival: Pair, current: ValueReading, prior: ValueReading) -> bool:
    def near(value: Value, text: str) -> bool:
        return bool(_HEDGE.search(text[max(0, value.start - HEDGE_REACH) : value.end]))

    return near(rival.claim, current.text) or near(rival.source, prior.text)


class StatementIndex:
    """An index of statements by the senses of their words, built in linear time."""

    def __init__(self, most: int) -> None:
        self._at: defaultdict[str, list[int]] = defaultdict(list)
        self._sizes = np.zeros(most, dtype=np.intp)
        self._count = 0

    def add(self, reading: ValueReading) -> None:
        """Append a statement."""
        keys = {word for word, _ in senses(reading)}
        for key in keys:
            self._at[key].append(self._count)
        self._sizes[self._count] = len(keys)
        self._count += 1

    def near(self, reading: ValueReading, least: float) -> list[tuple[float, int]]:
        """Share and position of statements with at least this share of common words, best first."""
        keys = {word for word, _ in senses(reading)}
        places = [place for key in keys if key in self._at for place in self._at[key]]
        shared = np.bincount(np.asarray(places, dtype=np.intp), minlength=self._count)
        likeness = shared / np.maximum(1, self._sizes[: self._count] + len(keys) - shared)
        near = np.flatnonzero((shared > 0) & (likeness >= least))
        # On a tie the latest comes first: a contradicted statement is mostly a recent one.
        near = near[np.lexsort((-near, -likeness[near]))]
        return list(zip(likeness[near].tolist(), near.tolist(), strict=True))
