"""Sense: a negation that came or went, and a condition that was left out."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from crp_integrations.dpe.verifier.values import Reading
from crp_integrations.language.conditions import dropped_conditions
from crp_integrations.language.negation import negations, polarity_differs, without_sense
from crp_integrations.language.text import Span, plain
from crp_integrations.language.words import ContentWord, content_words

# Content words after a negation cue that it can be about.
SCOPE = 3
# Characters before a quotation in which a negation still bears on it.
REACH_BEFORE = 40
_CLAUSE_END = re.compile(r"(?i)[,;:.!?()]|\s(?:and|but|or|while|so|because)\s")
_ADVERB = re.compile(r"ly\Z")
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
