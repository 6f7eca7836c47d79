"""The facts facet of a transaction: facts, vectors, sources, text index, token counts, edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.lifecycle import carried
from crp_integrations.fabric.records import Edge, Fact, Source, Where, age_start
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus


@dataclass(frozen=True, slots=True)
class LogMark:
    """A position in a namespace's change log.

    Attributes:
        sequence: grows with every fact that is added, changed or removed; 0 for an empty log.
        token: differs between two histories with the same sequence, for example after a file was
            restored from a copy; empty for an empty log.
    """

    sequence: int
    token: str


@dataclass(frozen=True, slots=True)
class FactOutline:
    """A fact without its text and its vector, for community detection.

    Attributes:
        importance: importance weight in [0, 1].
    """

    fact_id: str
    content_hash: str
    source_id: str
    community: str | None
    importance: float


@dataclass(frozen=True, slots=True)
class FactBrief:
    """The part of a retrievable fact that selection needs: without use, metadata and vector.

    Attributes:
        importance_weight: importance in [0, 1].
        labels: access labels, sorted.
        ingested_at: when its age begins.
        decay: decay function in the fact's metadata, None for none.
        expires_at: when the ttl ends, None for never.
    """

    fact_id: str
    content: str
    source_id: str
    source_location: str
    importance_weight: float
    community_label: str | None
    ingested_at: datetime | None
    status: FactStatus
    labels: tuple[str, ...]
    decay: str | None = None
    expires_at: datetime | None = None

    @classmethod
    def of(cls, fact: Fact) -> FactBrief:
        """Make the brief of a fact."""
        return cls(
            fact.fact_id,
            fact.content,
            fact.source_id,
            fact.source_location,
            fact.importance_weight,
            fact.community_label,
            age_start(fact.metadata, fact.ingested_at),
            fact.status,
            fact.labels,
            carried(fact.metadata) if fact.metadata else None,
            fact.expires_at,
        )


class FactsFacet(Protocol):
    """Facts, vectors, sources, text index, token counts and edges of one namespace.

    "Retrievable" means ACTIVE or STALE and not archived, everywhere in this module.
    """

    def generation(self) -> int:
        """A number that grows with every committed change of facts, statuses or labels.

        A write transaction may be rolled back, and the same number then comes again with other
        content: cache only under a number from a read transaction.
        """
        ...

    def setting(self, name: str) -> str | None:
        """Return a stored value, such as `embedder`, the identity of the vectors' embedder."""
        ...

    def set_setting(self, name: str, value: str) -> None:
        """Store a value."""
        ...

    def remove_setting(self, name: str) -> None:
        """Remove a value; a missing one is not an error."""
        ...

    def add_source(self, source: Source) -> None:
        """Add a source or replace the record of the same id."""
        ...

    def source(self, source_id: str) -> Source | None:
        """Return a source by id; None if there is none."""
        ...

    def sources(self) -> Iterator[Source]:
        """All sources by id."""
        ...

    def add(self, facts: Sequence[Fact], vectors: FloatRows) -> None:
        """Add facts with their unit vectors, shape (len(facts), dimensions).

        A fact without a namespace is stored with the transaction's namespace.

        Raises:
            StoreError: an id exists already or is given twice, a fact has another namespace, the
                shape is wrong, or a value is not finite.
        """
        ...

    def replace(self, facts: Sequence[Fact], vectors: FloatRows | None = None) -> None:
        """Replace the facts with these ids.

        Args:
            facts: whole records; every field but the id may differ.
            vectors: their new unit vectors, shape (len(facts), dimensions); None keeps the old
                ones. Token counts of a fact whose content changed, and vectors prepared for its
                old content, are removed.

        Raises:
            StoreError: an id is unknown or given twice, a fact has another namespace, or the
                vectors are invalid (see `add`).
        """
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Remove facts and all data derived from them: vectors, prepared vectors of their
        contents, text index, counts, edges. `Store.scrub` then scrubs the bytes from disk.

        Row ids are never reused. Unknown ids are ignored.
        """
        ...

    def set_archived(self, ids: Sequence[str], at: datetime | None) -> None:
        """Archive facts, or restore them with None; status and `modified_at` stay.

        Raises:
            StoreError: an id is unknown.
        """
        ...

    def set_communities(self, labels: Mapping[str, str | None]) -> None:
        """Set the facts' communities; `modified_at` stays, the generation grows once.

        Raises:
            StoreError: an id is unknown.
        """
        ...

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that match the filter, ascending."""
        ...

    def tally(self) -> Mapping[str, int]:
        """Number of facts by status; archived ones count under `ARCHIVED` instead."""
        ...

    def passages(self, source_id: str) -> list[tuple[str, str, FactStatus]]:
        """Id, content hash and status of a source's facts, by id; no texts are read."""
        ...

    def mark(self) -> LogMark:
        """The mark at the end of the change log."""
        ...

    def changes(self, since: LogMark) -> list[str] | None:
        """Ids of the facts that were added, changed or removed after a mark, each once, by id.

        Changes of content, vector, status, archiving, labels or community count; changes of use
        and token counts do not.

        Returns:
            None if the log does not reach back to the mark: it was trimmed, or the mark is of
            another history. All state known at the mark must then be read again.
        """
        ...

    def trim_changes(self, keep: int) -> None:
        """Remove all but the last `keep` entries of the log; at least the last one stays."""
        ...

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order of the ids, whatever their status; unknown ids are left out."""
        ...

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """Briefs of the retrievable facts among the ids, by id."""
        ...

    def of_source(self, source_id: str) -> list[Fact]:
        """A source's facts by id, whatever their status."""
        ...

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every retrievable fact, by id; with `ids`, only of these."""
        ...

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit rows in the order of the ids.

        Args:
            prepared_for: identity of an embedder whose prepared vectors to return, during a
                migration; None for the vectors in use.

        Raises:
            StoreError: an id is unknown or has no such vector.
        """
        ...

    def prepare(self, embedder: str, hashes: Sequence[str], vectors: FloatRows) -> None:
        """Store vectors of texts by content hash, for a running ingestion or change of embedder;
        replaces those of the same embedder and hash. The generation stays.

        Args:
            vectors: unit rows, shape (len(hashes), dimensions of that embedder).
        """
        ...

    def prepared(
        self, embedder: str, hashes: Sequence[str]
    ) -> Mapping[str, npt.NDArray[np.float32]]:
        """The hashes that have a prepared vector, each with its row."""
        ...

    def unprepared(self, embedder: str, limit: int, *, after: str = "") -> list[tuple[str, str]]:
        """Content hash and content of facts (of any status) without a prepared vector, each
        text once, by hash, at most `limit`.

        Args:
            after: only hashes above this one, to continue from an earlier call.
        """
        ...

    def prepared_ids(self, embedder: str) -> list[str]:
        """Ids of the retrievable facts that have a prepared vector, ascending."""
        ...

    def use_prepared(self, embedder: str) -> None:
        """Put an embedder's prepared vectors in use, and remove all prepared ones.

        Raises:
            StoreError: a fact has no prepared vector.
        """
        ...

    def clear_prepared(
        self, embedder: str | None = None, hashes: Sequence[str] | None = None
    ) -> None:
        """Remove prepared vectors, of one embedder or of all; with `hashes`, only of these."""
        ...

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that contain any term: id and BM25 score, higher is better.

        Terms are untrusted input; none of their characters may act as query syntax. Ties by id. Of
        many terms, words in thousands of facts may be left out if there are k facts without them.
        """
        ...

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Set the status, and `modified_at` of the facts that had another status.

        The fabric, not the store, checks whether the change is legal.

        Raises:
            StoreError: an id is unknown.
        """
        ...

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope; the generation stays.

        Each fact counts once per call; unknown ids are ignored.
        """
        ...

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of retrievable facts, by id; with `ids`, only of these."""
        ...

    def texts(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Id and content of the retrievable facts among the ids, by id."""
        ...

    def outline(self) -> Iterator[FactOutline]:
        """Outlines of all retrievable facts, by id; no texts are read."""
        ...

    def token_counts(self, tokenizer: str, ids: Sequence[str]) -> Mapping[str, int]:
        """Stored counts; facts never counted with that tokenizer are absent."""
        ...

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store token counts; the generation stays."""
        ...

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges; an edge of the same kind between the same facts is replaced."""
        ...

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges that start at any of the facts, by source, kind and target."""
        ...


Labels = tuple[str, ...]


class VectorSearch(Protocol):
    """Vector search with the store's own index, over the facts that a transaction sees."""

    def size(self) -> int:
        """Number of retrievable facts; 0 while the store has no index of their vectors."""
        ...

    def label_sets(self) -> list[Labels]:
        """The distinct label sets of retrievable facts, ascending as JSON."""
        ...

    def count(self, label_sets: Sequence[Labels]) -> int:
        """Number of retrievable facts with one of these label sets."""
        ...

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        *,
        label_sets: Sequence[Labels] | None = None,
        among: Sequence[str] | None = None,
    ) -> tuple[list[str], FloatRows]:
        """At least the k retrievable facts that the index finds nearest, with their unit rows.

        Args:
            label_sets: restricts the search to facts with one of these sets; None for all.
            among: restricts the search to these facts, each compared; None for all.
        """
        ...


def vector_search_of(facts: FactsFacet) -> VectorSearch | None:
    """The vector search of an open transaction's store; None for a store that has none."""
    return cast("VectorSearch | None", getattr(facts, "searching", None))
