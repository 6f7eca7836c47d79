"""The facts facet over one connection, where PostgreSQL differs from SQLite."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from crp_integrations.audit.records import Event
from crp_integrations.errors import StoreError
from crp_integrations.fabric.records import Fact
from crp_integrations.stores import rules
from crp_integrations.stores.postgres import search, upkeep
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.pool import CHANNEL
from crp_integrations.stores.postgres.schema import OWN, SERIES
from crp_integrations.stores.postgres.search import INDEXED, PostgresSearching
from crp_integrations.stores.relational.facts import RelationalFacts, RelationalSnapshot
from crp_integrations.stores.relational.rows import columns, row, sortable
from crp_integrations.stores.relational.transaction import Facets, RelationalJournal
from crp_integrations.stores.rules import AMONG, Among, PackedVector, TransactionGate, among
from crp_integrations.vectors import FloatRows, to_bytes
from crp_integrations.vocabulary import FactStatus

_LOCK = "SELECT value FROM own WHERE name = 'generation' FOR UPDATE"


class WriterLockGate(TransactionGate):
    """A gate that takes the namespace's lock before a writer's first read or write."""

    __slots__ = ("_connection", "_held")

    def __init__(self, connection: PostgresConnection, *, write: bool) -> None:
        super().__init__(write=write)
        self._connection = connection
        # A reader sees one state throughout and needs no lock.
        self._held = not write

    def reading(self) -> None:
        """Allow a read; a writer first takes the lock, so it sees the previous writer's commit."""
        super().reading()
        if not self._held:
            self._connection.rows(_LOCK)
            self._held = True

    def adding(self) -> None:
        """Allow facts to be added before the lock is taken."""
        if self._held:
            self.writing()
        else:
            super().reading()


# With fewer facts no index is built: every process compares all rows itself, as with SQLite.
INDEX_FROM = 10_000
_TYPES = {"importance_weight": "float8", "access_count": "int8"}
_FACT_COLUMNS = ("fact", "words", "expires_at", *columns(Fact))
_FACT_TYPES = ("int8", "int4", *(_TYPES.get(name, "text") for name in _FACT_COLUMNS[2:]))


class PostgresFacts(RelationalFacts):
    """Facts, vectors, sources, postings, token counts and edges of one namespace."""

    _connection: PostgresConnection
    _gate: WriterLockGate

    def __init__(
        self,
        connection: PostgresConnection,
        gate: WriterLockGate,
        namespace: str,
        owned: Mapping[str, Any] | None = None,
        index_from: int = INDEX_FROM,
        want_index: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep the connection."""
        self._index_from = index_from
        self._want_index = want_index
        super().__init__(
            connection, gate, namespace, None if owned is None else RelationalSnapshot(owned)
        )
        self.searching = PostgresSearching(connection, gate, owned)

    def add(self, facts: Sequence[Fact], vectors: FloatRows) -> None:
        """Add facts with their unit vectors, shape (len(facts), dimensions)."""
        self._gate.adding()
        dimensions, series = self._made_as()
        if dimensions is None:
            # The first vector sets the dimensions of all, so take the lock before it is written.
            self._gate.writing()
            dimensions, series = self._made_as()
        named = self._checked(facts, vectors, dimensions)
        if not named:
            return
        numbers = [
            number
            for (number,) in self._connection.rows(
                "SELECT nextval('numbers') FROM generate_series(1, ?)", [len(named)]
            )
        ]
        texts = [fact.content for fact in named]
        # Vectors and postings first: their indexes are slow to write, and need no lock.
        self._connection.copy(
            f"vectors (fact, vector, {SERIES})",
            ("int8", "vector", "int4"),
            (
                (number, PackedVector(to_bytes(vector)), series)
                for number, vector in zip(numbers, vectors, strict=True)
            ),
        )
        lengths = search.add(self._connection, list(zip(numbers, texts, strict=True)))
        self._connection.copy(
            f"facts ({', '.join(_FACT_COLUMNS)})",
            _FACT_TYPES,
            (
                (number, length, sortable(fact.expires_at), *row(fact))
                for number, length, fact in zip(numbers, lengths, named, strict=True)
            ),
        )
        self._gate.writing()
        # Another transaction may have switched the embedder before the lock was taken.
        dimensions, used = self._made_as()
        rules.check_vectors(vectors, len(named), dimensions)
        if used != series:
            raise StoreError(
                f"the vectors of namespace {self._namespace!r:.80} were replaced while these "
                "facts were added; nothing was added"
            )
        self._grow()
        self._look_at_index()

    def use_prepared(self, embedder: str) -> None:
        """Make an embedder's prepared vectors those in use, and remove all prepared ones.

        A transaction that is already reading keeps the old vectors and their index. A transaction
        that is adding facts is refused when it gets the lock.
        """
        super().use_prepared(embedder)
        # After the vectors: a process that builds an index locks their table and then writes here.
        self._connection.execute("DELETE FROM own WHERE name = ?", [INDEXED])
        self._look_at_index()

    def _put_to_use(self, embedder: str) -> int:
        _, series = self._made_as()
        self._set_own(SERIES, series + 1)
        return self._connection.execute(
            f"UPDATE vectors SET vector = p.vector, {SERIES} = ? "
            "FROM facts JOIN prepared_vectors AS p USING (content_hash) "
            "WHERE p.embedder = ? AND facts.fact = vectors.fact",
            [series + 1, embedder],
        ).rowcount

    def replace(self, facts: Sequence[Fact], vectors: FloatRows | None = None) -> None:
        """Replace the records with the same ids."""
        self._gate.writing()
        old = self._texts([fact.fact_id for fact in facts])
        super().replace(facts, vectors)
        changed = [
            (old[fact.fact_id][0], old[fact.fact_id][1], fact.content)
            for fact in facts
            if old[fact.fact_id][1] != fact.content
        ]
        if changed:
            search.remove(self._connection, [(number, text) for number, text, _ in changed])
            lengths = search.add(self._connection, [(number, text) for number, _, text in changed])
            self._connection.execute(
                "UPDATE facts SET words = new.words FROM unnest(?::bigint[], ?::int[]) "
                "AS new (fact, words) WHERE facts.fact = new.fact",
                [Among(number for number, _, _ in changed), Among(lengths)],
            )

    def remove(self, ids: Sequence[str]) -> None:
        """Remove facts and all rows that depend on them; unknown ids are ignored."""
        self._gate.writing()
        search.remove(self._connection, list(self._texts(ids).values()))
        super().remove(ids)

    def set_communities(self, labels: Mapping[str, str | None]) -> None:
        """Set the facts' community labels; `modified_at` stays."""
        self._gate.writing()
        ids = list(labels)
        rules.refuse_unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            "UPDATE facts SET community_label = new.label "
            "FROM unnest(?::text[], ?::text[]) AS new (id, label) WHERE fact_id = new.id "
            "AND community_label IS DISTINCT FROM new.label",
            [Among(ids), Among(labels.values())],
        )
        if changed.rowcount:
            self._grow()

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that contain any of the terms: id and BM25 score."""
        self._gate.reading()
        return search.search(self._connection, terms, k)

    def noted(
        self, names: list[str], rows: list[Sequence[Any]]
    ) -> tuple[list[str], list[Sequence[Any]]]:
        """Columns and rows for facts that are about to be moved in; writes their postings."""
        number, content = names.index("fact"), names.index("content")
        lengths = search.add(self._connection, [(row[number], row[content]) for row in rows])
        return [*names, "words"], [
            (*row, length) for row, length in zip(rows, lengths, strict=True)
        ]

    def _note_last_number(self) -> None:
        self._connection.execute(
            "SELECT setval('numbers', (SELECT coalesce(max(fact), 0) + 1 FROM facts))"
        )
        self._connection.execute(
            "SELECT setval(pg_get_serial_sequence('windows', 'window'), "
            '(SELECT coalesce(max("window"), 0) + 1 FROM windows))'
        )
        self._look_at_index()

    def _look_at_index(self) -> None:
        if upkeep.index_due(dict(self._connection.rows(OWN)), self._index_from):
            self._want_index()

    def _leave_to_scrub(self) -> None:
        """Record that bytes are left to scrub, and notify other processes at commit."""
        super()._leave_to_scrub()
        self._tell()

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Set the status, and `modified_at` of the facts whose status changes."""
        super().set_status(ids, status, at)
        if status is FactStatus.DELETED:
            self._tell()

    def _tell(self) -> None:
        """Make other processes drop cached texts; equal notifications of one commit are merged."""
        self._connection.execute("SELECT pg_notify(?, current_schema())", [CHANNEL])

    def _made_as(self) -> tuple[int | None, int]:
        """Dimensions of the vectors in use, None before the first one, and their series."""
        stored = dict(
            self._connection.rows(
                "SELECT name, value FROM own WHERE name IN ('dimensions', ?)", [SERIES]
            )
        )
        return stored.get("dimensions"), int(stored.get(SERIES, 0))

    def _prepared_dimensions(self, embedder: str) -> int | None:
        values = self._connection.one(
            "SELECT vector_dims(vector) FROM prepared_vectors WHERE embedder = ? LIMIT 1",
            [embedder],
        )
        return None if values is None else int(values[0])

    def _texts(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Row number and content of the stored facts, by id."""
        rows = self._connection.rows(
            f"SELECT fact_id, fact, content FROM facts WHERE fact_id {AMONG}", [among(ids)]
        )
        return {id: (number, content) for id, number, content in rows}


class PostgresJournal(RelationalJournal):
    """Events and seals; events are added by a function that checks the chain's link."""

    def _add(self, events: Sequence[Event]) -> None:
        tip = self._connection.one("SELECT hmac FROM events ORDER BY seq DESC LIMIT 1")
        schemas, numbers, *others = map(Among, zip(*map(row, events), strict=True))
        self._connection.execute(
            f"SELECT append_events(?, ?::bigint[]{', ?::text[]' * 7})",
            [tip[0] if tip else "", numbers, schemas, *others],
        )


class PostgresFacets(Facets[PostgresFacts]):
    """The facets of one namespace in a database."""

    @cached_property
    def journal(self) -> PostgresJournal:
        """Events and seals."""
        return PostgresJournal(*self._held)
