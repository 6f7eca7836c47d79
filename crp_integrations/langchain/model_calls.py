"""An agent's model call as a window, and compaction of its messages."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langchain_core.utils.function_calling import convert_to_openai_tool

from crp_integrations.adapters.conversations import (
    AgentModelCalls,
    Conversation,
    context_value,
    sampling,
)
from crp_integrations.errors import ModelError, RequestError
from crp_integrations.governance.compaction.history import make_ids
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.langchain.messages import (
    langchain_of,
    message_of,
    repaired_content,
    reply_of,
    strip_metadata,
    structured_text,
)
from crp_integrations.langchain.model import non_streaming, streaming_suppressed
from crp_integrations.langchain.runs import inside_window
from crp_integrations.messages import Message, ModelCall, Reply, ToolCall
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary.safety import Purpose

if TYPE_CHECKING:  # older versions of these classes are not generic
    Handler: TypeAlias = Callable[[ModelRequest[Any]], ModelResponse[Any]]
    AsyncHandler: TypeAlias = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


# The type is quoted, since `ModelResponse` of LangChain 1.2 is not generic.
class ModelCalls(AgentModelCalls["ModelResponse[Any]"]):
    """The model that a middleware's handler calls, as the model of a turn."""

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
        # Whether streams showed the answer's tokens as they arrived.
        self.shown = False
        # Metadata about shortened messages; empty if none were.
        self.compaction = compaction or {}
        # Handlers that observe the calls; they receive the window's report.
        self.handlers: list[Any] = []
        # Called with the system prompt and messages that the model finally got.
        self.on_sent: Callable[[str, Sequence[Message]], None] | None = None
        self._handler: Handler | None = None
        self._ahandler: AsyncHandler | None = None

    def through(self, handler: Handler) -> ModelCalls:
        """Set the synchronous handler and return self."""
        self._handler = handler
        return self

    def athrough(self, handler: AsyncHandler) -> ModelCalls:
        """Set the asynchronous handler and return self."""
        self._ahandler = handler
        return self

    # --- the port ------------------------------------------------------------------------

    def call(self, call: ModelCall) -> Reply:
        """Answer a call; the model's errors are not wrapped."""
        assert self._handler is not None
        hidden = streaming_suppressed() if self._hides_tokens(call) else nullcontext()
        with hidden, inside_window(self.handlers), recorded_messages() as final:
            response = self._handler(self._requested(call))
        return self._reply(call, response, final)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        assert self._ahandler is not None
        hidden = streaming_suppressed() if self._hides_tokens(call) else nullcontext()
        with hidden, inside_window(self.handlers), recorded_messages() as final:
            response = await self._ahandler(self._requested(call))
        return self._reply(call, response, final)

    def released(self, answer: Answer, proof: dict[str, Any]) -> ModelResponse[Any]:
        """A copy of the response whose text was examined, with the proof in its metadata."""
        response = self._response_of(answer)
        result = [
            message.model_copy(
                update={
                    "content": repaired_content(message, answer.text, answer.repaired.edits)
                    if answer.repaired
                    else message.content,
                    "response_metadata": {**message.response_metadata, **proof},
                    # LangGraph uses the id to recognise messages that it has already streamed.
                    "id": message.id or str(uuid.uuid4()),
                }
            )
            if isinstance(message, AIMessage)
            else message
            for message in response.result
        ]
        return ModelResponse(result=result, structured_response=response.structured_response)

    def pending_calls(self, answer: Answer) -> list[ToolCall]:
        """The answer's tool calls that are to run; a structured answer's call has its result."""
        result = self._response_of(answer).result
        answered = {item.tool_call_id for item in result if isinstance(item, ToolMessage)}
        calls = [call for item in result for call in message_of(item).tool_calls]
        return [call for call in calls if call.id not in answered]

    def _hides_tokens(self, call: ModelCall) -> bool:
        """Whether streams must not show a call's tokens; only those of an answer may be shown."""
        self.shown = call.purpose is Purpose.ANSWER and self._shows()
        return not self.shown

    def _requested(self, call: ModelCall) -> ModelRequest[Any]:
        request = self._request
        system, further = self._split(call.messages)
        own = further is not None
        # The turn's system message comes first and contains all others, wherever they were.
        dialogue = [
            message for message in strip_metadata(request.messages) if message.type != "system"
        ]
        if further is not None:
            messages = [*dialogue, *map(langchain_of, further)]
        else:
            messages = [
                langchain_of(message) for message in call.messages if message.role != "system"
            ]
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
        original = self._request.system_message
        if original is None or not isinstance(original.content, list):
            return _plain_system(text)
        # Blocks are kept: they may contain more than text, such as a provider's cache markers.
        # The added text keeps its separator: models join blocks without a gap.
        added = text.removeprefix(message_of(original).content)
        blocks = [*original.content, *([{"type": "text", "text": added}] if added else [])]
        return SystemMessage(blocks)

    def _note_sent(self, call: ModelCall, final: Sequence[BaseMessage]) -> None:
        """Call `on_sent` with what the application sent, without the turn's additions."""
        system, further = self._split(call.messages)
        if self.on_sent is None or further is None or not final:
            return
        try:
            read = [message_of(message) for message in final]
        except RequestError:
            return
        system_text = "\n\n".join(
            message.content for message in read if message.role == "system" and message.content
        )
        if system and system in system_text:
            system_text = system_text.replace(system, self._conversation.system, 1)
        self.on_sent(system_text.strip(), [message for message in read if message.role != "system"])

    def _reply(self, call: ModelCall, response: ModelResponse[Any], final: FinalMessages) -> Reply:
        message = next((item for item in response.result if isinstance(item, AIMessage)), None)
        if message is None:
            raise ModelError(f"model {self._model!r} sent no message in its answer")
        self._note_sent(call, final.sent_for(message))
        reply = reply_of(message, self._model)
        if response.structured_response is not None and message.tool_calls:
            # A structured answer may be a tool call: its arguments are added to the text, and it
            # no longer counts as a tool call.
            texts = [text for text in (reply.text, structured_text(message)) if text.strip()]
            reply = reply.changed(text="\n".join(texts), tool_calls=())
        if response.structured_response is not None:
            reply = reply.changed(parsed=True)
        return self._keep(call, reply, response)


class FinalMessages(BaseCallbackHandler):
    """Records the messages that models are sent, after all middlewares have changed them.

    Other middlewares, such as `@dynamic_prompt`, may run between this package's and the model, so
    the messages are taken from LangChain's callback at the start of the model call.
    """

    # Asynchronous runs call other handlers in a thread, which may be too late.
    run_inline = True

    def __init__(self) -> None:
        self._lock = Lock()
        self._started: dict[UUID, Sequence[BaseMessage]] = {}
        self._answered: list[tuple[BaseMessage | None, Sequence[BaseMessage]]] = []

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """Record the messages."""
        with self._lock:
            self._started[run_id] = messages[0] if len(messages) == 1 else ()

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record which message answered them."""
        first = next((generation for batch in response.generations for generation in batch), None)
        with self._lock:
            sent = self._started.pop(run_id, ())
            self._answered.append((getattr(first, "message", None), sent))

    def sent_for(self, answer: AIMessage) -> Sequence[BaseMessage]:
        """The messages that `answer` replied to; the last ones sent if a middleware replaced it."""
        with self._lock:
            answered = list(reversed(self._answered))
        for same in (
            lambda candidate: candidate is answer,
            lambda candidate: (
                candidate is not None and candidate.id is not None and candidate.id == answer.id
            ),
            lambda candidate: True,
        ):
            for message, sent in answered:
                if same(message):
                    return sent
        return ()


@contextmanager
def recorded_messages() -> Iterator[FinalMessages]:
    """Record messages that models receive inside the `with` block, through a callback."""
    final = FinalMessages()
    config = ensure_config()
    callbacks = config.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        extended: Any = callbacks.copy()
        extended.add_handler(final, inherit=True)
    else:
        extended = [*(callbacks or ()), final]
    with context_value(var_child_runnable_config, {**config, "callbacks": extended}):
        yield final


def tools_of(request: ModelRequest[Any]) -> list[dict[str, Any]]:
    """The tools in the OpenAI format; their definitions count towards the model's context."""
    return [
        tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools
    ]


def _plain_system(text: str) -> SystemMessage | None:
    return SystemMessage(text) if text else None


COMPACTION_KEY: Final = "crp_compaction"


@dataclass(frozen=True, slots=True)
class CompactedMessages:
    """An agent's messages after compaction.

    Attributes:
        metadata: plain JSON for the answer: `account`, and in `shown` the ids and changed texts of
            the messages sent; empty if this call shortened nothing.
    """

    messages: list[BaseMessage]
    account: CompactionAccount
    metadata: dict[str, Any]


def compact_messages(
    relay: Relay,
    messages: Sequence[BaseMessage],
    *,
    system: BaseMessage | None,
    tools: Sequence[Mapping[str, Any]],
    model: str | None,
    session_id: str,
) -> CompactedMessages:
    """Shorten the messages of a call if a trigger fires."""
    read = [message_of(message) for message in messages]
    by_id = dict(zip(make_ids(read), zip(messages, read, strict=True), strict=True))
    names, sent = _apply_last_compaction(messages, by_id)
    own = [message_of(message) for message in ([system] if system is not None else []) + sent]
    ids = ("system", *names) if system is not None else names
    compact = relay.compact(
        own,
        model=model,
        tools=tools,
        ids=ids,
        pinned=[
            name for name, message in zip(names, sent, strict=True) if not _is_text_only(message)
        ],
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
        same = name in by_id and by_id[name][1].content == message.content
        shown.append([name, None if same else message.content])
    account = compact.account
    return CompactedMessages(
        left, account, {"account": account.model_dump(mode="json"), "shown": shown}
    )


def _apply_last_compaction(
    messages: Sequence[BaseMessage], by_id: Mapping[str, tuple[BaseMessage, Message]]
) -> tuple[tuple[str, ...], list[BaseMessage]]:
    """Ids and messages; those before the last compaction are replaced by its result."""
    names = tuple(by_id)
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
    # If the application has removed messages since, the last compaction is ignored.
    if any(text is None and name not in before for name, text in shown):
        return names, list(messages)
    compacted = [
        by_id[name][0] if text is None else _compacted_message(by_id.get(name), text)
        for name, text in shown
    ]
    return (*(name for name, _ in shown), *names[place:]), [*compacted, *messages[place:]]


def _compacted_message(source: tuple[BaseMessage, Message] | None, text: str) -> BaseMessage:
    return HumanMessage(text) if source is None else source[0].model_copy(update={"content": text})


def _with_text(source: BaseMessage | None, message: Message) -> BaseMessage:
    """A Message as LangChain's: the source message, with its text replaced if that changed."""
    if source is None:
        return HumanMessage(message.content)
    if str(source.text) == message.content:
        return source
    return source.model_copy(update={"content": message.content})


def _is_text_only(message: BaseMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else ()
    return all(isinstance(block, str) or block.get("type") == "text" for block in blocks)
