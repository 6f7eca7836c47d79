"""What the fabric needs of a store: transactions over facets.

A store is a set of namespaces. A transaction belongs to one namespace, sees and changes
nothing outside it, and commits all its facets together or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from crp_integrations.audit.ports import JournalFacet
from crp_integrations.fabric.records import Edge, Fact, Source
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus


class FactsFacet(Protocol):
    """Facts, vectors, sources, text index, token counts and edges of one namespace."""

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

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts by id in the order asked for, whatever their status; unknown ids are left out."""
        ...

    def of_source(self, source_id: str) -> list[Fact]:
        """A source's facts by id, whatever their status."""
        ...

    def retrievable(self) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every ACTIVE or STALE fact, by id."""
        ...

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order asked for.

        Raises:
            StoreError: an id is unknown.
        """
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

    def state(self) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of every retrievable fact, by id."""
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


class Transaction(Protocol):
    """All facets of one namespace."""

    @property
    def facts(self) -> FactsFacet: ...

    @property
    def journal(self) -> JournalFacet: ...


class Store(Protocol):
    """Where everything is kept."""

    @property
    def name(self) -> str:
        """Kind and place for people, such as `sqlite:kb`."""
        ...

    def begin(self, namespace: str, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction: commits when the block ends, undoes everything when it raises.

        A reading transaction sees one state of the namespace throughout, may run beside a
        writing one, and refuses to write.

        Raises:
            StoreBusy: another process held the write lock for too long.
            StoreDamaged, StoreNewer: the files cannot be used.
        """
        ...

    def close(self) -> None:
        """Release files and connections; calling it twice does nothing."""
        ...
