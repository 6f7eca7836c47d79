"""Relevance from vectors, words, neighbours and a second hop (`hybrid@1`).

The cosine alone misses exact words, words alone miss paraphrases, and both miss a passage that
contains the answer but none of the question's words, such as the one about a person whom the
first passage names. So a fact's score is the sum of

    mix        (1 - lexical_share) * cosine + lexical_share * BM25, each divided by its best value
               and raised to a power, so that the best candidates stand out
    stretch    in a share of the mix, the score of its best stretch of about a sentence instead
    neighbour  a share of the better neighbour's score in the same document
    hop        the score of the names it shares with the best facts; if this lifts a single fact
               above the best one, the two exchange scores

Words are weighted by their rarity among the candidates. Statistics of the store are not used, so
the same candidates have the same scores whichever engine found them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from operator import sub
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.candidates import Candidate, ScoredSpan
from crp_integrations.envelope.settings import HybridSettings
from crp_integrations.language.lexical_overlap import (
    LexicalProfile,
    StemHits,
    named_stems,
    profiles,
    question_stems,
)
from crp_integrations.language.memo import forgotten_with
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import FactStatus

if TYPE_CHECKING:
    from crp_integrations.fabric.ports.facts import FactBrief

HYBRID = "hybrid@1"

Floats = npt.NDArray[np.float64]
_K1, _B = 1.2, 0.75  # the usual BM25 parameters
_NO_PLACES: Mapping[int, float] = {}


@dataclass(frozen=True, slots=True)
class CandidatePool:
    """The candidates of a question, in a fixed order.

    Attributes:
        query: the question as asked.
        contents: texts of the facts.
        dense: cosine of each fact to the question.
        neighbours: positions of each fact's neighbours in its document, -1 for none, shape (n, 2).
    """

    query: str
    contents: Sequence[str]
    dense: Floats
    neighbours: npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class HybridScores:
    """Scores of a pool, all in [0, 1].

    Attributes:
        total: score that facts are ranked by, shape (n,).
        lexical: BM25 divided by the best, shape (n,).
        hop: score from the second hop, shape (n,).
        parts: scores of the stretches of all facts, one fact after the other, shape (m,).
        begins: index in `parts` of each fact's first stretch, and the end of the last; n + 1.
    """

    total: Floats
    lexical: Floats
    hop: Floats
    parts: Floats
    begins: Sequence[int]


@dataclass(frozen=True, slots=True)
class WeighedPool:
    """A pool with the word scores of its texts.

    Attributes:
        profiles: word profiles of the contents, in their order.
        terms: stems of the question's words.
        whole: BM25 of each text, shape (n,).
        mean: mean length of the texts in words.
        mix: mixed score of cosine and words, shape (n,).
        best: positions of the best facts by the mix, best first.
        term_hits: for each term that occurs, the positions of its texts and its hits in each.
    """

    pool: CandidatePool
    profiles: Sequence[LexicalProfile]
    terms: Sequence[str]
    whole: Floats
    mean: float
    mix: Floats
    best: Sequence[int]
    term_hits: Sequence[Sequence[tuple[int, StemHits]]]


def weigh_pool(pool: CandidatePool, settings: HybridSettings) -> WeighedPool:
    """Read the texts of a pool and score their words.

    Spec: CRP-SPEC-003 §6.3
    """
    terms, read = question_stems(pool.query), profiles(pool.contents)
    norm, mean = _lengths([text.words for text in read])
    every: dict[str, list[tuple[int, StemHits]]] = {term: [] for term in terms}
    # Most texts contain few of the terms, so the loop is over texts instead of terms.
    for at, text in enumerate(read):
        for term in text.stems.keys() & every.keys():
            every[term].append((at, text.hits(term)))
    held = [hits for hits in every.values() if hits]
    whole = _bm25(
        [at for hits in held for at, _ in hits],
        [hit.often for hits in held for _, hit in hits],
        [len(hits) for hits in held],
        norm,
    )
    mix = _mix(pool, whole, settings)
    best = list(map(int, np.argsort(-mix, kind="stable")[: settings.hop_sources]))
    return WeighedPool(pool, read, terms, whole, mean, mix, best, held)


def new_names(weighed: WeighedPool) -> list[str]:
    """Names in the best facts with a word that the question does not contain, each once."""
    known = set(weighed.terms)
    names = {
        written: None
        for position in weighed.best
        for written, stems in named_stems(weighed.pool.contents[position])
        if not known.issuperset(stems)
    }
    return list(names)


def score_pool(weighed: WeighedPool, settings: HybridSettings) -> HybridScores:
    """Score a pool.

    Spec: CRP-SPEC-003 §6.3
    """
    pool, mix = weighed.pool, weighed.mix
    count = len(pool.contents)
    if not count:
        nothing = np.zeros(0)
        return HybridScores(nothing, nothing, nothing, nothing, [0])
    sizes = [len(text.lengths) for text in weighed.profiles]
    begins = [0, *accumulate(sizes)]
    owner = np.repeat(np.arange(count), sizes)
    parts = _parts(weighed, begins)
    base = _in_document(pool, mix, parts, owner, begins, settings)
    hop = np.zeros(count)
    if settings.hop_weight and settings.hop_sources:
        hop = _hop(weighed, base, settings)
    total = _with_best_ahead(_over_best(base + settings.hop_weight * hop), base)
    own = parts + settings.stretch_neighbour_share * _adjoining(parts, owner)
    share = settings.parent_share
    mixed = (1.0 - share) * own + share * base[owner]
    mixed += settings.stretch_hop_share * settings.hop_weight * hop[owner]
    lexical, linked = _over_best(weighed.whole), np.minimum(hop, 1.0)
    return HybridScores(total, lexical, linked, _over_best(mixed), begins)


# --- words ---------------------------------------------------------------------------------


def _parts(weighed: WeighedPool, begins: Sequence[int]) -> Floats:
    """BM25 of all stretches, with each stretch as a document, divided by the best."""
    norm, _ = _lengths(list(chain.from_iterable(text.lengths for text in weighed.profiles)))
    places: list[int] = []
    often: list[int] = []
    holding: list[int] = []
    for held in weighed.term_hits:
        # Only stretches of texts that contain the term can contain it.
        before = len(places)
        for at, where in held:
            start = begins[at]
            places += [start + number for number in where.parts]
            often += where.counts
        # The term may be in no stretch, as a word can be too long for one.
        if len(places) > before:
            holding.append(len(places) - before)
    return _over_best(_bm25(places, often, holding, norm))


def _bm25(
    places: Sequence[int], often: Sequence[int], holding: Sequence[int], norm: Floats
) -> Floats:
    """BM25 of each text; terms are summed in a fixed order, so rounding never differs."""
    if not places:
        return np.zeros(len(norm))
    rarity = np.repeat([_rarity(number, len(norm)) for number in holding], holding)
    at = np.array(places, dtype=np.intp)
    counts = np.array(often, dtype=np.float64)
    each = rarity * counts * (_K1 + 1.0) / (counts + norm[at])
    scores: Floats = np.bincount(at, weights=each, minlength=len(norm)).astype(
        np.float64, copy=False
    )
    return scores


def _lengths(words: Sequence[int]) -> tuple[Floats, float]:
    """BM25's length term, which is added to each count of a text, and the mean length."""
    lengths = np.array(words, dtype=np.float64)
    mean = max(1.0, float(lengths.mean())) if len(lengths) else 1.0
    return _K1 * (1.0 - _B + _B * lengths / mean), mean


def _rarity(holding: int, among: int) -> float:
    return math.log(1.0 + (among - holding + 0.5) / (holding + 0.5))


def _over_best(values: Floats) -> Floats:
    best = float(values.max(initial=0.0))
    return values / best if best > 0.0 else values


# --- facts ---------------------------------------------------------------------------------


def _mix(pool: CandidatePool, words: Floats, settings: HybridSettings) -> Floats:
    share = settings.lexical_share
    near = _sharpened(_over_best(np.maximum(pool.dense, 0.0)), settings.cosine_power)
    return (1.0 - share) * near + share * _sharpened(_over_best(words), settings.lexical_power)


def _sharpened(values: Floats, power: float) -> Floats:
    """Raise to a multiple of 0.5 with products and roots, which every machine rounds equally."""
    whole, half = divmod(round(2.0 * power), 2)
    made = np.sqrt(values) if half else np.ones(len(values))
    for _ in range(whole):
        made = made * values
    return made


def _in_document(
    pool: CandidatePool,
    mix: Floats,
    parts: Floats,
    owner: npt.NDArray[np.intp],
    begins: Sequence[int],
    settings: HybridSettings,
) -> Floats:
    """The mix with the scores of a fact's best stretch and neighbours; may be above 1."""
    if len(parts) and min(map(sub, begins[1:], begins)):
        best = np.maximum.reduceat(parts, begins[:-1])
    else:
        # A text without stretches, such as white space, would make `reduceat` give wrong values.
        best = np.zeros(len(mix))
        np.maximum.at(best, owner, parts)
    best = _sharpened(best, settings.stretch_power)
    mix = (1.0 - settings.stretch_share) * mix + settings.stretch_share * best
    # Position -1, for no neighbour, reads the appended 0.
    padded = np.append(mix, 0.0)
    return np.asarray(mix + settings.neighbour_share * padded[pool.neighbours].max(axis=1))


def _adjoining(parts: Floats, owner: npt.NDArray[np.intp]) -> Floats:
    """The better of the stretches on either side within the same fact."""
    better = np.zeros(len(parts))
    same = owner[1:] == owner[:-1]
    better[1:][same] = parts[:-1][same]
    better[:-1][same] = np.maximum(better[:-1][same], parts[1:][same])
    return better


# --- the second hop ------------------------------------------------------------------------


def _hop(weighed: WeighedPool, base: Floats, settings: HybridSettings) -> Floats:
    """The strongest link of each fact: rare names of a good fact that are frequent in this one."""
    contents, count, known = weighed.pool.contents, len(base), set(weighed.terms)
    links = np.zeros(count)
    named_in = [
        (
            position,
            [stems for _, stems in named_stems(contents[position]) if not known.issuperset(stems)],
        )
        for position in weighed.best
    ]
    often = _often({stem for _, names in named_in for stems in names for stem in stems}, weighed)
    if not often:
        return links
    top, scale = max(float(base.max()), 1e-9), math.log(1.0 + count)
    for position, names in named_in:
        weight = float(max(base[position], 0.0) / top) ** settings.hop_decay
        for stems in names:
            each = [often.get(stem, _NO_PLACES) for stem in stems]
            holding = set(each[0]).intersection(*each[1:]) - {position}
            if not holding:
                continue
            strength = weight * _rarity(len(holding), count) / scale / len(each)
            for place in holding:
                link = strength * sum(frequencies[place] for frequencies in each)
                if link > links[place]:
                    links[place] = link
    return links


def _with_best_ahead(total: Floats, base: Floats) -> Floats:
    """If the hop lifts a single fact above the fact that is best without it, exchange scores.

    A budget for one fact then shows the fact that matches the question itself.
    """
    best = int(base.argmax())
    above = np.flatnonzero(total > total[best])
    if len(above) == 1:
        total[[best, above[0]]] = total[[above[0], best]]
    return total


def _often(stems: set[str], weighed: WeighedPool) -> dict[str, dict[int, float]]:
    """By stem and position, the length-adjusted frequency of the stem in a text, in [0, 1)."""
    often: dict[str, dict[int, float]] = {}
    for at, text in enumerate(weighed.profiles):
        length = _K1 * (1.0 - _B + _B * text.words / weighed.mean)
        for stem in text.stems.keys() & stems:
            n = text.often(stem)
            often.setdefault(stem, {})[at] = n / (n + length)
    return often


Cosines = npt.NDArray[np.float32]
# Character offsets, which chunking writes at the end of a location.
_OFFSETS = re.compile(r"(\d{1,15})-(\d{1,15})\Z")


def build_pool(
    query: str, facts: Sequence[FactBrief], cosines: Cosines, settings: HybridSettings
) -> CandidatePool:
    """The pool of a question."""
    contents = [fact.content for fact in facts]
    return CandidatePool(
        query,
        contents,
        cosines.astype(np.float64),
        _document_neighbours(facts, settings.neighbour_gap),
    )


def cosine_candidates(
    facts: Sequence[FactBrief], relevance: Cosines, tokens: Sequence[int]
) -> tuple[Candidate, ...]:
    """Make candidates that are ranked by their cosine."""
    rows = zip(facts, _clamped(relevance), _importance(facts), tokens, strict=True)
    return tuple([_build_candidate(*row) for row in rows])


def hybrid_candidates(
    facts: Sequence[FactBrief],
    relevance: Cosines,
    tokens: Sequence[int],
    scores: HybridScores,
    profiles: Sequence[LexicalProfile],
    settings: HybridSettings,
) -> tuple[Candidate, ...]:
    """Make candidates with mixed scores and, unless only whole facts are shown, stretches."""
    pieces: list[tuple[ScoredSpan, ...]] = [()] * len(facts)
    if settings.whole_share < 1.0:
        parts, begins = _fixed_list(scores.parts), scores.begins
        pieces = [
            tuple(map(ScoredSpan, text.starts, text.ends, parts[start:end]))
            for text, start, end in zip(profiles, begins, begins[1:], strict=False)
        ]
    rows = zip(
        facts,
        _clamped(relevance),
        _importance(facts),
        tokens,
        _fixed_list(scores.total),
        _fixed_list(scores.lexical),
        _fixed_list(scores.hop),
        pieces,
        strict=True,
    )
    return tuple([_build_candidate(*row) for row in rows])


def _build_candidate(
    fact: FactBrief,
    relevance: int,
    importance: int,
    tokens: int,
    score: int | None = None,
    lexical: int = 0,
    hop: int = 0,
    stretches: tuple[ScoredSpan, ...] = (),
) -> Candidate:
    return Candidate(
        fact_id=fact.fact_id,
        content=fact.content,
        source_id=fact.source_id,
        relevance=relevance,
        importance=importance,
        tokens=max(0, tokens),
        ingested_at=fact.ingested_at,
        stale=fact.status is FactStatus.STALE,
        community=fact.community_label,
        source_location=fact.source_location,
        labels=fact.labels,
        score=score,
        lexical=lexical,
        hop=hop,
        stretches=stretches,
        decay=fact.decay,
    )


def _importance(facts: Sequence[FactBrief]) -> list[int]:
    return _clamped(np.array([fact.importance_weight for fact in facts], dtype=np.float64))


def _clamped(values: npt.NDArray[np.floating]) -> list[int]:
    """`to_fixed` of each value."""
    # `fmax` turns NaN into 0.
    return _fixed_list(np.minimum(np.fmax(values.astype(np.float64), 0.0), 1.0))


def _fixed_list(values: npt.NDArray[np.float64]) -> list[int]:
    """Values in [0, 1] in fixed point."""
    fixed: list[int] = np.rint(values * SCALE).astype(np.int64).tolist()
    return fixed


@lru_cache(maxsize=8_192)
def _offsets(location: str) -> tuple[int, int] | None:
    match = _OFFSETS.search(location)
    return (int(match[1]), int(match[2])) if match else None


# A location contains headings of a document, so this cache is cleared when texts are erased.
forgotten_with(_offsets.cache_clear)


def _document_neighbours(facts: Sequence[FactBrief], gap: int) -> npt.NDArray[np.intp]:
    """Positions of the facts before and after each in its document, -1 for none."""
    neighbours = np.full((len(facts), 2), -1, dtype=np.intp)
    placed = [
        (fact.source_id, *offsets, position)
        for position, fact in enumerate(facts)
        if fact.source_location and (offsets := _offsets(fact.source_location))
    ]
    placed.sort()
    for left, right in pairwise(placed):
        if left[0] == right[0] and left[1] < right[1] and right[1] - left[2] <= gap:
            neighbours[left[3], 1], neighbours[right[3], 0] = right[3], left[3]
    return neighbours
