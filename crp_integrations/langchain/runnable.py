"""The whole turn as a Runnable: takes a question, returns the checked and sealed answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any, Final, TypeAlias, Unpack

from langchain_core.callbacks import AsyncParentRunManager, ParentRunManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig

from crp_integrations.adapters.arguments import check_relay, check_values
from crp_integrations.adapters.conversations import Conversation
from crp_integrations.adapters.observed_answers import (
    Attach,
    ReportDelivery,
    check_attach,
    deliver_on_halt,
)
from crp_integrations.errors import RequestError
from crp_integrations.langchain.messages import answer_message, last_chunk, read_conversation
from crp_integrations.langchain.model import LangChainModel, chat_model_in, model_name
from crp_integrations.langchain.runs import session_of
from crp_integrations.ports import Model
from crp_integrations.relay import steps
from crp_integrations.relay.composition import Composition
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
from crp_integrations.relay.question_fields import QuestionFields, with_call_fields
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.steps import Outcome

ParentRun: TypeAlias = ParentRunManager | AsyncParentRunManager
Question: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | PromptValue

# The only keys of an input dict: it may come from end users, so it must not set other fields.
QUESTIONS: Final = ("question", "input", "query")
HISTORIES: Final = ("history", "chat_history", "messages")
# Fields that come from the input, so that `asking` must not set them.
_FILLED: Final = frozenset({"history", "results", "compaction"})


class CRPRunnable(Runnable[Question, AIMessage]):
    """Answers from a fabric, examined and sealed, wherever a chain expects a chat model or chain.

    Input: a question; a dict with `question` (or `input`, `query`) and optionally `history` (or
    `chat_history`); a dict with `messages`; messages; a prompt value. Output: an `AIMessage` whose
    `response_metadata` contains a summary of the report as `crp`, `crp_session` and, with
    `attach="full"`, `crp_envelope` and `crp_headers`. A withheld answer raises `SafetyHalt`. A
    stream yields the model's chunks as they arrive if nothing can withhold, mend or continue the
    answer, else after the verdict; the last chunk has the metadata.

    `configurable.session_id`, else LangGraph's `thread_id`, names the session.

    Spec: CRP-SPEC-005 §1.2

    Args:
        relay: relay that supplies the facts and seals the windows.
        llm: a LangChain chat model that answers, with or without bound values, retries or
            fallbacks around it; None lets the relay call `model`.
        attach: how much of the report a message contains: `full`, `summary` (at most 700
            bytes), or `id`, which `Relay.report` accepts.
        asking: fields of a question as in `Relay.ask`; those given to a call take precedence.

    Raises:
        RequestError: an argument has no usable value.
        PolicySyntaxError: a policy does not follow its grammar.
    """

    def __init__(
        self,
        relay: Relay,
        *,
        llm: BaseChatModel | Runnable[Any, Any] | None = None,
        name: str | None = None,
        attach: Attach = "summary",
        **asking: Unpack[QuestionFields],
    ) -> None:
        _check_fields(asking)
        check_relay(relay, "CRPRunnable")
        check_values(asking, relay)
        check_attach(attach)
        self.relay = relay
        self.llm = llm
        self.name = name
        self._attach = attach
        self._asking = dict(asking)
        named = model_name(chat_model_in(llm)) if llm is not None else ""
        if named and not asking.get("model"):
            self._asking["model"] = named

    def invoke(
        self, input: Question, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Answer a question.

        Args:
            kwargs: fields of a question for this call.

        Raises:
            RequestError: the input contains no question, or a field has no usable value.
            SafetyHalt: the answer is withheld.
            CRPError: any other error of `Relay.ask`.
        """
        return self._call_with_config(self._ask, input, config, **kwargs)

    async def ainvoke(
        self, input: Question, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """The asynchronous twin of `invoke`."""
        return await self._acall_with_config(self._aask, input, config, **kwargs)

    def stream(
        self, input: Question, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[AIMessage]:
        """Yield the answer in pieces; the last chunk has no text and contains the metadata.

        Raises:
            SafetyHalt: the answer is withheld; no piece came before.
        """
        return self._transform_stream_with_config(iter((input,)), self._stream, config, **kwargs)

    async def astream(
        self, input: Question, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessage]:
        """The asynchronous twin of `stream`."""

        async def one() -> AsyncIterator[Question]:
            yield input

        async for chunk in self._atransform_stream_with_config(
            one(), self._astream, config, **kwargs
        ):
            yield chunk

    def _ask(
        self, input: Question, run_manager: ParentRun, config: RunnableConfig, **kwargs: Any
    ) -> AIMessage:
        turn, model, delivery = self._begin(input, run_manager, config, kwargs)
        with deliver_on_halt(delivery), self.relay.tracer.step(ASK):
            answer = steps.answer_of(drive(turn, model))
        delivery(answer.report)
        return answer_message(answer, self._attach)

    async def _aask(
        self, input: Question, run_manager: ParentRun, config: RunnableConfig, **kwargs: Any
    ) -> AIMessage:
        # In a worker thread, since the check of the model may import LiteLLM.
        turn, model, delivery = await asyncio.to_thread(
            self._begin, input, run_manager, config, kwargs
        )
        with deliver_on_halt(delivery), self.relay.tracer.step(ASK):
            answer = steps.answer_of(await adrive(turn, model))
        delivery(answer.report)
        return answer_message(answer, self._attach)

    def _stream(
        self,
        input: Iterator[Question],
        run_manager: ParentRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Iterator[AIMessage]:
        turn, model, delivery = self._begin(next(input), run_manager, config, kwargs)
        parts = trace_stream(
            self.relay.tracer, STREAM, drive_stream(turn, model, shows=turn.show_at_once)
        )
        with deliver_on_halt(delivery), closing(parts):
            for part in parts:
                yield self._chunk(part, delivery)

    async def _astream(
        self,
        input: AsyncIterator[Question],
        run_manager: ParentRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessage]:
        turn, model, delivery = await asyncio.to_thread(
            self._begin, await anext(input), run_manager, config, kwargs
        )
        parts = atrace_stream(
            self.relay.tracer, STREAM, adrive_stream(turn, model, shows=turn.show_at_once)
        )
        with deliver_on_halt(delivery):
            async with aclosing(parts):
                async for part in parts:
                    yield self._chunk(part, delivery)

    def _chunk(self, part: str | Outcome, delivery: ReportDelivery) -> AIMessageChunk:
        if isinstance(part, str):
            return AIMessageChunk(content=part)
        answer = steps.answer_of(part)
        delivery(answer.report)
        return last_chunk(answer_message(answer, self._attach))

    def _begin(
        self, input: Question, run: ParentRun, config: RunnableConfig, fields: Mapping[str, Any]
    ) -> tuple[Composition, Model, ReportDelivery]:
        """The question's windows, the model that answers them, and the handlers for the report."""
        _check_fields(fields)
        read = question_of(input)
        asking = with_call_fields(self._asking, fields)
        session = session_of(config)
        if session and fields.get("session_id") is None:
            asking["session_id"] = session
        system = "\n\n".join(text for text in (asking.get("system_prompt"), read.system) if text)
        if system:
            asking["system_prompt"] = system
        if read.history:
            asking["history"] = read.history
        turn, delivery = self.relay.play(read.question, **asking), ReportDelivery()
        if self.llm is None:
            self.relay._check_model(turn.request.model)
            return turn, self.relay._models, delivery
        model = LangChainModel(self.llm, run.get_child())
        model.shows, delivery.handlers = turn.show_at_once, model.handlers
        return turn, model, delivery


def question_of(input: Question) -> Conversation:
    """The question in an input, and the messages before it."""
    if isinstance(input, str):
        return Conversation(input)
    if isinstance(input, PromptValue):
        return read_conversation(input.to_messages())
    if isinstance(input, BaseMessage):
        return read_conversation([input])
    if isinstance(input, Mapping):
        return _read_mapping(input)
    if isinstance(input, Sequence):
        return read_conversation(input)
    raise RequestError(
        f"the input is {type(input).__name__}; wanted a question, messages, or a dict with one"
    )


def _read_mapping(input: Mapping[str, Any]) -> Conversation:
    for name in input:
        if name not in QUESTIONS and name not in HISTORIES:
            raise RequestError(
                f"the input has {str(name)!r:.40}; it takes a question as one of "
                f"{', '.join(QUESTIONS)}, and messages as one of {', '.join(HISTORIES)}"
            )
    questions = [name for name in QUESTIONS if input.get(name) is not None]
    histories = [name for name in HISTORIES if input.get(name)]
    for names in (questions, histories):
        if len(names) > 1:
            raise RequestError(f"the input has {names[0]} and {names[1]}; give one of them")
    history = _read_history(histories[0], input[histories[0]]) if histories else []
    if not questions:
        return read_conversation(history)
    question = input[questions[0]]
    if not isinstance(question, str):
        raise RequestError(f"{questions[0]} is {type(question).__name__}, wanted a text")
    return read_conversation([*history, ("user", question)])


def _read_history(name: str, history: Any) -> list[Any]:
    """A list of messages; text is refused, since its role is unknown."""
    if isinstance(history, BaseMessage):
        return [history]
    if isinstance(history, str | Mapping) or not isinstance(history, Sequence):
        raise RequestError(f"{name} is {type(history).__name__}, wanted a list of messages")
    return list(history)


def _check_fields(asking: Mapping[str, Any]) -> None:
    fields = QuestionFields.__annotations__.keys() - _FILLED
    for name in asking:
        if name not in fields:
            raise RequestError(
                f"a question has no field {name!r:.40}; CRPRunnable takes "
                f"{', '.join(sorted(fields))}"
            )
