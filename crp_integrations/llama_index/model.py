"""A LlamaIndex LLM as the model of a turn, and an agent's model call as a window."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, TextBlock
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM
from llama_index.core.schema import NodeWithScore
from llama_index.core.tools import BaseTool, ToolMetadata, ToolOutput

from crp_integrations.adapters.conversations import (
    AgentModelCalls,
    Conversation,
    replace_text,
    sampling,
)
from crp_integrations.engines.models import FrameworkChatModel, text_pieces
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.messages import calls_in, chat_message_of, reply_of
from crp_integrations.messages import Message, ModelCall, Reply, ToolCall
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary.safety import Purpose


class LlamaIndexModel(FrameworkChatModel):
    """Any `LLM` as a `Model`.

    Tools, such as the search of the agentic strategy, need an LLM with function calling.

    Args:
        llm: the model; its own settings apply where a call sets none.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call; LlamaIndex's errors are not wrapped."""
        return self._reply(self._llm.chat(**self._chat_arguments(call)), call)

    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `reply_to`."""
        return self._reply(await self._llm.achat(**self._chat_arguments(call)), call)

    def parts_of(self, call: ModelCall) -> Iterator[str | Reply]:
        """Yield the model's pieces of an answer, then the reply."""
        pieces, last = [], None
        for last in self._llm.stream_chat(**self._chat_arguments(call)):
            pieces.append(last.delta or "")
            yield pieces[-1]
        yield self._reply(_last_response(last), call).changed(text="".join(pieces))

    async def aparts_of(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `parts_of`."""
        pieces, last = [], None
        async for last in await self._llm.astream_chat(**self._chat_arguments(call)):
            pieces.append(last.delta or "")
            yield pieces[-1]
        yield self._reply(_last_response(last), call).changed(text="".join(pieces))

    def _chat_arguments(self, call: ModelCall) -> dict[str, Any]:
        messages = [chat_message_of(message) for message in call.messages]
        chosen = sampling(self._llm, call)
        if not call.tools:
            return {"messages": messages, **chosen}
        tools = [_ToolDefinition(tool["function"]) for tool in call.tools]
        return require_function_calling(self._llm)._prepare_chat_with_tools_compat(
            tools, chat_history=messages, allow_parallel_tool_calls=True, **chosen
        )

    def _reply(self, response: ChatResponse, call: ModelCall) -> Reply:
        return reply_of(response, call.model, read_tool_calls(self._llm, response))


def _last_response(last: ChatResponse | None) -> ChatResponse:
    """The last response of a stream, which has the whole message; an empty one if it had none."""
    return last or ChatResponse(message=ChatMessage(role="assistant", content=""))


class _ToolDefinition(BaseTool):
    """A tool definition for the model; calling it raises."""

    def __init__(self, function: Mapping[str, Any]) -> None:
        self._metadata = _SchemaMetadata(function.get("description", ""), function["name"])
        self._metadata.parameters = dict(function.get("parameters") or {})

    @property
    def metadata(self) -> ToolMetadata:
        """Name, description and parameters."""
        return self._metadata

    def __call__(self, input: Any) -> ToolOutput:
        """Raise: the relay or the caller runs the tool."""
        raise RequestError(f"tool {self._metadata.get_name()!r:.80} is not run by the model")


class _SchemaMetadata(ToolMetadata):
    """A tool's metadata with the given JSON schema of its parameters."""

    parameters: dict[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.parameters


def require_function_calling(llm: LLM) -> FunctionCallingLLM:
    """Check that a model supports function calling."""
    if not isinstance(llm, FunctionCallingLLM):
        raise RequestError(f"{llm.class_name()} takes no tools; give another LLM")
    return llm


def read_tool_calls(llm: LLM, response: ChatResponse) -> list[ToolCall]:
    """The tool calls of a response, read by the model itself if it supports function calling."""
    if not isinstance(llm, FunctionCallingLLM):
        return list(calls_in(response.message))
    calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    return [
        ToolCall(
            id=call.tool_id,
            name=call.tool_name,
            arguments=json.dumps(call.tool_kwargs, ensure_ascii=False, default=str),
        )
        for call in calls
    ]


def model_name(llm: LLM) -> str:
    """Model name for looking up the tokenizer and the context limit; empty if unknown."""
    named = llm.metadata.model_name
    return "" if named == "unknown" else named


# Argument that passes the tools in the OpenAI format to the window, for its token budget.
TOOLS: Final = "crp_tools"


class AgentCalls(AgentModelCalls[ChatResponse]):
    """An agent's LLM as the model of a turn.

    Args:
        llm: the agent's model.
        messages: the agent's messages.
        arguments: the call's further arguments, such as tools in the provider's own form.

    Attributes:
        shows: whether an answer's tokens may be shown as they arrive.
        shown: whether they were shown.
    """

    shown = False
    shows: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(
        self,
        llm: LLM,
        messages: Sequence[ChatMessage],
        arguments: Mapping[str, Any],
        conversation: Conversation,
        model: str,
    ) -> None:
        super().__init__(conversation, model)
        self._llm = llm
        self._messages = [message for message in messages if str(message.role.value) not in _SYSTEM]
        self._arguments = {name: value for name, value in arguments.items() if name != TOOLS}

    def call(self, call: ModelCall) -> Reply:
        """Answer a call; the model's errors are not wrapped."""
        messages, arguments = self._call_arguments(call)
        return self._reply(call, self._llm.chat(messages, **arguments))

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        messages, arguments = self._call_arguments(call)
        return self._reply(call, await self._llm.achat(messages, **arguments))

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The model's own pieces if they may be shown, then the reply."""
        if call.purpose is not Purpose.ANSWER or not self.shows():
            yield from super().stream(call)
            return
        self.shown = True
        messages, arguments = self._call_arguments(call)
        pieces, last = [], None
        for last in self._llm.stream_chat(messages, **arguments):
            pieces.append(last.delta or "")
            yield pieces[-1]
        yield self._reply(call, _last_response(last), "".join(pieces))

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        if call.purpose is not Purpose.ANSWER or not self.shows():
            async for part in super().astream(call):
                yield part
            return
        self.shown = True
        messages, arguments = self._call_arguments(call)
        pieces, last = [], None
        async for last in await self._llm.astream_chat(messages, **arguments):
            pieces.append(last.delta or "")
            yield pieces[-1]
        yield self._reply(call, _last_response(last), "".join(pieces))

    def pieces(self, text: str) -> list[str]:
        """Pieces for a stream: the text itself if shown as it arrived, else split into pieces."""
        return [text] if self.shown else text_pieces(text)

    def released(self, answer: Answer, proof: Mapping[str, Any]) -> ChatResponse:
        """A copy of the response whose text was examined, with the proof in `additional_kwargs`."""
        response = self._response_of(answer)
        fields: dict[str, Any] = {"additional_kwargs": {**response.additional_kwargs, **proof}}
        if answer.repaired:
            message = response.message.model_copy()
            message.blocks = replace_text(
                message.blocks,
                answer.text,
                answer.repaired.edits,
                lambda block: block.text if isinstance(block, TextBlock) else None,
                lambda part: TextBlock(text=part),
                "\n",
            )
            fields["message"] = message
        return response.model_copy(update=fields)

    def _call_arguments(self, call: ModelCall) -> tuple[list[ChatMessage], dict[str, Any]]:
        system, further = self._split(call.messages)
        messages = [chat_message_of(Message(role="system", content=system))] if system else []
        chosen = sampling(self._llm, call)
        if further is None:
            others = [
                chat_message_of(message) for message in call.messages if message.role != "system"
            ]
            return [*messages, *others], chosen
        messages += [*self._messages, *(chat_message_of(message) for message in further)]
        # The agent's arguments are for calls that answer, not for preparatory calls.
        own = call.purpose is Purpose.ANSWER and (bool(call.tools) or not self._has_tools)
        return messages, {**(self._arguments if own else {}), **chosen}

    @property
    def _has_tools(self) -> bool:
        return bool(self._arguments.get("tools"))

    def _reply(self, call: ModelCall, response: ChatResponse, shown: str | None = None) -> Reply:
        reply = reply_of(response, self._model, read_tool_calls(self._llm, response))
        if shown is not None:
            # Examine the text that was shown.
            reply = reply.changed(text=shown)
        return self._keep(call, reply, response)


_SYSTEM: Final = ("system", "developer")


# Key that LlamaIndex adds to a serialized component to find its class again.
_CLASS_KEY: Final = "class_name"


def check_fields(component: type[BaseModel], fields: Any) -> Any:
    """Check that all fields are known; return them without LlamaIndex's class name."""
    if not isinstance(fields, dict):
        return fields
    known = sorted(component.model_fields)
    for name in fields:
        if name not in known and name != _CLASS_KEY:
            raise RequestError(
                f"{component.__name__} has no field {str(name)!r:.40}; it takes {', '.join(known)}"
            )
    return {name: value for name, value in fields.items() if name != _CLASS_KEY}


def check_nodes(nodes: object) -> list[NodeWithScore]:
    """Check that an argument is a list of NodeWithScore."""
    if isinstance(nodes, str) or not isinstance(nodes, Sequence):
        raise RequestError(f"nodes is {type(nodes).__name__}, wanted a list of NodeWithScore")
    for number, node in enumerate(nodes, 1):
        if not isinstance(node, NodeWithScore):
            raise RequestError(
                f"node {number} is {type(node).__name__}; give NodeWithScore(node=…)"
            )
    return list(nodes)


def check_llm(llm: object) -> None:
    """Check that an argument is an LLM of LlamaIndex."""
    if not isinstance(llm, LLM):
        raise RequestError(f"llm is {type(llm).__name__}, wanted an LLM of LlamaIndex")
