"""Word search by an engine in memory, kept beside a namespace and brought forward by its log."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import FactsFacet, LexicalEngine, LexicalIndex, Mark

# Indexes that are kept: a reader that began a little earlier than another one finds its own.
_KEPT = 4
# Texts read at once.
_SLICE = 1_000
# Facts changed since the index was built, as a share of it, above which it is built anew: until
# then what was removed still counts a little in the scores of what is left.
_WORN_SHARE = 0.20


@dataclass(frozen=True, slots=True)
class _Held:
    """An index of one committed state.

    Attributes:
        built: facts that it was built of.
        changed: facts that changed since.
    """

    mark: Mark
    generation: int
    index: LexicalIndex
    built: int
    changed: int


class Lexical:
    """The word indexes of one namespace's last states; safe between threads.

    Only what a reading transaction sees is kept: a writing one may still be undone.
    """

    def __init__(self, engine: LexicalEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._held: tuple[_Held, ...] = ()

    def search(self, facts: FactsFacet, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts of what a reading transaction sees, as the facet's own search.

        The first search reads every text; later ones read those that changed.

        Raises:
            EngineError: the library failed.
        """
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
        self, facts: FactsFacet, mark: Mark, generation: int, last: _Held | None
    ) -> _Held:
        changed = None if last is None else facts.changes(last.mark)
        if last is None or changed is None:
            self._held = ()
            return self._built(facts, mark, generation)
        total = last.changed + len(changed)
        if total > _WORN_SHARE * max(last.built, 1):
            return self._built(facts, mark, generation)
        index = last.index.changed(changed, _texts(facts, changed)) if changed else last.index
        return _Held(mark, generation, index, last.built, total)

    def _built(self, facts: FactsFacet, mark: Mark, generation: int) -> _Held:
        ids = [id_ for id_, _ in facts.retrievable()]
        return _Held(mark, generation, self._engine.build(_texts(facts, ids)), len(ids), 0)


def _texts(facts: FactsFacet, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    for start in range(0, len(ids), _SLICE):
        yield from facts.texts(ids[start : start + _SLICE])
