"""An LLM of LlamaIndex as the model of a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM
from llama_index.core.tools import BaseTool, ToolMetadata, ToolOutput

from crp_integrations.adapters.chat_model import FrameworkChatModel
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.wire import calls_in, chat_message_of, reply_of
from crp_integrations.messages import ModelCall, Reply, ToolCall


class LlamaIndexModel(FrameworkChatModel):
    """Any `LLM` behind the `Model` port.

    Tools, such as the search of the agentic strategy, need one that calls functions.

    Args:
        llm: the model; its own settings hold where a call sets none.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call, with whatever LlamaIndex raises.

        Raises:
            RequestError: the call has tools, and the model takes none.
        """
        return self._reply(self._llm.chat(**self._given(call)), call)

    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `reply_to`."""
        return self._reply(await self._llm.achat(**self._given(call)), call)

    def _given(self, call: ModelCall) -> dict[str, Any]:
        messages = [chat_message_of(message) for message in call.messages]
        chosen = sampling(self._llm, call)
        if not call.tools:
            return {"messages": messages, **chosen}
        tools = [_Definition(tool["function"]) for tool in call.tools]
        return calling(self._llm)._prepare_chat_with_tools_compat(
            tools, chat_history=messages, allow_parallel_tool_calls=True, **chosen
        )

    def _reply(self, response: ChatResponse, call: ModelCall) -> Reply:
        return reply_of(response, call.model, selected(self._llm, response))


class _Definition(BaseTool):
    """A tool of which the model is told, and that nobody calls here."""

    def __init__(self, function: Mapping[str, Any]) -> None:
        self._metadata = _Told(function.get("description", ""), function["name"])
        self._metadata.parameters = dict(function.get("parameters") or {})

    @property
    def metadata(self) -> ToolMetadata:
        """Name, description and parameters."""
        return self._metadata

    def __call__(self, input: Any) -> ToolOutput:
        """Refuse: the relay or the caller runs it.

        Raises:
            RequestError: always.
        """
        raise RequestError(f"tool {self._metadata.get_name()!r:.80} is not run by the model")


class _Told(ToolMetadata):
    """A tool's description with the JSON schema of its parameters as it was given."""

    parameters: dict[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.parameters


def calling(llm: LLM) -> FunctionCallingLLM:
    """The model as one that calls functions.

    Raises:
        RequestError: it does not.
    """
    if not isinstance(llm, FunctionCallingLLM):
        raise RequestError(f"{llm.class_name()} takes no tools; give another LLM")
    return llm


def selected(llm: LLM, response: ChatResponse) -> list[ToolCall]:
    """The tool calls of a response, as the model itself reads them where it calls functions."""
    if not isinstance(llm, FunctionCallingLLM):
        return list(calls_in(response.message))
    found = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    return [
        ToolCall(
            id=one.tool_id,
            name=one.tool_name,
            arguments=json.dumps(one.tool_kwargs, ensure_ascii=False, default=str),
        )
        for one in found
    ]


def model_name(llm: LLM) -> str:
    """The name under which a model's tokenizer and context limit are looked up; or empty."""
    named = llm.metadata.model_name
    return "" if named == "unknown" else named


def sampling(llm: LLM, call: ModelCall) -> dict[str, Any]:
    """The sampling values that a call sets, as far as a model has a field for them.

    Others would reach the provider as they are, which may refuse them.
    """
    return {
        name: getattr(call, name)
        for name in ("temperature", "max_tokens", "seed")
        if getattr(call, name) is not None and name in type(llm).model_fields
    }
