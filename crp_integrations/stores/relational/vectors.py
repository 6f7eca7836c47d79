"""Vectors in use, and vectors that are prepared for texts under way."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import StoreDamaged, StoreError
from crp_integrations.stores import rules
from crp_integrations.stores.relational.transaction import FactsPart
from crp_integrations.stores.rules import AMONG, RETRIEVABLE_SQL, PackedVector, among
from crp_integrations.vectors import FloatRows, from_bytes, to_bytes

# From so many ids on, most of a namespace is read in the order of its file.
_MANY = 4_096
# Rows of one page: their bytes stay near the processor.
_PAGE = 1_024
_NO_VECTOR = (
    "NOT EXISTS (SELECT 1 FROM prepared_vectors AS p "
    "WHERE p.embedder = ? AND p.content_hash = facts.content_hash)"
)


class FactVectors(FactsPart):
    """Vectors of the facts of one namespace."""

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit rows in the order asked for."""
        self._gate.reading()
        if prepared_for is None:
            dimensions = self._dimensions() or 0
            block = self._most_vectors(ids, dimensions)
            if block is not None:
                return block
            found: dict[str, bytes] = dict(
                self._connection.rows(
                    "SELECT fact_id, vector FROM facts JOIN vectors USING (fact) "
                    f"WHERE fact_id {AMONG}",
                    [among(ids)],
                )
            )
        else:
            dimensions = self._prepared_dimensions(prepared_for) or 0
            found = dict(
                self._connection.rows(
                    "SELECT fact_id, vector FROM facts JOIN prepared_vectors AS p "
                    "ON p.embedder = ? AND p.content_hash = facts.content_hash "
                    f"WHERE fact_id {AMONG}",
                    [prepared_for, among(ids)],
                )
            )
        if not ids:
            return np.zeros((0, dimensions), dtype=np.float32)
        rules.unknown(ids, found)
        for id in ids:
            _check_length(id, found[id], dimensions)
        return from_bytes([found[id] for id in ids], dimensions)

    def _most_vectors(self, ids: Sequence[str], dimensions: int) -> FloatRows | None:
        """The rows read in the order of the file, when most are wanted; None otherwise.

        Looking up one id after the other takes half as long again.
        """
        if len(ids) < _MANY:
            return None
        last = self._connection.rows("SELECT coalesce(max(fact), 0) FROM vectors")[0][0]
        places = {id: place for place, id in enumerate(ids)}
        if 2 * len(ids) < last or len(places) < len(ids):
            return None
        block = np.empty((len(ids), dimensions), dtype=np.float32)
        found = np.zeros(len(ids), dtype=np.bool_)
        page: list[tuple[int, str, bytes]] = [(0, "", b"")]
        while page:
            # The order of a CROSS JOIN is kept as it is written.
            page = self._connection.rows(
                "SELECT fact, fact_id, vector FROM vectors CROSS JOIN facts USING (fact) "
                "WHERE fact > ? ORDER BY fact LIMIT ?",
                [page[-1][0], _PAGE],
            )
            wanted = [(place, row) for row in page if (place := places.get(row[1])) is not None]
            if any(len(vector) != 4 * dimensions for _, (_, _, vector) in wanted):
                for _, (_, id, vector) in wanted:
                    _check_length(id, vector, dimensions)
            at = np.array([place for place, _ in wanted], dtype=np.intp)
            block[at] = from_bytes([vector for _, (_, _, vector) in wanted], dimensions)
            found[at] = True
        if not found.all():
            rules.unknown(ids, {ids[place] for place in np.flatnonzero(found).tolist()})
        return block

    def prepare(self, embedder: str, hashes: Sequence[str], vectors: FloatRows) -> None:
        """Keep vectors of texts by content hash; replaces those of the same embedder and hash."""
        self._gate.writing()
        rules.check_vectors(vectors, len(hashes), self._prepared_dimensions(embedder))
        self._connection.executemany(
            "INSERT INTO prepared_vectors (embedder, content_hash, vector) VALUES (?, ?, ?) "
            "ON CONFLICT (embedder, content_hash) DO UPDATE SET vector = excluded.vector",
            (
                (embedder, hash_, PackedVector(to_bytes(one)))
                for hash_, one in zip(hashes, vectors, strict=True)
            ),
        )

    def prepared(
        self, embedder: str, hashes: Sequence[str]
    ) -> Mapping[str, npt.NDArray[np.float32]]:
        """Those of the hashes that have a prepared vector, each with its row."""
        self._gate.reading()
        found = self._connection.rows(
            "SELECT content_hash, vector FROM prepared_vectors "
            f"WHERE embedder = ? AND content_hash {AMONG}",
            [embedder, among(hashes)],
        )
        dimensions = self._prepared_dimensions(embedder) or 0
        block = from_bytes([vector for _, vector in found], dimensions)
        return {hash_: one for (hash_, _), one in zip(found, block, strict=True)}

    def unprepared(self, embedder: str, limit: int, *, after: str = "") -> list[tuple[str, str]]:
        """Content hash and content of facts without a prepared vector, each text once, by hash."""
        self._gate.reading()
        return self._connection.rows(
            f"SELECT content_hash, min(content) FROM facts WHERE content_hash > ? AND {_NO_VECTOR} "
            "GROUP BY content_hash ORDER BY content_hash LIMIT ?",
            [after, embedder, max(0, limit)],
        )

    def prepared_ids(self, embedder: str) -> list[str]:
        """Ids of the retrievable facts that have a prepared vector, ascending."""
        self._gate.reading()
        found = self._connection.rows(
            f"SELECT fact_id FROM facts WHERE {RETRIEVABLE_SQL} AND content_hash IN "
            "(SELECT content_hash FROM prepared_vectors WHERE embedder = ?) ORDER BY fact_id",
            [embedder],
        )
        return [id for (id,) in found]

    def use_prepared(self, embedder: str) -> None:
        """Make an embedder's prepared vectors those in use, and forget all prepared ones."""
        self._gate.writing()
        without = self._connection.one(
            f"SELECT min(fact_id) FROM facts WHERE {_NO_VECTOR}", [embedder]
        )
        if without is not None and without[0] is not None:
            raise StoreError(f"fact {without[0]} has no vector prepared for {embedder!r:.80}")
        dimensions = self._prepared_dimensions(embedder)
        if self._put_to_use(embedder):
            self._set_own("dimensions", dimensions)
            self._grow()
        else:
            # No fact, so the next ones may have any length.
            self._connection.execute("DELETE FROM own WHERE name = 'dimensions'")
        self.clear_prepared()

    def _put_to_use(self, embedder: str) -> int:
        """Put an embedder's prepared vectors in the place of those in use; how many there are."""
        return self._connection.execute(
            "UPDATE vectors SET vector = (SELECT p.vector FROM facts JOIN prepared_vectors AS p "
            "ON p.embedder = ? AND p.content_hash = facts.content_hash "
            "WHERE facts.fact = vectors.fact)",
            [embedder],
        ).rowcount

    def clear_prepared(
        self, embedder: str | None = None, hashes: Sequence[str] | None = None
    ) -> None:
        """Forget prepared vectors, of one embedder or all of them; with hashes, those of them."""
        self._gate.writing()
        asked: list[tuple[str, Any]] = []
        if embedder is not None:
            asked.append(("embedder = ?", embedder))
        if hashes is not None:
            asked.append((f"content_hash {AMONG}", among(hashes)))
        where = " AND ".join(condition for condition, _ in asked)
        self._connection.execute(
            f"DELETE FROM prepared_vectors{where and ' WHERE '}{where}",
            [value for _, value in asked],
        )

    def _prepared_dimensions(self, embedder: str) -> int | None:
        found = self._connection.one(
            "SELECT length(vector) FROM prepared_vectors WHERE embedder = ? LIMIT 1", [embedder]
        )
        return None if found is None else int(found[0]) // 4


def _check_length(id: str, vector: bytes, dimensions: int) -> None:
    if len(vector) != 4 * dimensions:
        raise StoreDamaged(
            f"the vector of fact {id} has {len(vector)} bytes, wanted {4 * dimensions}"
        )
