"""Vector search by the namespace's own HNSW index over half-precision copies of the rows."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.postgres.ordering import Turn
from crp_integrations.stores.sqlite.migrations import RETRIEVABLE_SQL
from crp_integrations.stores.statements import Among, Packed
from crp_integrations.vectors import FloatRows, from_bytes, to_bytes

INDEX = "vectors_near"
# The length of the vectors that the index is over stands under this name in `own`.
INDEXED = "indexed"
# The most numbers that a halfvec of an index may have; longer ones are compared one by one.
MOST_DIMENSIONS = 4_000
# Facts that are asked for beyond k: half precision may misplace a few at the end.
SPARE = 16
LABEL_SETS = f"""WITH RECURSIVE sets AS (
    (SELECT labels FROM facts WHERE {RETRIEVABLE_SQL} ORDER BY labels LIMIT 1)
    UNION ALL SELECT (
        SELECT labels FROM facts WHERE {RETRIEVABLE_SQL} AND labels > sets.labels
        ORDER BY labels LIMIT 1
    ) FROM sets WHERE labels IS NOT NULL
) SELECT labels FROM sets WHERE labels IS NOT NULL"""


class PostgresSearching:
    """The vector search of one transaction."""

    def __init__(self, connection: Connection, turn: Turn, owned: Mapping[str, int] | None) -> None:
        """Take the connection.

        Args:
            owned: the namespace's own numbers, of a transaction that only reads.
        """
        self._owned = owned
        self._connection = connection
        self._turn = turn

    def size(self) -> int:
        """How many facts are retrievable; 0 while there is no index."""
        own = self._own()
        return own.get("live_facts", 0) if own.get(INDEXED) else 0

    def label_sets(self) -> list[tuple[str, ...]]:
        """The different sets of labels that retrievable facts carry."""
        self._turn.reading()
        return [tuple(json.loads(labels)) for (labels,) in self._connection.rows(LABEL_SETS)]

    def count(self, label_sets: Sequence[tuple[str, ...]]) -> int:
        """How many retrievable facts carry one of these sets of labels."""
        self._turn.reading()
        found = self._connection.one(
            f"SELECT count(*) FROM facts WHERE {RETRIEVABLE_SQL} AND labels = ANY(?)",
            [_stored(label_sets)],
        )
        return 0 if found is None else int(found[0])

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        label_sets: Sequence[tuple[str, ...]] | None = None,
        among: Sequence[str] | None = None,
    ) -> tuple[list[str], FloatRows]:
        """The retrievable facts that are found nearest, with their unit rows."""
        own = self._own()
        dimensions = own.get("dimensions", 0)
        if len(vector) != dimensions:
            # The caller says what is wrong with it.
            return ["none"], np.zeros((1, dimensions), dtype=np.float32)
        wanted = Packed(to_bytes(vector))
        conditions, values = [RETRIEVABLE_SQL], []
        if label_sets is not None:
            conditions.append("labels = ANY(?)")
            values.append(_stored(label_sets))
        if among is not None:
            conditions.append("fact_id = ANY(?)")
            values.append(Among(among))
        half = f"halfvec({dimensions})"
        # Among a few facts every one is compared; adding zero hides the order from the index.
        order = (
            f"vector::{half} <#> ?::vector::{half}"
            if among is None and own.get(INDEXED)
            else "(vector <#> ?::vector) + 0"
        )
        found = self._connection.rows(
            "SELECT fact_id, vector FROM vectors JOIN facts USING (fact) "
            f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT {int(k) + SPARE}",
            [*values, wanted],
        )
        return [id_ for id_, _ in found], from_bytes([row for _, row in found], dimensions)

    def _own(self) -> Mapping[str, int]:
        self._turn.reading()
        if self._owned is not None:
            return self._owned
        return dict(self._connection.rows("SELECT name, value FROM own"))


def build(connection: Connection, dimensions: int) -> None:
    """Build the index of the rows that are there, within the transaction that is open."""
    if dimensions > MOST_DIMENSIONS:
        return
    connection.script(
        # Checks that wait for the commit stand in the way of an index.
        "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; "
        f"DROP INDEX IF EXISTS {INDEX}; "
        f"CREATE INDEX {INDEX} ON vectors "
        f"USING hnsw ((vector::halfvec({int(dimensions)})) halfvec_ip_ops)"
    )
    connection.execute(
        "INSERT INTO own (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [INDEXED, dimensions],
    )


def drop(connection: Connection) -> None:
    """Let go of the index, as before the vectors get another length."""
    connection.script(f"DROP INDEX IF EXISTS {INDEX}")
    connection.execute("DELETE FROM own WHERE name = ?", [INDEXED])


def _stored(label_sets: Sequence[tuple[str, ...]]) -> Among:
    return Among(json.dumps(list(labels)) for labels in label_sets)
