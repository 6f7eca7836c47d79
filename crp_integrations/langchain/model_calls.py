"""An agent's model call as a window, its compacted messages, and its tools' results as facts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from crp_integrations.adapters.conversations import (
    AgentModelCalls,
    Conversation,
    held_rejections,
    sampling,
)
from crp_integrations.adapters.evidence import hold_facts, result_facts
from crp_integrations.dpe.rejections import without_rejected
from crp_integrations.errors import ModelError
from crp_integrations.governance.compaction.history import make_ids
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.langchain.messages import (
    langchain_of,
    message_of,
    reply_of,
    strip_metadata,
    tool_messages,
)
from crp_integrations.langchain.model import non_streaming, streaming_suppressed
from crp_integrations.langchain.runs import inside_window
from crp_integrations.loaders.text import split_paragraphs
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary.safety import Purpose

if TYPE_CHECKING:  # in older versions they take no parameter
    Handler: TypeAlias = Callable[[ModelRequest[Any]], ModelResponse[Any]]
    AsyncHandler: TypeAlias = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


# A text, since the response of LangChain 1.2 is no generic class.
class ModelCalls(AgentModelCalls["ModelResponse[Any]"]):
    """The model behind an agent's middleware, as the model of a turn."""

    def __init__(
        self,
        request: ModelRequest[Any],
        conversation: Conversation,
        model: str,
        *,
        shows: Callable[[], bool],
        compaction: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(conversation, model)
        self._request = request
        self._shows = shows
        # Whether streams have shown the answer's tokens as they came.
        self.shown = False
        # What is told of messages that were shortened; empty for nothing.
        self.compaction = compaction or {}
        # Handlers that hear the calls; they are given the window's report.
        self.heard: list[Any] = []
        self._handler: Handler | None = None
        self._ahandler: AsyncHandler | None = None

    def through(self, handler: Handler) -> ModelCalls:
        """The same, called synchronously."""
        self._handler = handler
        return self

    def athrough(self, handler: AsyncHandler) -> ModelCalls:
        """The same, called asynchronously."""
        self._ahandler = handler
        return self

    # --- the port ------------------------------------------------------------------------

    def call(self, call: ModelCall) -> Reply:
        """Answer a call; the model's own errors go on unchanged."""
        assert self._handler is not None
        hidden = streaming_suppressed() if self._hides_tokens(call) else nullcontext()
        with hidden, inside_window(self.heard):
            response = self._handler(self._requested(call))
        return self._reply(call, response)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        assert self._ahandler is not None
        hidden = streaming_suppressed() if self._hides_tokens(call) else nullcontext()
        with hidden, inside_window(self.heard):
            response = await self._ahandler(self._requested(call))
        return self._reply(call, response)

    def released(self, answer: Answer, proof: dict[str, Any]) -> ModelResponse[Any]:
        """The response whose text was examined, with the proof on its message, a copy."""
        response = self._response_of(answer)
        result = [
            message.model_copy(
                update={
                    "response_metadata": {**message.response_metadata, **proof},
                    # By it LangGraph knows the pieces that its streams have shown.
                    "id": message.id or str(uuid.uuid4()),
                }
            )
            if isinstance(message, AIMessage)
            else message
            for message in response.result
        ]
        return ModelResponse(result=result, structured_response=response.structured_response)

    def _hides_tokens(self, call: ModelCall) -> bool:
        """Whether no stream shows a call's tokens: only those of an answer may be seen."""
        self.shown = call.purpose is Purpose.ANSWER and self._shows()
        return not self.shown

    def _requested(self, call: ModelCall) -> ModelRequest[Any]:
        request = self._request
        system, further = self._split(call.messages)
        own = further is not None
        # System messages are in the turn's own, in front, wherever they stood.
        said = [one for one in strip_metadata(request.messages) if one.type != "system"]
        if further is not None:
            messages = [*said, *map(langchain_of, further)]
        else:
            messages = [langchain_of(one) for one in call.messages if one.role != "system"]
        changed: dict[str, Any] = {
            "messages": messages,
            "system_message": self._system(system) if own else _plain_system(system),
            "model_settings": {**request.model_settings, **sampling(request.model, call)},
        }
        if self._hides_tokens(call):
            changed["model"] = non_streaming(request.model)
        answers = own and call.purpose is Purpose.ANSWER
        if not answers or not call.tools:
            changed |= {"tools": [], "tool_choice": None}
        if not answers:
            changed["response_format"] = None
        return request.override(**changed)

    def _system(self, text: str) -> SystemMessage | None:
        given = self._request.system_message
        if given is None or not isinstance(given.content, list):
            return _plain_system(text)
        # Its blocks may say more than their text, as where a provider's cache ends.
        # With what stands between: a model reads blocks one right after the other.
        added = text.removeprefix(message_of(given).content)
        blocks = [*given.content, *([{"type": "text", "text": added}] if added else [])]
        return SystemMessage(blocks)

    def _reply(self, call: ModelCall, response: ModelResponse[Any]) -> Reply:
        said = next((one for one in response.result if isinstance(one, AIMessage)), None)
        if said is None:
            raise ModelError(f"model {self._model!r} sent no message in its answer")
        reply = reply_of(said, self._model)
        if response.structured_response is not None and not reply.text.strip():
            # An answer that the agent asked for in the form of a tool call is an answer.
            told = [json.dumps(one["args"], ensure_ascii=False) for one in said.tool_calls]
            reply = reply.changed(text="\n".join(told), tool_calls=())
        return self._keep(call, reply, response)


def tools_of(request: ModelRequest[Any]) -> list[dict[str, Any]]:
    """The tools in the OpenAI shape, whose definitions take room in the model's context."""
    return [
        tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools
    ]


def _plain_system(text: str) -> SystemMessage | None:
    return SystemMessage(text) if text else None


COMPACTION_KEY: Final = "crp_compaction"


@dataclass(frozen=True, slots=True)
class CompactedMessages:
    """What a model is sent of an agent's messages.

    Attributes:
        told: for the answer's metadata, plain JSON: the account, and by `shown` what stands for
            the messages so far; empty where nothing has changed since it was last told.
    """

    messages: list[BaseMessage]
    account: CompactionAccount
    told: dict[str, Any]


def compact_messages(
    relay: Relay,
    messages: Sequence[BaseMessage],
    *,
    system: BaseMessage | None,
    tools: Sequence[Mapping[str, Any]],
    model: str | None,
    session_id: str,
) -> CompactedMessages:
    """The messages of a call, shortened if a trigger fires."""
    read = [message_of(message) for message in messages]
    given = dict(zip(make_ids(read), zip(messages, read, strict=True), strict=True))
    names, sent = _apply_last_compaction(messages, given)
    own = [message_of(message) for message in ([system] if system is not None else []) + sent]
    ids = ("system", *names) if system is not None else names
    compact = relay.compact(
        own,
        model=model,
        tools=tools,
        ids=ids,
        pinned=[name for name, one in zip(names, sent, strict=True) if not _is_text_only(one)],
        session_id=session_id,
    )
    if compact.messages == tuple(own):
        return CompactedMessages(sent, compact.account, {})
    current = dict(zip(names, sent, strict=True))
    left: list[BaseMessage] = []
    shown: list[list[str | None]] = []
    for name, message in zip(compact.ids, compact.messages, strict=True):
        if system is not None and name == "system":
            continue
        left.append(_with_text(current.get(name), message))
        same = name in given and given[name][1].content == message.content
        shown.append([name, None if same else message.content])
    account = compact.account
    return CompactedMessages(
        left, account, {"account": account.model_dump(mode="json"), "shown": shown}
    )


def _apply_last_compaction(
    messages: Sequence[BaseMessage], given: Mapping[str, tuple[BaseMessage, Message]]
) -> tuple[tuple[str, ...], list[BaseMessage]]:
    """The messages with what the last compaction showed in the place of those before it."""
    names = tuple(given)
    places = [
        place
        for place, message in enumerate(messages)
        if isinstance(message, AIMessage) and COMPACTION_KEY in message.response_metadata
    ]
    if not places:
        return names, list(messages)
    place = places[-1]
    shown = messages[place].response_metadata[COMPACTION_KEY]["shown"]
    before = frozenset(names[:place])
    # An application may have taken messages out since; then everything is looked at anew.
    if any(text is None and name not in before for name, text in shown):
        return names, list(messages)
    told = [
        given[name][0] if text is None else _compacted_message(given.get(name), text)
        for name, text in shown
    ]
    return (*(name for name, _ in shown), *names[place:]), [*told, *messages[place:]]


def _compacted_message(source: tuple[BaseMessage, Message] | None, text: str) -> BaseMessage:
    return HumanMessage(text) if source is None else source[0].model_copy(update={"content": text})


def _with_text(source: BaseMessage | None, message: Message) -> BaseMessage:
    """A message as LangChain's; its own one, with another text where that has changed."""
    if source is None:
        return HumanMessage(message.content)
    if str(source.text) == message.content:
        return source
    return source.model_copy(update={"content": message.content})


def _is_text_only(message: BaseMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else ()
    return all(isinstance(block, str) or block.get("type") == "text" for block in blocks)


def hold_results(relay: Relay, session_id: str, call: Mapping[str, Any], result: Any) -> int:
    """Hold a tool's result as facts of a session; nothing of it is stored.

    Errors of tools, what is no text, and what a sub-agent's report flags are no facts.
    """
    rejected = held_rejections(relay, session_id)
    facts = [
        fact
        for message in tool_messages(result)
        if message.status != "error"
        for fact in result_facts(
            relay,
            split_paragraphs,
            str(call.get("name") or message.name or "tool"),
            call.get("args") or {},
            without_rejected(str(message.text), rejected),
            str(call.get("id") or ""),
        )
    ]
    return hold_facts(relay, session_id, facts)
