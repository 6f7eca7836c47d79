"""The retriever and the node postprocessor, which both return a packed envelope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Self, get_args

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field, model_validator
from llama_index.core.indices.base import BaseIndex
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from crp_integrations.adapters.arguments import (
    PackBudget,
    check_count,
    check_packing,
    pydantic_errors,
)
from crp_integrations.adapters.evidence import facts_of
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.model import check_fields, check_nodes
from crp_integrations.llama_index.nodes import offers, packed_nodes, stored_nodes
from crp_integrations.llama_index.span_tree import current_span, process_tree, span_session
from crp_integrations.llama_index.spans import EnvelopeEvent
from crp_integrations.relay.defaults import RerankerSource, chosen_reranker
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Preset, load
from crp_integrations.relay.storeless_functions import CallerSelection
from crp_integrations.session.records import session_id_of
from crp_integrations.vocabulary.context import BudgetTokens, GroundingMode

CANDIDATES: Final = 50

dispatcher = get_dispatcher(__name__)


class CRPRetriever(BaseRetriever):
    """Returns the nodes that fit the budget best, in the order for the prompt.

    Spec: CRP-SPEC-003 §5 to §7

    The budget counts what the model is shown: facts of a relay without metadata, nodes of another
    retriever with the metadata that they do not exclude. Each node is a copy with its own part of
    the envelope in `metadata["crp_fact"]`, hidden from prompts and embeddings. The envelope, with
    the reason for each dropped node, is published as an `EnvelopeEvent`.

    Args:
        source: a relay, a retriever, or an index.
        model: model whose tokenizer counts.
        budget_tokens: maximum number of tokens of all nodes; None or `auto` for what the question
            needs, `window` for all that the model can take.
        k: maximum number of nodes, None for as many as fit.
        reranker, preset: used for a source's nodes; a relay has its own.
        session_id: session of a relay whose facts in memory are also searched; None takes the one
            in `instrument_tags`.
        candidates: number of nodes to request from an index; a retriever has its own.
        second_look: maximum number of follow-up queries to a source, made from names and texts of
            its first nodes, to find what only those lead to; 0 for none, 8 are enough.

    Raises:
        RequestError: an argument has no usable value, or cannot be used with the source.
        ConfigError: `reranker` is not a reranker.
    """

    def __init__(
        self,
        source: Relay | BaseRetriever | BaseIndex,  # type: ignore[type-arg]
        *,
        model: str,
        budget_tokens: BudgetTokens | None = None,
        k: int | None = None,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        reranker: RerankerSource | None = None,
        preset: Preset | None = None,
        session_id: str | None = None,
        candidates: int = CANDIDATES,
        second_look: int = 0,
    ) -> None:
        super().__init__()
        process_tree()
        check_count("candidates", candidates, least=1)
        check_count("second_look", second_look, least=0)
        if isinstance(source, BaseIndex):
            source = source.as_retriever(similarity_top_k=candidates)
        if not isinstance(source, Relay | BaseRetriever):
            raise RequestError(
                f"source is {type(source).__name__}, wanted a relay, a retriever or an index"
            )
        own = isinstance(source, Relay)
        if own and (reranker is not None or preset is not None):
            raise RequestError("give reranker and preset to Relay.open(…), not to CRPRetriever")
        if own and second_look:
            raise RequestError("a relay looks again by itself; second_look goes with a source")
        if not own and session_id is not None:
            raise RequestError("a source has no sessions; session_id goes with a relay")
        if preset is not None and preset not in get_args(Preset):
            raise RequestError(f"preset {preset!r:.40} is not one of {', '.join(get_args(Preset))}")
        chosen_reranker(reranker, load())
        if not isinstance(model, str) or not model:
            raise RequestError(f"model is {model!r:.40}, wanted a model's name")
        check_packing(budget_tokens=budget_tokens, k=k, grounding=grounding)
        self._source = source
        self._model = model
        self._budget = budget_tokens
        self._k = k
        self._grounding = grounding
        self._reranker = reranker
        self._settings = None if preset is None else load(preset=preset)
        self._second_look = second_look
        self._session = None if session_id is None else session_id_of(session_id)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self._source, Relay):
            envelope, nodes = self._from_relay(self._source, query_bundle.query_str)
        else:
            candidates = self._source.retrieve(query_bundle)
            selection = self._selection(query_bundle.query_str)
            for question in self._further(selection, candidates):
                candidates = [*candidates, *self._source.retrieve(question)]
            envelope, nodes = _pack(selection, candidates)
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        return nodes

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # Packing is CPU work, so it runs in a worker thread instead of the event loop.
        query = query_bundle.query_str
        if isinstance(self._source, Relay):
            envelope, nodes = await asyncio.to_thread(self._from_relay, self._source, query)
        else:
            candidates = await self._source.aretrieve(query_bundle)
            selection = self._selection(query)
            further = await asyncio.to_thread(self._further, selection, candidates)
            for more in await asyncio.gather(*map(self._source.aretrieve, further)):
                candidates = [*candidates, *more]
            envelope, nodes = await asyncio.to_thread(_pack, selection, candidates)
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        return nodes

    def _from_relay(self, relay: Relay, query: str) -> tuple[Envelope, list[NodeWithScore]]:
        envelope = relay.turn(
            query,
            model=self._model,
            budget_tokens=self._budget,
            grounding=self._grounding,
            k=self._k,
            session_id=self._session or span_session(current_span()) or None,
        ).retrieve()
        return envelope, stored_nodes(relay, envelope)

    def _selection(self, query: str) -> CallerSelection:
        return CallerSelection(
            query,
            model=self._model,
            budget_tokens=self._budget,
            grounding=self._grounding,
            k=self._k,
            reranker=self._reranker,
            settings=self._settings,
        )

    def _further(self, selection: CallerSelection, nodes: list[NodeWithScore]) -> tuple[str, ...]:
        """Follow-up queries to the source."""
        if not self._second_look:
            return ()
        facts, _ = facts_of(offers(nodes), noun="node")
        return selection.further_questions(facts, self._second_look)


def _pack(
    selection: CallerSelection, nodes: list[NodeWithScore]
) -> tuple[Envelope, list[NodeWithScore]]:
    facts, originals = facts_of(offers(nodes), noun="node")
    envelope = selection.pack(facts)
    return envelope, packed_nodes(envelope, originals)


class CRPNodePostprocessor(BaseNodePostprocessor):
    """Keeps the nodes that fit the budget best, as copies, in the envelope's order.

    Spec: CRP-SPEC-003 §6, §7

    The budget counts what a synthesizer shows the model: each node's text with the metadata that
    the node does not exclude. Each copy has `metadata["crp_fact"]`, which is excluded from prompts
    and embeddings. Nodes without text for the model, such as images, are left out. Rerank events
    and an `EnvelopeEvent` are published.

    Attributes:
        model: model whose tokenizer counts.
        budget_tokens: maximum number of tokens of all nodes; None or `auto` for what the question
            needs, `window` for all that the model can take.
        k: maximum number of nodes, None for as many as fit.

    Raises:
        RequestError: a field is unknown, or has no usable value.
    """

    model: str = Field(min_length=1)
    budget_tokens: PackBudget | None = None
    k: int | None = Field(default=None, ge=1)
    grounding: GroundingMode = GroundingMode.PREFERRED

    @model_validator(mode="wrap")
    @classmethod
    def _check_given_fields(cls, fields: Any, handler: Callable[[Any], Self]) -> Self:
        with pydantic_errors(cls):
            return handler(check_fields(cls, fields))

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "CRPNodePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise RequestError("CRPNodePostprocessor needs the query: query_bundle or query_str")
        untyped: object = query_bundle
        if not isinstance(untyped, QueryBundle):
            raise RequestError(
                f"query_bundle is {type(untyped).__name__}; give a QueryBundle, or query_str"
            )
        nodes = check_nodes(nodes)
        # Installs the span handler, which hides CRP metadata in nodes from nested query engines.
        process_tree()
        dispatcher.event(
            ReRankStartEvent(
                query=query_bundle, nodes=nodes, top_n=self.k or len(nodes), model_name=self.model
            )
        )
        selection = CallerSelection(
            query_bundle.query_str,
            model=self.model,
            budget_tokens=self.budget_tokens,
            grounding=self.grounding,
            k=self.k,
        )
        envelope, packed = _pack(selection, nodes)
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        dispatcher.event(ReRankEndEvent(nodes=packed))
        return packed
