"""One argument, every door: a judge decides on the level, wherever an answer is examined."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import litellm
import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from llama_index.core import VectorStoreIndex
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode

from crp_integrations import Relay, aexamine, examine
from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.dpe.records import COMPARISON
from crp_integrations.errors import CRPError, RequestError, SafetyHalt
from crp_integrations.langchain import (
    CRPGate,
    CRPMiddleware,
    CRPRunnable,
    DPECallbackHandler,
    envelope_text,
)
from crp_integrations.litellm import CRPLogger, CRPProxyHook, CRPRouter
from crp_integrations.llama_index import CRPAgentLLM, CRPQueryEngine, DPEEventHandler
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.judge import Judge
from crp_integrations.vocabulary import HaltReason
from tests.adapters import langchain_doubles as langchain
from tests.adapters import llama_index_doubles as llama_index
from tests.adapters.litellm_deployments import ASKED, answered, entry, router, text
from tests.adapters.litellm_proxy_app import MASTER, called
from tests.judges import (
    MODEL,
    asked,
    both,
    claims_of,
    judge_double,
    judging,
    named,
    reply_to,
)  # fmt: skip
from tests.servers import Double, openai_double

FACTS = langchain.FACTS
QUESTION = "How much power does the Meridian reactor deliver?"
RIGHT = FACTS[0]
WRONG = FACTS[0].replace("412", "512")
PROMPT = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")
ROUTED = "sk-test"


@pytest.fixture
def judge() -> Iterator[Double]:
    with judge_double() as double:
        yield double


def rag(answer: str, model: Any = None) -> Any:
    retriever = langchain.Listed(
        documents=[Document(fact, id=f"d{n}") for n, fact in enumerate(FACTS)]
    )
    chain = {"context": retriever | envelope_text, "question": RunnablePassthrough()}
    return chain | PROMPT | (model or langchain.scripted(answer))


def index() -> VectorStoreIndex:
    nodes = [TextNode(text=fact, id_=f"n{n}") for n, fact in enumerate(FACTS)]
    return VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))


# --- the doors: each gives the report on an answer as plain JSON --------------------------------


def by_examine(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    report = examine(answer, list(FACTS), QUESTION, judge=judge, **how)
    return report.model_dump(mode="json")


def by_relay(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    with openai_double(text=answer) as server:
        relay = opened_at(server, judge=judge, **how)
        return relay.ask(QUESTION, model="openai/gpt-4o").report.model_dump(mode="json")


def by_ask(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    with openai_double(text=answer) as server:
        relay = opened_at(server)
        said = relay.ask(QUESTION, model="openai/gpt-4o", judge=judge, **how)
        return said.report.model_dump(mode="json")


def by_astream(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    async def played(relay: Relay) -> Any:
        asking = {"model": "openai/gpt-4o", "judge": judge, **how}
        return [part async for part in relay.astream(QUESTION, live=True, **asking)]

    with openai_double(text=answer) as server:
        *pieces, said = asyncio.run(played(opened_at(server)))
    assert "".join(pieces) == answer
    return said.report.model_dump(mode="json")


def by_witness(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    found = observe_answer(
        langchain.opened(), answer, list(FACTS), QUESTION, judge=Judge.of(judge, **how)
    )
    if found.halt is not None:
        raise found.halt
    assert found.receipt is not None
    return found.report.model_dump(mode="json")


def by_handler(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    handler = DPECallbackHandler(attach="full", judge=judge, on_critical="raise", **how)
    said = rag(answer).invoke(QUESTION, config={"callbacks": [handler]})
    return said.response_metadata["crp"]


def by_handler_stream(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    told: list[Any] = []
    handler = DPECallbackHandler(
        attach="full", judge=judge, on_critical="raise", on_report=told.append, **how
    )
    pieces = list(rag(answer).stream(QUESTION, config={"callbacks": [handler]}))
    assert "".join(str(one.content) for one in pieces) == answer
    (found,) = told
    return found


def by_handler_with_relay(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    handler = DPECallbackHandler(
        attach="full", judge=judge, relay=langchain.opened(), on_critical="raise", **how
    )
    said = rag(answer).invoke(QUESTION, config={"callbacks": [handler]})
    assert said.response_metadata["crp_receipt"]
    return said.response_metadata["crp"]


def policy_of(judge: Any) -> str:
    """A gate's policy: without a judge it can only warn."""
    return "halt-on CRITICAL" if judge else "warn-on CRITICAL"


def by_gate(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    gate = CRPGate(policy_of(judge), judge=judge, attach="full", **how)
    given = {"answer": answer, "context": list(FACTS), "question": QUESTION}
    asyncio.run(gate.ainvoke(given))
    return gate.invoke(given)["crp"]


def by_guarded(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    chain = CRPGate.around(rag(answer), policy_of(judge), judge=judge, attach="full", **how)
    asyncio.run(chain.ainvoke(QUESTION))
    return chain.invoke(QUESTION).response_metadata["crp"]


def by_runnable(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    chain = CRPRunnable(
        langchain.opened(), llm=langchain.scripted(answer), judge=judge, attach="full", **how
    )
    (whole, *_) = [chain.invoke(QUESTION), asyncio.run(chain.ainvoke(QUESTION))]
    *_, last = chain.stream(QUESTION)
    assert (
        last.response_metadata["crp"]["risk_level"] == whole.response_metadata["crp"]["risk_level"]
    )
    return whole.response_metadata["crp"]


def by_runnable_for_one_call(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    chain = CRPRunnable(langchain.opened(), llm=langchain.scripted(answer), attach="full")
    assert chain.invoke(QUESTION).response_metadata["crp"]["judge"] is None
    return chain.invoke(QUESTION, judge=judge, **how).response_metadata["crp"]


def by_middleware(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    middleware = CRPMiddleware(langchain.opened(), judge=judge, attach="full", **how)
    agent = create_agent(langchain.scripted(answer), [], middleware=[middleware])
    asking = {"messages": [{"role": "user", "content": QUESTION}]}
    asyncio.run(agent.ainvoke(asking))
    return agent.invoke(asking)["messages"][-1].response_metadata["crp"]


def by_query_engine(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    llm = llama_index.scripted(answer)
    engine = CRPQueryEngine(llama_index.opened(), llm=llm, judge=judge, attach="full", **how)
    asyncio.run(engine.aquery(QUESTION))
    return engine.query(QUESTION).metadata["crp"]


def by_streaming_query_engine(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    llm = llama_index.scripted(answer)
    engine = CRPQueryEngine(
        llama_index.opened(), llm=llm, streaming=True, judge=judge, attach="full", **how
    )
    response = engine.query(QUESTION)
    assert "".join(response.response_gen) == answer
    return response.metadata["crp"]


def by_agent_llm(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    llm = CRPAgentLLM(
        llama_index.opened(), llama_index.scripted(answer), judge=judge, attach="full", **how
    )
    messages = [ChatMessage(role="user", content=QUESTION)]
    asyncio.run(llm.achat(messages))
    return llm.chat(messages).additional_kwargs["crp"]


def by_event_handler(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    engine = index().as_query_engine(llm=llama_index.scripted(answer), similarity_top_k=5)
    told: list[Any] = []
    with DPEEventHandler(
        attach="full", judge=judge, on_critical="raise", on_report=told.append, **how
    ):
        response = engine.query(QUESTION)
    assert len(told) == 1, "the judge's own calls are no answers"
    return response.metadata["crp"]


def by_event_handler_with_relay(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    engine = index().as_query_engine(llm=llama_index.scripted(answer), similarity_top_k=5)
    relay = llama_index.opened()
    with DPEEventHandler(attach="full", judge=judge, relay=relay, on_critical="raise", **how):
        response = engine.query(QUESTION)
    assert response.metadata["crp_receipt"]
    return response.metadata["crp"]


def by_router(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    with openai_double(text=answer) as server:
        made = router(langchain.opened(), entry(server, "main", "gpt-4o"), judge=judge, **how)
        return made.completion("main", _said()).crp


def by_router_for_one_call(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    with openai_double(text=answer) as server:
        made = router(langchain.opened(), entry(server, "main", "gpt-4o"))
        return answered("stream", made, _said(), judge=judge, **how).crp


def by_logger(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    told: list[Any] = []
    with openai_double(text=answer) as server, heard(judge, told, **how) as logger:
        with logger.shown(list(FACTS), QUESTION):
            response = litellm.completion(
                "openai/gpt-4o", _said(), api_base=server.url, api_key=ROUTED
            )
        found = logger.report(response)
    assert told == [found]
    return found


def by_proxy(answer: str, judge: Any, **how: Any) -> dict[str, Any]:
    with openai_double(text=answer) as server:
        hook = CRPProxyHook(langchain.opened(), judge=judge, **how)
        with called(hook, [entry(server, "main", "gpt-4o")]) as client:
            given = client.ask({"model": "main", "messages": _said()}, {}, MASTER)
    if given.status == 451:
        raise SafetyHalt("withheld", reason=given.body["error"]["message"]["crp_halt_reason"])
    return given.crp


DOORS = [value for name, value in list(globals().items()) if name.startswith("by_")]
# Doors that cannot keep an answer from anybody.
OPEN = [by_logger, by_handler_stream]


def opened_at(server: Double, **options: Any) -> Relay:
    """A relay whose models are at a server."""
    from crp_integrations.engines.litellm import LiteLLMModel

    models = LiteLLMModel(options={"api_base": server.url, "api_key": "sk-test"})
    return langchain.opened(models=models, **options)


def _said() -> list[dict[str, Any]]:
    return [{"role": "user", "content": QUESTION}]


@contextmanager
def heard(judge: Any, told: list[Any], **how: Any) -> Iterator[CRPLogger]:
    logger = CRPLogger(judge=judge, on_report=told.append, **how)
    logger.install()
    try:
        yield logger
    finally:
        lists = (litellm.callbacks, litellm.input_callback, litellm.success_callback)
        others = (litellm.failure_callback, litellm._async_success_callback)
        for one in (*lists, *others, litellm._async_failure_callback):
            while logger in one:
                one.remove(logger)


@pytest.mark.parametrize("door", DOORS)
def test_the_judge_decides_at_every_door(door: Any, judge: Double) -> None:
    right, wrong = (door(answer, named(judge)) for answer in (RIGHT, WRONG))
    assert right["risk_level"] == "LOW"
    assert right["verification"] == "VERIFIED"
    assert {claim["status"] for claim in right["claims"]} == {"SUPPORTED"}
    assert right["reasons"] == []
    assert wrong["risk_level"] == "HIGH"
    assert wrong["flagged"]
    (claim,) = [one for one in wrong["claims"] if one["status"] != "SUPPORTED"]
    assert (claim["status"], claim["error"]) == ("CONTRADICTED", "NUMBER")
    start, end = claim["wrong"]
    assert WRONG[start:end] == "512"
    for report in (right, wrong):
        assert report["checked_by"].startswith("judge ")
        (call,) = report["judge"]["calls"]
        assert call["model"] == MODEL
        assert not report["judge"]["own_answer"]
    # One call an answer, whichever way it was asked for; the second of equal ones is cached.
    assert len(asked(judge)) == 2
    assert {seen.headers["authorization"] for seen in judge.requests} == {"Bearer sk-judge"}


@pytest.mark.parametrize("door", DOORS)
def test_a_second_judge_is_asked_at_every_door(door: Any) -> None:
    with judge_double(answers=judging(objecting)) as cheap, judge_double() as strong:
        pair = [named(cheap), named(strong)]
        found = door(RIGHT, pair)
        assert (found["risk_level"], found["checked_by"]) == ("LOW", "judge openai/judge-1")
        assert len(strong.requests) == len(cheap.requests) > 0


def objecting(asked: Any) -> dict[str, Any]:
    claims = [{"n": number, "status": "UNSUPPORTED"} for number, _ in claims_of(asked)]
    return {"id": asked["id"], "claims": claims}


@pytest.mark.parametrize("door", [one for one in DOORS if one not in OPEN])
def test_where_the_judge_fails_the_answer_may_be_withheld(door: Any, judge: Double) -> None:
    judge.fault = "unauthorised"
    told = door(RIGHT, named(judge), judge_failure="report")
    assert "judge-failed=ModelAuthError 401" in told["flags"]
    assert told["checked_by"] == COMPARISON
    with pytest.raises(SafetyHalt) as halted:
        door(RIGHT, named(judge), judge_failure="halt")
    assert halted.value.reason == HaltReason.JUDGE_FAILED.value


def test_an_open_door_says_that_the_judge_failed(judge: Double) -> None:
    judge.fault = "unauthorised"
    told = by_logger(RIGHT, named(judge), judge_failure="halt")
    assert "judge-failed=ModelAuthError 401" in told["flags"]
    handler = DPECallbackHandler(attach="full", judge=named(judge), judge_failure="halt")
    said = rag(RIGHT).invoke(QUESTION, config={"callbacks": [handler]})
    assert "judge-failed=ModelAuthError 401" in said.response_metadata["crp"]["flags"]


@pytest.mark.parametrize(
    "made",
    [
        lambda judge: examine(RIGHT, list(FACTS), judge=judge),
        lambda judge: DPECallbackHandler(attach="full", judge=judge),
        lambda judge: CRPGate(judge=judge),
        lambda judge: CRPGate.around(rag(RIGHT), judge=judge),
        lambda judge: DPEEventHandler(attach="full", judge=judge),
        lambda judge: CRPLogger(judge=judge),
    ],
)
@pytest.mark.parametrize("own", [True, Judge(True)])
def test_what_calls_no_model_has_none_to_judge_itself(made: Any, own: Any) -> None:
    with pytest.raises(RequestError, match="calls no model of its own"):
        made(own)


@pytest.mark.parametrize(
    "made",
    [
        DPECallbackHandler,
        CRPGate,
        DPEEventHandler,
        CRPLogger,
        lambda **how: examine(RIGHT, list(FACTS), **how),
        lambda **how: CRPRunnable(langchain.opened(), **how),
        lambda **how: CRPQueryEngine(llama_index.opened(), **how),
        lambda **how: CRPMiddleware(langchain.opened(), **how),
        lambda **how: CRPRouter([], relay=langchain.opened(), **how),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(made: Any) -> None:
    with pytest.raises(RequestError, match="needs a judge"):
        made(judge_when="doubt")
    with pytest.raises(CRPError, match="when"):
        made(judge="openai/judge-1", judge_when="sometimes")
    with pytest.raises(CRPError, match="background"):
        made(judge="openai/judge-1", judge_mode="background")
    with pytest.raises((TypeError, RequestError), match="judgement"):
        made(judgement="openai/judge-1")


# --- the model that answers ----------------------------------------------------------------------


def own_double(answer: str) -> Any:
    return openai_double(answers=both(answer))


def own(messages: Any, answer: str) -> str:
    texts = [str(one.content) for one in messages]
    return reply_to(texts) if any('"answer":' in one for one in texts) else answer


def own_by_relay(answer: str) -> dict[str, Any]:
    with own_double(answer) as server:
        relay = opened_at(server, judge=True)
        return relay.ask(QUESTION, model="openai/gpt-4o").report.model_dump(mode="json")


def own_by_runnable(answer: str) -> dict[str, Any]:
    llm = langchain.Chat(reply=lambda messages: own(messages, answer))
    chain = CRPRunnable(langchain.opened(), llm=llm, judge=True, attach="full")
    assert chain.invoke(QUESTION).content == answer
    return asyncio.run(chain.ainvoke(QUESTION)).response_metadata["crp"]


def own_by_middleware(answer: str) -> dict[str, Any]:
    llm = langchain.Chat(reply=lambda messages: own(messages, answer))
    agent = create_agent(
        llm, [], middleware=[CRPMiddleware(langchain.opened(), judge=True, attach="full")]
    )
    asking = {"messages": [{"role": "user", "content": QUESTION}]}
    last = asyncio.run(agent.ainvoke(asking))["messages"][-1]
    assert last.content == answer
    return agent.invoke(asking)["messages"][-1].response_metadata["crp"]


def own_by_query_engine(answer: str) -> dict[str, Any]:
    llm = llama_index.Chat(lambda messages: own(messages, answer))
    return (
        CRPQueryEngine(llama_index.opened(), llm=llm, judge=True, attach="full")
        .query(QUESTION)
        .metadata["crp"]
    )


def own_by_agent_llm(answer: str) -> dict[str, Any]:
    llm = llama_index.Chat(lambda messages: own(messages, answer))
    made = CRPAgentLLM(llama_index.opened(), llm, judge=True, attach="full")
    said = made.chat([ChatMessage(role="user", content=QUESTION)])
    assert said.message.content == answer
    return said.additional_kwargs["crp"]


def own_by_router(answer: str) -> dict[str, Any]:
    with own_double(answer) as server:
        made = router(langchain.opened(), entry(server, "main", "gpt-4o"), judge=True)
        response = made.completion("main", _said())
    assert text(response) == answer
    assert [call["purpose"] for call in response.crp_calls] == ["answer", "judge"]
    return response.crp


def own_by_proxy(answer: str) -> dict[str, Any]:
    with own_double(answer) as server:
        hook = CRPProxyHook(langchain.opened(), judge=True)
        with called(hook, [entry(server, "main", "gpt-4o")]) as client:
            given = client.ask({"model": "main", "messages": _said()}, {}, MASTER)
    assert given.text == answer
    return given.crp


OWN = [value for name, value in list(globals().items()) if name.startswith("own_by_")]


@pytest.mark.parametrize("door", OWN)
def test_the_model_that_answers_may_judge_and_the_report_says_so(door: Any) -> None:
    assert door(RIGHT)["risk_level"] == "LOW"
    wrong = door(WRONG)
    assert wrong["risk_level"] == "HIGH"
    assert wrong["judge"]["own_answer"]
    assert "judge-own-answer" in wrong["flags"]


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("mode", ["messages", "events"])
@pytest.mark.parametrize("whose", ["own", "another"])
async def test_no_token_of_a_judge_shows_in_an_agents_stream(
    block: bool, mode: str, whose: str
) -> None:
    llm = langchain.Chat(reply=lambda messages: own(messages, RIGHT))
    other = langchain.Chat(reply=lambda messages: own(messages, RIGHT))
    judge = True if whose == "own" else other
    middleware = CRPMiddleware(langchain.opened(), judge=judge, block_streams=block)
    agent = create_agent(llm, [], middleware=[middleware])
    asking = {"messages": [{"role": "user", "content": QUESTION}]}
    if mode == "messages":
        parts = [part[0].content async for part in agent.astream(asking, stream_mode="messages")]
        parts += [part[0].content for part in agent.stream(asking, stream_mode="messages")]
    else:
        parts = [
            part["data"]["chunk"].content
            async for part in agent.astream_events(asking, version="v2")
            if part["event"] == "on_chat_model_stream"
        ]
    assert (len(llm.seen) >= 2) if whose == "own" else other.seen, "the judge was asked"
    shown = "".join(map(str, parts))
    assert "SUPPORTED" not in shown
    assert "claims" not in shown


def test_a_judge_with_the_handler_on_it_is_no_answer() -> None:
    """The same model object answers and judges, and tells its handler of every call."""
    told: list[Any] = []
    llm = langchain.Chat(reply=lambda messages: own(messages, WRONG))
    handler = DPECallbackHandler(attach="full", judge=llm, on_report=told.append)
    llm.callbacks = [handler]
    how: Any = {"config": {"callbacks": [handler]}}
    said = rag(WRONG, llm).invoke(QUESTION, **how)
    assert said.response_metadata["crp"]["risk_level"] == "HIGH"
    asyncio.run(rag(WRONG, llm).ainvoke(QUESTION, **how))
    assert [one["risk_level"] for one in told] == ["HIGH", "HIGH"]
    assert len(llm.seen) == 3, "two answers, and one call of the judge for both"


# --- model objects -------------------------------------------------------------------------------


@pytest.mark.parametrize("door", [by_examine, by_handler, by_query_engine, by_router])
@pytest.mark.parametrize("kind", ["LangChain", "bound", "LlamaIndex"])
def test_model_objects_judge(door: Any, kind: str) -> None:
    if kind == "LlamaIndex":
        judge: Any = llama_index.Chat(lambda messages: own(messages, "?"))
        seen = judge.seen
    else:
        chat = langchain.Chat(reply=lambda messages: own(messages, "?"))
        judge, seen = (chat.bind(stop=["\n\n\n"]) if kind == "bound" else chat), chat.seen
    assert door(RIGHT, judge)["risk_level"] == "LOW"
    wrong = door(WRONG, judge)
    assert wrong["risk_level"] == "HIGH"
    assert wrong["judge"]["model"] == "gpt-4o"
    assert seen


def test_a_langchain_judge_gets_the_format_that_its_model_takes() -> None:
    for profile, form in (({"structured_output": True}, "json_schema"), ({}, None), (None, None)):
        chat = langchain.Chat(reply=lambda messages: own(messages, "?"), profile=profile)
        for judge in (chat, chat.bind(stop=["x"])):
            assert by_examine(RIGHT, judge, judge_when="always")["risk_level"] == "LOW"
            bound = chat.bound[-1].get("response_format") or {}
            assert bound.get("type") == form


SLOW_S = 0.5


class SlowJudge:
    model_name = "slow"

    def call(self, call: ModelCall) -> Reply:
        time.sleep(SLOW_S)
        return Reply(text=reply_to([one.content for one in call.messages]), model="slow")

    async def acall(self, call: ModelCall) -> Reply:
        await asyncio.sleep(SLOW_S)
        return Reply(text=reply_to([one.content for one in call.messages]), model="slow")


async def longest_pause(work: Awaitable[Any]) -> tuple[Any, float]:
    """What a work gives, and the longest time that it held the event loop."""
    longest, ended = 0.0, False

    async def beat() -> None:
        nonlocal longest
        while not ended:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - before)

    beating = asyncio.create_task(beat())
    result = await work
    ended = True
    await beating
    return result, longest


def test_no_asynchronous_handler_holds_the_loop_for_its_judge() -> None:
    async def by_langchain() -> str:
        handler = DPECallbackHandler(judge=SlowJudge())
        said = await rag(WRONG).ainvoke(QUESTION, config={"callbacks": [handler]})
        return said.response_metadata["crp"]["risk_level"]

    async def by_llama_index() -> str:
        engine = index().as_query_engine(llm=llama_index.scripted(WRONG), similarity_top_k=5)
        async with DPEEventHandler(judge=SlowJudge()):
            response = await engine.aquery(QUESTION)
        return response.metadata["crp"]["risk_level"]

    for door in (by_langchain, by_llama_index):
        # The first run imports and loads what the doors need.
        asyncio.run(door())
        level, pause = asyncio.run(longest_pause(door()))
        assert level == "HIGH"
        assert pause < SLOW_S, door.__name__


def test_on_a_loop_a_handler_raises_at_the_end_of_an_async_with() -> None:
    engine = index().as_query_engine(llm=llama_index.scripted(WRONG), similarity_top_k=5)

    class Failing(SlowJudge):
        def call(self, call: ModelCall) -> Reply:
            raise CRPError("down")

    def handler() -> DPEEventHandler:
        return DPEEventHandler(judge=Failing(), judge_failure="halt", on_critical="raise")

    async def asked() -> None:
        async with handler():
            await engine.aquery(QUESTION)

    async def refused() -> None:
        with handler():
            pass

    with pytest.raises(SafetyHalt):
        asyncio.run(asked())
    with pytest.raises(RequestError, match="use the handler in an async with"):
        asyncio.run(refused())


def test_a_listener_of_the_process_hears_no_answer_in_a_judges_reply() -> None:
    judge = llama_index.Chat(lambda messages: own(messages, "?"))
    told: list[Any] = []
    listener = DPEEventHandler(on_report=told.append).listen()
    try:
        by_examine(WRONG, judge)
        by_query_engine(WRONG, judge)
        assert told == []
        assert judge.seen
    finally:
        listener.stop()


def test_a_logger_hears_no_answer_in_the_reply_of_a_judge_elsewhere(judge: Double) -> None:
    told: list[Any] = []
    with heard(None, told):
        by_examine(WRONG, named(judge))
        asyncio.run(aexamine(RIGHT, list(FACTS), QUESTION, judge=named(judge)))
        asyncio.run(asyncio.sleep(0.2))
    assert told == []


# --- strangers -----------------------------------------------------------------------------------


def test_a_strangers_request_names_no_judge(judge: Double) -> None:
    with openai_double(text=WRONG) as server:
        hook = CRPProxyHook(langchain.opened())
        with called(hook, [entry(server, "main", "gpt-4o")]) as client:
            body = {"model": "main", "messages": _said(), "judge": named(judge)}
            headers = {"CRP-Judge": "openai/judge-1", "judge": "openai/judge-1"}
            for one in ({}, {"judge_when": "always"}, {"metadata": {"judge": named(judge)}}):
                given = client.ask({**body, **one}, headers, MASTER)
                assert given.status != 200 or given.crp["judge"] is None
    assert not judge.requests


def test_fields_of_a_judge_never_reach_a_provider(judge: Double) -> None:
    with openai_double(text=RIGHT) as server:
        made = router(langchain.opened(), entry(server, "main", "gpt-4o"), judge=named(judge))
        asyncio.run(made.acompletion("main", ASKED, judge_when="always", on_report=print))
    assert server.requests
    assert not [seen for seen in server.requests if "judge" in seen.raw]


# --- in the background ---------------------------------------------------------------------------


def test_in_the_background_the_attachment_comes_later(judge: Double) -> None:
    told: list[Any] = []
    made = Judge(**named(judge), mode="background", on_report=lambda report: None)
    handler = DPECallbackHandler(attach="full", judge=made, on_report=told.append)
    said = rag(WRONG).invoke(QUESTION, config={"callbacks": [handler]})
    assert said.response_metadata["crp"]["judge"]["skipped"] == "background"
    made.wait()
    (attachment,) = told
    assert attachment["risk_level"] == "HIGH"
    assert not [flag for flag in attachment["flags"] if flag.startswith("judge-not-asked")]
    assert len(asked(judge)) == 1
    # What was not examined is told at once.
    langchain.scripted(WRONG).invoke(QUESTION, config={"callbacks": [handler]})
    assert told[1]["flags"] == ["not-examined"]


def test_in_the_background_the_logger_and_the_listener_are_told_later(judge: Double) -> None:
    told: list[Any] = []
    made = Judge(**named(judge), mode="background", on_report=lambda report: None)
    with openai_double(text=WRONG) as server, heard(made, told) as logger:
        with logger.shown(list(FACTS), QUESTION):
            response = litellm.completion(
                "openai/gpt-4o", _said(), api_base=server.url, api_key=ROUTED
            )
        assert logger.report(response)["judge"]["skipped"] == "background"
        made.wait()
    assert [one["risk_level"] for one in told] == ["HIGH"]
    told.clear()
    engine = index().as_query_engine(llm=llama_index.scripted(WRONG), similarity_top_k=5)
    with DPEEventHandler(attach="full", judge=made, on_report=told.append):
        engine.query(QUESTION)
    made.wait()
    assert [one.report["risk_level"] for one in told] == ["HIGH"]
