"""The only read path: one tenant's facts as one subject may see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from crp_integrations.audit.keys import journal_key
from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.index import Hit, Index
from crp_integrations.fabric.ingestion import Ingestion, Progress, silent
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.records import Document, Fact, IngestReport, Source
from crp_integrations.guard.decisions import Guard, require
from crp_integrations.guard.subjects import Subject
from crp_integrations.language.words import STOP_WORDS, words
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import RETRIEVABLE, SourceKind

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric


class Namespace:
    """A tenant's part of the fabric, bound to a subject and a guard; safe between threads.

    Made by `Fabric.bind`. No method takes a tenant. Facts whose labels the guard denies to
    the subject, and facts that are DELETED or QUARANTINED, come out of no method.

    Spec: CRP-SPEC-009 §9.1

    Attributes:
        subject: who asks.
    """

    def __init__(self, fabric: Fabric, subject: Subject, guard: Guard) -> None:
        self._fabric = fabric
        self._guard = guard
        self._decided: dict[tuple[str, ...], bool] = {}
        self.subject = subject

    @property
    def guard_name(self) -> str:
        """Name of the guard that decides, shown in reports."""
        return self._guard.name

    @property
    def embedder(self) -> Embedder:
        """The embedder whose vectors are stored."""
        return self._fabric.embedder

    @property
    def counter(self) -> TokenCounter:
        """The counter that binds the length of stored facts."""
        return self._fabric.counter

    # --- reading -----------------------------------------------------------------------

    def generation(self) -> int:
        """A number that grows with every committed change of what can be retrieved."""
        with self._fabric.begin(self.subject, write=False) as transaction:
            return transaction.facts.generation()

    def state_hash(self) -> str:
        """One value for everything that can be retrieved in the namespace, by anybody.

        Spec: CRP-SPEC-009 §6.1
        """
        return self._fabric.state_hash(self.subject)

    def size(self) -> int:
        """How many facts the subject may retrieve."""
        index = self._fabric.index(self.subject)
        return int(np.count_nonzero(np.array(self._allowed(index), dtype=np.bool_)[index.codes]))

    def nearest(self, vector: FloatRows, k: int) -> list[Hit]:
        """The k facts whose vectors are nearest, exactly; ties by id.

        Spec: CRP-SPEC-009 §3.1

        Args:
            vector: unit vector, shape (dimensions,).
            k: how many; fewer come when there are fewer.

        Returns:
            Ids with their cosine in [-1, 1], highest first.
        """
        index = self._fabric.index(self.subject)
        return index.nearest(
            vector,
            k,
            allowed=self._allowed(index),
            scan_rows=self._fabric.settings.scan_rows,
        )

    def search_text(self, query: str, k: int) -> list[Hit]:
        """The k best facts that hold any word of a query; ties by id.

        Args:
            query: raw text from anybody; no character of it has a meaning.
            k: how many; fewer come when there are fewer.

        Returns:
            Ids with their BM25 score, highest first.
        """
        terms = self._terms(query)
        if not terms or k <= 0:
            return []
        index = self._fabric.index(self.subject)
        allowed = self._allowed(index)
        wanted = k
        while True:
            with self._fabric.begin(self.subject, write=False) as transaction:
                found = transaction.facts.search_text(terms, wanted)
            hits = [
                Hit(id_, score)
                for id_, score in found
                if id_ in index.place and allowed[index.codes[index.place[id_]]]
            ]
            # What the guard withholds took places, so ask for more until there are enough.
            if len(hits) >= k or len(found) < wanted:
                return hits[:k]
            wanted *= 4

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order asked for; what may not be retrieved is left out."""
        with self._fabric.begin(self.subject, write=False) as transaction:
            found = transaction.facts.get(ids)
        return [
            fact for fact in found if fact.status in RETRIEVABLE and self._may_read(fact.labels)
        ]

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order asked for, shape (len(ids), dimensions).

        Raises:
            StoreError: an id is not one that the subject may retrieve.
        """
        index = self._fabric.index(self.subject)
        allowed = self._allowed(index)
        return index.rows(ids, allowed=allowed)

    def token_counts(
        self, key: str, ids: Sequence[str], count: Callable[[list[str]], list[int]]
    ) -> dict[str, int]:
        """Token counts of facts, counting only those never counted under this key.

        Args:
            key: identity of the counter and of what is counted, such as `o200k/render@1`.
            ids: facts that the subject may retrieve; others are left out.
            count: counts contents.

        Returns:
            Tokens by id.
        """
        index = self._fabric.index(self.subject)
        allowed = self._allowed(index)
        seen = [id_ for id_ in ids if id_ in index.place and allowed[index.codes[index.place[id_]]]]
        with self._fabric.begin(self.subject, write=False) as transaction:
            stored = dict(transaction.facts.token_counts(key, seen))
        # Texts are read for what was never counted alone.
        missing = self.facts([id_ for id_ in dict.fromkeys(seen) if id_ not in stored])
        if missing:
            counted = count([fact.content for fact in missing])
            new = dict(zip((fact.fact_id for fact in missing), counted, strict=True))
            stored |= new
            self._save_counts(key, new)
        return {id_: stored[id_] for id_ in seen if id_ in stored}

    def sources(self) -> list[Source]:
        """The registry's entries that the subject may see, by id.

        Spec: CRP-SPEC-009 §4.5
        """
        with self._fabric.begin(self.subject, write=False) as transaction:
            found = list(transaction.facts.sources())
        return [source for source in found if self._may_read(source.labels)]

    # --- writing -----------------------------------------------------------------------

    def ingest(
        self,
        documents: Iterable[Document],
        *,
        kind: SourceKind | None = None,
        labels: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> IngestReport:
        """Ingest documents: the whole batch or, when anything fails, nothing.

        Spec: CRP-SPEC-009 §4.1

        A document that is stored with equal content adds nothing. Of one that has changed,
        passages that are still there keep their facts, new ones are added, and the facts of
        those that are gone become STALE.

        Args:
            documents: from a loader, or made by hand.
            kind: kind of all of them, above what they say themselves; None for their own.
            labels: access labels, added to their own.
            progress: called with step, done and total; a total of 0 means unknown.

        Raises:
            IngestError: a document cannot be ingested; names it.
            AccessDenied: the guard denies writing things with these labels.
            ConfigError: the stored vectors are of another embedder.
        """
        return self._ingestion().documents(
            documents,
            kind=kind,
            labels=tuple(sorted(set(labels))),
            progress=progress or silent,
        )

    def add(
        self,
        facts: Sequence[Fact | str],
        *,
        kind: SourceKind | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Add facts as they are, without chunking; the whole batch or nothing.

        Args:
            facts: facts, or texts that become facts of the source `user`.
            kind: kind of all of them; None for a fact's own, and `user` for texts.
            progress: as in `ingest`.

        Returns:
            A report whose `unchanged` holds the ids that were there already.

        Raises:
            FactRejected: a fact is too short, too long or of another namespace.
            AccessDenied: the guard denies writing things with a fact's labels.
        """
        return self._ingestion().facts(facts, kind=kind, progress=progress or silent)

    def begin(self, write: bool) -> AbstractContextManager[Transaction]:
        """A transaction of the namespace, for the relay's close; the guard does not look in.

        Raises:
            StoreError: the store cannot open one.
        """
        return self._fabric.begin(self.subject, write=write)

    # --- within ------------------------------------------------------------------------

    def _may_read(self, labels: tuple[str, ...]) -> bool:
        known = self._decided.get(labels)
        if known is None:
            known = self._guard.decide(self.subject, "read", labels).allowed
            self._decided[labels] = known
        return known

    def _allowed(self, index: Index) -> list[bool]:
        return [self._may_read(labels) for labels in index.label_sets]

    def _terms(self, query: str) -> list[str]:
        found = list(dict.fromkeys(word.lower for word in words(query)))
        telling = [word for word in found if word not in STOP_WORDS] or found
        return telling[: self._fabric.settings.query_terms]

    def _save_counts(self, key: str, counts: dict[str, int]) -> None:
        try:
            with self._fabric.begin(self.subject, write=True) as transaction:
                transaction.facts.save_token_counts(key, counts)
        except StoreBusy:
            # A count is only a saving: the next reader counts again.
            return

    def _ingestion(self) -> Ingestion:
        fabric = self._fabric

        def allow(labels: tuple[str, ...]) -> None:
            require(self._guard, self.subject, "write", labels)

        return Ingestion(
            namespace=self.subject.tenant,
            begin=lambda write: fabric.begin(self.subject, write=write),
            embedder=fabric.embedder,
            counter=fabric.counter,
            clock=fabric.clock,
            key=lambda: journal_key(fabric.keyring, self.subject.tenant),
            settings=fabric.settings,
            tracer=fabric.tracer,
            allow=allow,
            check=fabric.check_embedder,
        )
