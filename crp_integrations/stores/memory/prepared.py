"""Vectors in use, and vectors that are prepared for texts under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import StoreError
from crp_integrations.stores import rules
from crp_integrations.stores.memory.base import Part
from crp_integrations.vectors import FloatRows


class Vectors(Part):
    """Vectors of the facts of one namespace."""

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit rows in the order asked for."""
        state = self._draft.state
        dimensions, found = state.dimensions, state.vectors
        if prepared_for is not None:
            dimensions = self._prepared_dimensions(prepared_for)
            asked = ((id, state.facts[id]) for id in ids if id in state.facts)
            keys = {id: (prepared_for, fact.content_hash) for id, fact in asked}
            found = {id: state.prepared[key] for id, key in keys.items() if key in state.prepared}
        if not ids:
            return np.zeros((0, dimensions or 0), dtype=np.float32)
        rules.unknown(ids, found)
        return np.stack([found[id] for id in ids])

    def prepare(self, embedder: str, hashes: Sequence[str], vectors: FloatRows) -> None:
        """Keep vectors of texts by content hash; replaces those of the same embedder and hash."""
        self._draft.gate.writing()
        rules.check_vectors(vectors, len(hashes), self._prepared_dimensions(embedder))
        table = self._draft.change("prepared").prepared
        rows = np.array(vectors, dtype=np.float32)
        table.update(((embedder, hash_), row) for hash_, row in zip(hashes, rows, strict=True))

    def prepared(
        self, embedder: str, hashes: Sequence[str]
    ) -> Mapping[str, npt.NDArray[np.float32]]:
        """Those of the hashes that have a prepared vector, each with its row."""
        table = self._draft.state.prepared
        return {
            hash_: table[embedder, hash_].copy() for hash_ in hashes if (embedder, hash_) in table
        }

    def unprepared(self, embedder: str, limit: int, *, after: str = "") -> list[tuple[str, str]]:
        """Content hash and content of facts without a prepared vector, each text once, by hash."""
        state = self._draft.state
        left = {
            fact.content_hash: fact.content
            for fact in state.facts.values()
            if fact.content_hash > after and (embedder, fact.content_hash) not in state.prepared
        }
        return sorted(left.items())[: max(0, limit)]

    def prepared_ids(self, embedder: str) -> list[str]:
        """Ids of the retrievable facts that have a prepared vector, ascending."""
        state = self._draft.state
        return sorted(
            id
            for id, fact in state.facts.items()
            if fact.retrievable and (embedder, fact.content_hash) in state.prepared
        )

    def use_prepared(self, embedder: str) -> None:
        """Make an embedder's prepared vectors those in use, and forget all prepared ones."""
        self._draft.gate.writing()
        state = self._draft.state
        made = {
            id: state.prepared.get((embedder, fact.content_hash))
            for id, fact in state.facts.items()
        }
        without = [id for id, row in made.items() if row is None]
        if without:
            raise StoreError(f"fact {min(without)} has no vector prepared for {embedder!r:.80}")
        rows = {id: row for id, row in made.items() if row is not None}
        self._draft.set_dimensions(self._prepared_dimensions(embedder) if rows else None)
        if rows:
            table = self._draft.change("vectors", generation=True).vectors
            changed = [id for id in sorted(rows) if rows[id].tobytes() != table[id].tobytes()]
            table.update(rows)
            self._draft.log(changed)
        self.clear_prepared()

    def clear_prepared(
        self, embedder: str | None = None, hashes: Sequence[str] | None = None
    ) -> None:
        """Forget prepared vectors, of one embedder or all of them; with hashes, those of them."""
        table = self._draft.change("prepared").prepared
        if embedder is not None and hashes is not None:
            for hash_ in hashes:
                table.pop((embedder, hash_), None)
            return
        among = None if hashes is None else set(hashes)
        for key in list(table):
            if embedder in (None, key[0]) and (among is None or key[1] in among):
                del table[key]

    def _prepared_dimensions(self, embedder: str) -> int | None:
        rows = (row for key, row in self._draft.state.prepared.items() if key[0] == embedder)
        return next((len(row) for row in rows), None)
