"""A response synthesizer with one model call, whose context is an envelope byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.types import RESPONSE_TEXT_TYPE

from crp_integrations.adapters.arguments import check_packing
from crp_integrations.adapters.evidence import facts_of
from crp_integrations.envelope.prompt import render
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.events import EnvelopeEvent
from crp_integrations.llama_index.given import check_llm, check_nodes
from crp_integrations.llama_index.model import model_name
from crp_integrations.llama_index.packing import METADATA_KEY, offers, packed_nodes, texts_of
from crp_integrations.llama_index.wire import chat_message_of
from crp_integrations.relay import prompt
from crp_integrations.relay.build import tokenizers
from crp_integrations.relay.doors import pack
from crp_integrations.relay.question_fields import admit
from crp_integrations.relay.settings import load
from crp_integrations.vocabulary import GroundingMode

dispatcher = get_dispatcher(__name__)


class CRPSynthesizer(BaseSynthesizer):
    """Answers in one call from exactly the envelope; LlamaIndex's own split and re-pack text.

    Nodes that are one whole envelope of the same tokenizer, as `CRPRetriever` and
    `CRPNodePostprocessor` give them out, are shown as they are; others are packed first, and the
    envelope is published as an `EnvelopeEvent`. The response's source nodes are those that the
    model saw, in its order, and `metadata["crp_envelope"]` says which envelope it was. Examining is
    the business of `DPEEventHandler`; withholding, of `CRPQueryEngine`.

    Spec: CRP-SPEC-003 §7, §13.1

    Args:
        llm: the model; it is called with a system message and the question.
        model: whose tokenizer counts; None for the LLM's.
        budget_tokens: most tokens of the envelope, None for what the model takes in.
        k: most nodes, None for as many as fit.
        grounding: how far the model may go beyond the context; the system message says so.
        system_prompt: what stands in the system message before everything else.
        streaming: whether responses are streams.

    Raises:
        RequestError: neither `model` nor the LLM names a model, or a value has no use.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        model: str | None = None,
        budget_tokens: int | None = None,
        k: int | None = None,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        system_prompt: str | None = None,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_llm(llm)
        check_packing(budget_tokens=budget_tokens, k=k, grounding=grounding)
        super().__init__(llm=llm, callback_manager=callback_manager, streaming=streaming)
        named = model or model_name(llm)
        if not named:
            raise RequestError("the LLM names no model; give model=…, whose tokenizer counts")
        self._model = named
        self._counter = tokenizers(load())(named)
        self._budget = budget_tokens
        self._k = k
        self._grounding = grounding
        self._system = system_prompt

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        """There are none to change: what the model sees is the envelope."""

    def synthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Answer from nodes.

        Raises:
            RequestError: the question is empty, or the nodes are none.
        """
        shown = self._envelope(_text(query), check_nodes(nodes))
        response = super().synthesize(query, shown, additional_source_nodes, **response_kwargs)
        return _about(response, shown)

    async def asynthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """The asynchronous twin of `synthesize`; packs beside the event loop."""
        shown = await asyncio.to_thread(self._envelope, _text(query), check_nodes(nodes))
        response = await super().asynthesize(
            query, shown, additional_source_nodes, **response_kwargs
        )
        return _about(response, shown)

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Answer from texts that are an envelope's facts in its order."""
        messages = self._messages(query_str, text_chunks)
        if not self._streaming:
            return self._llm.chat(messages).message.content or ""
        parts = self._llm.stream_chat(messages)

        def pieces() -> Generator[str, None, None]:
            for part in parts:
                if part.delta:
                    yield part.delta

        return pieces()

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """The asynchronous twin of `get_response`."""
        messages = self._messages(query_str, text_chunks)
        if not self._streaming:
            return (await self._llm.achat(messages)).message.content or ""
        parts = await self._llm.astream_chat(messages)

        async def pieces() -> AsyncGenerator[str, None]:
            async for part in parts:
                if part.delta:
                    yield part.delta

        return pieces()

    def _messages(self, question: str, texts: Sequence[str]) -> list[Any]:
        request = admit(
            query=question,
            model=self._model,
            grounding=self._grounding,
            **({"system_prompt": self._system} if self._system else {}),
        )
        return [chat_message_of(one) for one in prompt.prompt_messages(request, render(texts))]

    def _envelope(self, question: str, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        whole = self._whole(nodes)
        if whole is not None:
            return whole
        facts, originals = facts_of(offers(nodes), noun="node")
        envelope = pack(
            question,
            facts,
            model=self._model,
            budget_tokens=self._budget,
            grounding=self._grounding,
            k=self._k,
        )
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        return packed_nodes(envelope, originals)

    def _whole(self, nodes: list[NodeWithScore]) -> list[NodeWithScore] | None:
        """The nodes in their order where they are a whole envelope that fits; else None."""
        told: list[Any] = [scored.node.metadata.get(METADATA_KEY) for scored in nodes]
        if not nodes or not all(isinstance(one, dict) and "position" in one for one in told):
            return None
        placed = sorted(zip(told, nodes, strict=True), key=lambda pair: pair[0]["position"])
        ordered = [scored for _, scored in placed]
        if [one["position"] for one, _ in placed] != list(range(1, len(nodes) + 1)):
            return None
        if len({one["envelope"]["etag"] for one in told}) > 1 or len(nodes) > (
            self._k or len(nodes)
        ):
            return None
        # Nodes that were left out since, or changed, or counted by another tokenizer, show here.
        tokens = self._counter.count(render(texts_of(ordered)))
        fits = self._budget is None or tokens <= self._budget
        return ordered if tokens == told[0]["envelope"]["token_count"] and fits else None


def _text(query: QueryType) -> str:
    return query.query_str if isinstance(query, QueryBundle) else query


def _about(response: RESPONSE_TYPE, shown: Sequence[NodeWithScore]) -> RESPONSE_TYPE:
    if not shown:
        return response
    told = [scored.node.metadata[METADATA_KEY] for scored in shown]
    about = {**told[0]["envelope"], "facts": [one["fact_id"] for one in told]}
    response.metadata = {**(response.metadata or {}), "crp_envelope": about}
    return response
