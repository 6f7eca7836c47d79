"""Contexts that pass through the objects of a framework, over the units of the other systems.

`crp_wrap` is `CRPRetriever.wrap` over LangChain's vector store, `crp_wrap_again` the same with a
second look, `crp_node` our node postprocessor behind LlamaIndex's vector retriever. Each gets the
50 units that the store's own search finds nearest and packs what it is given; the text that a model
would read is looked up in the documents. `langchain_compression` is LangChain's own compression of
the same search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal
from unittest import mock

from crp_integrations.envelope.prompt import ELLIPSIS, marker_text, render
from crp_integrations.evaluation.context_metrics import (
    AxisSpan,
    ContextUnit,
    MeasuredContext,
    TextAxis,
    squeezed,
)
from crp_integrations.evaluation.data_sets import Collection
from crp_integrations.evaluation.selection import (
    AUTO,
    MODEL,
    PASSAGES,
    ContextSystem,
    PacksByBudget,
    SystemOpener,
)
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.relay import defaults
from tests.bench.selection_peers import DEPTH, Corpus, PeerOpeners, pack

Budget = int | Literal["auto"]
# Further questions of a second look, as the documentation advises.
FURTHER: Final = 8


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text as a model would read it.

    Attributes:
        place: of the unit that it is or is part of.
        score: what it was ranked by.
    """

    place: int
    text: str
    score: float


# Gives the texts for a question in the order in which a model would read them.
Adapter = Callable[[str], Sequence[ShownText]]


def _langchain(corpus: Corpus, budget: Budget, **fields: Any) -> Adapter:
    from crp_integrations.langchain import CRPRetriever
    from tests.bench.peers.langchain_retrievers import store

    source = store(corpus.ids, corpus.texts, corpus.rows, corpus.embedder.embed_query)
    retriever = CRPRetriever.wrap(
        source, model=MODEL, candidates=PASSAGES, budget_tokens=budget, **fields
    )

    def show(question: str) -> list[ShownText]:
        return [
            ShownText(
                int(str(one.id)), one.page_content, one.metadata["crp_fact"]["composite_score"]
            )
            for one in retriever.invoke(question)
        ]

    return show


def _wrap(corpus: Corpus, budget: Budget) -> Adapter:
    return _langchain(corpus, budget)


def _wrap_again(corpus: Corpus, budget: Budget) -> Adapter:
    return _langchain(corpus, budget, second_look=FURTHER)


def _node(corpus: Corpus, budget: Budget) -> Adapter:
    from llama_index.core.schema import MetadataMode, QueryBundle

    from crp_integrations.llama_index import CRPNodePostprocessor
    from tests.bench.peers.llama_index_retrievers import vector

    source = vector(corpus.ids, corpus.texts, corpus.rows, corpus.embedder.embed_query, PASSAGES)
    postprocessor = CRPNodePostprocessor(model=MODEL, budget_tokens=budget)

    def show(question: str) -> list[ShownText]:
        nodes = postprocessor.postprocess_nodes(
            source.nodes(question), query_bundle=QueryBundle(question)
        )
        return [
            ShownText(
                int(one.node.node_id),
                one.node.get_content(metadata_mode=MetadataMode.LLM),
                one.node.metadata["crp_fact"]["composite_score"],
            )
            for one in nodes
        ]

    return show


ADAPTERS: Final[Mapping[str, Callable[[Corpus, Budget], Adapter]]] = {
    "crp_wrap": _wrap,
    "crp_wrap_again": _wrap_again,
    "crp_node": _node,
}
COMPRESSION: Final = "langchain_compression"


class AdapterContexts:
    """The contexts of an adapter of ours over a collection.

    Attributes:
        size: how many units the store holds.
        digest: name of the adapter, for the report.
        unplaced: ids of units that were shown with a text that they do not hold.
    """

    def __init__(self, name: str, corpus: Corpus, axis: TextAxis, counter: TokenCounter) -> None:
        self.digest = f"{name} of this package over {PASSAGES} units"
        self.size = len(corpus.units)
        self.unplaced: set[str] = set()
        self._make = ADAPTERS[name]
        self._corpus, self._axis, self._counter = corpus, axis, counter
        self._made: dict[Budget, Adapter] = {}

    def contexts(
        self, question: str, budgets: Sequence[int]
    ) -> tuple[PacksByBudget, Sequence[ContextUnit]]:
        """The context for each budget and for `auto`, and the ranking of the largest."""
        # The adapters embed by the shipped model; kept vectors are the same ones, made before.
        with mock.patch.object(defaults, "default_embedder", return_value=self._corpus.embedder):
            packs: PacksByBudget = {one: self._shown(question, one) for one in budgets}
            packs[AUTO] = self._shown(question, AUTO)
        largest = packs[budgets[-1]]
        by_id = {unit.unit_id: unit for unit in largest.units}
        return packs, [by_id[one] for one in largest.ranked]

    def _shown(self, question: str, budget: Budget) -> MeasuredContext:
        if budget not in self._made:
            self._made[budget] = self._make(self._corpus, budget)
        shown = self._made[budget](question)
        units = tuple(self._unit(one) for one in shown)
        best = sorted(range(len(shown)), key=lambda place: (-shown[place].score, place))
        tokens = self._counter.count(render([one.text for one in shown])) if shown else 0
        return MeasuredContext(units, tuple(units[place].unit_id for place in best), tokens)

    def _unit(self, shown: ShownText) -> ContextUnit:
        whole = self._corpus.units[shown.place]
        if shown.text == whole.text:
            return whole
        found = tuple(places(self._axis, whole, shown.text.split(ELLIPSIS)))
        if not found:
            self.unplaced.add(whole.unit_id)
        tokens = self._counter.count(marker_text(shown.text))
        return ContextUnit(whole.unit_id, whole.doc_id, shown.text, tokens, found)

    def close(self) -> None:
        """Nothing is held."""


def places(axis: TextAxis, unit: ContextUnit, pieces: Sequence[str]) -> Iterator[AxisSpan]:
    """Where the parts of a unit stand; nothing of one that the unit does not hold."""
    (whole,) = unit.stretches
    for piece in pieces:
        wanted = squeezed(piece)
        start = axis.text.find(wanted, whole.start, whole.end) if wanted else -1
        if start >= 0:
            yield AxisSpan(start, start + len(wanted))


class CompressionContexts:
    """What LangChain's `ContextualCompressionRetriever` gives, packed as every peer is.

    Attributes:
        size: how many units the store holds.
        digest: the library's name and version.
    """

    unplaced: set[str] = set()

    def __init__(self, corpus: Corpus, axis: TextAxis, counter: TokenCounter) -> None:
        from tests.bench.peers.langchain_retrievers import Compression

        self._retriever = Compression(
            corpus.ids, corpus.texts, corpus.rows, corpus.embedder, PASSAGES, DEPTH
        )
        self.digest, self.size = self._retriever.name, len(corpus.units)
        self._corpus, self._axis, self._counter = corpus, axis, counter

    def contexts(
        self, question: str, budgets: Sequence[int]
    ) -> tuple[PacksByBudget, Sequence[ContextUnit]]:
        """The context for each budget, and all pieces that were kept, best first."""
        ranked = [
            self._unit(number, place, text)
            for number, (place, text) in enumerate(self._retriever.pieces(question))
        ]
        return {budget: pack(ranked, budget, self._counter) for budget in budgets}, ranked

    def _unit(self, number: int, place: int, text: str) -> ContextUnit:
        whole = self._corpus.units[place]
        return ContextUnit(
            f"{whole.unit_id}/{number}",
            whole.doc_id,
            text,
            self._counter.count(marker_text(text)),
            tuple(places(self._axis, whole, [text])),
        )

    def close(self) -> None:
        """Nothing is held."""


def openers(peers: PeerOpeners) -> dict[str, SystemOpener]:
    """An opener for each adapter and for the compression, over the units of the peers."""

    def opened(
        name: str,
        collection: Collection,
        axis: TextAxis,
        embedder: Embedder,
        counter: TokenCounter,
    ) -> ContextSystem:
        corpus = peers.corpus(collection, axis, embedder, counter)
        if name == COMPRESSION:
            return CompressionContexts(corpus, axis, counter)
        return AdapterContexts(name, corpus, axis, counter)

    return {name: partial(opened, name) for name in (*ADAPTERS, COMPRESSION)}
