"""Base of the vector-store views for all frameworks: items that have their own ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from pydantic import JsonValue, ValidationError

from crp_integrations.errors import FactRejected, RequestError, StoreError
from crp_integrations.fabric.ingest.fact_preparation import plain_metadata
from crp_integrations.fabric.ingest.fact_upsert import named
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import (
    USER_SOURCE,
    Fact,
    Where,
    access_labels,
    fact_id,
    source_id,
)
from crp_integrations.relay.relay import Relay
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows, cosine, top, unit_rows
from crp_integrations.vocabulary import SourceKind

# Reserved metadata key of this package; removed before metadata is returned to the caller.
ITEM_KEY = "crp:item"


@dataclass(frozen=True, slots=True)
class StoreItem:
    """A framework's document or node as it is stored.

    Attributes:
        id: the framework's id; empty derives one from source, metadata and text.
        content: its text.
        metadata: the caller's metadata.
        origin: URI of its source; empty if unknown.
        extra: values that the framework needs to rebuild the object.
    """

    id: str
    content: str
    metadata: dict[str, JsonValue]
    origin: str = ""
    extra: dict[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class StoreItems:
    """A namespace with the operations of a vector store.

    Attributes:
        namespace: the namespace that contains all items.
        kind: source kind of added items; decides their importance.
        labels: access labels of added items.
    """

    namespace: Namespace
    kind: SourceKind = SourceKind.USER
    labels: tuple[str, ...] = ()

    def put(self, items: Sequence[StoreItem], vectors: FloatRows | None = None) -> list[str]:
        """Add items, and replace those whose id exists: all of them or none."""
        ids = self._fact_ids([item.id for item in items])
        uris: dict[str, str] = {}
        facts: list[Fact] = []
        for number, (item, known) in enumerate(zip(items, ids, strict=True), 1):
            if item.origin:
                uris[source_id(item.origin)] = item.origin
            facts.append(self._fact(item, known, number))
        self.namespace.put(facts, uris=uris, vectors=vectors)
        return [item.id or fact.fact_id for item, fact in zip(items, facts, strict=True)]

    def get(self, ids: Iterable[str]) -> list[Fact]:
        """Facts of items in the order of `ids`, each once; unknown ids are left out."""
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            shown = f"the text {ids!r:.40}" if isinstance(ids, str) else type(ids).__name__
            raise RequestError(f"ids is {shown}; give a list of ids")
        # `ids` may name one item twice: by its own id and by its fact's id.
        wanted = self._fact_ids(list(dict.fromkeys(ids)))
        return self.namespace.facts(list(dict.fromkeys(wanted)))

    def remove(self, ids: Iterable[str]) -> None:
        """Delete items; unknown ids are ignored."""
        self.forget([fact.fact_id for fact in self.get(ids)])

    def forget(self, fact_ids: Sequence[str]) -> None:
        """Delete facts by fact id."""
        if fact_ids:
            self.namespace.forget(facts=fact_ids)

    def nearest(
        self, vector: Any, k: int, *, where: Where | None = None, among: Sequence[str] | None = None
    ) -> list[tuple[Fact, float]]:
        """Facts nearest to a vector with their cosines, highest first, ties by fact id."""
        if isinstance(vector, str):
            raise RequestError("the vector is a text; embed it first, or search by text")
        row = unit_rows([vector], dimensions=self.namespace.embedder.dimensions)[0]
        check_k(k)
        if k <= 0:
            return []
        if among is None:
            hits = [
                (hit.fact_id, float(hit.score)) for hit in self.namespace.nearest(row, k, where)
            ]
        else:
            ids, rows = self._rows(sorted(among))
            scores = cosine(rows, row)
            hits = [(ids[place], float(scores[place])) for place in top(scores, ids, k)]
        return self._with_facts(hits)

    def worded(
        self, query: str, k: int, *, where: Where | None = None, among: Sequence[str] | None = None
    ) -> list[tuple[Fact, float]]:
        """Facts that contain any word of a query with their BM25 score, highest first."""
        check_k(k)
        chosen = None if among is None else set(among)
        wanted = k
        while wanted > 0:
            hits = self.namespace.search_text(query, wanted, where)
            matching = [hit for hit in hits if chosen is None or hit.fact_id in chosen][:k]
            # Hits outside `among` used up places, so ask for more until there are enough.
            if len(matching) == k or len(hits) < wanted:
                return self._with_facts([(hit.fact_id, float(hit.score)) for hit in matching])
            wanted *= 4
        return []

    def diverse(
        self, hits: Sequence[tuple[Fact, float]], k: int, balance: float
    ) -> list[tuple[Fact, float]]:
        """Maximal marginal relevance: k of the hits, near the query and far from each other."""
        untyped: object = balance
        if not (isinstance(untyped, Real) and 0.0 <= balance <= 1.0):
            raise RequestError(
                f"the balance of relevance and diversity is {balance!r:.40}, wanted 0 to 1"
            )
        by_id = {fact.fact_id: (fact, score) for fact, score in hits}
        ids, rows = self._rows(list(by_id))
        left = [by_id[id_] for id_ in ids]
        scores = np.array([score for _, score in left], dtype=np.float64)
        return [left[place] for place in _marginal_places(rows, scores, k, balance)]

    # --- helpers -----------------------------------------------------------------------

    def _with_facts(self, hits: Sequence[tuple[str, float]]) -> list[tuple[Fact, float]]:
        """Hits with their facts; facts deleted since the search are left out."""
        facts = {fact.fact_id: fact for fact in self.namespace.facts([id_ for id_, _ in hits])}
        return [(facts[id_], score) for id_, score in hits if id_ in facts]

    def _rows(self, ids: list[str]) -> tuple[list[str], FloatRows]:
        """Ids and vectors of facts; facts withdrawn since the search are left out."""
        while True:
            try:
                return ids, self.namespace.vectors(ids)
            except StoreError:
                left = {fact.fact_id for fact in self.namespace.facts(ids)}
                if len(left) == len(ids):
                    raise
                ids = [id_ for id_ in ids if id_ in left]

    def _fact_ids(self, ids: Sequence[str]) -> list[str]:
        """Fact ids of item ids: the id itself where a fact has it, else the one derived from it."""
        for number, id_ in enumerate(ids, 1):
            if not isinstance(id_, str):
                raise RequestError(
                    f"id {number} is {type(id_).__name__} {id_!r:.40}, wanted a text"
                )
        native = {fact.fact_id for fact in self.namespace.facts(list(ids))} if ids else set()
        return [id_ if id_ in native else named(id_) if id_ else "" for id_ in ids]

    def _fact(self, item: StoreItem, known: str, number: int) -> Fact:
        if ITEM_KEY in item.metadata:
            raise FactRejected(f"item {number} has metadata {ITEM_KEY!r}, which is reserved")
        if not isinstance(item.content, str):
            raise FactRejected(f"item {number} is {type(item.content).__name__}, wanted a text")
        if not item.content.strip():
            shown = f"{item.content!r:.40}"
            raise FactRejected(f"item {number} has the empty text {shown}; leave it out")
        source = source_id(item.origin) if item.origin else USER_SOURCE
        own: dict[str, JsonValue] = {"id": item.id} if item.id else {}
        try:
            if not known:
                metadata = json.dumps(item.metadata, sort_keys=True, ensure_ascii=False)
                known = fact_id(source, sha256(metadata), sha256(item.content))
            return Fact(
                content=item.content,
                fact_id=known,
                source_id=source,
                kind=self.kind,
                labels=self.labels,
                metadata={**item.metadata, ITEM_KEY: {**own, **(item.extra or {})}},
            )
        except (ValidationError, UnicodeEncodeError):
            # The original message would quote the text.
            raise FactRejected(f"item {number} has text that cannot be encoded as UTF-8") from None


def items_of(place: Namespace | Relay, kind: SourceKind | str, labels: Iterable[str]) -> StoreItems:
    """The items of a namespace, or of a relay's namespace."""
    namespace = place.fabric if isinstance(place, Relay) else place
    if not isinstance(namespace, Namespace):
        raise RequestError(f"wanted a relay or a namespace, not {type(place).__name__}")
    try:
        chosen = SourceKind(kind)
    except ValueError:
        wanted = ", ".join(SourceKind)
        raise RequestError(f"kind {kind!r:.40} is not one of {wanted}") from None
    return StoreItems(namespace, chosen, access_labels(labels, RequestError))


def item_metadata(fact: Fact) -> tuple[str, dict[str, Any]]:
    """The id and metadata that a framework's object gets for a fact.

    A fact that was not added by a view has its fact id, and its source id as `source`.
    """
    metadata = dict(fact.metadata)
    item = metadata.pop(ITEM_KEY, None)
    if not isinstance(item, dict):
        return fact.fact_id, {**metadata, "source": fact.source_id}
    return str(item.get("id", fact.fact_id)), metadata


def item_extra(fact: Fact) -> dict[str, Any]:
    """Values that a framework stored with a fact to rebuild its object."""
    item = fact.metadata.get(ITEM_KEY)
    return item if isinstance(item, dict) else {}


def own_metadata(metadata: Mapping[Any, Any] | None, number: int) -> dict[str, JsonValue]:
    """An item's metadata as plain JSON."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise FactRejected(
            f"the metadata of item {number} is {type(metadata).__name__}, wanted a dict"
        )
    return plain_metadata(metadata or {}, name=f"item {number}", refusal=FactRejected)


def check_k(k: object) -> None:
    """Check a number of results; below 1, there are none."""
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise RequestError(f"k is {k!r:.40}, wanted a whole number")


def _marginal_places(rows: FloatRows, scores: Any, k: int, balance: float) -> list[int]:
    """Indexes of the chosen rows in the order of choice; ties go to the earlier row."""
    chosen: list[int] = []
    # Similarity of each row to the nearest chosen row.
    near = np.full(len(scores), -np.inf)
    left = np.ones(len(scores), dtype=np.bool_)
    while len(chosen) < min(k, len(scores)):
        gain = scores if not chosen else balance * scores - (1.0 - balance) * near
        best = int(np.argmax(np.where(left, gain, -np.inf)))
        chosen.append(best)
        left[best] = False
        near = np.maximum(near, cosine(rows, rows[best]).astype(np.float64))
    return chosen
