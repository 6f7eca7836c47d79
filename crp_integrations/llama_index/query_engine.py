"""The whole turn as a query engine, and a response synthesizer over one envelope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from itertools import chain
from typing import Any, Final, TypeVar, Unpack, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts.mixin import PromptDictType, PromptMixinType
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.types import RESPONSE_TEXT_TYPE

from crp_integrations.adapters.arguments import check_packing, check_relay, check_values
from crp_integrations.adapters.evidence import FACT_KEY, facts_of
from crp_integrations.adapters.observed_answers import Attach, check_attach
from crp_integrations.envelope.prompt import render
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.messages import answer_metadata, chat_message_of
from crp_integrations.llama_index.model import LlamaIndexModel, check_llm, check_nodes, model_name
from crp_integrations.llama_index.nodes import offers, packed_nodes, stored_nodes, texts_of
from crp_integrations.llama_index.span_tree import current_span, process_tree, span_session
from crp_integrations.llama_index.spans import (
    EnvelopeEvent,
    ReportEvent,
    Span,
    agent_position,
    attach_metadata,
)
from crp_integrations.ports import Model
from crp_integrations.relay import prompt, steps
from crp_integrations.relay.composition import Composition
from crp_integrations.relay.defaults import tokenizers
from crp_integrations.relay.drive import (
    ASK,
    STREAM,
    adrive,
    adrive_stream,
    atrace_stream,
    drive,
    drive_stream,
    trace_stream,
)
from crp_integrations.relay.question_fields import QuestionFields, admit
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import load
from crp_integrations.relay.storeless_functions import pack
from crp_integrations.session.records import session_id_of
from crp_integrations.vocabulary.context import BudgetTokens, GroundingMode

Answered = TypeVar("Answered", Response, StreamingResponse, AsyncStreamingResponse)
# Fields that a caller may not set: a query engine has no conversation and no tools.
_FILLED: Final = frozenset({"history", "results", "tools", "compact", "compaction"})

dispatcher = get_dispatcher(__name__)


class CRPQueryEngine(BaseQueryEngine):
    """Answers from a fabric, examined and sealed, wherever LlamaIndex expects a query engine.

    The response's `metadata` contains a summary of the report as `crp`, `crp_session` and, with
    `attach="full"`, `crp_envelope` and `crp_headers`; its source nodes are the facts that the model
    saw. A withheld answer raises `SafetyHalt` in `query`, also with streaming. A stream yields the
    model's pieces as they arrive if nothing can withhold, mend or continue the answer, and the
    response gets metadata and source nodes at its end; else it yields the pieces after the verdict.

    The session is `session_id`, else the one in `instrument_tags`, else a new one.

    Spec: CRP-SPEC-005 §1.2

    Args:
        relay: relay that supplies the facts and seals the windows.
        llm: an LLM of LlamaIndex that answers; None lets the relay call `model`.
        streaming: whether responses are streams.
        attach: how much of the report the metadata contains: `full`, `summary` (at most 700
            bytes), or `id`, which `Relay.report` accepts.
        asking: fields of a question as in `Relay.ask`.

    Raises:
        RequestError: an argument has no usable value.
        PolicySyntaxError: a policy does not follow its grammar.
    """

    def __init__(
        self,
        relay: Relay,
        *,
        llm: LLM | None = None,
        streaming: bool = False,
        attach: Attach = "summary",
        callback_manager: CallbackManager | None = None,
        **asking: Unpack[QuestionFields],
    ) -> None:
        super().__init__(callback_manager)
        known = sorted(QuestionFields.__annotations__.keys() - _FILLED)
        for name in asking:
            if name not in known:
                raise RequestError(
                    f"a question has no field {name!r:.40}; CRPQueryEngine takes {', '.join(known)}"
                )
        check_relay(relay, "CRPQueryEngine")
        if llm is not None:
            check_llm(llm)
        process_tree()
        self._relay = relay
        self._llm = llm
        self._streaming = streaming
        check_attach(attach)
        self._attach = attach
        self._asking = dict(asking)
        if self._asking.get("session_id"):
            self._asking["session_id"] = session_id_of(self._asking["session_id"])
        check_values(self._asking, relay, taker="CRPQueryEngine")
        if llm is not None and not asking.get("model") and model_name(llm):
            self._asking["model"] = model_name(llm)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        span = current_span()
        turn, model = self._play(query_bundle.query_str, span)
        if not self._streaming:
            with self._relay.tracer.step(ASK):
                answer = steps.answer_of(drive(turn, model))
            return self._complete(Response(answer.text), span, answer, self._nodes(answer))
        played = trace_stream(
            self._relay.tracer, STREAM, drive_stream(turn, model, shows=turn.show_at_once)
        )

        def pieces() -> Generator[str, None, None]:
            for part in chain(came, played):
                if isinstance(part, str):
                    yield part
                else:
                    answer = steps.answer_of(part)
                    self._complete(response, span, answer, self._nodes(answer))

        response = StreamingResponse(pieces())
        came: list[Any] = [next(played)]
        if not turn.show_at_once():
            # The answer was held back, so all of it is available now.
            came += played
            answer = steps.answer_of(came.pop())
            self._complete(response, span, answer, self._nodes(answer))
        return response

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        span = current_span()
        turn, model = await asyncio.to_thread(self._play, query_bundle.query_str, span)
        if not self._streaming:
            with self._relay.tracer.step(ASK):
                answer = steps.answer_of(await adrive(turn, model))
            nodes = await asyncio.to_thread(self._nodes, answer)
            return self._complete(Response(answer.text), span, answer, nodes)
        played = atrace_stream(
            self._relay.tracer, STREAM, adrive_stream(turn, model, shows=turn.show_at_once)
        )

        async def pieces() -> AsyncGenerator[str, None]:
            for piece in came:
                yield piece
            async for part in played:
                if isinstance(part, str):
                    yield part
                else:
                    answer = steps.answer_of(part)
                    nodes = await asyncio.to_thread(self._nodes, answer)
                    self._complete(response, span, answer, nodes)

        response = AsyncStreamingResponse(pieces())
        came: list[Any] = [await anext(played)]
        if not turn.show_at_once():
            came += [part async for part in played]
            answer = steps.answer_of(came.pop())
            self._complete(response, span, answer, await asyncio.to_thread(self._nodes, answer))
        return response

    def _play(self, question: str, span: Span | None) -> tuple[Composition, Model]:
        """The question's windows, and the model that answers them."""
        turn = self._relay.play(question, **self._fields(span))
        if self._llm is None:
            self._relay._check_model(turn.request.model)
            return turn, self._relay._models
        model = LlamaIndexModel(self._llm)
        model.shows = turn.show_at_once
        return turn, model

    def _fields(self, span: Span | None) -> dict[str, Any]:
        """The question's fields; marks the span, so that no handler examines the answer again."""
        if span is not None:
            span.covered = True
        if self._asking.get("session_id"):
            return self._asking
        session = span_session(span)
        return {**self._asking, "session_id": session} if session else self._asking

    def _nodes(self, answer: Answer) -> list[NodeWithScore]:
        """The facts that the model saw, read from the store."""
        residency = cast("str | None", self._asking.get("residency"))
        return stored_nodes(self._relay, answer.envelope, residency)

    def _complete(
        self, response: Answered, span: Span | None, answer: Answer, nodes: list[NodeWithScore]
    ) -> Answered:
        """Add source nodes and metadata to a response; publish events and record the turn."""
        metadata = answer_metadata(answer, self._attach)
        if span is not None:
            process_tree().record_turn(span, nodes, answer.envelope.query, metadata)
        dispatcher.event(EnvelopeEvent(envelope=answer.envelope.model_dump(mode="json")))
        report = answer.report.model_dump(mode="json")
        dispatcher.event(ReportEvent(report=report, agent=agent_position(span).as_json()))
        response.source_nodes = nodes
        attach_metadata(response, metadata)
        return response


class CRPSynthesizer(BaseSynthesizer):
    """Answers in one call from exactly the envelope; LlamaIndex's synthesizers re-pack text.

    Nodes that are one whole envelope of the same tokenizer, as returned by `CRPRetriever` and
    `CRPNodePostprocessor`, are shown unchanged; other nodes are packed first, and the envelope is
    published as an `EnvelopeEvent`. The response's source nodes are those that the model saw, in
    the same order; `metadata["crp_envelope"]` identifies the envelope. `DPEEventHandler` examines
    answers, and `CRPQueryEngine` can withhold them.

    Spec: CRP-SPEC-003 §7, §13.1

    Args:
        llm: the model; it is called with a system message and the question.
        model: model whose tokenizer counts; None for the LLM's.
        budget_tokens: maximum number of tokens of the envelope; None or `auto` for what the
            question needs, `window` for all that fits the model's context.
        k: maximum number of nodes, None for as many as fit.
        grounding: how far the model may go beyond the context, as the system message tells it.
        system_prompt: text at the start of the system message.
        streaming: whether responses are streams.

    Raises:
        RequestError: neither `model` nor the LLM names a model, or a value is not usable.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        model: str | None = None,
        budget_tokens: BudgetTokens | None = None,
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
        """Do nothing: there are no prompts, the model gets the envelope."""

    def synthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Answer from nodes.

        Raises:
            RequestError: the question is empty, or `nodes` is not a list of NodeWithScore.
        """
        shown = self._envelope(_text(query), check_nodes(nodes))
        response = super().synthesize(query, shown, additional_source_nodes, **response_kwargs)
        return _with_envelope(response, shown)

    async def asynthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """The asynchronous twin of `synthesize`; packs in a worker thread."""
        shown = await asyncio.to_thread(self._envelope, _text(query), check_nodes(nodes))
        response = await super().asynthesize(
            query, shown, additional_source_nodes, **response_kwargs
        )
        return _with_envelope(response, shown)

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Answer from the texts of an envelope's facts in their order."""
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
        return [
            chat_message_of(message) for message in prompt.prompt_messages(request, render(texts))
        ]

    def _envelope(self, question: str, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        whole = self._whole_envelope(nodes)
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

    def _whole_envelope(self, nodes: list[NodeWithScore]) -> list[NodeWithScore] | None:
        """The nodes in envelope order if they are a whole envelope that fits; else None."""
        records: list[Any] = [scored.node.metadata.get(FACT_KEY) for scored in nodes]
        if not nodes or not all(
            isinstance(record, dict) and "position" in record for record in records
        ):
            return None
        placed = sorted(zip(records, nodes, strict=True), key=lambda pair: pair[0]["position"])
        ordered = [scored for _, scored in placed]
        if [record["position"] for record, _ in placed] != list(range(1, len(nodes) + 1)):
            return None
        if len({record["envelope"]["etag"] for record in records}) > 1 or len(nodes) > (
            self._k or len(nodes)
        ):
            return None
        # A different token count reveals missing or changed nodes, or another tokenizer.
        tokens = self._counter.count(render(texts_of(ordered)))
        fits = not isinstance(self._budget, int) or tokens <= self._budget
        return ordered if tokens == records[0]["envelope"]["token_count"] and fits else None


def _text(query: QueryType) -> str:
    return query.query_str if isinstance(query, QueryBundle) else query


def _with_envelope(response: RESPONSE_TYPE, shown: Sequence[NodeWithScore]) -> RESPONSE_TYPE:
    if not shown:
        return response
    records = [scored.node.metadata[FACT_KEY] for scored in shown]
    about = {**records[0]["envelope"], "facts": [record["fact_id"] for record in records]}
    response.metadata = {**(response.metadata or {}), "crp_envelope": about}
    return response
