"""Word search by an engine in memory, and over texts without personal data.

The store's index knows whole texts, so what it finds would confirm a guess at a word that was
redacted. For a subject with redaction it is therefore asked for each word alone, what it finds is
redacted, and a text counts as found by a word that is left in it; order and scores are made of the
texts that are left. Each word has the same share of the texts to be redacted, so a hidden word
brings no text to the front.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import FactsFacet, LexicalEngine, LexicalIndex, LogMark
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.language.words import stems_of

# Ids with the scores that an index gives to the texts that hold any of some words, best first.
Search = Callable[[Sequence[str], int], Sequence[tuple[str, float]]]
# Those of some ids that pass.
Passing = Callable[[Sequence[str]], Collection[str]]
# How much a word's repetition and a text's length count, as in the stores' own BM25.
_K1 = 1.2
_B = 0.75
# What stands in the place of personal data (`redact@1`); its words are none of the text's.
_MARK = re.compile(r"\[redacted [^\[\]]*\]")
# Between two stretches of a text; equal to no stem, so that no phrase goes across.
_GAP = ""


def search_words(search: Search, terms: Sequence[str], k: int, passing: Passing) -> list[Hit]:
    """The k best hits of an index that pass, best first."""
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
    """The k best of the redacted texts that hold any of the terms, ties by id."""
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
    """Hits of several parts by their ranks, since scores compare within one part alone."""
    ranked = [
        (rank, number, hit.fact_id)
        for number, part in enumerate(parts)
        for rank, hit in enumerate(part, 1)
    ]
    return [Hit(id_, 1.0 / rank) for rank, _, id_ in sorted(ranked)[: max(0, k)]]


def _stems(text: str) -> tuple[str, ...]:
    """Stems of the stretches that are left of a text, with a gap between two."""
    stretches = (stems_of(stretch) for stretch in _MARK.split(text))
    return tuple(stem for stretch in stretches for stem in (*stretch, _GAP))


def _times(stems: Sequence[str], term: Sequence[str]) -> int:
    """How often a text holds the stems of a term one behind the other."""
    size = len(term)
    if size == 1:
        return stems.count(term[0])
    if not size or term[0] not in stems:
        return 0
    return sum(tuple(stems[at : at + size]) == tuple(term) for at in range(len(stems)))


def _ranked(texts: Mapping[str, Sequence[str]], terms: Collection[tuple[str, ...]]) -> list[Hit]:
    """Texts by BM25 among themselves, best first, ties by id."""
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


# Indexes that are kept: a reader that began a little earlier than another one finds its own.
_KEPT = 4
# Texts read at once.
_SLICE = 1_000
# Facts changed since the index was built, as a share of it, above which it is built anew: until
# then what was removed still counts a little in the scores of what is left.
_WORN_SHARE = 0.20


@dataclass(frozen=True, slots=True)
class _WordIndexState:
    """An index of one committed state.

    Attributes:
        built: facts that it was built of.
        changed: facts that changed since.
    """

    mark: LogMark
    generation: int
    index: LexicalIndex
    built: int
    changed: int


class WordIndexes:
    """The word indexes of one namespace's last states; safe between threads.

    Only what a reading transaction sees is kept: a writing one may still be undone.
    """

    def __init__(self, engine: LexicalEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._held: tuple[_WordIndexState, ...] = ()

    def search(self, facts: FactsFacet, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts of what a reading transaction sees, as the facet's own search."""
        index = self._index(facts)
        return facts.search_text(terms, k) if index is None else index.search(terms, k)

    def _index(self, facts: FactsFacet) -> LexicalIndex | None:
        mark, generation = facts.mark(), facts.generation()
        with self._lock:
            for held in reversed(self._held):
                if held.mark == mark and held.generation == generation:
                    return held.index
            last = self._held[-1] if self._held else None
            if last is not None and mark.sequence < last.mark.sequence:
                # A reader of an earlier state asks the store, since an index only moves on.
                return None
            try:
                made = self._advanced(facts, mark, generation, last)
            except EngineError:
                # What the library holds now is of no known state.
                self._held = ()
                raise
            self._held = (*self._held, made)[-_KEPT:]
            return made.index

    def _advanced(
        self, facts: FactsFacet, mark: LogMark, generation: int, last: _WordIndexState | None
    ) -> _WordIndexState:
        changed = None if last is None else facts.changes(last.mark)
        if last is None or changed is None:
            self._held = ()
            return self._built(facts, mark, generation)
        total = last.changed + len(changed)
        if total > _WORN_SHARE * max(last.built, 1):
            return self._built(facts, mark, generation)
        index = last.index.changed(changed, _texts(facts, changed)) if changed else last.index
        return _WordIndexState(mark, generation, index, last.built, total)

    def _built(self, facts: FactsFacet, mark: LogMark, generation: int) -> _WordIndexState:
        ids = [id_ for id_, _ in facts.retrievable()]
        return _WordIndexState(
            mark, generation, self._engine.build(_texts(facts, ids)), len(ids), 0
        )


def _texts(facts: FactsFacet, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    for start in range(0, len(ids), _SLICE):
        yield from facts.texts(ids[start : start + _SLICE])
