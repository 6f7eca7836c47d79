"""Lexical overlap of texts: stems, spans, names, rarity of words, and keywords."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import NamedTuple

from crp_integrations.language.memo import Memory, remembered_within
from crp_integrations.language.names import names
from crp_integrations.language.text import Span, split_sentences
from crp_integrations.language.word_lists import LISTS
from crp_integrations.language.words import (
    AUXILIARIES,
    DETERMINERS,
    HONORIFICS,
    IRREGULAR,
    PAST_OF,
    PREPOSITIONS,
    PRONOUNS,
    STOP_WORDS,
    VERBS,
    TextWord,
    content_stems,
    content_words,
    stem,
    stems_of,
    words,
)


def inverse_frequency(passages: Sequence[str]) -> dict[str, float]:
    """How rare each stem is over the passages, above 0; one passage gives equal weights."""
    return _weights([set(content_stems(passage)) for passage in passages])


def _weights(stems: Sequence[set[str]]) -> dict[str, float]:
    counts: dict[str, int] = defaultdict(int)
    for unique in stems:
        for term in unique:
            counts[term] += 1
    return _rarity(counts, len(stems))


def _rarity(counts: Mapping[str, int], total: int) -> dict[str, float]:
    return {
        term: 1.0 + math.log((1 + total) / (1 + count)) for term, count in sorted(counts.items())
    }


def _weight(stem: str, idf: Mapping[str, float] | None) -> float:
    if idf is None:
        return 1.0
    known = idf.get(stem)
    # A stem that no passage has is at least as rare as the rarest that one has.
    return known if known is not None else max(idf.values(), default=1.0)


def coverage(claim: str, passage: str, idf: Mapping[str, float] | None = None) -> float:
    """Share of the claim's content stems that the passage has, weighted by rarity."""
    wanted = sorted(set(content_stems(claim)))
    if not wanted:
        return 1.0
    have = set(content_stems(passage))
    total = sum(_weight(term, idf) for term in wanted)
    return sum(_weight(term, idf) for term in wanted if term in have) / total


def coverages(claim: str, passages: Sequence[str]) -> list[float]:
    """The `coverage` by each passage, with the rarity over all of them; each is read once."""
    stems = [set(content_stems(passage)) for passage in passages]
    wanted = sorted(set(content_stems(claim)))
    if not wanted:
        return [1.0] * len(stems)
    idf = _weights(stems)
    weights = [(term, _weight(term, idf)) for term in wanted]
    total = sum(weight for _, weight in weights)
    return [sum(weight for term, weight in weights if term in have) / total for have in stems]


class OverlapIndex:
    """An inverted index over passages, built once and asked for every claim.

    Building is linear in the passages' length; a question costs as much as the claim's stems
    occur.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        self._having: dict[str, list[int]] = {}
        for number, passage in enumerate(passages):
            for term in {word.stem for word in content_words(passage)}:
                self._having.setdefault(term, []).append(number)
        self.idf: dict[str, float] = _rarity(
            {term: len(having) for term, having in self._having.items()}, len(passages)
        )

    @cached_property
    def rarest(self) -> float:
        """The weight of a stem that no passage has: that of the rarest one."""
        return max(self.idf.values(), default=1.0)

    def nearest(self, claim: str, count: int) -> list[int]:
        """Positions of the passages that share most with the claim, by the weight of its stems."""
        shared: dict[int, float] = defaultdict(float)
        for term in sorted({word.stem for word in content_words(claim)}):
            weight = self.idf.get(term, 0.0)
            for passage in self._having.get(term, ()):
                shared[passage] += weight
        ranked = [(-round(weight, 9), place) for place, weight in shared.items()]
        return [place for _, place in nsmallest(count, ranked)]


# Characters: a shorter stretch says too little alone, a longer one is cut.
_SHORT, _LONG, _SOONEST = 40, 480, 120
# Characters of texts that are remembered together, at some 15 bytes each, and of the longest.
_KEPT, _LONGEST_KEPT = 8_000_000, 8_000

STOP_STEMS = frozenset(stem for word in STOP_WORDS for stem in stems_of(word))


class StemHits(NamedTuple):
    """Where a text holds a stem.

    Attributes:
        parts: numbers of the stretches that hold it, ascending.
        counts: how often each of these does.
    """

    often: int
    parts: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LexicalProfile:
    """A text as lexical scoring sees it.

    Attributes:
        words: how many stems it has, repeats counted.
        starts, ends: of each stretch of about a sentence, in order.
        lengths: how many stems each stretch has.
    """

    words: int
    stems: Mapping[str, StemHits]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    lengths: tuple[int, ...]


def _profile(text: str) -> LexicalProfile:
    spans = sentence_spans(text)
    whole = stems_of(text)
    within: dict[str, list[tuple[int, int]]] = {}
    lengths = []
    for number, span in enumerate(spans):
        stems = stems_of(span.of(text))
        lengths.append(len(stems))
        for word, count in Counter(stems).items():
            within.setdefault(word, []).append((number, count))
    hits = {}
    for word, count in Counter(whole).items():
        # A span may end in the middle of a word that is too long, so that its stems differ.
        places = within.get(word, ())
        hits[word] = StemHits(count, tuple(n for n, _ in places), tuple(n for _, n in places))
    starts, ends = tuple(span.start for span in spans), tuple(span.end for span in spans)
    return LexicalProfile(len(whole), hits, starts, ends, tuple(lengths))


_PROFILES = Memory(_profile, _KEPT, longest=_LONGEST_KEPT)


def profiles(texts: Sequence[str]) -> list[LexicalProfile]:
    """The profiles of texts, in their order."""
    return _PROFILES.of(texts)


def question_stems(query: str) -> tuple[str, ...]:
    """The stems that a question asks for, each once; its stop words only where nothing else is."""
    every = tuple(dict.fromkeys(stems_of(query)))
    return tuple(stem for stem in every if stem not in STOP_STEMS) or every


@remembered_within(_KEPT, longest=_LONGEST_KEPT)
def named_stems(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names of a text as written, each with its stems, in order and each once."""
    names_by_stems: dict[tuple[str, ...], str] = {}
    for name in names(text):
        stems = tuple(dict.fromkeys(stem for stem in stems_of(name.text) if stem not in STOP_STEMS))
        if stems:
            names_by_stems.setdefault(stems, name.text)
    return tuple((written, stems) for stems, written in names_by_stems.items())


def sentence_spans(text: str) -> list[Span]:
    """Spans of about a sentence that together hold every character but white space.

    A sentence too short to say something by itself joins its neighbour, one that is too long is
    cut at a line's end or a space.
    """
    spans: list[Span] = []
    for sentence in split_sentences(text):
        for piece in _cut(text, sentence):
            before = spans[-1] if spans else None
            if (
                before is not None
                and min(piece.end - piece.start, before.end - before.start) < _SHORT
                and piece.end - before.start < _LONG
            ):
                spans[-1] = Span(before.start, piece.end)
            else:
                spans.append(piece)
    return spans


def _cut(text: str, span: Span) -> list[Span]:
    start, spans = span.start, []
    while span.end - start > _LONG:
        low, high = start + _SOONEST, start + _LONG
        stop = max(text.rfind("\n", low, high), -1)
        if stop < 0:
            stop = text.rfind(" ", low, high)
        stop = stop if stop >= 0 else high
        spans.append(Span(start, stop))
        start = stop
        while start < span.end and text[start].isspace():
            start += 1
    if start < span.end:
        spans.append(Span(start, span.end))
    return spans


Key = tuple[str, ...]

LONGEST = 3
# Longer words are names of things in programs, or several words that lost their blanks.
LONGEST_WORD = 32
# What words side by side weigh more than one word alone; three are a phrase as a name at least.
_PHRASE_BONUS, _NAME_BONUS = 1.6, 1.9
_DIGITS = 9
_NO_NOUNS = (
    STOP_WORDS | AUXILIARIES | DETERMINERS | PREPOSITIONS | PRONOUNS | HONORIFICS | IRREGULAR
) | frozenset(PAST_OF)
# Verbs of the list that are nouns as often; the words of a label may well be among them.
_ALSO_NOUNS = frozenset(LISTS["also_nouns"])
_NOT_PAST = frozenset("need indeed speed seed feed breed hundred reed weed steed shred".split())
_VAGUE = frozenset(LISTS["vague_keywords"])


class Phrases:
    """The candidates of one group of texts.

    Attributes:
        weights: weight of each candidate by its stems, before the other groups are looked at.
        early: how many words stand before each candidate in the mean.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        count: Counter[Key] = Counter()
        spread: Counter[Key] = Counter()
        places: Counter[Key] = Counter()
        forms: defaultdict[Key, Counter[str]] = defaultdict(Counter)
        for text in texts:
            first: dict[Key, int] = {}
            for key, form, place in _candidates(text):
                count[key] += 1
                forms[key][form] += 1
                first.setdefault(key, place)
            spread.update(first.keys())
            places.update(first)
        self._forms = forms
        self.early = {key: places[key] / spread[key] for key in count}
        self.weights = {
            # Once in one text is no topic of the group; what several texts share is.
            key: (1.0 + math.log(count[key])) * spread[key] * self._bonus(key)
            for key in count
        }

    def _bonus(self, key: Key) -> float:
        if len(key) == 1:
            return 1.0
        is_name = all(word[:1].isupper() for word in self.written(key).split(" "))
        return _NAME_BONUS if is_name and len(key) == LONGEST else _PHRASE_BONUS

    def written(self, key: Key) -> str:
        """The commonest way in which the texts write a candidate; in lower case if it is a tie."""
        forms = self._forms[key]
        return min(forms, key=lambda form: (-forms[form], not form.islower(), form))


def keywords(group: Phrases, others: Sequence[Phrases], count: int) -> list[str]:
    """What says most about a group of texts and least about the others, best first.

    Deterministic: equal texts, in any order within their groups, give equal keywords.
    """
    held = Counter(key for other in others for key in other.weights if key in group.weights)
    total = len(others)

    def score(key: Key) -> float:
        rarity = math.log((1 + total) / (1 + held[key])) + 1.0
        return round(group.weights[key] * rarity, _DIGITS)

    # A topic tends to be named early, and in few words.
    ranked = sorted(group.weights, key=lambda key: (-score(key), group.early[key], len(key), key))
    chosen: list[Key] = []
    for key in ranked:
        if len(chosen) == count:
            break
        # A word of a phrase that is there already says nothing more.
        if not any(set(key) & set(other) for other in chosen):
            chosen.append(key)
    return [group.written(key) for key in chosen]


def _candidates(text: str) -> list[tuple[Key, str, int]]:
    """Every word and run of words that may be a keyword: stems, form, words before it."""
    tokens = words(text)
    noun = [_reads_as_noun(word) for word in tokens]
    candidates = []
    for first in range(len(tokens)):
        key: Key = ()
        for last in range(first, min(first + LONGEST, len(tokens))):
            if not noun[last] or (last > first and not _side_by_side(text, tokens, last)):
                break
            key = (*key, stem(tokens[last].lower))
            if len(set(key)) == len(key):
                form = _printed(text[tokens[first].start : tokens[last].end])
                candidates.append((key, form, first))
    return candidates


def _printed(form: str) -> str:
    """The form without a possessive's end and characters that nobody sees, as soft hyphens."""
    seen = form if form.isprintable() else "".join(filter(str.isprintable, form))
    return seen[:-2] if seen.endswith(("'s", "\u2019s")) else seen


def _side_by_side(text: str, phrases: Sequence[TextWord], place: int) -> bool:
    return text[phrases[place - 1].end : phrases[place].start] == " "


def _reads_as_noun(word: TextWord) -> bool:
    lower = word.lower
    if len(lower) > LONGEST_WORD or lower in _NO_NOUNS or lower in _VAGUE:
        return False
    if not any(letter.isalpha() for letter in lower):
        return False
    if word.text.isupper() and len(lower) > 1:
        return True
    if len(lower) < 3 and lower.isascii():
        return False
    if not word.text[:1].isupper() and lower not in _NOT_PAST and lower.endswith(("ly", "ed")):
        return False
    base = lower[:-1] if lower.endswith("s") else lower
    return lower in _ALSO_NOUNS or base in _ALSO_NOUNS or not {lower, base} & VERBS
