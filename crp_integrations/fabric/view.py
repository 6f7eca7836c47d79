"""The facts that a subject can read, in layers: the first layer that stores an id decides.

The layers are the tenant's own namespace, the shared ones, and a session's facts in memory. Later
layers are not asked, whatever the fact's status in the first one: a fact that the tenant has
quarantined is not returned just because a shared namespace has the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from crp_integrations.fabric.ports import FactBrief
from crp_integrations.fabric.records import Edge, Fact, Source, Where
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.fabric.search.word_search import merge_by_rank
from crp_integrations.fabric.session_memory import EMPTY, RecentUse
from crp_integrations.fabric.state_hash import combine_state_hashes
from crp_integrations.guard.decisions import Decision
from crp_integrations.ports import Embedder, without_keeping
from crp_integrations.validation import several
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    from crp_integrations.fabric.namespace_reader import NamespaceReader
    from crp_integrations.fabric.session_memory import SessionFactsLayer

    FactLayer: TypeAlias = NamespaceReader | SessionFactsLayer

# Vector search over the whole fabric: tier 3 of the memory cascade (CRP-SPEC-003 §5.2).
COLD_TIER = 3


class FabricView:
    """All reads of the fabric, for one subject and guard; thread-safe.

    `Namespace` is a view of the stored facts; `Namespace.view` returns one that includes a
    session's facts. No method returns facts whose labels the guard denies to the subject, or facts
    that are DELETED or QUARANTINED.

    Spec: CRP-SPEC-009 §7.2, §9.2

    Args:
        own: the tenant's namespace.
        shared: shared namespaces, in the order of their names.
        session: facts in the session's memory when the view was made; None for none.
        embedder: embedder of all vectors.
        keep_counts: whether token counts may be stored, and vectors cached.
        shelf: ids and labels that the subject used recently; facts are read through this view.
    """

    def __init__(
        self,
        own: NamespaceReader,
        shared: Sequence[NamespaceReader] = (),
        session: SessionFactsLayer | None = None,
        *,
        embedder: Embedder,
        keep_counts: bool = True,
        shelf: RecentUse = EMPTY,
    ) -> None:
        self.shelf = shelf
        self._stored: tuple[NamespaceReader, ...] = (own, *shared)
        self._session = session
        self._layers: tuple[FactLayer, ...] = (
            *self._stored,
            *((session,) if session else ()),
        )
        self._keep_counts = keep_counts
        # Under `no-store`, and with facts that are in memory only, vectors are not kept either.
        self._embedder = embedder if keep_counts and not session else without_keeping(embedder)

    @property
    def embedder(self) -> Embedder:
        """The embedder whose vectors are stored."""
        return self._embedder

    @contextmanager
    def moment(self) -> Iterator[FabricView]:
        """Yield a view that reads one committed state of each namespace during the block.

        The state of a shared namespace may be slightly later than that of the own one. Do nothing
        slow in the block, since it prevents the store from scrubbing erased bytes.
        """
        with ExitStack() as stack:
            own, *shared = [stack.enter_context(layer.moment()) for layer in self._stored]
            yield FabricView(
                own,
                shared,
                self._session,
                embedder=self._embedder,
                keep_counts=self._keep_counts,
                shelf=self.shelf,
            )

    def decision(self, labels: tuple[str, ...]) -> Decision:
        """The guard's decision on reading facts with exactly these labels.

        Spec: Summit §Policy-as-Code Compliance Rules
        """
        return self._stored[0].decision(labels)

    def seen_facts(self) -> bool:
        """Whether the most recently read states contained facts; reads nothing."""
        in_session = self._session is not None and self._session.size() > 0
        return in_session or any(layer.seen_facts() for layer in self._stored)

    def generation(self) -> int:
        """A number that grows with every committed change of the retrievable facts."""
        return sum(layer.generation() for layer in self._stored)

    def state_hash(self) -> str:
        """The hash of all retrievable stored facts, whoever may read them; without sessions.

        This is the own namespace's hash, combined with those of the shared ones if there are any.

        Spec: CRP-SPEC-009 §6.1, §7.2, §9.2
        """
        own, *shared = (layer.state_hash() for layer in self._stored)
        return combine_state_hashes(own, shared)

    def size(self) -> int:
        """Number of facts that the subject may retrieve; a fact in two layers counts twice."""
        return sum(layer.size() for layer in self._layers)

    def memory_tier(self) -> int:
        """The highest tier of the memory cascade that a search uses (decision Fabric).

        Spec: CRP-SPEC-003 §5.2
        """
        if self._session and not any(layer.size() for layer in self._stored):
            return self._session.tier
        return COLD_TIER

    def held(self) -> list[str]:
        """Ids of the facts that are only in the session's memory, ascending."""
        if self._session is None:
            return []
        ids = self._session.ids()
        shadowed = self._shadowed(len(self._stored), ids)
        return [id_ for id_ in ids if id_ not in shadowed]

    def nearest(self, vector: FloatRows, k: int, where: Where | None = None) -> list[Hit]:
        """The k facts whose vectors are nearest; ties by id.

        Spec: CRP-SPEC-009 §3.1
        """
        hit_lists = self._found(k, lambda layer, wanted: layer.nearest(vector, wanted, where))
        if len(hit_lists) == 1:
            return hit_lists[0]
        hits = [hit for layer in hit_lists for hit in layer]
        return sorted(hits, key=lambda hit: (-hit.score, hit.fact_id))[:k]

    def search_text(self, query: str, k: int, where: Where | None = None) -> list[Hit]:
        """The k best facts that contain any word of a query; ties by id."""
        hit_lists = self._found(k, lambda layer, wanted: layer.search_text(query, wanted, where))
        if len(hit_lists) == 1:
            return hit_lists[0]
        return merge_by_rank(hit_lists, k)

    def find(self, where: Where) -> list[str]:
        """Ids of the stored facts that match the filter, ascending, without a session's facts."""
        all_ids: list[str] = []
        for number, layer in enumerate(self._stored):
            ids = layer.find(where)
            shadowed = self._shadowed(number, ids)
            all_ids += [id_ for id_ in ids if id_ not in shadowed]
        return sorted(all_ids) if len(self._stored) > 1 else all_ids

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order of the ids; facts that may not be retrieved are left out."""
        facts = {
            fact.fact_id: fact for layer, part in self._parted(ids) for fact in layer.facts(part)
        }
        return self._stored[0].aged(facts[id_] for id_ in ids if id_ in facts)

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """Briefs of facts for selection, in the order of the ids.

        Facts that may not be retrieved are left out.
        """
        if len(self._layers) == 1:
            return self._stored[0].aged(self._layers[0].briefs(ids))
        briefs = {
            brief.fact_id: brief
            for layer, part in self._parted(ids)
            for brief in layer.briefs(part)
        }
        return self._stored[0].aged(briefs[id_] for id_ in ids if id_ in briefs)

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order of the ids, shape (len(ids), dimensions)."""
        if len(self._layers) == 1:
            return self._layers[0].vectors(ids)
        row = {
            id_: vector
            for layer, part in self._parted(ids)
            for id_, vector in zip(part, layer.vectors(part), strict=True)
        }
        if not ids:
            return np.zeros((0, self.embedder.dimensions), dtype=np.float32)
        return np.stack([row[id_] for id_ in ids])

    def token_counts(
        self, key: str, ids: Sequence[str], count: Callable[[list[str]], list[int]]
    ) -> dict[str, int]:
        """Token counts of facts; only facts not yet counted under this key are counted now."""
        if len(self._layers) == 1:
            own = list(dict.fromkeys(ids))
            return self._layers[0].token_counts(key, own, count, keep=self._keep_counts)
        counts: dict[str, int] = {}
        for layer, part in self._parted(ids):
            counts |= layer.token_counts(key, part, count, keep=self._keep_counts)
        return {id_: counts[id_] for id_ in ids if id_ in counts}

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges from any of the facts to facts that the subject may retrieve, by source.

        Spec: Summit §Storage Interfaces
        """
        edges = [edge for layer, part in self._parted(ids) for edge in layer.edges(part)]
        return sorted(edges, key=lambda edge: (edge.source_fact, edge.kind, edge.target_fact))

    def sources(self, ids: Collection[str] | None = None) -> list[Source]:
        """Registry entries of the sources that the subject may see, by id.

        Spec: CRP-SPEC-009 §4.5
        """
        sources: dict[str, Source] = {}
        for layer in self._stored:
            for source in layer.sources(ids):
                sources.setdefault(source.source_id, source)
        return [sources[id_] for id_ in sorted(sources)]

    def _found(self, k: int, search: Callable[[FactLayer, int], list[Hit]]) -> list[list[Hit]]:
        """For each layer, its k best facts that no earlier layer stores."""
        hit_lists = []
        for number, layer in enumerate(self._layers):
            wanted = k
            while True:
                hits = search(layer, wanted)
                shadowed = self._shadowed(number, [hit.fact_id for hit in hits] if number else ())
                visible = [hit for hit in hits if hit.fact_id not in shadowed]
                # Hits stored in earlier layers are dropped, so request more until there are enough.
                if len(visible) >= k or len(hits) < wanted:
                    hit_lists.append(visible[:k])
                    break
                wanted *= 4
        return hit_lists

    def _shadowed(self, number: int, ids: Sequence[str]) -> set[str]:
        """The ids that are stored in any layer before the layer of this number."""
        layers = self._layers[:number] if ids else ()
        return {id_ for layer in layers for id_ in layer.holds(ids, aside=False)}

    def _parted(self, ids: Sequence[str]) -> Iterator[tuple[FactLayer, list[str]]]:
        """Yield each layer with the ids it decides about; the last one gets the remaining ids."""
        left = list(dict.fromkeys(several(ids, "ids", "a list of fact ids")))
        for layer in self._layers[:-1]:
            if held := layer.holds(left, aside=False) if left else set():
                yield layer, [id_ for id_ in left if id_ in held]
                left = [id_ for id_ in left if id_ not in held]
        if left:
            yield self._layers[-1], left
