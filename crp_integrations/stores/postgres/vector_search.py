"""Vector search by an HNSW index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError
from crp_integrations.stores.postgres.connection import ESCAPE, PostgresConnection, unescaped
from crp_integrations.stores.postgres.tables import SERIES
from crp_integrations.stores.rules import RETRIEVABLE_SQL, Among, PackedVector, TransactionGate
from crp_integrations.vectors import FloatRows, to_bytes

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.


# Name in `own` of the dimensions of the indexed vectors.
INDEXED = "indexed"
# Maximum dimensions of an indexed halfvec; longer vectors are compared one by one.
MAX_DIMENSIONS = 4_000
# Extra facts requested beyond k, because half precision may misplace a few at the end.
SPARE = 4
# Ids and rows as raw bytes, which are decoded together and not row by row.
SENT = "textsend(fact_id) AS ids, vector_send(vector) AS sent"
LABEL_SETS = f"""WITH RECURSIVE sets AS (
    (SELECT labels FROM facts WHERE {RETRIEVABLE_SQL} ORDER BY labels LIMIT 1)
    UNION ALL SELECT (
        SELECT labels FROM facts WHERE {RETRIEVABLE_SQL} AND labels > sets.labels
        ORDER BY labels LIMIT 1
    ) FROM sets WHERE labels IS NOT NULL
) SELECT labels FROM sets WHERE labels IS NOT NULL"""


class PostgresSearching:
    """The vector search of one transaction."""

    def __init__(
        self, connection: PostgresConnection, turn: TransactionGate, owned: Mapping[str, int] | None
    ) -> None:
        """Keep the connection."""
        self._owned = owned
        self._connection = connection
        self._turn = turn

    def size(self) -> int:
        """Number of retrievable facts; 0 while there is no index."""
        own = self._own()
        return own.get("live_facts", 0) if own.get(INDEXED) else 0

    def label_sets(self) -> list[tuple[str, ...]]:
        """The distinct label sets of retrievable facts."""
        self._turn.reading()
        return [tuple(json.loads(labels)) for (labels,) in self._connection.rows(LABEL_SETS)]

    def count(self, label_sets: Sequence[tuple[str, ...]]) -> int:
        """Number of retrievable facts that have one of these label sets."""
        self._turn.reading()
        row = self._connection.one(
            f"SELECT count(*) FROM facts WHERE {RETRIEVABLE_SQL} AND labels = ANY(?)",
            [_stored(label_sets)],
        )
        return 0 if row is None else int(row[0])

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        label_sets: Sequence[tuple[str, ...]] | None = None,
        among: Sequence[str] | None = None,
    ) -> tuple[list[str], FloatRows]:
        """The nearest retrievable facts, with their unit vectors."""
        own = self._own()
        dimensions = own.get("dimensions", 0)
        if len(vector) != dimensions:
            # The caller finds the wrong length and reports it.
            return ["none"], np.zeros((1, dimensions), dtype=np.float32)
        values = [Among(among)] if among is not None else []
        if label_sets is not None:
            values.insert(0, _stored(label_sets))
        statement = _statement(
            dimensions,
            int(own.get(SERIES, 0)) if among is None and own.get(INDEXED) else None,
            int(k) + SPARE,
            labelled=label_sets is not None,
            among=among is not None,
        )
        rows = self._connection.rows(statement, [*values, PackedVector(to_bytes(vector))])
        return _block(rows, dimensions)

    def _own(self) -> Mapping[str, int]:
        self._turn.reading()
        if self._owned is not None:
            return self._owned
        return dict(self._connection.rows("SELECT name, value FROM own"))


@lru_cache(maxsize=256)
def _statement(
    dimensions: int, series: int | None, most: int, *, labelled: bool, among: bool
) -> str:
    """The query for ids and vectors."""
    conditions: list[str] = [RETRIEVABLE_SQL]
    if labelled:
        conditions.append("labels = ANY(?)")
    if among:
        conditions.append("fact_id = ANY(?)")
    # Adding zero keeps the planner from using the index.
    order = "(vector <#> ?::vector) + 0"
    if series is not None:
        half = f"halfvec({dimensions})"
        order = f"vector::{half} <#> ?::vector::{half}"
        # The index covers one series; only a literal number lets the planner match it.
        conditions.append(f"{SERIES} = {series}")
    return (
        f"SELECT {SENT} FROM vectors JOIN facts USING (fact) "
        f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT {most}"
    )


def _block(sent: Sequence[tuple[bytes, bytes]], dimensions: int) -> tuple[list[str], FloatRows]:
    """Decode ids and vectors from the bytes that were received."""
    if not sent:
        return [], np.zeros((0, dimensions), dtype=np.float32)
    text = b"\0".join([ids for ids, _ in sent]).decode()
    ids = text.split("\0")
    if ESCAPE in text:
        ids = [unescaped(id_) for id_ in ids]
    whole = b"".join([row for _, row in sent])
    form = _form(dimensions)
    if len(whole) != len(ids) * form.itemsize:
        _refuse_length(ids, whole, dimensions)
    block = np.frombuffer(whole, dtype=form)
    if not (block["length"] == dimensions).all():
        _refuse_length(ids, whole, dimensions)
    return ids, block["row"].astype(np.float32)


@lru_cache(maxsize=16)
def _form(dimensions: int) -> np.dtype[np.void]:
    """Binary form of a vector: its length, two zero bytes, big-endian numbers."""
    return np.dtype([("length", ">u2"), ("unused", ">u2"), ("row", ">f4", (dimensions,))])


def _refuse_length(ids: Sequence[str], whole: bytes, dimensions: int) -> None:
    """Raise with the first vector whose length is wrong."""
    at = 0
    for id_ in ids:
        length = int.from_bytes(whole[at : at + 2], "big")
        if length != dimensions:
            raise EngineError(f"the vector of fact {id_} has {length} numbers, wanted {dimensions}")
        at += 4 * (length + 1)


def build(connection: PostgresConnection, dimensions: int) -> None:
    """Build the index of the present vectors, within the open transaction."""
    if dimensions > MAX_DIMENSIONS:
        return
    connection.script(
        # Constraint checks that are still deferred would block the index.
        "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; "
        f"SELECT index_vectors({int(dimensions)})"
    )
    connection.execute(
        "INSERT INTO own (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [INDEXED, dimensions],
    )


def drop(connection: PostgresConnection) -> None:
    """Drop an index that is no longer in use; waits for transactions that read the vectors."""
    connection.script("SELECT index_vectors(0)")


def _stored(label_sets: Sequence[tuple[str, ...]]) -> Among:
    return Among(json.dumps(list(labels)) for labels in label_sets)
