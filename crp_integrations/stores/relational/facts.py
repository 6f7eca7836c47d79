"""The facts facet over one connection: facts, vectors, sources, text index, counts, edges, changes.

The numbers of a fact's uses and findings are in short rows of other tables: a fact's own row is
long and is in several indexes, and each question uses dozens of facts. `facts` has the count that a
fact was added with, `fact_uses` the uses since then, and its time is the later one.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue, ValidationError

from crp_integrations.errors import StoreDamaged, StoreError
from crp_integrations.fabric.ports import FactBrief, FactOutline
from crp_integrations.fabric.ports.facts import LogMark
from crp_integrations.fabric.records import Edge, Fact, Source, Where
from crp_integrations.seals import iso
from crp_integrations.stores import rules
from crp_integrations.stores.relational.rows import (
    BRIEF_COLUMNS,
    brief,
    columns,
    damaged,
    from_json,
    insertion,
    number,
    record,
    replacing,
    row,
    sortable,
    status_of,
)
from crp_integrations.stores.relational.sessions import empty_windows
from crp_integrations.stores.rules import (
    AMONG,
    ASIDE_SQL,
    FACTS_DUE,
    RETRIEVABLE_SQL,
    TOUCHED_SQL,
    Among,
    PackedVector,
    Statements,
    among,
    note_due,
)
from crp_integrations.vectors import FloatRows, from_bytes, to_bytes
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus

SOURCE_COLUMNS = ", ".join(columns(Source))
ADD_FACT = insertion("facts", Fact, "fact", "expires_at")
ADD_SOURCE = replacing(insertion("sources", Source), ["source_id"], columns(Source))
SET_SETTING = replacing("INSERT INTO settings (name, value) VALUES (?, ?)", ["name"], ["value"])
SAVE_COUNT = replacing(
    "INSERT INTO token_counts (fact, tokenizer, tokens) VALUES (?, ?, ?)",
    ["fact", "tokenizer"],
    ["tokens"],
)
ADD_EDGE = replacing(
    "INSERT INTO edges (source_fact, kind, target_fact, weight) VALUES (?, ?, ?, ?)",
    ["source_fact", "kind", "target_fact"],
    ["weight"],
)
_ASSIGNMENTS = ", ".join(f"{name} = ?" for name in ("expires_at", *columns(Fact)))
REPLACE_FACT = f"UPDATE facts SET {_ASSIGNMENTS} WHERE fact = ?"
# Number of uses of a fact, in a query that joins its `fact_uses`.
USED: Final = "access_count + coalesce(fact_uses.uses, 0)"
_AS_USED: Final = {
    "access_count": USED,
    "last_accessed_at": "coalesce(fact_uses.last_used_at, last_accessed_at)",
}
# Query for facts with their present number of uses, in the order of `columns(Fact)`.
FACTS: Final = (
    f"SELECT {', '.join(_AS_USED.get(name, name) for name in columns(Fact))} "
    "FROM facts LEFT JOIN fact_uses USING (fact)"
)
_UNUSED: Final = (
    f"SELECT fact FROM facts WHERE {{live}} AND {TOUCHED_SQL} < ? "
    "AND NOT EXISTS (SELECT 1 FROM fact_uses WHERE fact_uses.fact = facts.fact) "
    "UNION ALL SELECT fact FROM fact_uses JOIN facts USING (fact) "
    "WHERE rtrim(last_used_at, 'Z') < ? AND rtrim(coalesce(ingested_at, ''), 'Z') < ?"
)
# For retrievable facts alone, the first part repeats an index's condition, so the index is used.
UNUSED: Final = f"fact IN ({_UNUSED.format(live='1 = 1')})"
UNUSED_LIVE: Final = f"fact IN ({_UNUSED.format(live=RETRIEVABLE_SQL)})"
# Number of facts per page when all of them are listed.
_PAGE = 8_192
# Every integer below this can be converted to a float.
_FLOAT_LIMIT = 2**1000
_NO_VECTOR = (
    "NOT EXISTS (SELECT 1 FROM prepared_vectors AS p "
    "WHERE p.embedder = ? AND p.content_hash = facts.content_hash)"
)
# One statement, because the fixed cost of a statement is most of its time.
_READ_SNAPSHOT = (
    "SELECT 'own', name, value FROM own UNION ALL SELECT 'setting', name, value FROM settings "
    "UNION ALL SELECT * FROM "
    "(SELECT 'mark', sequence, token FROM changes ORDER BY sequence DESC LIMIT 1)"
)


@dataclass(slots=True)
class RelationalSnapshot:
    """Values of the whole namespace as a reading transaction sees them; constant while it lasts.

    Attributes:
        own: the namespace's own values.
        settings, mark: None until they are first read.
    """

    own: Mapping[str, Any]
    settings: Mapping[str, str] | None = None
    mark: LogMark | None = None

    @classmethod
    def read(cls, connection: Statements) -> Self:
        """Read all values, which also fixes the state that the transaction sees."""
        own: dict[str, Any] = {}
        settings: dict[str, str] = {}
        mark = LogMark(0, "")
        for kind, name, value in connection.rows(_READ_SNAPSHOT):
            if kind == "own":
                own[name] = value
            elif kind == "setting":
                settings[name] = value
            else:
                mark = LogMark(name, value)
        return cls(own, settings, mark)


class RelationalFacts:
    """Facts, vectors, sources, text index, token counts and edges of one namespace."""

    def __init__(
        self,
        connection: Statements,
        gate: rules.TransactionGate,
        namespace: str,
        seen: RelationalSnapshot | None = None,
    ) -> None:
        """Keep the connection."""
        self._connection = connection
        self._gate = gate
        self._namespace = namespace
        self._seen = seen

    def _own(self, name: str) -> Any:
        if self._seen is not None:
            return self._seen.own.get(name)
        values = self._connection.one("SELECT value FROM own WHERE name = ?", [name])
        return None if values is None else values[0]

    def _set_own(self, name: str, value: Any) -> None:
        self._connection.execute(
            "INSERT INTO own (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [name, value],
        )

    def _dimensions(self) -> int | None:
        stored = self._own("dimensions")
        return None if stored is None else number(stored, "dimensions")

    def _numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """Row numbers of the ids that are stored."""
        return dict(
            self._connection.rows(
                f"SELECT fact_id, fact FROM facts WHERE fact_id {AMONG}", [among(ids)]
            )
        )

    def _grow(self) -> None:
        self._connection.execute("UPDATE own SET value = value + 1 WHERE name = 'generation'")

    def _leave_to_scrub(self) -> None:
        """Record in this transaction that bytes are left which `scrub` must erase from disk."""
        note_due(self._connection, FACTS_DUE)

    def generation(self) -> int:
        """A number that grows with every committed change of facts, statuses or labels."""
        self._gate.reading()
        return number(self._own("generation") or 0, "generation")

    def setting(self, name: str) -> str | None:
        """A stored value."""
        self._gate.reading()
        if (seen := self._seen) is not None:
            if seen.settings is None:
                seen.settings = dict(self._connection.rows("SELECT name, value FROM settings"))
            return seen.settings.get(name)
        values = self._connection.one("SELECT value FROM settings WHERE name = ?", [name])
        return None if values is None else str(values[0])

    def set_setting(self, name: str, value: str) -> None:
        """Store a value."""
        self._gate.writing()
        self._connection.execute(SET_SETTING, [name, value])

    def remove_setting(self, name: str) -> None:
        """Remove a value; a missing one is not an error."""
        self._gate.writing()
        self._connection.execute("DELETE FROM settings WHERE name = ?", [name])

    def add_source(self, source: Source) -> None:
        """Add a source or replace the record of the same id."""
        self._gate.writing()
        self._connection.execute(ADD_SOURCE, row(source))

    def source(self, source_id: str) -> Source | None:
        """A source by id."""
        self._gate.reading()
        values = self._connection.one(
            f"SELECT {SOURCE_COLUMNS} FROM sources WHERE source_id = ?", [source_id]
        )
        return None if values is None else record(Source, values)

    def sources(self) -> Iterator[Source]:
        """All sources by id."""
        self._gate.reading()
        rows = self._connection.rows(f"SELECT {SOURCE_COLUMNS} FROM sources ORDER BY source_id")
        return (record(Source, values) for values in rows)

    def add(self, facts: Sequence[Fact], vectors: FloatRows) -> None:
        """Add facts with their unit vectors, shape (len(facts), dimensions)."""
        self._gate.writing()
        named = self._checked(facts, vectors, self._dimensions())
        if not named:
            return
        numbered = list(enumerate(named, start=number(self._own("last_number"), "last_number") + 1))
        self._set_own("last_number", numbered[-1][0])
        self._connection.executemany(
            ADD_FACT, ((number, sortable(fact.expires_at), *row(fact)) for number, fact in numbered)
        )
        self._connection.executemany(
            "INSERT INTO vectors (fact, vector) VALUES (?, ?)",
            (
                (number, PackedVector(to_bytes(vectors[place])))
                for place, (number, _) in enumerate(numbered)
            ),
        )
        self._grow()

    def _checked(
        self, facts: Sequence[Fact], vectors: FloatRows, dimensions: int | None
    ) -> list[Fact]:
        """The facts, checked; the first facts of a namespace set the dimensions of all vectors."""
        named = rules.checked_facts(
            facts,
            vectors,
            namespace=self._namespace,
            dimensions=dimensions,
            taken=self._numbers([fact.fact_id for fact in facts]),
        )
        if named and dimensions is None:
            self._set_own("dimensions", vectors.shape[1])
        return named

    # --- changes ---------------------------------------------------------------------------

    def replace(self, facts: Sequence[Fact], vectors: FloatRows | None = None) -> None:
        """Replace the records with the same ids."""
        self._gate.writing()
        ids = [fact.fact_id for fact in facts]
        numbers = self._numbers(ids)
        named = rules.checked_replacements(
            facts,
            vectors,
            namespace=self._namespace,
            dimensions=self._dimensions(),
            known=numbers,
        )
        if not named:
            return
        old = dict(
            self._connection.rows(
                f"SELECT fact_id, content_hash FROM facts WHERE fact_id {AMONG}", [among(ids)]
            )
        )
        rewritten = [f.fact_id for f in named if f.content_hash != old[f.fact_id]]
        if rewritten:
            self._connection.execute(
                f"DELETE FROM token_counts WHERE fact {AMONG}",
                [Among(numbers[id] for id in rewritten)],
            )
            self._connection.execute(
                f"DELETE FROM prepared_vectors WHERE content_hash {AMONG}",
                [Among(sorted({old[id] for id in rewritten}))],
            )
            self._leave_to_scrub()
        self._connection.executemany(
            REPLACE_FACT,
            ((sortable(f.expires_at), *row(f), numbers[f.fact_id]) for f in named),
        )
        # The rows just written already contain the uses that `fact_uses` counted.
        self._connection.execute(
            f"DELETE FROM fact_uses WHERE fact {AMONG}", [Among(numbers[f.fact_id] for f in named)]
        )
        if vectors is not None:
            self._connection.executemany(
                "UPDATE vectors SET vector = ? WHERE fact = ?",
                (
                    (PackedVector(to_bytes(vector)), numbers[id])
                    for vector, id in zip(vectors, ids, strict=True)
                ),
            )
        self._grow()

    def remove(self, ids: Sequence[str]) -> None:
        """Remove facts and all rows that depend on them; unknown ids are ignored."""
        self._gate.writing()
        known = self._numbers(ids)
        numbers = Among(known[id] for id in dict.fromkeys(ids) if id in known)
        if not numbers:
            return
        self._connection.execute(
            "DELETE FROM prepared_vectors WHERE content_hash IN "
            f"(SELECT content_hash FROM facts WHERE fact {AMONG})",
            [numbers],
        )
        empty_windows(self._connection, list(known))
        # Vectors, counts and edges are removed by the tables' ON DELETE CASCADE.
        self._connection.execute(f"DELETE FROM facts WHERE fact {AMONG}", [numbers])
        self._leave_to_scrub()
        self._grow()

    def set_archived(self, ids: Sequence[str], at: datetime | None) -> None:
        """Archive facts, or bring them back with None; status and `modified_at` stay."""
        self._gate.writing()
        rules.refuse_unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            "UPDATE facts SET archived_at = ? WHERE coalesce(archived_at, '') <> coalesce(?, '') "
            f"AND fact_id {AMONG}",
            [at and iso(at), at and iso(at), among(ids)],
        )
        if changed.rowcount:
            self._grow()

    def set_communities(self, labels: Mapping[str, str | None]) -> None:
        """Set the facts' community labels; `modified_at` stays."""
        self._gate.writing()
        numbers = self._numbers(list(labels))
        rules.refuse_unknown(list(labels), numbers)
        now = dict(
            self._connection.rows(
                f"SELECT fact_id, community_label FROM facts WHERE fact_id {AMONG}",
                [among(list(labels))],
            )
        )
        changed = [(label, numbers[id]) for id, label in labels.items() if now[id] != label]
        if changed:
            self._connection.executemany(
                "UPDATE facts SET community_label = ? WHERE fact = ?", changed
            )
            self._grow()

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Set the status, and `modified_at` of the facts whose status changes."""
        self._gate.writing()
        rules.refuse_unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            f"UPDATE facts SET status = ?, modified_at = ? WHERE status <> ? AND fact_id {AMONG}",
            [status.value, iso(at), status.value, among(ids)],
        )
        if changed.rowcount:
            self._grow()

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope."""
        self._gate.writing()
        self._connection.execute(
            "INSERT INTO fact_uses (fact, uses, last_used_at) "
            f"SELECT fact, 1, ? FROM facts WHERE fact_id {AMONG} "
            "ON CONFLICT (fact) DO UPDATE SET uses = fact_uses.uses + 1, "
            "last_used_at = excluded.last_used_at",
            [iso(at), among(ids)],
        )

    # --- reading ---------------------------------------------------------------------------

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts by id, in the order of the ids; unknown ids are left out."""
        self._gate.reading()
        facts = {
            fact.fact_id: fact
            for fact in (
                record(Fact, values)
                for values in self._connection.rows(f"{FACTS} WHERE fact_id {AMONG}", [among(ids)])
            )
        }
        return [facts[id] for id in ids if id in facts]

    def of_source(self, source_id: str) -> list[Fact]:
        """A source's facts by id, whatever their status."""
        self._gate.reading()
        rows = self._connection.rows(f"{FACTS} WHERE source_id = ? ORDER BY fact_id", [source_id])
        return [record(Fact, values) for values in rows]

    def token_counts(self, tokenizer: str, ids: Sequence[str]) -> Mapping[str, int]:
        """Stored counts; facts never counted with that tokenizer are absent."""
        self._gate.reading()
        # A subquery, because a planner with old statistics may read all counts for a join.
        rows = self._connection.rows(
            "SELECT fact_id, (SELECT tokens FROM token_counts AS counted "
            "WHERE counted.fact = facts.fact AND tokenizer = ?) "
            f"FROM facts WHERE fact_id {AMONG}",
            [tokenizer, among(ids)],
        )
        return {id: tokens for id, tokens in rows if tokens is not None}

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store counts; the generation stays."""
        self._gate.writing()
        numbers = self._numbers(list(counts))
        rules.refuse_unknown(list(counts), numbers)
        rows = [(numbers[id], tokenizer, count) for id, count in counts.items()]
        self._connection.executemany(SAVE_COUNT, rows)

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges; replaces those of the same kind between the same facts."""
        self._gate.writing()
        listed = list(edges)
        ends = [end for edge in listed for end in (edge.source_fact, edge.target_fact)]
        rules.refuse_unknown(ends, self._numbers(ends))
        self._connection.executemany(
            ADD_EDGE,
            ((e.source_fact, e.kind, e.target_fact, e.weight) for e in listed),
        )

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges that start at any of the facts, by source, kind and target."""
        self._gate.reading()
        rows = self._connection.rows(
            f"SELECT source_fact, kind, target_fact, weight FROM edges WHERE source_fact {AMONG} "
            "ORDER BY source_fact, kind, target_fact",
            [among(ids)],
        )
        return [_edge(*values) for values in rows]

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every retrievable fact, by id; if ids are given, only of those."""
        self._gate.reading()
        rows = self._live("fact_id, labels", ids)
        # Parse each distinct text once: most facts share a few label sets, and most have none.
        read = {
            text: tuple(from_json(text, list, "labels of a fact"))
            for text in {labels for _, labels in rows}
        }
        return [(id, read[labels]) for id, labels in rows]

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of every retrievable fact, by id, or only of given ids."""
        self._gate.reading()
        if ids is not None:
            return iter(self._live("fact_id, content_hash, status", ids))
        return self._pages()

    def _pages(self) -> Iterator[tuple[str, str, str]]:
        """Every retrievable fact, by pages: all at once can take hundreds of megabytes."""
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
        """Id and content of the given facts that are retrievable, by id."""
        self._gate.reading()
        return [(id, content) for id, content in self._live("fact_id, content", ids)]

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """The fields that selection reads, of the given facts that are retrievable, by id."""
        self._gate.reading()
        return [brief(values) for values in self._live(BRIEF_COLUMNS, ids)]

    def outline(self) -> Iterator[FactOutline]:
        """Outlines of all retrievable facts, by id; no texts are read."""
        self._gate.reading()
        rows = self._live(
            "fact_id, content_hash, source_id, community_label, importance_weight", None
        )
        return iter([FactOutline(*values) for values in rows])

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that match the conditions, ascending."""
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
            # This repeats the condition of an index, so that the index is used.
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
        # if most rows are read anyway, reading them in the order of the file is faster.
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
        # The query only found the texts as substrings; this checks that they are whole labels and
        # pairs.
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
        """Number of facts by status; archived ones are counted as `ARCHIVED` instead."""
        self._gate.reading()
        # Two queries, because each uses an index of its own.
        live = self._connection.rows(
            f"SELECT status, count(*) FROM facts WHERE {RETRIEVABLE_SQL} GROUP BY status"
        )
        aside = self._connection.rows(
            "SELECT CASE WHEN archived_at IS NULL THEN status ELSE 'ARCHIVED' END AS word, "
            f"count(*) FROM facts WHERE {ASIDE_SQL} GROUP BY word"
        )
        # A status is either retrievable or not, so no key is in both results.
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
        """Best retrievable facts that contain any of the terms: id and BM25 score."""
        self._gate.reading()
        asked = list(dict.fromkeys(terms))
        if not asked or k <= 0:
            return []
        rare = rules.rare_terms(asked, self._is_common)
        hits = self._matches(rare, k) if rare else []
        return hits if len(hits) == k or len(rare) == len(asked) else self._matches(asked, k)

    def _is_common(self, term: str) -> bool:
        statement = (
            "SELECT count(*) FROM (SELECT 1 FROM facts_text WHERE facts_text MATCH ? LIMIT ?)"
        )
        row = self._connection.one(statement, [_quoted(term), rules.COMMON + 1])
        return row is not None and int(row[0]) > rules.COMMON

    def _matches(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        # Find the k-th score first, so that only the best hits are looked up in `facts`; hits with
        # exactly that score are all included, because ties are broken by id.
        rows = self._connection.rows(
            "WITH hits AS (SELECT rowid AS hit, -bm25(facts_text) AS score FROM facts_text "
            "WHERE facts_text MATCH ?1), "
            "best AS (SELECT score FROM hits ORDER BY score DESC LIMIT ?2) "
            "SELECT fact_id, score FROM hits JOIN facts ON fact = hit "
            f"WHERE score >= (SELECT min(score) FROM best) AND {RETRIEVABLE_SQL} "
            "ORDER BY score DESC, fact_id LIMIT ?2",
            [" OR ".join(map(_quoted, terms)), k],
        )
        return [(str(id), float(score)) for id, score in rows]

    def _live(self, what: str, ids: Sequence[str] | None) -> list[tuple[Any, ...]]:
        if ids is None:
            return self._connection.rows(
                f"SELECT {what} FROM facts WHERE {RETRIEVABLE_SQL} ORDER BY fact_id"
            )
        # Without the hint, SQLite would scan all retrievable facts by status.
        return self._connection.rows(
            f"SELECT {what} FROM facts INDEXED BY facts_retrievable "
            f"WHERE {RETRIEVABLE_SQL} AND fact_id {AMONG} ORDER BY fact_id",
            [among(ids)],
        )

    # --- vectors ---------------------------------------------------------------------------

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit vectors in the order of the ids."""
        self._gate.reading()
        if prepared_for is None:
            dimensions = self._dimensions() or 0
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
        rules.refuse_unknown(ids, packed)
        for id in ids:
            _check_length(id, packed[id], dimensions)
        return from_bytes([packed[id] for id in ids], dimensions)

    def prepare(self, embedder: str, hashes: Sequence[str], vectors: FloatRows) -> None:
        """Store vectors by content hash; replaces those of the same embedder and hash."""
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
        """The prepared vectors of the hashes, by hash; hashes without one are left out."""
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
        """Content hash and content of texts without a prepared vector, each once, by hash."""
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
        """Make an embedder's prepared vectors those in use, and remove all prepared ones."""
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
            # There are no facts, so the next ones may have any dimensions.
            self._connection.execute("DELETE FROM own WHERE name = 'dimensions'")
        self.clear_prepared()

    def _put_to_use(self, embedder: str) -> int:
        """Replace the vectors in use with an embedder's prepared ones; return how many."""
        return self._connection.execute(
            "UPDATE vectors SET vector = (SELECT p.vector FROM facts JOIN prepared_vectors AS p "
            "ON p.embedder = ? AND p.content_hash = facts.content_hash "
            "WHERE facts.fact = vectors.fact)",
            [embedder],
        ).rowcount

    def clear_prepared(
        self, embedder: str | None = None, hashes: Sequence[str] | None = None
    ) -> None:
        """Remove prepared vectors: all, or only those of an embedder, of hashes, or of both."""
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

    # --- the log of changes ----------------------------------------------------------------

    def mark(self) -> LogMark:
        """The end of the log of changes."""
        self._gate.reading()
        if self._seen is not None and self._seen.mark is not None:
            return self._seen.mark
        last = self._connection.one(
            "SELECT sequence, token FROM changes ORDER BY sequence DESC LIMIT 1"
        )
        mark = LogMark(0, "") if last is None else LogMark(*last)
        if self._seen is not None:
            self._seen.mark = mark
        return mark

    def changes(self, since: LogMark) -> list[str] | None:
        """Ids of facts added, changed or removed after a mark, by id; None if the log lacks it."""
        self._gate.reading()
        if not self._leads_back_to(since):
            return None
        rows = self._connection.rows(
            "SELECT DISTINCT fact_id FROM changes WHERE sequence > ? ORDER BY fact_id",
            [since.sequence],
        )
        return [id for (id,) in rows]

    def trim_changes(self, keep: int) -> None:
        """Shorten the log to its last `keep` entries; at least the last one stays."""
        self._gate.writing()
        # Numbers have no gaps: a transaction that is undone returns its numbers.
        self._connection.execute(
            "DELETE FROM changes WHERE sequence <= (SELECT max(sequence) FROM changes) - ?",
            [max(1, keep)],
        )

    def _leads_back_to(self, mark: LogMark) -> bool:
        if mark == LogMark(0, ""):
            first = self._connection.one("SELECT min(sequence) FROM changes")
            return first is not None and first[0] in (None, 1)
        values = self._connection.one(
            "SELECT token FROM changes WHERE sequence = ?", [mark.sequence]
        )
        return values is not None and values[0] == mark.token

    # --- for `transfer` ----------------------------------------------------------------

    @property
    def statements(self) -> Statements:
        """The connection, for code that copies whole tables."""
        return self._connection

    def noted(
        self, names: list[str], rows: list[Sequence[Any]]
    ) -> tuple[list[str], list[Sequence[Any]]]:
        """Columns and rows for facts that are about to be moved in, with derived columns."""
        return names, rows

    def settle_numbers(self, other: RelationalFacts) -> None:
        """Take over another store's counters after all rows were copied."""
        self._gate.writing()
        dimensions = other._dimensions()
        if dimensions is not None:
            self._set_own("dimensions", dimensions)
        self._set_own("generation", max(self.generation(), other.generation()) + 1)
        self._note_last_number()

    def _note_last_number(self) -> None:
        self._connection.execute(
            "UPDATE own SET value = (SELECT coalesce(max(fact), 0) FROM facts) "
            "WHERE name = 'last_number'"
        )


def _edge(source: str, kind: str, target: str, weight: float) -> Edge:
    try:
        return Edge(source_fact=source, kind=kind, target_fact=target, weight=weight)
    except ValidationError as error:
        raise damaged(f"an edge of fact {source} has the weight {weight!r:.40}") from error


class _Conditions:
    """A growing SQL condition; every value is a parameter."""

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
        """Require one of the values; those with a NUL are compared separately, not as JSON."""
        strange = [value for value in values if "\0" in value]
        one_by_one = "".join(f" OR {column} = ?" for _ in strange)
        self.add(f"({column} {AMONG}{one_by_one})", among(values), *strange)

    def moment(self, column: str, sign: str, at: datetime | None) -> None:
        """Compare a time; without the Z, times with and without microseconds sort correctly."""
        if at is not None:
            self.add(f"rtrim({column}, 'Z') {sign} ?", _unmarked(at))

    def holds(self, column: str, spellings: Sequence[str]) -> None:
        """Require that the column's text contains one of the spellings."""
        self.add("(" + " OR ".join(f"instr({column}, ?) > 0" for _ in spellings) + ")", *spellings)


def _unmarked(at: datetime) -> str:
    return iso(at).removesuffix("Z")


def _spellings(key: str, value: JsonValue) -> list[str]:
    """Texts that a pair may have in stored metadata; only its key if there are many."""
    start = json.dumps(key) + ": "
    if value is None or isinstance(value, str | bool):
        return [start + json.dumps(value)]
    if isinstance(value, int | float):
        # Equal numbers may be stored as 1 and as 1.0.
        texts = {json.dumps(value)} | ({"0", "0.0", "-0.0"} if value == 0 else set())
        if isinstance(value, float) and value.is_integer():
            texts.add(json.dumps(int(value)))
        elif isinstance(value, int) and abs(value) < _FLOAT_LIMIT:
            texts.add(json.dumps(float(value)))
        return [start + text for text in sorted(texts)]
    return [start]


def _quoted(term: str) -> str:
    """A term quoted for FTS5: within quotes only a quote is special, and it is doubled."""
    # FTS5 ends the query at a NUL, and text that is not valid UTF-8 cannot be passed.
    plain = term.replace("\0", " ").encode("utf-8", "replace").decode()
    return '"' + plain.replace('"', '""') + '"'


def _check_length(id: str, vector: bytes, dimensions: int) -> None:
    if len(vector) != 4 * dimensions:
        raise StoreDamaged(
            f"the vector of fact {id} has {len(vector)} bytes, wanted {4 * dimensions}"
        )
