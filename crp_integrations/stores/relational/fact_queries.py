"""Which facts are meant, by words, conditions and status, and the vectors of facts and texts."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

from crp_integrations.errors import StoreDamaged, StoreError
from crp_integrations.fabric.ports import FactBrief, FactOutline
from crp_integrations.fabric.records import Where
from crp_integrations.seals import iso
from crp_integrations.stores import rules
from crp_integrations.stores.relational.rows import (
    BRIEF_COLUMNS,
    brief,
    from_json,
    sortable,
    status_of,
)
from crp_integrations.stores.relational.transaction import FactsPart
from crp_integrations.stores.relational.usage import UNUSED, UNUSED_LIVE
from crp_integrations.stores.rules import AMONG, ASIDE_SQL, RETRIEVABLE_SQL, PackedVector, among
from crp_integrations.vectors import FloatRows, from_bytes, to_bytes
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus

# Facts listed at once where a list of all of them is walked through.
_PAGE = 8_192


# Every whole number below it can be made a float.
_FLOATS = 2**1000


class FactQueries(FactsPart):
    """Searches and lists of the facts of one namespace."""

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every retrievable fact, by id; with ids, of those among them."""
        self._gate.reading()
        rows = self._live("fact_id, labels", ids)
        # Most facts share few sets of labels, and most have none.
        read = {
            text: tuple(from_json(text, list, "labels of a fact"))
            for text in {labels for _, labels in rows}
        }
        return [(id, read[labels]) for id, labels in rows]

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of every retrievable fact, by id; with ids, of those."""
        self._gate.reading()
        if ids is not None:
            return iter(self._live("fact_id, content_hash, status", ids))
        return self._pages()

    def _pages(self) -> Iterator[tuple[str, str, str]]:
        """Every retrievable fact, page by page: all at once they can take hundreds of megabytes."""
        page: list[tuple[Any, ...]] = [("",)]
        while page:
            self._gate.reading()
            page = self._connection.rows(
                f"SELECT fact_id, content_hash, status FROM facts WHERE {RETRIEVABLE_SQL} "
                "AND fact_id > ? ORDER BY fact_id LIMIT ?",
                [page[-1][0], _PAGE],
            )
            yield from ((id, content_hash, status) for id, content_hash, status in page)

    def texts(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Id and content of those of the ids that are retrievable, by id."""
        self._gate.reading()
        return [(id, content) for id, content in self._live("fact_id, content", ids)]

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """What selection reads of those of the ids that are retrievable, by id."""
        self._gate.reading()
        return [brief(values) for values in self._live(BRIEF_COLUMNS, ids)]

    def outline(self) -> Iterator[FactOutline]:
        """Every retrievable fact, by id; no texts are read."""
        self._gate.reading()
        rows = self._live(
            "fact_id, content_hash, source_id, community_label, importance_weight", None
        )
        return iter([FactOutline(*values) for values in rows])

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that are meant, ascending."""
        self._gate.reading()
        asked = _Conditions()
        if where.statuses is None:
            asked.add(RETRIEVABLE_SQL)
        else:
            statuses = [status.value for status in where.statuses]
            if where.as_of is None or len(RETRIEVABLE.intersection(where.statuses)) != 1:
                asked.any_of("status", statuses)
            else:
                aged = "CASE WHEN status = 'ACTIVE' AND expires_at < ? THEN 'STALE' ELSE status END"
                asked.parameters.append(sortable(where.as_of))
                asked.any_of(aged, statuses)
            if where.archived is not None:
                asked.add(f"archived_at IS {'NOT ' if where.archived else ''}NULL")
            # The same condition in the words of an index, so that the index is used.
            if where.archived or RETRIEVABLE.isdisjoint(where.statuses):
                asked.add(ASIDE_SQL)
            elif where.archived is False and RETRIEVABLE.issuperset(where.statuses):
                asked.add(RETRIEVABLE_SQL)
        for column, values in (
            ("source_id", where.sources),
            ("kind", None if where.kinds is None else [kind.value for kind in where.kinds]),
            ("community_label", where.communities),
        ):
            if values is not None:
                asked.any_of(column, values)
        asked.moment("ingested_at", ">=", where.ingested_after)
        asked.moment("ingested_at", "<", where.ingested_before)
        asked.moment("modified_at", "<", where.modified_before)
        if where.unused_since is not None:
            unused = UNUSED_LIVE if where.statuses is None else UNUSED
            asked.add(unused, *[_unmarked(where.unused_since)] * 3)
        if where.expired_at is not None:
            asked.add("expires_at < ?", sortable(where.expired_at))
        for label in where.labels:
            asked.holds("labels", [json.dumps(label)])
        for key, value in where.metadata.items():
            asked.holds("metadata", _spellings(key, value))
        wanted = {key: rules.same_json(value) for key, value in where.metadata.items()}
        exact = bool(wanted or where.labels)
        # With ORDER BY, SQLite would look for the few facts of a source among all facts by id; and
        # rows that have to be read anyhow are read faster in the order of the file.
        narrow = (where.sources, where.communities, where.expired_at, where.unused_since)
        few = any(condition is not None for condition in narrow)
        table = "facts NOT INDEXED" if wanted and not few else "facts"
        sorting = "" if wanted or few else " ORDER BY fact_id"
        rows = self._connection.rows(
            f"SELECT fact_id{', labels, metadata' if exact else ''} FROM {table} "
            f"WHERE {asked.text}{sorting}",
            asked.parameters,
        )
        if not sorting:
            rows.sort()
        if not exact:
            return [row[0] for row in rows]
        # The query searched the texts for what they must contain; this checks that it is a label
        # or a pair of its own.
        return [
            id
            for id, labels, metadata in rows
            if set(where.labels) <= set(from_json(labels, list, f"the labels of fact {id}"))
            and (
                not wanted
                or rules.has_metadata(
                    wanted, from_json(metadata, dict, f"the metadata of fact {id}")
                )
            )
        ]

    def tally(self) -> Mapping[str, int]:
        """How many facts there are by status; archived ones count under `ARCHIVED` instead."""
        self._gate.reading()
        # Two counts, since each has an index of its own.
        live = self._connection.rows(
            f"SELECT status, count(*) FROM facts WHERE {RETRIEVABLE_SQL} GROUP BY status"
        )
        aside = self._connection.rows(
            "SELECT CASE WHEN archived_at IS NULL THEN status ELSE 'ARCHIVED' END AS word, "
            f"count(*) FROM facts WHERE {ASIDE_SQL} GROUP BY word"
        )
        # A status is either retrievable or not, so that no word is in both.
        return dict(sorted([*live, *aside]))

    def passages(self, source_id: str) -> list[tuple[str, str, FactStatus]]:
        """Id, content hash and status of a source's facts, by id; no texts are read."""
        self._gate.reading()
        rows = self._connection.rows(
            "SELECT fact_id, content_hash, status FROM facts WHERE source_id = ? ORDER BY fact_id",
            [source_id],
        )
        return [(id, hash_, status_of(word, id)) for id, hash_, word in rows]

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that hold any of the terms: id and BM25 score."""
        self._gate.reading()
        quoted = [_quoted(term) for term in dict.fromkeys(terms)]
        if not quoted or k <= 0:
            return []
        # The k-th score comes first, so that facts are looked up for the best hits alone; all
        # that have that score are, since ties are by id.
        rows = self._connection.rows(
            "WITH hits AS (SELECT rowid AS hit, -bm25(facts_text) AS score FROM facts_text "
            "WHERE facts_text MATCH ?1), "
            "best AS (SELECT score FROM hits ORDER BY score DESC LIMIT ?2) "
            "SELECT fact_id, score FROM hits JOIN facts ON fact = hit "
            f"WHERE score >= (SELECT min(score) FROM best) AND {RETRIEVABLE_SQL} "
            "ORDER BY score DESC, fact_id LIMIT ?2",
            [" OR ".join(quoted), k],
        )
        return [(str(id), float(score)) for id, score in rows]

    def _live(self, what: str, ids: Sequence[str] | None) -> list[tuple[Any, ...]]:
        if ids is None:
            return self._connection.rows(
                f"SELECT {what} FROM facts WHERE {RETRIEVABLE_SQL} ORDER BY fact_id"
            )
        # Left to itself, SQLite walks all retrievable facts by their status instead.
        return self._connection.rows(
            f"SELECT {what} FROM facts INDEXED BY facts_retrievable "
            f"WHERE {RETRIEVABLE_SQL} AND fact_id {AMONG} ORDER BY fact_id",
            [among(ids)],
        )


class _Conditions:
    """A condition in SQL that grows; every value is a parameter."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.parameters: list[Any] = []

    @property
    def text(self) -> str:
        return " AND ".join(self._parts)

    def add(self, condition: str, *parameters: Any) -> None:
        self._parts.append(condition)
        self.parameters += parameters

    def any_of(self, column: str, values: Sequence[str]) -> None:
        """The column is one of the values; those with a NUL cannot go through JSON."""
        strange = [value for value in values if "\0" in value]
        one_by_one = "".join(f" OR {column} = ?" for _ in strange)
        self.add(f"({column} {AMONG}{one_by_one})", among(values), *strange)

    def moment(self, column: str, sign: str, at: datetime | None) -> None:
        """The column's moment compared; without the Z they sort with and without microseconds."""
        if at is not None:
            self.add(f"rtrim({column}, 'Z') {sign} ?", _unmarked(at))

    def holds(self, column: str, spellings: Sequence[str]) -> None:
        """The column's text has one of these somewhere in it."""
        self.add("(" + " OR ".join(f"instr({column}, ?) > 0" for _ in spellings) + ")", *spellings)


def _unmarked(at: datetime) -> str:
    return iso(at).removesuffix("Z")


def _spellings(key: str, value: JsonValue) -> list[str]:
    """Every way in which a pair may stand in stored metadata, or its key where they are many."""
    start = json.dumps(key) + ": "
    if value is None or isinstance(value, str | bool):
        return [start + json.dumps(value)]
    if isinstance(value, int | float):
        # The same number may stand there as 1 and as 1.0.
        texts = {json.dumps(value)} | ({"0", "0.0", "-0.0"} if value == 0 else set())
        if isinstance(value, float) and value.is_integer():
            texts.add(json.dumps(int(value)))
        elif isinstance(value, int) and abs(value) < _FLOATS:
            texts.add(json.dumps(float(value)))
        return [start + text for text in sorted(texts)]
    return [start]


def _quoted(term: str) -> str:
    """A term as FTS5 takes it: within quotes only a quote has a meaning, and it is doubled."""
    # The query ends at a NUL, and what is no UTF-8 cannot be handed over.
    plain = term.replace("\0", " ").encode("utf-8", "replace").decode()
    return '"' + plain.replace('"', '""') + '"'


# From so many ids on, most of a namespace is read in the order of its file.
_MANY = 4_096
# Rows of one page: their bytes stay near the processor.
_VECTOR_PAGE = 1_024
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
            packed: dict[str, bytes] = dict(
                self._connection.rows(
                    "SELECT fact_id, vector FROM facts JOIN vectors USING (fact) "
                    f"WHERE fact_id {AMONG}",
                    [among(ids)],
                )
            )
        else:
            dimensions = self._prepared_dimensions(prepared_for) or 0
            packed = dict(
                self._connection.rows(
                    "SELECT fact_id, vector FROM facts JOIN prepared_vectors AS p "
                    "ON p.embedder = ? AND p.content_hash = facts.content_hash "
                    f"WHERE fact_id {AMONG}",
                    [prepared_for, among(ids)],
                )
            )
        if not ids:
            return np.zeros((0, dimensions), dtype=np.float32)
        rules.unknown(ids, packed)
        for id in ids:
            _check_length(id, packed[id], dimensions)
        return from_bytes([packed[id] for id in ids], dimensions)

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
        filled = np.zeros(len(ids), dtype=np.bool_)
        page: list[tuple[int, str, bytes]] = [(0, "", b"")]
        while page:
            # The order of a CROSS JOIN is kept as it is written.
            page = self._connection.rows(
                "SELECT fact, fact_id, vector FROM vectors CROSS JOIN facts USING (fact) "
                "WHERE fact > ? ORDER BY fact LIMIT ?",
                [page[-1][0], _VECTOR_PAGE],
            )
            wanted = [(place, row) for row in page if (place := places.get(row[1])) is not None]
            if any(len(vector) != 4 * dimensions for _, (_, _, vector) in wanted):
                for _, (_, id, vector) in wanted:
                    _check_length(id, vector, dimensions)
            at = np.array([place for place, _ in wanted], dtype=np.intp)
            block[at] = from_bytes([vector for _, (_, _, vector) in wanted], dimensions)
            filled[at] = True
        if not filled.all():
            rules.unknown(ids, {ids[place] for place in np.flatnonzero(filled).tolist()})
        return block

    def prepare(self, embedder: str, hashes: Sequence[str], vectors: FloatRows) -> None:
        """Keep vectors of texts by content hash; replaces those of the same embedder and hash."""
        self._gate.writing()
        rules.check_vectors(vectors, len(hashes), self._prepared_dimensions(embedder))
        self._connection.executemany(
            "INSERT INTO prepared_vectors (embedder, content_hash, vector) VALUES (?, ?, ?) "
            "ON CONFLICT (embedder, content_hash) DO UPDATE SET vector = excluded.vector",
            (
                (embedder, hash_, PackedVector(to_bytes(vector)))
                for hash_, vector in zip(hashes, vectors, strict=True)
            ),
        )

    def prepared(
        self, embedder: str, hashes: Sequence[str]
    ) -> Mapping[str, npt.NDArray[np.float32]]:
        """Those of the hashes that have a prepared vector, each with its row."""
        self._gate.reading()
        rows = self._connection.rows(
            "SELECT content_hash, vector FROM prepared_vectors "
            f"WHERE embedder = ? AND content_hash {AMONG}",
            [embedder, among(hashes)],
        )
        dimensions = self._prepared_dimensions(embedder) or 0
        block = from_bytes([vector for _, vector in rows], dimensions)
        return {hash_: vector for (hash_, _), vector in zip(rows, block, strict=True)}

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
        rows = self._connection.rows(
            f"SELECT fact_id FROM facts WHERE {RETRIEVABLE_SQL} AND content_hash IN "
            "(SELECT content_hash FROM prepared_vectors WHERE embedder = ?) ORDER BY fact_id",
            [embedder],
        )
        return [id for (id,) in rows]

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
        row = self._connection.one(
            "SELECT length(vector) FROM prepared_vectors WHERE embedder = ? LIMIT 1", [embedder]
        )
        return None if row is None else int(row[0]) // 4


def _check_length(id: str, vector: bytes, dimensions: int) -> None:
    if len(vector) != 4 * dimensions:
        raise StoreDamaged(
            f"the vector of fact {id} has {len(vector)} bytes, wanted {4 * dimensions}"
        )
