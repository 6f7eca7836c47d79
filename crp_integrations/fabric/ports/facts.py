"""The facts of a transaction: vectors, sources, text index, token counts, edges, vector search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.lifecycle import carried
from crp_integrations.fabric.records import Edge, Fact, Source, Where
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus


@dataclass(frozen=True, slots=True)
class LogMark:
    """A place in a namespace's log of changes.

    Attributes:
        sequence: grows with every fact that is added, changed or removed; 0 for an empty log.
        token: differs between two histories that reached the same sequence, as after a file was
            put back from a copy; empty for an empty log.
    """

    sequence: int
    token: str


@dataclass(frozen=True, slots=True)
class FactOutline:
    """What communities are made of: a fact without its text and its vector.

    Attributes:
        importance: in [0, 1].
    """

    fact_id: str
    content_hash: str
    source_id: str
    community: str | None
    importance: float


@dataclass(frozen=True, slots=True)
class FactBrief:
    """What selection reads of a retrievable fact: not its use, its metadata and its vector.

    Attributes:
        importance_weight: in [0, 1].
        labels: access labels, sorted.
        decay: the decay function that the fact carries in its metadata, None for none.
        expires_at: when its ttl runs out, None for never.
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
        """That of a whole fact."""
        return cls(
            fact.fact_id,
            fact.content,
            fact.source_id,
            fact.source_location,
            fact.importance_weight,
            fact.community_label,
            fact.ingested_at,
            fact.status,
            fact.labels,
            carried(fact.metadata) if fact.metadata else None,
            fact.expires_at,
        )


class FactsFacet(Protocol):
    """Facts, vectors, sources, text index, token counts and edges of one namespace.

    "Retrievable" is ACTIVE or STALE and not archived, everywhere in this file.
    """

    def generation(self) -> int:
        """A number that grows with every committed change of facts, statuses or labels.

        What a writing transaction sees may be undone, and then the same number comes again with
        another content: memoise under a number from a reading transaction only.
        """
        ...

    def setting(self, name: str) -> str | None:
        """A stored value such as `embedder`, the identity that the vectors were made with."""
        ...

    def set_setting(self, name: str, value: str) -> None:
        """Store a value."""
        ...

    def remove_setting(self, name: str) -> None:
        """Forget a value; one that is not there is no error."""
        ...

    def add_source(self, source: Source) -> None:
        """Add a source or replace the record of the same id."""
        ...

    def source(self, source_id: str) -> Source | None:
        """A source by id."""
        ...

    def sources(self) -> Iterator[Source]:
        """All sources by id."""
        ...

    def add(self, facts: Sequence[Fact], vectors: FloatRows) -> None:
        """Add facts with their unit vectors, shape (len(facts), dimensions).

        A fact that names no namespace is stored with the transaction's.

        Raises:
            StoreError: an id exists already or is given twice, a fact names another namespace,
                the shape is wrong, or a value is not finite.
        """
        ...

    def replace(self, facts: Sequence[Fact], vectors: FloatRows | None = None) -> None:
        """Put records in the place of those with the same ids.

        Args:
            facts: whole records; every field but the id may differ.
            vectors: their new unit vectors, shape (len(facts), dimensions); None keeps the old
                ones. Token counts of a fact whose content changed, and vectors prepared for its
                old content, are forgotten.

        Raises:
            StoreError: an id is unknown or given twice, another namespace is named, or the
                vectors are refused as by `add`.
        """
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Remove facts and everything that hangs on them: vectors, prepared vectors of their
        contents, text index, counts, edges. `Store.scrub` then takes the bytes off the disk.

        Ids are never used for another row. Unknown ids are left out.
        """
        ...

    def set_archived(self, ids: Sequence[str], at: datetime | None) -> None:
        """Put facts aside, or bring them back with None; status and `modified_at` stay.

        Raises:
            StoreError: an id is unknown.
        """
        ...

    def set_communities(self, labels: Mapping[str, str | None]) -> None:
        """Give facts their community; leaves `modified_at` alone and grows the generation once.

        Raises:
            StoreError: an id is unknown.
        """
        ...

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that are meant, ascending."""
        ...

    def tally(self) -> Mapping[str, int]:
        """How many facts there are by status; archived ones count under `ARCHIVED` instead."""
        ...

    def passages(self, source_id: str) -> list[tuple[str, str, FactStatus]]:
        """Id, content hash and status of a source's facts, by id; no texts are read."""
        ...

    def mark(self) -> LogMark:
        """The end of the log of changes."""
        ...

    def changes(self, since: LogMark) -> list[str] | None:
        """Ids of the facts that were added, changed or removed after a mark, each once, by id.

        A change is one of content, vector, status, archiving, labels or community; use and token
        counts are none.

        Returns:
            None when the log does not lead back to the mark: it was trimmed, or the mark is of
            another history. What was known at the mark must then be read again as a whole.
        """
        ...

    def trim_changes(self, keep: int) -> None:
        """Forget the log but for its last `keep` entries; at least the last one stays."""
        ...

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts by id in the order asked for, whatever their status; unknown ids are left out."""
        ...

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """What selection reads of those of the ids that are retrievable, by id."""
        ...

    def of_source(self, source_id: str) -> list[Fact]:
        """A source's facts by id, whatever their status."""
        ...

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every retrievable fact, by id; with ids, of those among them."""
        ...

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit rows in the order asked for.

        Args:
            prepared_for: identity of an embedder that the namespace is on its way to: its prepared
                vectors; None for the vectors in use.

        Raises:
            StoreError: an id is unknown or has no such vector.
        """
        ...

    def prepare(self, embedder: str, hashes: Sequence[str], vectors: FloatRows) -> None:
        """Keep vectors of texts by content hash, for an ingestion or a change of embedder that
        is under way; replaces those of the same embedder and hash. Leaves the generation alone.

        Args:
            vectors: unit rows, shape (len(hashes), dimensions of that embedder).
        """
        ...

    def prepared(
        self, embedder: str, hashes: Sequence[str]
    ) -> Mapping[str, npt.NDArray[np.float32]]:
        """Those of the hashes that have a prepared vector, each with its row."""
        ...

    def unprepared(self, embedder: str, limit: int, *, after: str = "") -> list[tuple[str, str]]:
        """Content hash and content of facts (of any status) without a prepared vector, each
        text once, by hash, at most `limit`.

        Args:
            after: only hashes above this one, so that a walk need not begin anew each time.
        """
        ...

    def prepared_ids(self, embedder: str) -> list[str]:
        """Ids of the retrievable facts that have a prepared vector, ascending."""
        ...

    def use_prepared(self, embedder: str) -> None:
        """Make an embedder's prepared vectors those in use, and forget all prepared ones.

        Raises:
            StoreError: a fact has none.
        """
        ...

    def clear_prepared(
        self, embedder: str | None = None, hashes: Sequence[str] | None = None
    ) -> None:
        """Forget prepared vectors, of one embedder or all of them; with hashes, those of them."""
        ...

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that hold any of the terms: id and BM25 score, higher better.

        Terms come from strangers; no character of them has a meaning. Ties by id.
        """
        ...

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Change the status, and `modified_at` of the facts that had another one.

        Whether the change is legal is the fabric's business.

        Raises:
            StoreError: an id is unknown.
        """
        ...

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope; leaves the generation alone.

        Each fact counts once a call; unknown ids are left out.
        """
        ...

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of every retrievable fact, by id; with ids, of those."""
        ...

    def texts(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Id and content of those of the ids that are retrievable, by id."""
        ...

    def outline(self) -> Iterator[FactOutline]:
        """Every retrievable fact, by id; no texts are read."""
        ...

    def token_counts(self, tokenizer: str, ids: Sequence[str]) -> Mapping[str, int]:
        """Stored counts; facts never counted with that tokenizer are absent."""
        ...

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store counts; leaves the generation alone."""
        ...

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges or replace those between the same facts of the same kind."""
        ...

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges that leave any of the facts, by source, kind and target."""
        ...


Labels = tuple[str, ...]


class VectorSearch(Protocol):
    """Vector search over what a transaction sees, by an index of the store's own."""

    def size(self) -> int:
        """How many facts are retrievable; 0 while the store has no index of their vectors."""
        ...

    def label_sets(self) -> list[Labels]:
        """The different sets of labels that retrievable facts carry, ascending as JSON."""
        ...

    def count(self, label_sets: Sequence[Labels]) -> int:
        """How many retrievable facts carry one of these sets of labels."""
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
            label_sets: only facts that carry one of these; None for all.
            among: only these facts, compared one by one; None for all.
        """
        ...


def vector_search_of(facts: FactsFacet) -> VectorSearch | None:
    """The vector search of an open transaction's store; None for a store that has none."""
    return cast("VectorSearch | None", getattr(facts, "searching", None))
