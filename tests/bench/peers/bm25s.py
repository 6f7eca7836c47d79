"""bm25s by itself, without numba: scores made when the index is built, in sparse numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import bm25s

from crp_integrations.language.words import stems_of


class RawBm25s:
    """BM25 over the stems that the store searches for; a change means building anew."""

    name = f"bm25s {version('bm25s')} (numpy)"

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self._ids = list(ids)
        self._index = bm25s.BM25(k1=1.2, b=0.75, backend="numpy")
        self._index.index([list(stems_of(text)) for text in texts], show_progress=False)

    def search(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Ids and BM25 scores of the k best that hold any of the terms."""
        asked = list(dict.fromkeys(stem for term in terms for stem in stems_of(term)))
        asked = [stem for stem in asked if stem in self._index.vocab_dict]
        if not asked:
            return []
        places, scores = self._index.retrieve(
            [asked], k=min(k, len(self._ids)), show_progress=False, backend_selection="numpy"
        )
        return [
            (self._ids[place], score)
            for place, score in zip(places[0].tolist(), scores[0].tolist(), strict=True)
            if score > 0.0
        ]
