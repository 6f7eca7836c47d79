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
from crp_integrations.language.profile import Profile, asked, named

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


def sources(pool: Pool, profiles: Sequence[Profile], settings: HybridSettings) -> list[int]:
    """Positions of the facts whose names are followed, best of the plain mix first."""
    words = _words(asked(pool.query), profiles)
    mix = _mix(pool, words.whole, settings)
    return list(map(int, np.argsort(-mix, kind="stable")[: settings.hop_sources]))


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
    words = _words(asked(pool.query), profiles, parts=True)
    mix = _mix(pool, words.whole, settings)
    base = _in_document(pool, mix, words, settings)
    hop = np.zeros(count)
    if settings.hop_weight and settings.hop_sources:
        hop = _hop(pool, profiles, mix, base, words.mean, settings)
    total = _over_best(base + settings.hop_weight * hop)
    owner, parts = words.owner, words.parts
    own = parts + settings.stretch_neighbour_share * _adjoining(parts, owner)
    share = settings.parent_share
    mixed = (1.0 - share) * own + share * base[owner]
    mixed += settings.stretch_hop_share * settings.hop_weight * hop[owner]
    split = tuple(np.split(_over_best(mixed), words.begins))
    return Scores(total, _over_best(words.whole), np.minimum(hop, 1.0), split)


# --- words ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Words:
    """BM25 of the texts of a pool and of their stretches, each among its own kind.

    Attributes:
        whole: of each text, shape (n,).
        mean: mean length of the texts in words.
        parts: of each stretch over the best, shape (m,); empty when not asked for.
        owner: the text of each stretch.
        begins: where the stretches of each text but the first begin.
    """

    whole: Floats
    mean: float
    parts: Floats
    owner: npt.NDArray[np.intp]
    begins: list[int]


def _words(terms: Sequence[str], profiles: Sequence[Profile], *, parts: bool = False) -> _Words:
    norm, mean = _lengths([profile.whole.words for profile in profiles])
    whole = np.zeros(len(profiles))
    owner = np.zeros(0, dtype=np.intp)
    sizes: list[int] = []
    if parts:
        sizes = [len(profile.parts) for profile in profiles]
        owner = np.repeat(np.arange(len(profiles)), sizes)
    ends = np.cumsum(sizes).tolist()
    part_norm, _ = _lengths([part.words for profile in profiles for part in profile.parts if parts])
    found = np.zeros(len(owner))
    for term in terms:
        # Few texts hold a term, and only their stretches can.
        held = [(at, n) for at, text in enumerate(profiles) if (n := text.whole.stems.get(term, 0))]
        if not held:
            continue
        _add(whole, held, norm, len(profiles))
        if parts:
            _add(
                found,
                [
                    (place, n)
                    for at, _ in held
                    for place, part in enumerate(profiles[at].parts, ends[at] - sizes[at])
                    if (n := part.stems.get(term, 0))
                ],
                part_norm,
                len(owner),
            )
    return _Words(whole, mean, _over_best(found), owner, ends[:-1])


def _lengths(words: Sequence[int]) -> tuple[Floats, float]:
    """What BM25 adds to a count for each text's length, and the mean length."""
    lengths = np.array(words, dtype=np.float64)
    mean = max(1.0, float(lengths.mean())) if len(lengths) else 1.0
    return _K1 * (1.0 - _B + _B * lengths / mean), mean


def _add(found: Floats, held: Sequence[tuple[int, int]], norm: Floats, among: int) -> None:
    """Add one term's part of BM25 to the texts that hold it."""
    if held:
        places, often = map(list, zip(*held, strict=True))
        counts = np.array(often, dtype=np.float64)
        rarity = _rarity(len(held), among)
        found[places] += rarity * counts * (_K1 + 1.0) / (counts + norm[places])


def _rarity(holding: int, among: int) -> float:
    return math.log(1.0 + (among - holding + 0.5) / (holding + 0.5))


def _over_best(values: Floats) -> Floats:
    best = float(values.max(initial=0.0))
    return values / best if best > 0.0 else values


# --- facts ---------------------------------------------------------------------------------


def _mix(pool: Pool, words: Floats, settings: HybridSettings) -> Floats:
    share = settings.lexical_share
    dense = np.maximum(pool.dense, 0.0)
    return (1.0 - share) * _over_best(dense) + share * _over_best(words)


def _in_document(pool: Pool, mix: Floats, words: _Words, settings: HybridSettings) -> Floats:
    """The mix with what a fact's best stretch and its neighbours say; may be above 1."""
    best = np.zeros(len(mix))
    np.maximum.at(best, words.owner, words.parts)
    mix = (1.0 - settings.stretch_share) * mix + settings.stretch_share * best
    # Position -1 is the last one, which stands for no neighbour.
    padded = np.append(mix, 0.0)
    return np.asarray(mix + settings.neighbour_share * padded[pool.beside].max(axis=1))


def _adjoining(parts: Floats, owner: npt.NDArray[np.intp]) -> Floats:
    """The better of the stretches on either side within the same fact."""
    found = np.zeros(len(parts))
    same = owner[1:] == owner[:-1]
    found[1:][same] = parts[:-1][same]
    found[:-1][same] = np.maximum(found[:-1][same], parts[1:][same])
    return found


# --- the second hop ------------------------------------------------------------------------


def _hop(
    pool: Pool,
    profiles: Sequence[Profile],
    mix: Floats,
    base: Floats,
    mean: float,
    settings: HybridSettings,
) -> Floats:
    """For each fact the strongest link: a name in a good fact, rare, and frequent here."""
    count, known = len(profiles), set(asked(pool.query))
    top = max(float(base.max()), 1e-9)
    found = np.zeros(count)
    scale = math.log(1.0 + count)
    often: dict[str, dict[int, float]] = {}
    for position in map(int, np.argsort(-mix, kind="stable")[: settings.hop_sources]):
        weight = float(max(base[position], 0.0) / top) ** settings.hop_decay
        for _, stems in named(pool.contents[position]):
            if known.issuperset(stems):
                continue
            each = [_often(stem, profiles, mean, often) for stem in stems]
            holding = set(each[0]).intersection(*each[1:]) - {position}
            if not holding:
                continue
            strength = weight * _rarity(len(holding), count) / scale / len(each)
            for place in holding:
                link = strength * sum(one[place] for one in each)
                if link > found[place]:
                    found[place] = link
    return found


def _often(
    stem: str, profiles: Sequence[Profile], mean: float, known: dict[str, dict[int, float]]
) -> dict[int, float]:
    """How much each text that holds a stem is about it, in [0, 1), by position."""
    found = known.get(stem)
    if found is None:
        found = known[stem] = {
            at: n / (n + _K1 * (1.0 - _B + _B * text.whole.words / mean))
            for at, text in enumerate(profiles)
            if (n := text.whole.stems.get(stem, 0))
        }
    return found
