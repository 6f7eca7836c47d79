"""The facts facet over one connection."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.records import Edge, Fact, Source
from crp_integrations.seals import iso
from crp_integrations.stores import rules
from crp_integrations.stores.sqlite.connection import Connection
from crp_integrations.stores.sqlite.migrations import RETRIEVABLE_SQL
from crp_integrations.stores.sqlite.rows import columns, insertion, record, row
from crp_integrations.vectors import FloatRows, from_bytes, to_bytes
from crp_integrations.vocabulary import FactStatus

# One statement for any number of ids; SQLite reads the list out of one parameter.
AMONG = "IN (SELECT value FROM json_each(?))"
FACT_COLUMNS = ", ".join(columns(Fact))
SOURCE_COLUMNS = ", ".join(columns(Source))
ADD_FACT = insertion("facts", Fact, "fact")
ADD_SOURCE = insertion("sources", Source).replace("INSERT", "INSERT OR REPLACE", 1)


class SqliteFacts:
    """Facts, vectors, sources, text index, token counts and edges of one namespace."""

    def __init__(self, connection: Connection, gate: rules.Gate, namespace: str) -> None:
        self._connection = connection
        self._gate = gate
        self._namespace = namespace

    def generation(self) -> int:
        """A number that grows with every committed change of facts, statuses or labels."""
        self._gate.reading()
        return int(self._own("generation") or 0)

    def setting(self, name: str) -> str | None:
        """A stored value."""
        self._gate.reading()
        found = self._connection.one("SELECT value FROM settings WHERE name = ?", [name])
        return None if found is None else str(found[0])

    def set_setting(self, name: str, value: str) -> None:
        """Store a value."""
        self._gate.writing()
        self._connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", [name, value])

    def add_source(self, source: Source) -> None:
        """Add a source or replace the record of the same id."""
        self._gate.writing()
        self._connection.execute(ADD_SOURCE, row(source))

    def source(self, source_id: str) -> Source | None:
        """A source by id."""
        self._gate.reading()
        found = self._connection.one(
            f"SELECT {SOURCE_COLUMNS} FROM sources WHERE source_id = ?", [source_id]
        )
        return None if found is None else record(Source, found)

    def sources(self) -> Iterator[Source]:
        """All sources by id."""
        self._gate.reading()
        found = self._connection.rows(f"SELECT {SOURCE_COLUMNS} FROM sources ORDER BY source_id")
        return (record(Source, one) for one in found)

    def add(self, facts: Sequence[Fact], vectors: FloatRows) -> None:
        """Add facts with their unit vectors, shape (len(facts), dimensions)."""
        self._gate.writing()
        dimensions = self._dimensions()
        named = rules.checked_facts(
            facts,
            vectors,
            namespace=self._namespace,
            dimensions=dimensions,
            taken=self._numbers([fact.fact_id for fact in facts]),
        )
        if not named:
            return
        if dimensions is None:
            self._connection.execute("INSERT INTO own VALUES ('dimensions', ?)", [vectors.shape[1]])
        last = self._connection.rows("SELECT coalesce(max(fact), 0) FROM facts")[0][0]
        numbered = list(enumerate(named, start=last + 1))
        self._connection.executemany(ADD_FACT, ((number, *row(fact)) for number, fact in numbered))
        self._connection.executemany(
            "INSERT INTO vectors (fact, vector) VALUES (?, ?)",
            ((number, to_bytes(vectors[place])) for place, (number, _) in enumerate(numbered)),
        )
        self._grow()

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts by id in the order asked for; unknown ids are left out."""
        self._gate.reading()
        found = {
            one.fact_id: one
            for one in (
                record(Fact, values)
                for values in self._connection.rows(
                    f"SELECT {FACT_COLUMNS} FROM facts WHERE fact_id {AMONG}", [json.dumps(ids)]
                )
            )
        }
        return [found[id] for id in ids if id in found]

    def of_source(self, source_id: str) -> list[Fact]:
        """A source's facts by id, whatever their status."""
        self._gate.reading()
        found = self._connection.rows(
            f"SELECT {FACT_COLUMNS} FROM facts WHERE source_id = ? ORDER BY fact_id", [source_id]
        )
        return [record(Fact, values) for values in found]

    def retrievable(self) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every ACTIVE or STALE fact, by id."""
        self._gate.reading()
        found = self._connection.rows(
            f"SELECT fact_id, labels FROM facts WHERE {RETRIEVABLE_SQL} ORDER BY fact_id"
        )
        # Most facts share few sets of labels, and most have none.
        read = {text: tuple(json.loads(text)) for text in {labels for _, labels in found}}
        return [(id, read[labels]) for id, labels in found]

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order asked for."""
        self._gate.reading()
        dimensions = self._dimensions() or 0
        if not ids:
            return np.zeros((0, dimensions), dtype=np.float32)
        found: dict[str, bytes] = dict(
            self._connection.rows(
                "SELECT fact_id, vector FROM facts JOIN vectors USING (fact) "
                f"WHERE fact_id {AMONG}",
                [json.dumps(ids)],
            )
        )
        rules.unknown(ids, found)
        for id in ids:
            if len(found[id]) != 4 * dimensions:
                raise StoreDamaged(
                    f"the vector of fact {id} has {len(found[id])} bytes, wanted {4 * dimensions}"
                )
        return from_bytes([found[id] for id in ids], dimensions)

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that hold any of the terms: id and BM25 score."""
        self._gate.reading()
        quoted = [_quoted(term) for term in dict.fromkeys(terms)]
        if not quoted or k <= 0:
            return []
        # The k-th score comes first, so that facts are looked up for the best hits alone; all
        # that have that score are, since ties are by id.
        found = self._connection.rows(
            "WITH hits AS (SELECT rowid AS hit, -bm25(facts_text) AS score FROM facts_text "
            "WHERE facts_text MATCH ?1), "
            "best AS (SELECT score FROM hits ORDER BY score DESC LIMIT ?2) "
            "SELECT fact_id, score FROM hits JOIN facts ON fact = hit "
            f"WHERE score >= (SELECT min(score) FROM best) AND {RETRIEVABLE_SQL} "
            "ORDER BY score DESC, fact_id LIMIT ?2",
            [" OR ".join(quoted), k],
        )
        return [(str(id), float(score)) for id, score in found]

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Change the status."""
        self._gate.writing()
        rules.unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            "UPDATE facts SET status = ?1, modified_at = ?2 WHERE status <> ?1 "
            "AND fact_id IN (SELECT value FROM json_each(?3))",
            [status.value, iso(at), json.dumps(ids)],
        )
        if changed.rowcount:
            self._grow()

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope."""
        self._gate.writing()
        self._connection.execute(
            "UPDATE facts SET access_count = access_count + 1, last_accessed_at = ? "
            f"WHERE fact_id {AMONG}",
            [iso(at), json.dumps(ids)],
        )

    def state(self) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of every retrievable fact, by id."""
        self._gate.reading()
        return iter(
            self._connection.rows(
                "SELECT fact_id, content_hash, status FROM facts "
                f"WHERE {RETRIEVABLE_SQL} ORDER BY fact_id"
            )
        )

    def token_counts(self, tokenizer: str, ids: Sequence[str]) -> Mapping[str, int]:
        """Stored counts; facts never counted with that tokenizer are absent."""
        self._gate.reading()
        found = self._connection.rows(
            "SELECT fact_id, tokens FROM facts JOIN token_counts USING (fact) "
            f"WHERE tokenizer = ? AND fact_id {AMONG}",
            [tokenizer, json.dumps(ids)],
        )
        return dict(found)

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store counts; leaves the generation alone."""
        self._gate.writing()
        numbers = self._numbers(list(counts))
        rules.unknown(list(counts), numbers)
        self._connection.executemany(
            "INSERT OR REPLACE INTO token_counts (fact, tokenizer, tokens) VALUES (?, ?, ?)",
            ((numbers[id], tokenizer, count) for id, count in counts.items()),
        )

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges or replace those between the same facts of the same kind."""
        self._gate.writing()
        listed = list(edges)
        ends = [end for edge in listed for end in (edge.source_fact, edge.target_fact)]
        rules.unknown(ends, self._numbers(ends))
        self._connection.executemany(
            "INSERT OR REPLACE INTO edges (source_fact, kind, target_fact, weight) "
            "VALUES (?, ?, ?, ?)",
            ((e.source_fact, e.kind, e.target_fact, e.weight) for e in listed),
        )

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges that leave any of the facts, by source, kind and target."""
        self._gate.reading()
        found = self._connection.rows(
            f"SELECT source_fact, kind, target_fact, weight FROM edges WHERE source_fact {AMONG} "
            "ORDER BY source_fact, kind, target_fact",
            [json.dumps(ids)],
        )
        return [
            Edge(source_fact=source, kind=kind, target_fact=target, weight=weight)
            for source, kind, target, weight in found
        ]

    def _own(self, name: str) -> Any:
        found = self._connection.one("SELECT value FROM own WHERE name = ?", [name])
        return None if found is None else found[0]

    def _dimensions(self) -> int | None:
        found = self._own("dimensions")
        return None if found is None else int(found)

    def _numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """Row numbers of those ids that are stored."""
        return dict(
            self._connection.rows(
                f"SELECT fact_id, fact FROM facts WHERE fact_id {AMONG}", [json.dumps(ids)]
            )
        )

    def _grow(self) -> None:
        self._connection.execute("UPDATE own SET value = value + 1 WHERE name = 'generation'")


def _quoted(term: str) -> str:
    """A term as FTS5 takes it: within quotes only a quote has a meaning, and it is doubled."""
    # The query ends at a NUL, and what is no UTF-8 cannot be handed over.
    plain = term.replace("\0", " ").encode("utf-8", "replace").decode()
    return '"' + plain.replace('"', '""') + '"'
