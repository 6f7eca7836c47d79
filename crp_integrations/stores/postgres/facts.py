"""The facts facet over one connection, where PostgreSQL differs from SQLite."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any

from crp_integrations.audit.records import Event
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports.facts import LogMark
from crp_integrations.fabric.records import Fact
from crp_integrations.stores import rules
from crp_integrations.stores.postgres import postings, upkeep, word_search
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.pool import CHANNEL
from crp_integrations.stores.postgres.schema import OWN
from crp_integrations.stores.postgres.tables import SERIES
from crp_integrations.stores.postgres.vector_search import INDEXED, PostgresSearching
from crp_integrations.stores.relational.facts import RelationalFacts, RelationalSnapshot
from crp_integrations.stores.relational.rows import columns, row, sortable
from crp_integrations.stores.relational.transaction import Facets, RelationalJournal
from crp_integrations.stores.rules import (
    AMONG,
    RETRIEVABLE_SQL,
    Among,
    PackedVector,
    TransactionGate,
    among,
)
from crp_integrations.vectors import FloatRows, to_bytes
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus

_LOCK = "SELECT value FROM own WHERE name = 'generation' FOR UPDATE"


# The values of a whole namespace, all of them in the one round trip that begins a reading.
READ = (
    "SELECT 'own', name, value::text FROM own "
    "UNION ALL SELECT 'setting', name, value FROM settings UNION ALL "
    # With the table's name, since `sequence` alone is the text beside it.
    "(SELECT 'mark', sequence::text, token FROM changes ORDER BY changes.sequence DESC LIMIT 1)"
)


def snapshot_of(rows: Sequence[tuple[str, str, str | None]]) -> RelationalSnapshot:
    """The values that `READ` returned."""
    parts: dict[str, dict[str, str]] = {"own": {}, "setting": {}, "mark": {}}
    for kind, name, value in rows:
        parts[kind][name] = value or ""
    mark = LogMark(0, "")
    for sequence, token in parts["mark"].items():
        mark = LogMark(int(sequence), token)
    own = {name: int(value or 0) for name, value in parts["own"].items()}
    return RelationalSnapshot(own, parts["setting"], mark)


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
        seen: RelationalSnapshot | None = None,
        index_from: int = INDEX_FROM,
        want_index: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep the connection."""
        self._index_from = index_from
        self._want_index = want_index
        super().__init__(connection, gate, namespace, seen)
        self.searching = PostgresSearching(connection, gate, None if seen is None else seen.own)

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
        texts = [
            (number, fact.content, fact.retrievable)
            for number, fact in zip(numbers, named, strict=True)
        ]
        # Vectors and postings first: their indexes are slow to write, and need no lock.
        self._connection.copy(
            f"vectors (fact, vector, {SERIES})",
            ("int8", "vector", "int4"),
            (
                (number, PackedVector(to_bytes(vector)), series)
                for number, vector in zip(numbers, vectors, strict=True)
            ),
        )
        lengths, stems = postings.add(self._connection, texts)
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
        postings.merge(self._connection, stems)
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
        with self._reindexed([fact.fact_id for fact in facts]):
            super().replace(facts, vectors)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove facts and all rows that depend on them; unknown ids are ignored."""
        self._gate.writing()
        with self._reindexed(ids):
            super().remove(ids)

    def set_archived(self, ids: Sequence[str], at: datetime | None) -> None:
        """Archive facts, or bring them back with None; status and `modified_at` stay."""
        self._gate.writing()
        with self._reindexed(ids):
            super().set_archived(ids, at)

    @contextmanager
    def _reindexed(self, ids: Sequence[str]) -> Iterator[None]:
        """Bring postings and lengths in line with what the block changes in these facts."""
        before = self._contents(ids)
        yield
        after = self._contents(ids)
        lost = [
            (number, text)
            for number, (text, searched) in before.items()
            if searched and after.get(number) != (text, True)
        ]
        if lost:
            postings.remove(self._connection, lost)
        changed = [
            (number, text, searched)
            for number, (text, searched) in after.items()
            if before[number] != (text, searched)
        ]
        if not changed:
            return
        lengths, stems = postings.add(self._connection, changed)
        postings.merge(self._connection, stems)
        rewritten = [
            (number, length)
            for (number, text, _), length in zip(changed, lengths, strict=True)
            if before[number][0] != text
        ]
        if rewritten:
            self._connection.execute(
                "UPDATE facts SET words = new.words FROM unnest(?::bigint[], ?::int[]) "
                "AS new (fact, words) WHERE facts.fact = new.fact",
                [Among(column) for column in zip(*rewritten, strict=True)],
            )

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

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store counts; the generation stays."""
        self._gate.writing()
        saved = self._connection.execute(
            "INSERT INTO token_counts (fact, tokenizer, tokens) "
            "SELECT fact, ?, new.tokens FROM unnest(?::text[], ?::bigint[]) AS new (id, tokens) "
            "JOIN facts ON fact_id = id "
            "ON CONFLICT (fact, tokenizer) DO UPDATE SET tokens = excluded.tokens",
            [tokenizer, Among(counts), Among(counts.values())],
        )
        if saved.rowcount < len(counts):
            rules.refuse_unknown(list(counts), self._numbers(list(counts)))

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that contain any of the terms: id and BM25 score."""
        self._gate.reading()
        live = int(self._own("live_facts") or 0), int(self._own("live_words") or 0)
        return word_search.search(self._connection, terms, k, live)

    def noted(
        self, names: list[str], rows: list[Sequence[Any]]
    ) -> tuple[list[str], list[Sequence[Any]]]:
        """Columns and rows for facts that are about to be moved in; writes their postings."""
        places = [names.index(name) for name in ("fact", "content", "status", "archived_at")]
        texts = []
        for values in rows:
            number, content, status, archived_at = (values[place] for place in places)
            texts.append((number, content, status in RETRIEVABLE and archived_at is None))
        lengths, stems = postings.add(self._connection, texts)
        postings.merge(self._connection, stems)
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
        self._gate.writing()
        with self._reindexed(ids):
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

    def _contents(self, ids: Sequence[str]) -> dict[int, tuple[str, bool]]:
        """Content of the stored facts and whether they are retrievable, by row number."""
        rows = self._connection.rows(
            f"SELECT fact, content, {RETRIEVABLE_SQL} FROM facts WHERE fact_id {AMONG}",
            [among(ids)],
        )
        return {number: (content, searched) for number, content, searched in rows}


class PostgresJournal(RelationalJournal):
    """Events and seals; events are added by a function that checks the chain's link."""

    def append(self, events: Sequence[Event]) -> None:
        """Add events whose `seq` continues from the tip's."""
        self._gate.writing()
        tip = self._connection.one("SELECT seq, hmac FROM events ORDER BY seq DESC LIMIT 1")
        last, seal = tip or (0, "")
        rules.check_next(events, last)
        if events:
            schemas, numbers, *others = map(Among, zip(*map(row, events), strict=True))
            self._connection.execute(
                f"SELECT append_events(?, ?::bigint[]{', ?::text[]' * 7})",
                [seal, numbers, schemas, *others],
            )


class PostgresFacets(Facets[PostgresFacts]):
    """The facets of one namespace in a database."""

    @cached_property
    def journal(self) -> PostgresJournal:
        """Events and seals."""
        return PostgresJournal(*self._held)
