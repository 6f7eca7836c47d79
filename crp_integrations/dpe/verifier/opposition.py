"""Whether two statements about one thing oppose each other: values, negations, judgements."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crp_integrations.dpe.verifier.slots import Pair, Slots, canonical, pair
from crp_integrations.dpe.verifier.values import Reading, Value
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.negation import (
    negations,
    polarity_differs,
    sense_of,
    without_sense,
)
from crp_integrations.language.quantities import Quantity, same_kind
from crp_integrations.language.words import stem

OPPOSED: Final = "opposed@1"
# Surely enough the same slot in statements that share most of their words anyway.
SLOT: Final = 0.4
# What is denied must be said of the same thing: a shared subject, and what is said of it.
SUBJECT_AND_MORE: Final = 2
MOST_RIVALS: Final = 2

# What says that something was said, or how much it came to, says nothing of what it is about.
_LIGHT: Final = frozenset(
    stem(word)
    for word in """amount average be become come company course current end equal fact figure firm
    found give grow hit level make mean note number organisation organization overall place put
    reach record report say see show stand state sum take tell total value approximately roughly
    around nearly almost estimated""".split()
)
_ADVERB = re.compile(r"ly\Z")
_HEDGE = re.compile(
    r"(?i)\b(?:about|around|approximately|approx|roughly|circa|nearly|almost|some|estimated"
    r"|an estimated|close to|in the region of|or so)\b|~|≈"
)
# Characters before and after a figure in which a hedge bears on it.
HEDGE_REACH: Final = 16
_GOOD: Final = frozenset(
    """positive favourable favorable optimistic good better strong supportive satisfied welcome
    promising encouraging convincing useful beneficial excellent enthusiastic confident""".split()
)
_BAD: Final = frozenset(
    """negative unfavourable unfavorable pessimistic bad worse weak critical dissatisfied
    unwelcome disappointing discouraging unconvincing useless harmful poor sceptical
    skeptical doubtful""".split()
)
_OPINIONS: Final = _GOOD | _BAD
# All words of judgement are one sense, since any two of them can be opposed.
JUDGED: Final = "@judged"


# A measure's noun and the word by which a sentence says the same without it.
_PLAIN: Final = dict(
    pair.split("/")
    for pair in """growth/grow expansion/expand contraction/contract reduction/reduce
    length/long width/wide depth/deep weight/weigh""".split()
)
_NOUN: Final = re.compile(rf"(?i)\b(?:{'|'.join(_PLAIN)})\b")


class Kind(StrEnum):
    """How two statements contradict each other."""

    NUMERIC = "numeric"
    LOGICAL = "logical"
    TEMPORAL = "temporal"
    STANCE = "stance"
    MINOR = "minor"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two statements side by side.

    Attributes:
        likeness: share of their words that both have, opposites counted as one, [0, 1].
        kind: how they contradict each other, None where the comparison finds nothing.
        apart: they speak of different things, so nothing may be concluded.
    """

    likeness: float
    kind: Kind | None = None
    apart: bool = False


def compare(current: Reading, prior: Reading, *, alike: float, minor: float) -> Comparison:
    """Lay two statements beside each other.

    Spec: CRP-SPEC-005 §8.2 (decision D21)
    """
    own, other = senses(current), senses(prior)
    both = own | other
    like = len(own & other) / len(both) if both else 0.0
    if not own & other:
        return Comparison(like, apart=True)
    there, back = pair(current, prior), pair(prior, current)
    rivals = [r for r in there.rivals if r.strength >= SLOT]
    names = any(_is_name(r.claim) or _is_name(r.source) for r in there.rivals)
    if names or _one_sided_names(there, back) or any(_orders(r) for r in there.rivals):
        return Comparison(like, apart=True)
    judged = _judged_otherwise(current, prior)
    if _turns(current, prior) > 1:
        # "Exports grew", "imports fell": two words turned are another thing's.
        return Comparison(like, apart=True)
    denied = judged or polarity_differs(_without_nouns(prior.text), _without_nouns(current.text))
    figures = [r for r in rivals if _measures_the_same(r)]
    dated = [r for r in rivals if r.claim.family == r.source.family == "date"]
    if like < alike:
        return Comparison(like, apart=bool(rivals))
    other_time = bool(dated) or _dates(there.missing) != _dates(back.missing)
    if figures:
        if other_time or len(figures) > MOST_RIVALS or len(figures) < len(rivals):
            return Comparison(like, apart=True)
        if not denied and all(_slight(r, current, prior, minor) for r in figures):
            return Comparison(like, Kind.MINOR)
        return Comparison(like, Kind.NUMERIC)
    if dated and len(dated) == len(rivals) == 1 and not denied:
        return Comparison(like, Kind.TEMPORAL)
    if rivals:
        return Comparison(like, apart=True)
    if denied and len(own & other) >= SUBJECT_AND_MORE:
        return Comparison(like, Kind.STANCE if judged else Kind.LOGICAL)
    return Comparison(like)


@lru_cache(maxsize=4096)
def senses(reading: Reading) -> frozenset[str]:
    """What a text is about: its content words, opposites as one, without cues and adverbs."""
    inside = bytearray(len(reading.text))
    for cue in negations(reading.text):
        inside[cue.start : cue.end] = b"\x01" * (cue.end - cue.start)
    return frozenset(
        JUDGED if written in _OPINIONS else without_sense(_PLAIN.get(written, written))
        for word in reading.words
        if not inside[word.start]
        and word.stem not in _LIGHT
        and not _ADVERB.search(written := reading.text[word.start : word.end].lower())
    )


def _without_nouns(text: str) -> str:
    """A text with the plain words for its measures: "growth" as "grow"."""
    return _NOUN.sub(lambda found: _PLAIN[found.group().lower()], text)


def _turns(current: Reading, prior: Reading) -> int:
    """How many words stand as opposites on the two sides."""
    own, other = (
        {sense_of(_PLAIN.get(word, word)) for word in _written(one) if word not in _OPINIONS}
        for one in (current, prior)
    )
    return sum((sense, not denied) in other for sense, denied in own - other)


def _written(reading: Reading) -> list[str]:
    return [reading.text[word.start : word.end].lower() for word in reading.words]


def _is_name(value: Value) -> bool:
    return value.family == "name" and value.kind in ("name", "citation")


def _one_sided_names(there: Slots, back: Slots) -> bool:
    """Whether each side names something that the other one does not."""
    return any(map(_is_name, there.missing)) and any(map(_is_name, back.missing))


def _dates(values: tuple[Value, ...]) -> bool:
    return any(value.family == "date" for value in values)


def _orders(rival: Pair) -> bool:
    """Whether the first and the second of a kind are told apart."""
    one, other = rival.claim.of, rival.source.of
    return (
        isinstance(one, Quantity)
        and isinstance(other, Quantity)
        and "ordinal" in (one.kind, other.kind)
    )


def _measures_the_same(rival: Pair) -> bool:
    one, other = rival.claim.of, rival.source.of
    return isinstance(one, Quantity) and isinstance(other, Quantity) and same_kind(one, other)


def _slight(rival: Pair, current: Reading, prior: Reading, minor: float) -> bool:
    one, other = rival.claim.of, rival.source.of
    assert isinstance(one, Quantity)
    assert isinstance(other, Quantity)
    largest = max(abs(one.value), abs(other.value))
    if one.unit != other.unit or not largest or abs(one.value - other.value) / largest > minor:
        return False
    return (
        one.hedged
        or other.hedged
        or _hedged(rival.claim, current.text)
        or _hedged(rival.source, prior.text)
    )


def _hedged(value: Value, text: str) -> bool:
    return bool(_HEDGE.search(text[max(0, value.start - HEDGE_REACH) : value.end + HEDGE_REACH]))


def _judged_otherwise(current: Reading, prior: Reading) -> bool:
    """Whether one judges a thing well and the other badly, with as many denials in each."""
    own, other = _judgements(current), _judgements(prior)
    as_many = len(negations(current.text)) == len(negations(prior.text))
    return bool(own and other) and not own & other and as_many


def _judgements(reading: Reading) -> frozenset[bool]:
    said = frozenset(_written(reading))
    return frozenset(sign for sign, words in ((True, _GOOD), (False, _BAD)) if said & words)


forgotten_with(senses.cache_clear)


Counts = NDArray[np.intp]

# Share of all their words that two claims must have in common to be about one thing.
ALIKE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Near:
    """The earlier claims that are about the same thing as one.

    Attributes:
        places: of those to compare it with, in their order.
        left: how many more there are.
    """

    places: tuple[int, ...]
    left: int


def alike(readings: Sequence[Reading], settled: Sequence[bool], most: int | None) -> Iterator[Near]:
    """For each claim the earlier ones with nearly the same words.

    Spec: CRP-SPEC-005 §5.4 (decision D15)
    """
    words, values = _Index(len(readings)), _Index(len(readings))
    done = np.asarray(settled, dtype=np.bool_)
    for place, reading in enumerate(readings):
        own = frozenset(word.stem for word in reading.words)
        said = frozenset(map(canonical, reading.values))
        shared = words.shared(own, place)
        every = words.sizes(place) + len(own) - shared
        near = np.flatnonzero((shared >= ALIKE * every) & (shared > 0))
        if done[place]:
            near = near[~done[near]]
        left = 0 if most is None else max(0, len(near) - most)
        if left:
            apart = values.sizes(place) + len(said) - 2 * values.shared(said, place)
            near = np.sort(near[np.lexsort((near, apart[near]))[:most]])
        yield Near(tuple(near.tolist()), left)
        words.add(own, place)
        values.add(said, place)


class _Index:
    """Where each key was said, and how many keys each place has."""

    def __init__(self, places: int) -> None:
        self._at: defaultdict[str, list[int]] = defaultdict(list)
        self._sizes = np.zeros(places, dtype=np.intp)

    def add(self, keys: frozenset[str], place: int) -> None:
        for key in keys:
            self._at[key].append(place)
        self._sizes[place] = len(keys)

    def sizes(self, before: int) -> Counts:
        return self._sizes[:before]

    def shared(self, keys: frozenset[str], before: int) -> Counts:
        """How many of the keys each earlier place has."""
        found = [place for key in keys if key in self._at for place in self._at[key]]
        return np.bincount(np.asarray(found, dtype=np.intp), minlength=before)
