"""Whether two statements about one thing oppose each other: values, negations, conditions."""

from __future__ import annotations

import re
from bisect import bisect_left
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
    dropped_conditions,
    negations,
    polarity_differs,
    sense_of,
    without_sense,
)
from crp_integrations.language.quantities import Quantity, same_kind
from crp_integrations.language.text import Span, plain
from crp_integrations.language.words import ContentWord, content_words, stem

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


# Content words after a negation cue that it can be about.
SCOPE = 3
# Characters before a quotation in which a negation still bears on it.
REACH_BEFORE = 40
_CLAUSE_END = re.compile(r"(?i)[,;:.!?()]|\s(?:and|but|or|while|so|because)\s")
# Share of all words that two texts share before opposites count without a cue.
SAME_WORDS = 0.6
# The same where a word and its opposite count as one, for short texts.
SAME_SENSES = 0.8
# Share of the source's other words that the answer repeats when a condition was stripped.
MUCH = 0.6
MOST = 0.85
_NOT_ONLY = re.compile(r"(?i)\bnot only\b")
# Directions are stop words elsewhere; here they are half of what a figure says.
_WAY = re.compile(r"\b(?:up|down|above|below|over|under|before|after|more|most)\b")
# Opposites that say the same when their two sides change places: "A above B", "B below A".
_CONVERSE = frozenset(
    without_sense(word) for word in "above before over buy higher more better early".split()
)
_ENDED = frozenset(".!?")
_BRACKET = re.compile(r"[()\[\]]")
_MODAL = re.compile(r"(?i)\b(?:may|might|could|can|possibl[ey]|potential(?:ly)?|perhaps)\b")
_CIRCUMSTANCE = re.compile(
    r"(?i)(?:where|when|whenever|until|at least|at most|up to|some|most|mostly|mainly|usually"
    r"|generally|typically|temporar|other than|likely|expected|estimated|suggest|appear|seem)"
)


@dataclass(frozen=True, slots=True)
class Flip:
    """A negation on one side only.

    Attributes:
        claim: the cue in the claim, the whole claim when it has none.
        source: the cue in the source, the whole source when it has none.
    """

    claim: Span
    source: Span


def flipped(claim: Reading, source: Reading, *, opposites: bool = True) -> Flip | None:
    """What one of two closely aligned texts denies and the other asserts.

    A cue counts when the other side has a word that it is about: a source that also denies
    something else is no contradiction. Opposites without a cue ("rose", "fell") count when the
    two texts are otherwise much the same.
    """
    if not polarity_differs(claim.text, source.text):
        return None
    own, other = _cues(claim), _cues(source)
    if len(own) == len(other):
        # Opposites such as "began" and "ended" may stand in both: neither replaced the other.
        if not opposites or not _turned(claim, source):
            return None
    elif not any(scope & source.stems for _, scope in own) and not any(
        scope & claim.stems for _, scope in other
    ):
        return None
    return Flip(_place(own, claim), _place(other, source))


def likeness(claim: Reading, source: Reading) -> float:
    """Share of the claim's words that the source has, itself or its opposite, [0, 1].

    The words of a negation, such as "failed" in "failed to", are not counted.
    """
    have = {term.sense for term in _terms(source)}
    inside = bytearray(len(claim.text))
    for cue in negations(claim.text):
        inside[cue.start : cue.end] = b"\x01" * (cue.end - cue.start)
    own = [without_sense(_text(claim, word)) for word in claim.words if not inside[word.start]]
    return sum(word in have for word in own) / len(own) if own else 1.0


@dataclass(frozen=True, slots=True)
class _Term:
    """A word, direction or figure, what it is about whichever way, and where it stands."""

    text: str
    sense: str
    start: int


def _terms(reading: Reading) -> list[_Term]:
    found = [
        _Term(word.stem, without_sense(_text(reading, word)), word.start) for word in reading.words
    ]
    found += [
        _Term(plain(value.text), plain(value.text), value.start)
        for value in reading.values
        if value.family != "name"
    ]
    ways = _WAY.finditer(reading.text.lower())
    return found + [_Term(way.group(), without_sense(way.group()), way.start()) for way in ways]


def _turned(claim: Reading, source: Reading) -> bool:
    """Whether the claim is the source with a word in its opposite's place."""
    own, other = _terms(claim), _terms(source)
    words, there = {term.text for term in own}, {term.text for term in other}
    if words <= there:
        return False
    senses, found = {term.sense for term in own}, {term.sense for term in other}
    # One of a sense is enough, and keeps the work in line with the text.
    lone = {term.sense: term for term in own if term.text not in there}
    facing = {term.sense: term for term in other if term.text not in words}
    pairs = [(mine, facing[sense]) for sense, mine in lone.items() if sense in facing]
    alike = bool(pairs) and len(senses & found) >= SAME_SENSES * len(senses | found)
    if not alike and len(words & there) < SAME_WORDS * len(words | there):
        return False
    return not any(
        mine.sense in _CONVERSE and _sides_change(own, mine, other, theirs)
        for mine, theirs in pairs
    )


def _sides_change(own: list[_Term], mine: _Term, other: list[_Term], theirs: _Term) -> bool:
    """Whether what stood before one word stands behind the other one."""
    before = {term.sense for term in own if term.start < mine.start}
    after = {term.sense for term in own if term.start > mine.start}
    first = {term.sense for term in other if term.start < theirs.start}
    last = {term.sense for term in other if term.start > theirs.start}
    return bool(before & last and after & first)


def _cues(reading: Reading) -> list[tuple[Span, frozenset[str]]]:
    """Each negation with the stem of the word it is about, and of adverbs before it."""
    starts = [word.start for word in reading.words]
    found = []
    for cue in negations(reading.text):
        at = bisect_left(starts, cue.end)
        after = reading.words[at : at + SCOPE] or reading.words[max(0, at - 1) : at]
        about: list[str] = []
        for word in after:
            about.append(word.stem)
            if not _ADVERB.search(_text(reading, word)):
                break
        found.append((cue, frozenset(about)))
    return found


def _text(reading: Reading, word: ContentWord) -> str:
    return reading.text[word.start : word.end]


def denied_before(quote: str, source: Reading) -> Flip | None:
    """A negation in the source right before words that the claim quotes as they are.

    "It is not true that X" is no source for "X".
    """
    at = source.text.lower().find(quote.strip().rstrip(".!?").lower())
    if at <= 0:
        return None
    before = _CLAUSE_END.split(source.text[max(0, at - REACH_BEFORE) : at])[-1]
    cues = negations(before)
    if not cues:
        return None
    shift = at - len(before)
    return Flip(Span(0, len(quote)), Span(shift + cues[-1].start, shift + cues[-1].end))


def _place(cues: list[tuple[Span, frozenset[str]]], reading: Reading) -> Span:
    return cues[0][0] if cues else Span(0, len(reading.text))


def stripped(claim: Reading, sentence: str, source: Reading) -> Span | None:
    """A condition of the source that the answer's sentence leaves out."""
    missing = dropped_conditions(sentence, source.text)
    if not missing:
        return None
    every = content_words(source.text)
    have = {word.stem for word in content_words(sentence)}
    repeated = [place for place, word in enumerate(every) if word.stem in claim.stems]
    if not repeated:
        return None
    for span in missing:
        cue = span.of(source.text)
        if source.text[: span.start].rstrip()[-1:] in _ENDED or _in_brackets(source.text, span):
            # It belongs to what follows a full stop, or is an aside.
            continue
        if _NOT_ONLY.search(source.text[max(0, span.start - 6) : span.end]):
            continue
        if _MODAL.match(cue) and _MODAL.search(sentence):
            continue
        rest = [w.stem for w in every if not any(m.start <= w.start < m.end for m in missing)]
        said = sum(stem in have for stem in rest) / len(rest) if rest else 1.0
        if said < (MOST if _CIRCUMSTANCE.match(cue) else MUCH):
            continue
        inside = [p for p, word in enumerate(every) if span.start <= word.start < span.end]
        before = sum(word.start < span.start for word in every)
        first, last = (inside[0], inside[-1]) if inside else (before, before - 1)
        if first - 2 <= repeated[-1] and last + 2 >= repeated[0]:
            return span
    return None


def _in_brackets(text: str, span: Span) -> bool:
    """Whether a stretch stands in brackets: the last bracket before it opened one."""
    found = _BRACKET.findall(text, 0, span.start)
    return bool(found) and found[-1] in "(["
