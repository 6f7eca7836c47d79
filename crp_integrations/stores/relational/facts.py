"""The facts facet over one connection: settings, sources, facts, counts, edges, and changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from crp_integrations.fabric.records import Edge, Fact, Source
from crp_integrations.seals import iso
from crp_integrations.stores import rules
from crp_integrations.stores.relational import usage
from crp_integrations.stores.relational.fact_queries import FactQueries, FactVectors
from crp_integrations.stores.relational.rows import (
    columns,
    damaged,
    insertion,
    number,
    record,
    replacing,
    row,
    sortable,
)
from crp_integrations.stores.relational.transaction import ChangeLog, FactsPart
from crp_integrations.stores.relational.usage import FACTS
from crp_integrations.stores.relational.window_contents import empty_windows
from crp_integrations.stores.rules import AMONG, Among, PackedVector, Statements, among
from crp_integrations.vectors import FloatRows, to_bytes
from crp_integrations.vocabulary import FactStatus

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.


_ASSIGNMENTS = ", ".join(f"{name} = ?" for name in ("expires_at", *columns(Fact)))
REPLACE_FACT = f"UPDATE facts SET {_ASSIGNMENTS} WHERE fact = ?"


class FactEdits(FactsPart):
    """Changes of the facts of one namespace."""

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
        usage.forget(self._connection, [numbers[f.fact_id] for f in named])
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
        """Remove facts and everything that hangs on them; unknown ids are left out."""
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
        # Vectors, counts and edges go with their fact, see the tables.
        self._connection.execute(f"DELETE FROM facts WHERE fact {AMONG}", [numbers])
        self._leave_to_scrub()
        self._grow()

    def set_archived(self, ids: Sequence[str], at: datetime | None) -> None:
        """Put facts aside, or bring them back with None; status and `modified_at` stay."""
        self._gate.writing()
        rules.unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            "UPDATE facts SET archived_at = ? WHERE coalesce(archived_at, '') <> coalesce(?, '') "
            f"AND fact_id {AMONG}",
            [at and iso(at), at and iso(at), among(ids)],
        )
        if changed.rowcount:
            self._grow()

    def set_communities(self, labels: Mapping[str, str | None]) -> None:
        """Give facts their community; leaves `modified_at` alone."""
        self._gate.writing()
        numbers = self._numbers(list(labels))
        rules.unknown(list(labels), numbers)
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
        """Change the status, and `modified_at` of the facts that had another one."""
        self._gate.writing()
        rules.unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            f"UPDATE facts SET status = ?, modified_at = ? WHERE status <> ? AND fact_id {AMONG}",
            [status.value, iso(at), status.value, among(ids)],
        )
        if changed.rowcount:
            self._grow()

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope."""
        self._gate.writing()
        usage.touch(self._connection, ids, at)


# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.


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


class RelationalFacts(FactEdits, FactVectors, FactQueries, ChangeLog):
    """Facts, vectors, sources, text index, token counts and edges of one namespace."""

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
        """Forget a value; one that is not there is no error."""
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
        """New facts that may be added; the first ones decide the length of vectors for all."""
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

    # --- for `moving` ------------------------------------------------------------------

    @property
    def statements(self) -> Statements:
        """The connection, for who moves whole tables."""
        return self._connection

    def noted(
        self, names: list[str], rows: list[Sequence[Any]]
    ) -> tuple[list[str], list[Sequence[Any]]]:
        """Columns and rows of facts that are about to arrive, with what is derived from them."""
        return names, rows

    def settle_numbers(self, other: RelationalFacts) -> None:
        """Take over another store's counters when all rows have arrived."""
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

    # --- reading -----------------------------------------------------------------------

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts by id in the order asked for; unknown ids are left out."""
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
        rows = self._connection.rows(
            "SELECT fact_id, tokens FROM facts JOIN token_counts USING (fact) "
            f"WHERE tokenizer = ? AND fact_id {AMONG}",
            [tokenizer, among(ids)],
        )
        return dict(rows)

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store counts; leaves the generation alone."""
        self._gate.writing()
        numbers = self._numbers(list(counts))
        rules.unknown(list(counts), numbers)
        self._connection.executemany(
            SAVE_COUNT,
            ((numbers[id], tokenizer, count) for id, count in counts.items()),
        )

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges or replace those between the same facts of the same kind."""
        self._gate.writing()
        listed = list(edges)
        ends = [end for edge in listed for end in (edge.source_fact, edge.target_fact)]
        rules.unknown(ends, self._numbers(ends))
        self._connection.executemany(
            ADD_EDGE,
            ((e.source_fact, e.kind, e.target_fact, e.weight) for e in listed),
        )

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges that leave any of the facts, by source, kind and target."""
        self._gate.reading()
        rows = self._connection.rows(
            f"SELECT source_fact, kind, target_fact, weight FROM edges WHERE source_fact {AMONG} "
            "ORDER BY source_fact, kind, target_fact",
            [among(ids)],
        )
        return [_edge(*values) for values in rows]


def _edge(source: str, kind: str, target: str, weight: float) -> Edge:
    try:
        return Edge(source_fact=source, kind=kind, target_fact=target, weight=weight)
    except ValidationError as error:
        raise damaged(f"an edge of fact {source} has the weight {weight!r:.40}") from error
