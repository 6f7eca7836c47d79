"""The whole turn as a query engine: a question in, the checked and sealed answer out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any, Final, Unpack

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
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import QueryBundle

from crp_integrations.adapters.arguments import check_relay, check_values
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.events import EnvelopeEvent, ReportEvent
from crp_integrations.llama_index.given import check_llm
from crp_integrations.llama_index.listening import here, listen, session_in
from crp_integrations.llama_index.model import LlamaIndexModel, model_name
from crp_integrations.llama_index.packing import METADATA_KEY, stored_nodes
from crp_integrations.llama_index.sessions import named_session
from crp_integrations.llama_index.spans import Span, standing
from crp_integrations.llama_index.wire import proof_of
from crp_integrations.relay import steps
from crp_integrations.relay.drive import adrive_stream, drive_stream
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay

# A query engine is asked one question at a time, and has no tools.
_FILLED: Final = frozenset({"history", "results", "tools", "compact", "compaction"})

dispatcher = get_dispatcher(__name__)


class CRPQueryEngine(BaseQueryEngine):
    """Answers from a fabric, examined and sealed, wherever LlamaIndex expects a query engine.

    The response's `metadata` has the report as `crp`, the envelope as `crp_envelope`, the headers
    as `crp_headers`, and session, window and continuation as `crp_session`; its source nodes are
    the facts that the model saw. A withheld answer raises `SafetyHalt` out of `query`, also where a
    stream is asked for: its pieces come after the verdict.

    The session is `session_id`, else the one that `instrument_tags` name, else one of its own.

    Spec: CRP-SPEC-005 §1.2

    Args:
        relay: where the facts come from and the windows are sealed.
        llm: an LLM of LlamaIndex that answers, with its own settings; None lets the relay call
            `model`, through LiteLLM.
        streaming: whether responses are streams.
        asking: fields of a question as `Relay.ask` takes them, such as `model`, `policy`,
            `strategy`, `budget_tokens`.

    Raises:
        RequestError: there is no such field, or it has no usable value; or what is given is no
            relay or no LLM.
        PolicySyntaxError: a policy does not follow its grammar.
    """

    def __init__(
        self,
        relay: Relay,
        *,
        llm: LLM | None = None,
        streaming: bool = False,
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
        listen()
        self._relay = relay
        self._llm = llm
        self._streaming = streaming
        self._asking: dict[str, Any] = dict(asking)
        if self._asking.get("session_id"):
            self._asking["session_id"] = named_session(self._asking["session_id"])
        check_values(self._asking, relay)
        if llm is not None and not asking.get("model") and model_name(llm):
            self._asking["model"] = model_name(llm)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        span, question = here(), query_bundle.query_str
        pieces: list[str] = []
        answer: Answer | None = None
        for part in self._parts(question, self._fields(span)):
            if isinstance(part, str):
                pieces.append(part)
            else:
                answer = part
        assert answer is not None
        told, nodes = self._told(span, answer)
        if not self._streaming:
            return Response(answer.text, source_nodes=nodes, metadata=told)
        return StreamingResponse(_given(pieces), source_nodes=nodes, metadata=told)

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        span, question = here(), query_bundle.query_str
        pieces: list[str] = []
        answer: Answer | None = None
        async for part in self._aparts(question, self._fields(span)):
            if isinstance(part, str):
                pieces.append(part)
            else:
                answer = part
        assert answer is not None
        told, nodes = self._told(span, answer)
        if not self._streaming:
            return Response(answer.text, source_nodes=nodes, metadata=told)
        return AsyncStreamingResponse(_agiven(pieces), source_nodes=nodes, metadata=told)

    def _parts(self, question: str, asking: dict[str, Any]) -> Generator[str | Answer]:
        if self._llm is None:
            if self._streaming:
                yield from self._relay.stream(question, **asking)
            else:
                yield self._relay.ask(question, **asking)
            return
        model = LlamaIndexModel(self._llm)
        for part in drive_stream(self._relay.play(question, **asking), model):
            yield part if isinstance(part, str) else steps.answer_of(part)

    async def _aparts(self, question: str, asking: dict[str, Any]) -> AsyncGenerator[str | Answer]:
        if self._llm is None:
            if self._streaming:
                async for part in self._relay.astream(question, **asking):
                    yield part
            else:
                yield await self._relay.aask(question, **asking)
            return
        model = LlamaIndexModel(self._llm)
        async for played in adrive_stream(self._relay.play(question, **asking), model):
            yield played if isinstance(played, str) else steps.answer_of(played)

    def _fields(self, span: Span | None) -> dict[str, Any]:
        """The question's fields; its model's answers are examined here and nowhere else."""
        if span is not None:
            span.covered = True
        if self._asking.get("session_id"):
            return self._asking
        session = session_in(span)
        return {**self._asking, "session_id": session} if session else self._asking

    def _told(self, span: Span | None, answer: Answer) -> tuple[dict[str, Any], list[Any]]:
        told = proof_of(answer)
        nodes = stored_nodes(self._relay, answer.envelope)
        if span is not None:
            listen().answered(span, nodes, answer.envelope.query, told)
        dispatcher.event(EnvelopeEvent(envelope=told["crp_envelope"]))
        dispatcher.event(ReportEvent(report=told[METADATA_KEY], agent=standing(span).told()))
        return told, nodes


def _given(pieces: list[str]) -> Generator[str, None, None]:
    yield from pieces


async def _agiven(pieces: list[str]) -> AsyncGenerator[str, None]:
    for piece in pieces:
        yield piece
