"""Word search: stemmed terms and phrases, scored with BM25 as SQLite's FTS5 does it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from crp_integrations.language.words import stems_of

K1 = 1.2
B = 0.75
# The weight of a term that half of all facts hold or more; as in FTS5 it stays above 0.
LEAST_IDF = 1e-6


class TextIndex:
    """Where each stem stands in each text; made for one state and never changed."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        """Index texts.

        Args:
            texts: stems in order, by id.
        """
        self._lengths = {id: len(stems) for id, stems in texts.items()}
        self._mean = sum(self._lengths.values()) / max(1, len(texts))
        self._places: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for id, stems in texts.items():
            for place, stem in enumerate(stems):
                self._places[stem][id].append(place)

    def search(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best texts that hold any of the terms: id and score above 0, ties by id.

        A term of several words is a phrase.
        """
        scores: dict[str, float] = defaultdict(float)
        for term in dict.fromkeys(terms):
            hits = self._phrase(stems_of(term))
            if not hits:
                continue
            rare = math.log((len(self._lengths) - len(hits) + 0.5) / (len(hits) + 0.5))
            idf = rare if rare > 0.0 else LEAST_IDF
            for id, count in hits.items():
                length = self._lengths[id] / self._mean
                scores[id] += idf * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length))
        return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))[: max(0, k)]

    def _phrase(self, stems: Sequence[str]) -> dict[str, int]:
        """How often each text holds the stems one behind the other."""
        if not stems or any(stem not in self._places for stem in stems):
            return {}
        first, rest = self._places[stems[0]], [self._places[stem] for stem in stems[1:]]
        found = {}
        for id, starts in first.items():
            later = [set(places.get(id, ())) for places in rest]
            count = sum(
                all(start + step in at for step, at in enumerate(later, start=1))
                for start in starts
            )
            if count:
                found[id] = count
        return found
