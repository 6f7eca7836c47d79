"""The transparency boundary: what a provider gets of every LangChain and LiteLLM adapter.

A recording server on the loopback interface stands where the provider is: it sees no header of CRP
and nothing of its metadata in any request, also after answers that carried them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import litellm
import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore

from crp_integrations import Relay, pack
from crp_integrations.langchain import (
    CRPChatModel,
    CRPDocumentCompressor,
    CRPDocumentStore,
    CRPGate,
    CRPMiddleware,
    CRPRetriever,
    CRPRunnable,
    CRPStore,
    CRPVectorStore,
    DPECallbackHandler,
    envelope_text,
)
from crp_integrations.litellm import CRPLogger, CRPProxyHook
from tests.adapters.langchain_doubles import Listed, opened
from tests.adapters.litellm_deployments import FACTS, JUDGE, QUESTION, entry, router
from tests.adapters.litellm_proxy_app import MASTER, called
from tests.doubles import FixedClock, HashEmbedder
from tests.servers import Double, no_metadata, openai_double

GOOD = FACTS[7]
EMBEDDER = HashEmbedder()
PROMPT = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double(text=GOOD) as double:
        yield double


def model_at(server: Double, **fields: Any) -> CRPChatModel:
    return CRPChatModel(
        model="openai/gpt-4o", api_base=server.url, api_key="sk-test", max_retries=0, **fields
    )


def relay_of() -> Relay:
    return opened(*FACTS)


def chain_of(retriever: Any, server: Double) -> Any:
    found = {"context": retriever | envelope_text, "question": RunnablePassthrough()}
    return found | PROMPT | model_at(server)


def wrapped() -> CRPRetriever:
    listed = Listed(documents=[Document(text, id=f"d{n}") for n, text in enumerate(FACTS)])
    return CRPRetriever.wrap(listed, model="gpt-4o", budget_tokens=300)


def retriever(server: Double) -> None:
    for one in (CRPRetriever(relay=relay_of(), model="gpt-4o"), wrapped()):
        chain = chain_of(one, server)
        assert chain.invoke(QUESTION).content == GOOD


def compressor(server: Double) -> None:
    packing = CRPDocumentCompressor(model="gpt-4o", budget_tokens=300)
    packed = packing.compress_documents([Document(text) for text in FACTS], QUESTION)
    chain = PROMPT | model_at(server)
    chain.invoke({"context": envelope_text(packed), "question": QUESTION})


def callback(server: Double) -> None:
    answer = chain_of(wrapped(), server).invoke(QUESTION, {"callbacks": [DPECallbackHandler()]})
    # What an answer carries goes back with the conversation.
    assert answer.response_metadata["crp"]
    model_at(server).invoke([("user", QUESTION), answer, ("user", "And when?")])


def gate(server: Double) -> None:
    chain = CRPGate.around(chain_of(wrapped(), server), "halt-on HIGH", judge=JUDGE)
    answer = chain.invoke(QUESTION)
    assert answer.response_metadata["crp"]
    model_at(server).invoke([("user", QUESTION), answer, ("user", "And when?")])


def runnable(server: Double) -> None:
    relay = relay_of()
    policy = "halt-on HIGH; upgrade-on-risk reflexive"
    crp = CRPRunnable(relay, llm=model_at(server), policy=policy, judge=JUDGE, attach="full")
    config = {"configurable": {"thread_id": "t"}}
    answer = crp.invoke(QUESTION, config)
    assert answer.response_metadata["crp_headers"]
    list(crp.stream([("user", QUESTION), answer, ("user", QUESTION)], config))


def chat_model(server: Double) -> None:
    model = model_at(server)
    told = {"crp": {"risk_level": "LOW"}, "crp_headers": {"CRP-Safety-Policy-Applied": "x"}}
    said = [("user", QUESTION), AIMessage(GOOD, response_metadata=told), ("user", QUESTION)]
    model.invoke(said)
    list(model.stream(said))
    asyncio.run(model.ainvoke(said))


def middleware(server: Double) -> None:
    @tool
    def look_up(query: str) -> str:
        """Look something up."""
        return FACTS[8]

    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "look_up", "arguments": '{"query": "x"}'},
    }
    server.tool_calls = [call]

    def choose(seen: Any) -> str:
        """No more tool calls after a tool has answered."""
        if any(one["role"] == "tool" for one in seen.body["messages"]):
            server.tool_calls = []
        return ""

    server.choose = choose
    how = {"checkpointer": InMemorySaver(), "middleware": [CRPMiddleware(relay_of())]}
    agent = create_agent(model_at(server), [look_up], **how)
    config = {"configurable": {"thread_id": "t"}}

    agent.invoke({"messages": [("user", QUESTION)]}, config)
    # The second run sends what the first one's answers carry back.
    agent.invoke({"messages": [("user", QUESTION)]}, config)


def store(server: Double) -> None:
    kept = CRPStore(clock=FixedClock(), embedder=EMBEDDER)
    kept.put(("plants",), "seven", {"text": GOOD})

    def answer(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        found = "\n".join(item.value["text"] for item in store.search((), query=QUESTION))
        asked = [("system", found), *state["messages"]]
        return {"messages": [model_at(server).invoke(asked)]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.compile(store=kept).invoke({"messages": [("user", QUESTION)]})


def vector_and_document_store(server: Double) -> None:
    vectors = CRPVectorStore(relay_of())
    chain = (
        {
            "context": vectors.as_retriever()
            | (lambda found: "\n".join(d.page_content for d in found)),
            "question": RunnablePassthrough(),
        }
        | PROMPT
        | model_at(server)
    )
    chain.invoke(QUESTION)
    parents = CRPDocumentStore(clock=FixedClock(), embedder=EMBEDDER)
    parents.mset([("seven", Document(GOOD))])
    (found,) = parents.mget(["seven"])
    (PROMPT | model_at(server)).invoke({"context": found.page_content, "question": QUESTION})


def litellm_router(server: Double) -> None:
    # Of the second question too, which stands under the session's policy.
    called_ = router(relay_of(), entry(server, "main", "gpt-4o"), judge=JUDGE)
    policy = {"policy": "halt-on HIGH; upgrade-on-risk reflexive"}
    response = called_.completion("main", [{"role": "user", "content": QUESTION}], crp=policy)
    assert response.crp_headers
    session = response.crp_headers["CRP-Context-Session-Id"]
    said = [response.choices[0].message.model_dump(), {"role": "user", "content": QUESTION}]
    asked = [{"role": "user", "content": QUESTION}, *said]
    assert list(called_.completion("main", asked, session_id=session, stream=True))


def litellm_logger(server: Double) -> None:
    logger = CRPLogger(embedder=EMBEDDER)
    logger.install()
    packed = pack(QUESTION, FACTS, model="gpt-4o", budget_tokens=300, embedder=EMBEDDER)
    said = [
        {"role": "system", "content": packed.text},
        {"role": "user", "content": QUESTION},
    ]
    how = {"model": "openai/gpt-4o", "api_base": server.url, "api_key": "sk-test"}
    lists = (litellm.callbacks, litellm.input_callback, litellm.success_callback)
    try:
        with logger.shown(packed, QUESTION):
            response = litellm.completion(messages=said, **how)
        assert logger.report(response)["risk_level"]
        said += [response.choices[0].message.model_dump(), {"role": "user", "content": "And?"}]
        litellm.completion(messages=said, **how)
    finally:
        for one in (*lists, litellm._async_success_callback):
            while logger in one:
                one.remove(logger)


def litellm_proxy(server: Double) -> None:
    hook = CRPProxyHook(relay_of(), judge=JUDGE)
    with called(hook, [entry(server, "main", "gpt-4o")]) as client:
        asked = {"model": "main", "messages": [{"role": "user", "content": QUESTION}]}
        headers = {"CRP-Safety-Policy": "halt-on HIGH", "CRP-Agent-Phase": "PLAN"}
        given = client.ask(asked, headers, MASTER)
        assert given.status == 200, given
        session = {"CRP-Context-Session-Id": given.headers["crp-context-session-id"]}
        said = [*asked["messages"], given.body["choices"][0]["message"], *asked["messages"]]
        assert (
            client.ask({**asked, "messages": said, "stream": True}, session, MASTER).status == 200
        )


ADAPTERS: dict[str, Callable[[Double], None]] = {
    "CRPRetriever": retriever,
    "CRPDocumentCompressor": compressor,
    "DPECallbackHandler": callback,
    "CRPGate": gate,
    "CRPRunnable": runnable,
    "CRPChatModel": chat_model,
    "CRPMiddleware": middleware,
    "CRPStore": store,
    "CRPVectorStore and CRPDocumentStore": vector_and_document_store,
    "CRPRouter": litellm_router,
    "CRPLogger": litellm_logger,
    "CRPProxyHook": litellm_proxy,
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_provider_sees_nothing_of_crp(server: Double, adapter: str) -> None:
    ADAPTERS[adapter](server)
    assert server.requests
    shown = "".join(seen.raw for seen in server.requests)
    assert "built in 1957" in shown, "the context itself is there"
    for seen in server.requests:
        assert not [name for name in seen.headers if name.startswith("crp")]
        assert no_metadata(seen.raw), seen.raw


def test_every_adapter_is_asked() -> None:
    import crp_integrations.langchain as langchain
    import crp_integrations.litellm as ours

    # What never calls a model, or is a part of one of the others.
    apart = {
        "EmittingMiddleware",
        "FabricEmbeddings",
        "LangChainReranker",
        "crp_evaluator",
        "envelope_text",
        "report_of",
        "CRPStream",
    }
    named = " ".join(ADAPTERS)
    assert not [one for one in {*langchain.__all__, *ours.__all__} - apart if one not in named]
