"""Emitters of agents in LangChain and LlamaIndex: items of each type from their hooks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crp_integrations.governance.memory_items import MemoryItem, Scope
from crp_integrations.governance.memory_writer import Emitter, make_sink
from tests.doubles import CountingIds, FixedClock
from tests.fabric.lifecycle_fixtures import fabric
from tests.governance.memories import CONTEXT, TEXT, writer

pytest.importorskip("langchain")
pytest.importorskip("llama_index.core")


def emitting(sink: Any) -> Emitter:
    scope = Scope(tenant="acme", session="s1")
    return Emitter(scope, ("tenant:acme",), "session://s1", FixedClock(), CountingIds(), sink)


def told(kept: list[MemoryItem]) -> set[tuple[str, str]]:
    return {(one.type, one.category) for one in kept}


@pytest.mark.requirement("SUM-write-3")
@pytest.mark.parametrize("loop", [False, True])
async def test_a_langchain_agent_emits_all_three_types(loop: bool) -> None:
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from crp_integrations.langchain import EmittingMiddleware

    class Model(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

    @tool
    def inspect(hall: str) -> str:
        """Tell when the machines of a hall were inspected."""
        return f"{TEXT} So says the log of hall {hall}."

    call = {
        "name": "inspect",
        "args": {"hall": "four, where the pump and boiler stand"},
        "id": "c1",
    }
    answers = [
        AIMessage(content="", tool_calls=[call]),
        AIMessage(content="The boiler was inspected in spring, and then the pump was replaced."),
    ]
    kept: list[MemoryItem] = []
    on_loop: list[bool] = []

    def sink(item: MemoryItem) -> None:
        kept.append(item)
        on_loop.append(asyncio._get_running_loop() is not None)

    agent = create_agent(
        Model(responses=answers), [inspect], middleware=[EmittingMiddleware(emitting(sink))]
    )
    asked = {"messages": [("user", "When was the boiler in hall four inspected last year?")]}
    result = await agent.ainvoke(asked) if loop else agent.invoke(asked)
    assert told(kept) == {
        ("episodic", "user-action"), ("episodic", "transcript"), ("episodic", "tool-output"),
        ("procedural", "tool-recipe"), ("semantic", "tool-spec"),
    }  # fmt: skip
    assert len(kept) == 5
    # An asynchronous run writes in worker threads.
    assert any(on_loop) is not loop
    assert kept[-1].text == result["messages"][-1].content
    assert {one.security_label for one in kept} == {("tenant:acme",)}


@pytest.mark.requirement("SUM-write-3")
def test_every_kind_of_agent_has_hooks_for_three_types() -> None:
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse
    from llama_index.core.instrumentation.events.agent import AgentToolCallEvent
    from llama_index.core.instrumentation.events.llm import LLMChatEndEvent
    from llama_index.core.instrumentation.events.query import QueryStartEvent
    from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.core.tools import ToolMetadata

    from crp_integrations.langchain import EmittingMiddleware
    from crp_integrations.llama_index import EmittingHandler

    kept: list[MemoryItem] = []
    handler = EmittingHandler(emitting(kept.append))
    node = TextNode(text=TEXT, metadata={"secret": "not content"})
    handler.handle(QueryStartEvent(query=QueryBundle("When was the boiler inspected?")))
    handler.handle(RetrievalEndEvent(str_or_query_bundle="q", nodes=[NodeWithScore(node=node)]))
    meta = ToolMetadata(description="Tells dates.", name="inspect")
    handler.handle(AgentToolCallEvent(arguments='{"hall": "four"}', tool=meta))
    answer = ChatResponse(message=ChatMessage(role="assistant", content="In spring."))
    handler.handle(LLMChatEndEvent(messages=[], response=answer))
    assert told(kept) == {
        ("episodic", "user-action"), ("episodic", "transcript"), ("procedural", "tool-recipe"),
        ("semantic", "document"),
    }  # fmt: skip
    assert next(one for one in kept if one.type == "semantic").text == TEXT
    hooks = {"before_agent", "after_agent", "wrap_model_call", "wrap_tool_call"}
    assert hooks <= set(vars(EmittingMiddleware))
    assert {"episodic", "procedural", "semantic"} <= set(vars(Emitter))


def test_what_the_fabric_refuses_stops_no_run() -> None:
    from llama_index.core.instrumentation.events.query import QueryStartEvent

    from crp_integrations.llama_index import EmittingHandler

    door = writer(fabric())
    handler = EmittingHandler(emitting(make_sink(door, CONTEXT)))
    handler.handle(QueryStartEvent(query="Hi"))
    handler.handle(QueryStartEvent(query=""))
    handler.handle(QueryStartEvent(query=TEXT))
    assert [one.text for one in door.items()] == [TEXT]
