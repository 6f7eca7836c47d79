"""An agent's model call as a window: packed before it, examined and sealed after it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from crp_integrations.errors import ModelError
from crp_integrations.langchain.model import sampling
from crp_integrations.langchain.silence import silence, silent
from crp_integrations.langchain.wire import Asked, langchain_of, message_of, plain, reply_of
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import Purpose

if TYPE_CHECKING:  # in older versions they take no parameter
    Handler: TypeAlias = Callable[[ModelRequest[Any]], ModelResponse[Any]]
    AsyncHandler: TypeAlias = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class ModelCalls:
    """The model behind an agent's middleware, as the model of a turn.

    The agent's own messages go out as they are; what the turn adds is the system message with the
    envelope, and behind them what a remedy asks for.
    """

    def __init__(
        self,
        request: ModelRequest[Any],
        asked: Asked,
        model: str,
        *,
        silently: bool,
        compaction: Mapping[str, Any] | None = None,
    ) -> None:
        self._request = request
        self._asked = asked
        self._model = model
        self._silently = silently
        # What is told of messages that were shortened; empty for nothing.
        self.compaction = compaction or {}
        self._answers: list[tuple[Reply, ModelResponse[Any]]] = []
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
        with silence() if self._silent(call) else nullcontext():
            response = self._handler(self._requested(call))
        return self._reply(call, response)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        assert self._ahandler is not None
        with silence() if self._silent(call) else nullcontext():
            response = await self._ahandler(self._requested(call))
        return self._reply(call, response)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The whole reply; an agent's middleware sees no pieces."""
        yield self.call(call)

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        yield await self.acall(call)

    # --- within --------------------------------------------------------------------------

    def released(self, answer: Answer, proof: dict[str, Any]) -> ModelResponse[Any]:
        """The response whose text was examined, with the proof on its message, a copy."""
        same = [
            response
            for reply, response in self._answers
            if (reply.text, reply.tool_calls) == (answer.reply.text, answer.reply.tool_calls)
        ]
        response = same[-1] if same else self._answers[-1][1]
        result = [
            message.model_copy(update={"response_metadata": {**message.response_metadata, **proof}})
            if isinstance(message, AIMessage)
            else message
            for message in response.result
        ]
        return ModelResponse(result=result, structured_response=response.structured_response)

    def _silent(self, call: ModelCall) -> bool:
        """Whether no stream shows a call's tokens: a judge's are no part of an answer."""
        return self._silently or call.purpose is Purpose.JUDGE

    def _requested(self, call: ModelCall) -> ModelRequest[Any]:
        request = self._request
        system, further = self._split(call.messages)
        own = further is not None
        # System messages are in the turn's own, in front, wherever they stood.
        said = [one for one in plain(request.messages) if one.type != "system"]
        messages = [*said, *further] if further is not None else []
        if further is None:
            messages = [langchain_of(one) for one in call.messages if one.role != "system"]
        changed: dict[str, Any] = {
            "messages": messages,
            "system_message": self._system(system) if own else _plain_system(system),
            "model_settings": {**request.model_settings, **sampling(request.model, call)},
        }
        if self._silent(call):
            changed["model"] = silent(request.model)
        answers = own and call.purpose is Purpose.ANSWER
        if not answers or not call.tools:
            changed |= {"tools": [], "tool_choice": None}
        if not answers:
            changed["response_format"] = None
        return request.override(**changed)

    def _split(self, messages: Sequence[Message]) -> tuple[str, list[BaseMessage] | None]:
        """The system message, and what follows the agent's messages; None for a call of its own."""
        system = messages[0].content if messages[0].role == "system" else ""
        place = int(bool(system)) + len(self._asked.history) - self._asked.results
        if len(messages) <= place or messages[place].content != self._asked.question:
            return system, None
        if messages[place].role != "user":
            return system, None
        further = messages[place + 1 + self._asked.results :]
        return system, [langchain_of(message) for message in further]

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
        if call.purpose is not Purpose.JUDGE:
            self._answers.append((reply, response))
        return reply


def tools_of(request: ModelRequest[Any]) -> list[dict[str, Any]]:
    """The tools in the OpenAI shape, whose definitions take room in the model's context."""
    return [
        tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools
    ]


def _plain_system(text: str) -> SystemMessage | None:
    return SystemMessage(text) if text else None
