"""The reads of one stored namespace, as one subject may see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.records import Fact, Source, Where
from crp_integrations.fabric.search.index import Hit, Index
from crp_integrations.guard.decisions import Guard
from crp_integrations.guard.subjects import Subject
from crp_integrations.language.words import STOP_WORDS, words
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric


class Reading:
    """One namespace of the store, for a subject and a guard; safe between threads.

    For `Namespace` alone, which puts the tenant's own and the shared ones together.

    Attributes:
        name: the namespace's name in the store.
    """

    def __init__(self, fabric: Fabric, name: str, subject: Subject, guard: Guard) -> None:
        self._fabric = fabric
        self._subject = subject
        self._guard = guard
        self._decided: dict[tuple[str, ...], bool] = {}
        self.name = name

    def generation(self) -> int:
        """A number that grows with every committed change of what can be retrieved."""
        with self._fabric.begin(self.name, write=False) as transaction:
            return transaction.facts.generation()

    def state_hash(self) -> str:
        """One value for everything that can be retrieved in the namespace, by anybody.

        Spec: CRP-SPEC-009 §6.1
        """
        return self._fabric.state_hash(self.name)

    def size(self) -> int:
        """How many facts the subject may retrieve."""
        index = self._fabric.index(self.name)
        return index.count(self._allowed(index))

    def find(self, where: Where) -> list[str]:
        """Ids of the retrievable facts that are meant, ascending."""
        with self._fabric.begin(self.name, write=False) as transaction:
            found = transaction.facts.retrievable(transaction.facts.find(where))
        return [id_ for id_, labels in found if self.may_read(labels)]

    def nearest(self, vector: FloatRows, k: int, where: Where | None = None) -> list[Hit]:
        """The k facts whose vectors are nearest; ties by id.

        Exact up to the size `graph.exact_up_to`, and with a filter at any size.

        Spec: CRP-SPEC-009 §3.1

        Args:
            vector: unit vector, shape (dimensions,).
            k: how many; fewer come when there are fewer.
            where: which facts are wanted; only retrievable ones come whatever it says.

        Returns:
            Ids with their cosine in [-1, 1], highest first.
        """
        with self._fabric.begin(self.name, write=False) as transaction:
            picture = self._fabric.live(self.name).picture(transaction.facts)
            allowed = self._allowed(picture.index)
            among = None if where is None else picture.select(transaction.facts, where, allowed)
        return picture.index.nearest(
            vector,
            k,
            # A selection holds nothing that may not be seen.
            allowed=None if among else allowed,
            among=among,
            scan_rows=self._fabric.settings.scan_rows,
        )

    def search_text(self, query: str, k: int, where: Where | None = None) -> list[Hit]:
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
        with self._fabric.begin(self.name, write=False) as transaction:
            facts = transaction.facts
            index = self._fabric.live(self.name).picture(facts).index
            allowed = self._allowed(index)
            meant = None if where is None else set(facts.find(where))
            words = self._fabric.words(self.name, len(index))
            wanted = k
            while True:
                found = (
                    facts.search_text(terms, wanted)
                    if words is None
                    else words.search(facts, terms, wanted)
                )
                hits = [
                    Hit(id_, score)
                    for id_, score in found
                    if (meant is None or id_ in meant) and index.seen(id_, allowed)
                ]
                # What is not meant or withheld took places, so ask for more until there are
                # enough.
                if len(hits) >= k or len(found) < wanted:
                    return hits[:k]
                wanted *= 4

    def holds(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are stored here, whatever their status and labels."""
        with self._fabric.begin(self.name, write=False) as transaction:
            return {fact.fact_id for fact in transaction.facts.get(ids)}

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order asked for; what may not be retrieved is left out."""
        with self._fabric.begin(self.name, write=False) as transaction:
            found = transaction.facts.get(ids)
        return [fact for fact in found if fact.retrievable and self.may_read(fact.labels)]

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order asked for, shape (len(ids), dimensions).

        Raises:
            StoreError: an id is not one that the subject may retrieve.
        """
        index = self._fabric.index(self.name)
        allowed = self._allowed(index)
        return index.rows(ids, allowed=allowed)

    def token_counts(
        self,
        key: str,
        ids: Sequence[str],
        count: Callable[[list[str]], list[int]],
        *,
        keep: bool = True,
    ) -> dict[str, int]:
        """Token counts of facts, counting only those never counted under this key.

        Args:
            key: identity of the counter and of what is counted, such as `o200k/render@1`.
            ids: facts that the subject may retrieve; others are left out.
            count: counts contents.
            keep: whether new counts may be stored.

        Returns:
            Tokens by id.
        """
        index = self._fabric.index(self.name)
        allowed = self._allowed(index)
        seen = [id_ for id_ in ids if index.seen(id_, allowed)]
        with self._fabric.begin(self.name, write=False) as transaction:
            stored = dict(transaction.facts.token_counts(key, seen))
        # Texts are read for what was never counted alone.
        missing = self.facts([id_ for id_ in dict.fromkeys(seen) if id_ not in stored])
        if missing:
            counted = count([fact.content for fact in missing])
            new = dict(zip((fact.fact_id for fact in missing), counted, strict=True))
            stored |= new
            if keep:
                self._save_counts(key, new)
        return {id_: stored[id_] for id_ in seen if id_ in stored}

    def sources(self, ids: Collection[str] | None = None) -> list[Source]:
        """The registry's entries that the subject may see, by id.

        Spec: CRP-SPEC-009 §4.5

        Args:
            ids: of the sources wanted; None for every one.
        """
        with self._fabric.begin(self.name, write=False) as transaction:
            facts = transaction.facts
            if ids is None:
                found = list(facts.sources())
            else:
                looked_up = (facts.source(id_) for id_ in sorted(set(ids)))
                found = [source for source in looked_up if source is not None]
        return [source for source in found if self.may_read(source.labels)]

    # --- within ------------------------------------------------------------------------

    def may_read(self, labels: tuple[str, ...]) -> bool:
        """Whether the guard lets the subject read what carries exactly these labels."""
        known = self._decided.get(labels)
        if known is None:
            known = self._guard.decide(self._subject, "read", labels).allowed
            self._decided[labels] = known
        return known

    def _allowed(self, index: Index) -> list[bool]:
        return [self.may_read(labels) for labels in index.label_sets]

    def _terms(self, query: str) -> list[str]:
        found = list(dict.fromkeys(word.lower for word in words(query)))
        telling = [word for word in found if word not in STOP_WORDS] or found
        return telling[: self._fabric.settings.query_terms]

    def _save_counts(self, key: str, counts: dict[str, int]) -> None:
        try:
            with self._fabric.begin(self.name, write=True) as transaction:
                transaction.facts.save_token_counts(key, counts)
        except StoreBusy:
            # A count is only a saving: the next reader counts again.
            return
