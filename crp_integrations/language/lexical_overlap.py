"""Lexical overlap of texts: stems, spans, names, rarity of words, and keywords."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import NamedTuple
from unicodedata import normalize

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
    """Weight of each stem by its rarity over the passages, > 0; equal for a single passage."""
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
    # A stem that no passage contains gets the weight of the rarest known stem.
    return known if known is not None else max(idf.values(), default=1.0)


def coverage(claim: str, passage: str, idf: Mapping[str, float] | None = None) -> float:
    """Share of the claim's content stems that occur in the passage, weighted by rarity."""
    wanted = sorted(set(content_stems(claim)))
    if not wanted:
        return 1.0
    have = set(content_stems(passage))
    total = sum(_weight(term, idf) for term in wanted)
    return sum(_weight(term, idf) for term in wanted if term in have) / total


def coverages(claim: str, passages: Sequence[str]) -> list[float]:
    """The `coverage` by each passage, with rarity over all passages; reads each passage once."""
    stems = [set(content_stems(passage)) for passage in passages]
    wanted = sorted(set(content_stems(claim)))
    if not wanted:
        return [1.0] * len(stems)
    idf = _weights(stems)
    weights = [(term, _weight(term, idf)) for term in wanted]
    total = sum(weight for _, weight in weights)
    return [sum(weight for term, weight in weights if term in have) / total for have in stems]


class OverlapIndex:
    """An inverted index over passages, built once and queried for every claim.

    Building is linear in the passages' length; a query is linear in the number of passages that
    contain each of the claim's stems.
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
        """The weight of a stem that no passage contains: that of the rarest known stem."""
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


# In characters: shorter spans are joined, longer ones are cut, and not before _MIN_CUT.
_SHORT, _LONG, _MIN_CUT = 40, 480, 120
# Characters of all cached texts (about 7 bytes each), and of the longest cached text.
_CACHE_SIZE, _LONGEST_CACHED = 8_000_000, 8_000

STOP_STEMS = frozenset(stem for word in STOP_WORDS for stem in stems_of(word))


class StemHits(NamedTuple):
    """Occurrences of a stem in a text.

    Attributes:
        often: number of occurrences in the whole text.
        parts: numbers of the stretches that contain it, ascending.
        counts: number of occurrences in each of these stretches.
    """

    often: int
    parts: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LexicalProfile:
    """The stems of a text, for lexical scoring.

    Attributes:
        words: number of stems, repeats counted.
        stems: number of the stretch of each occurrence of a stem, ascending.
        totals: number of occurrences of each stem in the whole, if the stretches have others.
        starts, ends: offsets of each stretch of about a sentence, in order.
        lengths: number of stems in each stretch.
    """

    words: int
    stems: Mapping[str, tuple[int, ...]]
    totals: Mapping[str, int] | None
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    lengths: tuple[int, ...]

    def often(self, stem: str) -> int:
        """How often a stem of the text occurs."""
        return len(self.stems[stem]) if self.totals is None else self.totals[stem]

    def hits(self, stem: str) -> StemHits:
        """The occurrences of a stem of the text."""
        counts = Counter(self.stems[stem])
        return StemHits(self.often(stem), tuple(counts), tuple(counts.values()))


def _stems(text: str) -> tuple[str, ...]:
    """Stems that do not depend on whether marks are composed with their letters."""
    return stems_of(normalize("NFC", text))


def _profile(text: str) -> LexicalProfile:
    spans = sentence_spans(text)
    within: defaultdict[str, list[int]] = defaultdict(list)
    lengths = []
    # A preview reads some 100 texts for the first time, and most of their stems are never asked
    # for: this loop does as little as possible for each.
    for number, span in enumerate(spans):
        stems = _stems(span.of(text))
        lengths.append(len(stems))
        for word in stems:
            within[word].append(number)
    starts, ends = tuple([span.start for span in spans]), tuple([span.end for span in spans])
    # A span may end within an overlong word, so a stem of the whole may be in no span. Otherwise
    # the whole has the spans' stems: reading it again would take a tenth of a preview.
    if text.isascii() and not any(text[end - 1 : end + 1].isalnum() for end in ends[:-1]):
        once = [(number,) for number in range(len(spans))]
        places = {w: once[at[0]] if len(at) == 1 else tuple(at) for w, at in within.items()}
        return LexicalProfile(sum(lengths), places, None, starts, ends, tuple(lengths))
    totals = Counter(_stems(text))
    places = {word: tuple(within.get(word, ())) for word in totals}
    return LexicalProfile(totals.total(), places, totals, starts, ends, tuple(lengths))


_PROFILES = Memory(_profile, _CACHE_SIZE, longest=_LONGEST_CACHED)


def profiles(texts: Sequence[str]) -> list[LexicalProfile]:
    """The profiles of texts, in their order."""
    return _PROFILES.of(texts)


def question_stems(query: str) -> tuple[str, ...]:
    """The stems of a question, each once; stop words only if there is no other word."""
    every = tuple(dict.fromkeys(_stems(query)))
    return tuple(stem for stem in every if stem not in STOP_STEMS) or every


@remembered_within(_CACHE_SIZE, longest=_LONGEST_CACHED)
def named_stems(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names of a text as written, each with its stems, in order and each once."""
    names_by_stems: dict[tuple[str, ...], str] = {}
    for name in names(text):
        stems = tuple(dict.fromkeys(stem for stem in _stems(name.text) if stem not in STOP_STEMS))
        if stems:
            names_by_stems.setdefault(stems, name.text)
    return tuple((written, stems) for stems, written in names_by_stems.items())


def sentence_spans(text: str) -> list[Span]:
    """Spans of about a sentence that together cover every non-space character.

    A very short sentence is joined to its neighbour; a very long one is cut at the end of a line
    or at a space.
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
        low, high = start + _MIN_CUT, start + _LONG
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
# Longer words are names in program code, or several words that lost their blanks.
LONGEST_WORD = 32
# Weight factors over a single word: of a phrase, and of a name of three words.
_PHRASE_BONUS, _NAME_BONUS = 1.6, 1.9
_DIGITS = 9
_NO_NOUNS = (
    STOP_WORDS | AUXILIARIES | DETERMINERS | PREPOSITIONS | PRONOUNS | HONORIFICS | IRREGULAR
) | frozenset(PAST_OF)
# Verbs of the list that are as often nouns, so they may be keywords.
_ALSO_NOUNS = frozenset(LISTS["also_nouns"])
_NOT_PAST = frozenset("need indeed speed seed feed breed hundred reed weed steed shred".split())
_VAGUE = frozenset(LISTS["vague_keywords"])


class Phrases:
    """The keyword candidates of one group of texts.

    Attributes:
        weights: stems of each candidate → its weight, before comparison with other groups.
        early: stems of each candidate → mean number of words before its first occurrence.
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
            # Candidates that several texts share are more likely a topic of the group.
            key: (1.0 + math.log(count[key])) * spread[key] * self._bonus(key)
            for key in count
        }

    def _bonus(self, key: Key) -> float:
        if len(key) == 1:
            return 1.0
        is_name = all(word[:1].isupper() for word in self.written(key).split(" "))
        return _NAME_BONUS if is_name and len(key) == LONGEST else _PHRASE_BONUS

    def written(self, key: Key) -> str:
        """The most frequent spelling of a candidate in the texts; lower case in a tie."""
        forms = self._forms[key]
        return min(forms, key=lambda form: (-forms[form], not form.islower(), form))


def groups_by_key(groups: Iterable[Phrases]) -> Counter[Key]:
    """Number of groups that contain each candidate."""
    return Counter(key for group in groups for key in group.weights)


def keywords(group: Phrases, groups_with: Mapping[Key, int], total: int, count: int) -> list[str]:
    """Keywords that distinguish a group of texts from `total` others, best first.

    Deterministic: equal texts, in any order within their groups, give equal keywords.

    Args:
        groups_with: `groups_by_key` of the others, counted once for all groups.
    """

    def score(key: Key) -> float:
        rarity = math.log((1 + total) / (1 + groups_with.get(key, 0))) + 1.0
        return round(group.weights[key] * rarity, _DIGITS)

    # In ties, earlier and shorter candidates come first: topics tend to be named early, briefly.
    ranked = sorted(group.weights, key=lambda key: (-score(key), group.early[key], len(key), key))
    chosen: list[Key] = []
    for key in ranked:
        if len(chosen) == count:
            break
        # Skip candidates that share a word with a chosen keyword.
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
    """The form without a possessive ending and invisible characters such as soft hyphens."""
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
