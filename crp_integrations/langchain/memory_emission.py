"""Middleware that emits memory items during an agent's run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from crp_integrations.adapters.arguments import check_emitter
from crp_integrations.errors import FactRejected
from crp_integrations.governance.memory_writer import Emitter
from crp_integrations.ports import share_in_copies

log = logging.getLogger("crp_integrations.langchain")


class EmittingMiddleware(AgentMiddleware[AgentState[Any], Any]):
    """Emits memory items from the four hooks of a run.

    The question (user-action), the answer (transcript) and each tool result (tool-output) become
    `episodic` items, each tool call a `procedural` one (tool-recipe), and each tool offered to the
    model a `semantic` one (tool-spec). An item that the fabric refuses, such as a text of two
    words, is logged and skipped; the run continues.

    Spec: Summit §Backlog Write 3

    Args:
        emitter: creates the items and passes them on.

    Raises:
        RequestError: `emitter` is not an Emitter.
    """

    __deepcopy__ = share_in_copies

    def __init__(self, emitter: Emitter) -> None:
        super().__init__()
        check_emitter(emitter, "EmittingMiddleware")
        self.tools = []
        self._emitter = emitter

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Emit the user's question."""
        asked = [message for message in state["messages"] if isinstance(message, HumanMessage)]
        if asked:
            self._emit(self._emitter.episodic, asked[-1].text, "user-action")

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """The asynchronous twin of `before_agent`; writes in a worker thread."""
        await asyncio.to_thread(self.before_agent, state, runtime)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Emit the agent's answer."""
        last = state["messages"][-1] if state["messages"] else None
        if isinstance(last, AIMessage):
            self._emit(self._emitter.episodic, last.text, "transcript")

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """The asynchronous twin of `after_agent`; writes in a worker thread."""
        await asyncio.to_thread(self.after_agent, state, runtime)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        """Emit the tools offered to the model, at its first call."""
        self._emit_tools(request)
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """The asynchronous twin of `wrap_model_call`; writes in a worker thread."""
        await asyncio.to_thread(self._emit_tools, request)
        return await handler(request)

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Emit a tool call and its result."""
        result = handler(request)
        self._emit_call(request, result)
        return result

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The asynchronous twin of `wrap_tool_call`; writes in a worker thread."""
        result = await handler(request)
        await asyncio.to_thread(self._emit_call, request, result)
        return result

    def _emit_tools(self, request: ModelRequest) -> None:
        if any(isinstance(message, AIMessage) for message in request.messages):
            return
        for tool in request.tools:
            spec = tool if isinstance(tool, dict) else convert_to_openai_tool(tool)
            self._emit(self._emitter.semantic, spec, "tool-spec")

    def _emit_call(self, request: ToolCallRequest, result: ToolMessage | Command[Any]) -> None:
        call = request.tool_call
        recipe = {"tool": call["name"], "arguments": dict(call["args"])}
        self._emit(self._emitter.procedural, recipe, "tool-recipe")
        if isinstance(result, ToolMessage):
            self._emit(self._emitter.episodic, result.text, "tool-output")

    def _emit(self, emit: Callable[..., Any], content: Any, category: str) -> None:
        try:
            emit(content, category)
        except FactRejected as error:
            log.info("a memory of category %s was not kept: %s", category, type(error).__name__)
