"""Word search in a store's index, and over redacted texts.

The store's index contains whole texts, so its hits could confirm a guess at a redacted word. For a
subject with redaction, each word is therefore searched separately, the hits are redacted, and a
text counts as a hit only if the word is still in it; order and scores are computed from the
redacted texts. Each word gets the same share of the texts that are redacted, so that a hidden word
cannot promote a text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.language.words import stems_of

# Returns ids and index scores of the texts that contain any of the words, best first.
Search = Callable[[Sequence[str], int], Sequence[tuple[str, float]]]
# Returns those of the ids that pass the guard and the filter.
Passing = Callable[[Sequence[str]], Collection[str]]
# BM25 parameters for repetition of words and length of texts, as in the stores' own BM25.
_K1 = 1.2
_B = 0.75
# The replacement for personal data (`redact@1`); its words do not belong to the text.
_MARK = re.compile(r"\[redacted [^\[\]]*\]")
# Separates two stretches of a text; it equals no stem, so no phrase can match across it.
_GAP = ""


def search_words(search: Search, terms: Sequence[str], k: int, passing: Passing) -> list[Hit]:
    """Return the k best hits of an index that pass, best first."""
    wanted = k
    while wanted > 0:
        matches = search(terms, wanted)
        passing_ids = passing([id_ for id_, _ in matches])
        hits = [Hit(id_, score) for id_, score in matches if id_ in passing_ids]
        # Hits that do not pass took places, so ask for more until there are enough.
        if len(hits) >= k or len(matches) < wanted:
            return hits[:k]
        wanted *= 4
    return []


def search_redacted(
    search: Search,
    terms: Sequence[str],
    k: int,
    passing: Passing,
    shown: Callable[[Sequence[str]], Mapping[str, str]],
    most: int,
) -> list[Hit]:
    """Return the k best redacted texts that still contain any of the terms, ties by id."""
    terms_by_id: dict[str, list[str]] = {}
    share = most // max(1, min(len(terms), most))
    for term in dict.fromkeys(terms[:most]):
        for hit in search_words(search, [term], share, passing):
            terms_by_id.setdefault(hit.fact_id, []).append(term)
    stems = {id_: _stems(text) for id_, text in shown(sorted(terms_by_id)).items()}
    sought = {term: stems_of(term) for term in terms}
    held = {
        id_: own
        for id_, own in stems.items()
        if any(_times(own, sought[term]) for term in terms_by_id[id_])
    }
    return _ranked(held, sought.values())[: max(0, k)]


def merge_by_rank(parts: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
    """Merge hits of several parts by rank, since scores are comparable only within one part."""
    ranked = [
        (rank, number, hit.fact_id)
        for number, part in enumerate(parts)
        for rank, hit in enumerate(part, 1)
    ]
    return [Hit(id_, 1.0 / rank) for rank, _, id_ in sorted(ranked)[: max(0, k)]]


def _stems(text: str) -> tuple[str, ...]:
    """Stems of the unredacted stretches of a text, with a gap after each."""
    stretches = (stems_of(stretch) for stretch in _MARK.split(text))
    return tuple(stem for stretch in stretches for stem in (*stretch, _GAP))


def _times(stems: Sequence[str], term: Sequence[str]) -> int:
    """How often the stems of a term occur in a text, one directly after the other."""
    size = len(term)
    if size == 1:
        return stems.count(term[0])
    if not size or term[0] not in stems:
        return 0
    return sum(tuple(stems[at : at + size]) == tuple(term) for at in range(len(stems)))


def _ranked(texts: Mapping[str, Sequence[str]], terms: Collection[tuple[str, ...]]) -> list[Hit]:
    """Rank texts by BM25 over these texts only, best first, ties by id."""
    lengths = {id_: sum(stem != _GAP for stem in stems) for id_, stems in texts.items()}
    mean = sum(lengths.values()) / max(1, len(texts)) or 1.0
    scores = dict.fromkeys(texts, 0.0)
    for term in sorted({*terms}):
        counts = {id_: times for id_, own in texts.items() if (times := _times(own, term))}
        rare = math.log(1.0 + (len(texts) - len(counts) + 0.5) / (len(counts) + 0.5))
        for id_, times in counts.items():
            length = 1.0 - _B + _B * lengths[id_] / mean
            scores[id_] += rare * times * (_K1 + 1.0) / (times + _K1 * length)
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(id_, score) for id_, score in best]
