"""Relevance from vectors, words, neighbours and a second hop (`hybrid@1`).

The cosine alone misses exact words, words alone miss paraphrase, and both miss a passage that
the question does not speak of although the answer lies in it: the one about the person that the
first passage names. So a fact's score is

    mix        (1 - lexical_share) * cosine + lexical_share * BM25, each over its best
    stretch    a share of it from its best stretch of about a sentence
    neighbour  plus a share of the better neighbour's in the same document
    hop        plus what the names in the best facts say for it

Words are weighed by how rare they are among the candidates. No number of the store enters, so
the same candidates have the same scores whatever engine found them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.selection import HybridSettings
from crp_integrations.language.profile import Counted, Profile, asked, named

HYBRID = "hybrid@1"

Floats = npt.NDArray[np.float64]
_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of a question, in a fixed order.

    Attributes:
        query: the question as asked.
        contents: texts of the facts.
        dense: cosine of each fact to the question.
        beside: positions of each fact's neighbours in its document, -1 for none, shape (n, 2).
    """

    query: str
    contents: Sequence[str]
    dense: Floats
    beside: npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a pool, all in [0, 1].

    Attributes:
        total: what facts are ranked by, shape (n,).
        lexical: BM25 over the best, shape (n,).
        hop: what a second hop says for a fact, shape (n,).
        stretches: scores of each fact's stretches.
    """

    total: Floats
    lexical: Floats
    hop: Floats
    stretches: tuple[Floats, ...]


def first(pool: Pool, profiles: Sequence[Profile], settings: HybridSettings) -> Floats:
    """The score of each fact before the second hop; above 1 where a neighbour adds to it."""
    whole, _ = _lexical(pool, profiles)
    parts, owner, _ = _parts(pool, profiles)
    return _first(pool, whole, parts, owner, settings)


def sources(scores: Floats, settings: HybridSettings) -> list[int]:
    """Positions of the facts whose names are followed, best first."""
    return list(map(int, np.argsort(-scores, kind="stable")[: settings.hop_sources]))


def new_names(pool: Pool, positions: Sequence[int]) -> list[str]:
    """Names in these facts that hold a word which the question does not have, each once."""
    known = set(asked(pool.query))
    found = {
        written: None
        for position in positions
        for written, stems in named(pool.contents[position])
        if not known.issuperset(stems)
    }
    return list(found)


def scores(pool: Pool, profiles: Sequence[Profile], settings: HybridSettings) -> Scores:
    """Score a pool.

    Spec: CRP-SPEC-003 §6.3

    Args:
        profiles: of the contents, in their order.
    """
    count = len(pool.contents)
    if not count:
        nothing = np.zeros(0)
        return Scores(nothing, nothing, nothing, ())
    whole, mean = _lexical(pool, profiles)
    parts, owner, bounds = _parts(pool, profiles)
    base = _first(pool, whole, parts, owner, settings)
    hop = np.zeros(count)
    if settings.hop_weight:
        hop = _hop(pool, profiles, base, mean, settings)
    total = _over_best(base + settings.hop_weight * hop)
    beside = _adjoining(parts, owner)
    own = parts + settings.stretch_neighbour_share * beside
    share = settings.parent_share
    mixed = (1.0 - share) * own + share * base[owner]
    mixed += settings.stretch_hop_share * settings.hop_weight * hop[owner]
    split = tuple(np.split(_over_best(mixed), bounds[1:-1]))
    return Scores(total, _over_best(whole), np.minimum(hop, 1.0), split)


# --- words ---------------------------------------------------------------------------------


def _lexical(pool: Pool, profiles: Sequence[Profile]) -> tuple[Floats, float]:
    counted = [profile.whole for profile in profiles]
    return _bm25(asked(pool.query), counted)


def _parts(
    pool: Pool, profiles: Sequence[Profile]
) -> tuple[Floats, npt.NDArray[np.intp], list[int]]:
    """BM25 of every stretch over the best, its fact, and where each fact's stretches begin."""
    sizes = [len(profile.parts) for profile in profiles]
    owner = np.repeat(np.arange(len(profiles)), sizes)
    found, _ = _bm25(asked(pool.query), [part for profile in profiles for part in profile.parts])
    return _over_best(found), owner, [0, *np.cumsum(sizes).tolist()]


def _bm25(terms: Sequence[str], texts: Sequence[Counted]) -> tuple[Floats, float]:
    """BM25 of texts among themselves, and their mean length in words."""
    found = np.zeros(len(texts))
    if not texts:
        return found, 1.0
    lengths = np.array([text.words for text in texts], dtype=np.float64)
    mean = max(1.0, float(lengths.mean()))
    norm = _K1 * (1.0 - _B + _B * lengths / mean)
    for term in terms:
        counts = np.array([text.stems.get(term, 0) for text in texts], dtype=np.float64)
        holding = int(np.count_nonzero(counts))
        if holding:
            found += _rarity(holding, len(texts)) * counts * (_K1 + 1.0) / (counts + norm)
    return found, mean


def _rarity(holding: int, among: int) -> float:
    return math.log(1.0 + (among - holding + 0.5) / (holding + 0.5))


def _over_best(values: Floats) -> Floats:
    best = float(values.max(initial=0.0))
    return values / best if best > 0.0 else values


# --- facts ---------------------------------------------------------------------------------


def _first(
    pool: Pool, whole: Floats, parts: Floats, owner: npt.NDArray[np.intp], settings: HybridSettings
) -> Floats:
    share = settings.lexical_share
    dense = np.maximum(pool.dense, 0.0)
    mix = (1.0 - share) * _over_best(dense) + share * _over_best(whole)
    if settings.stretch_share and len(parts):
        best = np.zeros(len(mix))
        np.maximum.at(best, owner, parts)
        mix = (1.0 - settings.stretch_share) * mix + settings.stretch_share * best
    if settings.neighbour_share:
        # Position -1 is the last one, which stands for no neighbour.
        padded = np.append(mix, 0.0)
        mix = mix + settings.neighbour_share * padded[pool.beside].max(axis=1)
    return mix


def _adjoining(parts: Floats, owner: npt.NDArray[np.intp]) -> Floats:
    """The better of the stretches on either side within the same fact."""
    found = np.zeros(len(parts))
    same = owner[1:] == owner[:-1]
    found[1:][same] = parts[:-1][same]
    found[:-1][same] = np.maximum(found[:-1][same], parts[1:][same])
    return found


# --- the second hop ------------------------------------------------------------------------


def _hop(
    pool: Pool, profiles: Sequence[Profile], base: Floats, mean: float, settings: HybridSettings
) -> Floats:
    """For each fact the strongest link: a name in a good fact, rare, and frequent here."""
    count, known = len(profiles), set(asked(pool.query))
    top = max(float(base.max()), 1e-9)
    found = np.zeros(count)
    followed = [
        (position, float(max(base[position], 0.0) / top) ** settings.hop_decay, stems)
        for position in sources(base, settings)
        for _, stems in named(pool.contents[position])
        if not known.issuperset(stems)
    ]
    wanted = {stem for _, _, stems in followed for stem in stems}
    lengths = np.array([profile.whole.words for profile in profiles], dtype=np.float64)
    norm = _K1 * (1.0 - _B + _B * lengths / mean)
    often: dict[str, Floats] = {}
    for stem in wanted:
        counts = np.array([profile.whole.stems.get(stem, 0) for profile in profiles], np.float64)
        often[stem] = counts / (counts + norm)
    scale = math.log(1.0 + count)
    for position, weight, stems in followed:
        each = [often[stem] for stem in stems]
        holding = np.logical_and.reduce([one > 0.0 for one in each])
        holding[position] = False
        number = int(np.count_nonzero(holding))
        if number:
            link = weight * _rarity(number, count) / scale * np.mean(each, axis=0)
            np.maximum(found, np.where(holding, link, 0.0), out=found)
    return found
