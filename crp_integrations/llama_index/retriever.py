"""A retriever whose nodes are a packed envelope."""

from __future__ import annotations

import asyncio
from typing import Final, get_args

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.base import BaseIndex
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.schema import NodeWithScore, QueryBundle

from crp_integrations.adapters.arguments import check_count, check_packing
from crp_integrations.adapters.evidence import facts_of
from crp_integrations.envelope.ports import Reranker
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.events import EnvelopeEvent
from crp_integrations.llama_index.listening import here, listen, session_in
from crp_integrations.llama_index.packing import offers, packed_nodes, stored_nodes
from crp_integrations.llama_index.sessions import named_session
from crp_integrations.relay.components import check_components
from crp_integrations.relay.doors import pack
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Preset, load
from crp_integrations.vocabulary import GroundingMode

CANDIDATES: Final = 50

dispatcher = get_dispatcher(__name__)


class CRPRetriever(BaseRetriever):
    """Returns what fits the budget best, in the order in which the model should see it.

    Spec: CRP-SPEC-003 §5 to §7

    From a relay the model is shown facts without metadata, which is what the budget counts; from
    another retriever what its nodes let through. Each node is a copy with its part of the envelope
    in `metadata["crp"]`, hidden from prompts and embeddings. The envelope, with everything dropped
    and why, is published as an `EnvelopeEvent`.

    Args:
        source: a relay, a retriever, or an index, which is asked for `candidates` nodes.
        model: whose tokenizer counts.
        budget_tokens: most tokens of the nodes together, None for the model's context limit.
        k: most nodes, None for as many as fit.
        grounding: how far the model may go beyond the context; the tier depends on it.
        reranker: looks at a source's nodes again; a relay has its own.
        preset: settings for a source's nodes, `default` or `literal`; a relay has its own.
        session_id: session of a relay whose facts in memory are found too; None takes the one that
            `instrument_tags` name.
        candidates: nodes that an index is asked for; a retriever knows its own.

    Raises:
        RequestError: an argument has no usable value, or does not go with the source.
        ConfigError: what is given as a reranker is none.
    """

    def __init__(
        self,
        source: Relay | BaseRetriever | BaseIndex,  # type: ignore[type-arg]
        *,
        model: str,
        budget_tokens: int | None = None,
        k: int | None = None,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        reranker: Reranker | None = None,
        preset: Preset | None = None,
        session_id: str | None = None,
        candidates: int = CANDIDATES,
    ) -> None:
        super().__init__()
        listen()
        check_count("candidates", candidates, least=1)
        if isinstance(source, BaseIndex):
            source = source.as_retriever(similarity_top_k=candidates)
        if not isinstance(source, Relay | BaseRetriever):
            raise RequestError(
                f"source is {type(source).__name__}, wanted a relay, a retriever or an index"
            )
        own = isinstance(source, Relay)
        if own and (reranker is not None or preset is not None):
            raise RequestError("give reranker and preset to Relay.open(…), not to CRPRetriever")
        if not own and session_id is not None:
            raise RequestError("a source has no sessions; session_id goes with a relay")
        if preset is not None and preset not in get_args(Preset):
            raise RequestError(f"preset {preset!r:.40} is not one of {', '.join(get_args(Preset))}")
        check_components(reranker=reranker)
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
        self._session = None if session_id is None else named_session(session_id)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self._source, Relay):
            envelope, nodes = self._from_relay(self._source, query_bundle.query_str)
        else:
            found = self._source.retrieve(query_bundle)
            envelope, nodes = self._from_nodes(query_bundle.query_str, found)
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        return nodes

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # Packing is computing, not waiting: it runs beside the event loop, not on it.
        query = query_bundle.query_str
        if isinstance(self._source, Relay):
            envelope, nodes = await asyncio.to_thread(self._from_relay, self._source, query)
        else:
            found = await self._source.aretrieve(query_bundle)
            envelope, nodes = await asyncio.to_thread(self._from_nodes, query, found)
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        return nodes

    def _from_relay(self, relay: Relay, query: str) -> tuple[Envelope, list[NodeWithScore]]:
        envelope = relay.turn(
            query,
            model=self._model,
            budget_tokens=self._budget,
            grounding=self._grounding,
            k=self._k,
            session_id=self._session or session_in(here()) or None,
        ).preview()
        return envelope, stored_nodes(relay, envelope)

    def _from_nodes(
        self, query: str, found: list[NodeWithScore]
    ) -> tuple[Envelope, list[NodeWithScore]]:
        facts, originals = facts_of(offers(found), noun="node")
        envelope = pack(
            query,
            facts,
            model=self._model,
            budget_tokens=self._budget,
            grounding=self._grounding,
            k=self._k,
            reranker=self._reranker,
            settings=self._settings,
        )
        return envelope, packed_nodes(envelope, originals)
