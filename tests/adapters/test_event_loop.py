"""In asynchronous calls nothing is embedded, examined, read or committed on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from llama_index.core.query_engine import RetrieverQueryEngine

from crp_integrations import Relay
from crp_integrations.dpe import pipeline
from crp_integrations.langchain import (
    CRPGate,
    CRPMiddleware,
    CRPRetriever,
    CRPRunnable,
    DPECallbackHandler,
)
from crp_integrations.llama_index import CRPAgentLLM, CRPQueryEngine, DPEEventHandler
from crp_integrations.llama_index import CRPRetriever as NodeRetriever
from crp_integrations.relay import examination
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from tests.adapters import langchain_doubles as langchain
from tests.adapters import llama_index_doubles as llama_index
from tests.adapters.litellm_deployments import ASKED, entry, router
from tests.doubles import HashEmbedder
from tests.gateway import application
from tests.relay.judges import ScriptedJudge
from tests.servers import openai_double

QUESTION = llama_index.QUESTION
RIGHT = langchain.FACTS[0]


class Watch:
    """Notes each call of what it watches, and those that came on an event loop."""

    def __init__(self) -> None:
        self.calls: set[str] = set()
        self.on_loop: set[str] = set()

    def note(self, name: str) -> None:
        self.calls.add(name)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self.on_loop.add(name)

    def around(self, patch: pytest.MonkeyPatch, owner: Any, method: str, name: str) -> None:
        plain = getattr(owner, method)

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.note(name)
            return plain(*args, **kwargs)

        patch.setattr(owner, method, noted)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    for method in ("embed_passages", "embed_query"):
        made.around(monkeypatch, HashEmbedder, method, "embedding")
    for store in (MemoryStore, SqliteStore):
        made.around(monkeypatch, store, "begin", "store")
    for module in (examination, pipeline):
        made.around(monkeypatch, module, "examine", "examination")
    made.around(monkeypatch, ScriptedJudge, "call", "judge")

    async def acall(self: ScriptedJudge, call: Any) -> Any:
        return await asyncio.to_thread(ScriptedJudge.call, self, call)

    monkeypatch.setattr(ScriptedJudge, "acall", acall)
    return made


@pytest.fixture
def relay(watch: Watch) -> Iterator[Relay]:
    with langchain.opened() as made:
        watch.calls.clear()
        yield made


async def _middleware(relay: Relay) -> None:
    agent = create_agent(langchain.scripted(RIGHT), [], middleware=[CRPMiddleware(relay)])
    await agent.ainvoke({"messages": [("user", QUESTION)]})


async def _judged_middleware(relay: Relay) -> None:
    ours = CRPMiddleware(relay, judge=langchain.reader())
    agent = create_agent(langchain.scripted(RIGHT), [], middleware=[ours])
    await agent.ainvoke({"messages": [("user", QUESTION)]})


def _chain(**listening: Any) -> Any:
    prompt = ChatPromptTemplate.from_messages([("system", "Use {context}"), ("user", "{q}")])
    documents = langchain.Listed(documents=[Document(RIGHT)])
    read = {"context": documents, "q": RunnablePassthrough()}
    return read | prompt | langchain.scripted(RIGHT)


async def _callback(relay: Relay) -> None:
    handler = DPECallbackHandler(relay=relay, judge=langchain.reader())
    await _chain().ainvoke(QUESTION, {"callbacks": [handler]})


async def _gate(relay: Relay) -> None:
    gate = CRPGate(judge=langchain.reader())
    await gate.acheck(RIGHT, langchain.FACTS, QUESTION)


async def _runnable(relay: Relay) -> None:
    await CRPRunnable(relay, llm=langchain.scripted(RIGHT)).ainvoke(QUESTION)


async def _streamed_runnable(relay: Relay) -> None:
    async for _ in CRPRunnable(relay, llm=langchain.scripted(RIGHT)).astream(QUESTION):
        pass


async def _retriever(relay: Relay) -> None:
    await CRPRetriever(relay=relay, model="gpt-4o").ainvoke(QUESTION)


async def _query_engine(relay: Relay) -> None:
    await CRPQueryEngine(relay, llm=llama_index.scripted(RIGHT)).aquery(QUESTION)


async def _streamed_query_engine(relay: Relay) -> None:
    for fields in ({}, langchain.HALTING):
        engine = CRPQueryEngine(relay, llm=llama_index.scripted(RIGHT), streaming=True, **fields)
        response: Any = await engine.aquery(QUESTION)
        async for _ in response.response_gen:
            pass


async def _agent_llm(relay: Relay) -> None:
    llm = CRPAgentLLM(relay=relay, llm=llama_index.scripted(RIGHT))
    await llama_index.agent(llm).run(QUESTION)


async def _judging_event_handler(relay: Relay) -> None:
    nodes = NodeRetriever(relay, model="gpt-4o")
    engine = RetrieverQueryEngine.from_args(nodes, llm=llama_index.scripted(RIGHT))
    async with DPEEventHandler(judge=langchain.reader()):
        await engine.aquery(QUESTION)


async def _node_retriever(relay: Relay) -> None:
    await NodeRetriever(relay, model="gpt-4o").aretrieve(QUESTION)


async def _router(relay: Relay) -> None:
    with openai_double(text=RIGHT) as server:
        called = router(relay, entry(server, "main", "gpt-4o-mini"), judge=langchain.reader())
        await called.acompletion("main", ASKED)
        async for _ in await called.acompletion("main", ASKED, stream=True):
            pass


async def _relay(relay: Relay) -> None:
    await relay.aask(QUESTION, model="extractive")
    await relay.abatch([QUESTION], model="extractive")
    async for _ in relay.astream(QUESTION, model="extractive", judge=langchain.reader()):
        pass


ALL = {"embedding", "store", "examination"}
DOORS: list[tuple[Callable[[Relay], Coroutine[Any, Any, None]], set[str]]] = [
    (_middleware, ALL),
    (_judged_middleware, ALL | {"judge"}),
    (_callback, {"store", "examination", "judge"}),
    (_gate, {"examination", "judge"}),
    (_runnable, ALL),
    (_streamed_runnable, ALL),
    (_retriever, {"embedding", "store"}),
    (_query_engine, ALL),
    (_streamed_query_engine, ALL | {"judge"}),
    (_agent_llm, ALL),
    (_judging_event_handler, {"examination", "judge"}),
    (_node_retriever, {"embedding", "store"}),
    (_router, ALL | {"judge"}),
    (_relay, ALL | {"judge"}),
]


@pytest.mark.parametrize(
    ("door", "used"), DOORS, ids=[door.__name__.strip("_") for door, _ in DOORS]
)
def test_an_asynchronous_call_does_its_work_off_the_event_loop(
    door: Callable[[Relay], Coroutine[Any, Any, None]], used: set[str], relay: Relay, watch: Watch
) -> None:
    asyncio.run(door(relay))
    assert used <= watch.calls
    assert watch.on_loop == set()


def test_the_gateway_does_its_work_off_the_event_loop(tmp_path: Path, watch: Watch) -> None:
    with openai_double(text="Plant 7 was built in 1957.") as server:
        options = {"judge": langchain.reader()}
        with application.opened(tmp_path, server, options=options) as gateway:
            watch.calls.clear()
            assert gateway.ask().status_code == 200
            assert gateway.post("/v1/preview", application.BODY).status_code == 200
            facts = [{"content": application.SECRET}]
            assert gateway.post("/v1/facts", {"facts": facts}).status_code == 200
            assert gateway.post("/v1/chat/completions", {**application.BODY, "stream": True})
    assert watch.calls == ALL | {"judge"}
    assert watch.on_loop == set()
