"""Slots: which value of the source a claim's value stands in the place of.

Two values share a slot when the same content words stand next to them. That holds in edited
sentences and in reordered clauses alike, and needs no parse.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from crp_integrations.dpe.verifier.values import PERIOD, Value, ValueReading, same_value
from crp_integrations.language.dates import DateMention, compatible
from crp_integrations.language.quantities import Quantity

# Content words on each side of a value that describe its slot.
REACH = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value stands.

    Attributes:
        left, right: nearest content stems on each side, nearest first; empty at an edge.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def around(self) -> frozenset[str]:
        """All stems near the value."""
        return frozenset(self.left + self.right)


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim's value and the source's value in its place, which says something else."""

    claim: Value
    source: Value
    strength: float


@dataclass(frozen=True, slots=True)
class Slots:
    """How the values of a claim stand to those of a source.

    Attributes:
        matched: the claim's values that the source has.
        rivals: values of the source that stand where a value of the claim stands and say
            something else, the surest for each.
        missing: the claim's values that the source neither has nor contradicts.
    """

    matched: tuple[Value, ...]
    rivals: tuple[Pair, ...]
    missing: tuple[Value, ...]


def slots_of(reading: ValueReading) -> list[Slot]:
    """The slot of each value of a text, in their order.

    Figures and dates are neighbours as words are: in a table row they are the only ones.
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
    """A figure or date written one way, a name as it stands."""
    if isinstance(value.of, Quantity):
        return f"#{value.of.value.normalize()}{value.of.unit}"
    if isinstance(value.of, DateMention):
        return f"#{value.of.year}-{value.of.month}-{value.of.day}"
    return value.text


def strength(claim: Slot, source: Slot, *, name: bool = False) -> float:
    """How surely two slots are the same, [0, 1].

    1 when the nearest words on both sides are equal, about one half when one side is.
    """
    sides = (_side(claim.left, source.left) + _side(claim.right, source.right)) / 2
    if name:
        return sides
    shared = claim.around & source.around
    smaller = min(len(claim.around), len(source.around))
    return max(sides, 0.9 * len(shared) / smaller if smaller else 0.0)


def _side(claim: tuple[str, ...], source: tuple[str, ...]) -> float:
    if not claim:
        # A claim is often a clause cut out of a longer sentence, so its edge says little.
        return 0.5
    if not source:
        return 0.0
    if claim[0] == source[0]:
        return 1.0
    return 0.5 if claim[0] in source or source[0] in claim else 0.0


def comparable(claim: Value, source: Value) -> bool:
    """Whether one value can stand for the other: a name for a name, a figure for a figure."""
    if isinstance(claim.of, DateMention) and isinstance(source.of, DateMention):
        return not compatible(claim.of, source.of)
    if isinstance(claim.of, Quantity) and isinstance(source.of, Quantity):
        # An order is no amount, a time of day is neither, and how often is none of them.
        kinds = [
            (q.kind == "ordinal", q.unit == "clock", q.unit.startswith(PERIOD))
            for q in (claim.of, source.of)
        ]
        return kinds[0] == kinds[1]
    if claim.family == source.family:
        return True
    # A changed year may no longer look like one, and a number may be turned into a year.
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
        # "ten seats", which the claim states too, does not state "£10".
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
    """Whether two numbers agree only since one of them names no unit."""
    if not isinstance(value.of, Quantity) or not isinstance(other.of, Quantity):
        return False
    return value.of.unit != other.of.unit and "" in (value.of.unit, other.of.unit)


def _likeness(claim: Value, source: Value) -> float:
    return 0.3 if claim.kind == source.kind else 0.0
