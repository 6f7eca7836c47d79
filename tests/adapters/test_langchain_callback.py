"""The callback in real chains: repeated ids, caches, agents, hooks that raise."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.documents import Document
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import create_retriever_tool
from langgraph.checkpoint.memory import InMemorySaver

from crp_integrations.langchain import CRPRetriever, DPECallbackHandler, envelope_text
from crp_integrations.langchain import runs as trees
from crp_integrations.langchain.messages import facts_of
from tests.adapters import langchain_doubles
from tests.adapters.langchain_doubles import Listed
from tests.adapters.test_langchain_rag import QUESTION, Chat, rag
from tests.judges import reply_to
from tests.relay.conftest import FACTS

TOWER = "The tower of Meridian town is 100 metres high."
BRIDGE = "The bridge of Meridian town is 300 metres long."


def figures_judge() -> Any:
    """A judge that goes by the figures, as a chat model of LangChain."""
    return langchain_doubles.Chat(reply=lambda said: reply_to([str(one.content) for one in said]))


def listed(*documents: Document) -> Listed:
    return Listed(documents=list(documents))


def wrapped(*documents: Document) -> CRPRetriever:
    return CRPRetriever.wrap(listed(*documents), model="gpt-4o", budget_tokens=2000)


def crp(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = message.response_metadata["crp"]
    return found


class TestIdsUsedAgain:
    def test_every_text_of_one_id_is_packed(self) -> None:
        packed = wrapped(
            Document(TOWER, id="1"), Document(BRIDGE, id="1"), Document(TOWER, id="1")
        ).invoke(QUESTION)
        assert {document.page_content for document in packed} == {TOWER, BRIDGE}
        assert {document.id for document in packed} == {"1"}
        assert len({document.metadata["crp_fact"]["fact_id"] for document in packed}) == 2

    def test_the_fact_ids_do_not_depend_on_the_order(self) -> None:
        documents = [Document(TOWER, id="1"), Document(BRIDGE, id="1"), Document("Other.", id="2")]
        forth = {fact.fact_id: fact.content for fact in facts_of(documents)[0]}
        back = {fact.fact_id: fact.content for fact in facts_of(documents[::-1])[0]}
        assert forth == back
        assert forth["2"] == "Other."

    def test_two_retrievers_with_the_same_ids_are_both_context(self) -> None:
        chain = (
            RunnableParallel(
                a=listed(Document(TOWER, id="0")) | envelope_text,
                b=listed(Document(BRIDGE, id="0")) | envelope_text,
            )
            | ChatPromptTemplate.from_template("{a}\n{b}")
            | Chat(reply=lambda prompt: f"{TOWER} {BRIDGE}")
        )
        report = crp(chain.invoke(QUESTION, {"callbacks": [DPECallbackHandler(attach="full")]}))
        assert report["grounding_pct"] == 1.0
        assert report["fabrication_count"] == 0


class TestTextThatCannotBeEncoded:
    @pytest.mark.parametrize(
        "document",
        [
            Document("SECRET \ud800 text\x00"),
            Document("text", id="\ud800"),
            Document("text", id="1", metadata={"source": "\ud800"}),
        ],
    )
    def test_it_costs_that_character_and_a_line_in_the_log(
        self, document: Document, caplog: pytest.LogCaptureFixture
    ) -> None:
        found = wrapped(Document("fine"), document).invoke(QUESTION)
        assert len(found) == 2
        assert all(one.page_content.encode() for one in found)
        assert "document 2 has characters that cannot be written" in caplog.text
        assert "SECRET" not in caplog.text

    def test_the_handler_checks_the_rest(self, caplog: pytest.LogCaptureFixture) -> None:
        chain = (
            listed(Document(f"{TOWER} \ud800"))
            | RunnableLambda(lambda documents: "a prompt")
            | Chat(reply=lambda prompt: TOWER)
        )
        with caplog.at_level(logging.DEBUG):
            found = crp(chain.invoke(QUESTION, {"callbacks": [DPECallbackHandler(attach="full")]}))
        assert found["grounding_pct"] == 1.0
        assert TOWER not in caplog.text


def test_a_source_that_is_none_is_no_source_of_that_name() -> None:
    ((fact, *_), _) = facts_of([Document("text", metadata={"source": None, "start_index": None})])
    assert fact.source_id == "user"
    assert fact.source_location == ""


def test_an_answer_out_of_a_cache_leaves_the_answers_before_it_alone() -> None:
    model = Chat(reply=lambda prompt: TOWER, cache=InMemoryCache())

    def chain(text: str) -> Any:
        same = RunnableLambda(lambda documents: "the same prompt")
        return listed(Document(text)) | same | model

    config = {"callbacks": [DPECallbackHandler(attach="full", judge=figures_judge())]}
    first = chain(TOWER).invoke(QUESTION, config)
    before = json.dumps(crp(first))
    second = chain(TOWER.replace("100", "200")).invoke(QUESTION, config)
    third = chain(TOWER).invoke(QUESTION, config)
    assert json.dumps(crp(first)) == before
    assert crp(first)["distortion_count"] == 0
    assert crp(second)["distortion_types"] == ["NUMBER_CHANGED"]
    assert crp(third)["distortion_count"] == 0


class Several(Chat):
    """Gives two answers to one prompt."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        answers = [TOWER, TOWER.replace("100", "200")]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(a)) for a in answers])


def test_each_of_several_answers_has_its_own_report() -> None:
    heard: list[dict[str, Any]] = []
    model = Several(reply=None)

    def both(documents: list[Document], config: Any) -> Any:
        prompt = [HumanMessage(envelope_text(documents))]
        return model.generate([prompt], callbacks=config["callbacks"]).generations[0]

    chain = listed(Document(TOWER)) | RunnableLambda(both)
    judge = figures_judge()
    handler = DPECallbackHandler(attach="full", on_report=heard.append, judge=judge)
    right, wrong = chain.invoke(QUESTION, {"callbacks": [handler]})
    assert crp(right.message)["distortion_count"] == 0
    assert crp(wrong.message)["distortion_types"] == ["NUMBER_CHANGED"]
    assert heard == [crp(right.message), crp(wrong.message)]


def test_a_hook_that_raises_takes_no_report_away_and_keeps_no_run() -> None:
    def loud(attachment: dict[str, Any]) -> None:
        raise ValueError("the caller's own hook")

    handler = DPECallbackHandler(attach="full", on_report=loud)
    result = Several(reply=None).generate([[HumanMessage("x")]], callbacks=[handler])
    for generation in result.generations[0]:
        assert crp(generation.message)["risk_level"] == "UNKNOWN"
    assert len(handler._runs) == 0


def test_text_in_content_blocks_is_examined() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": TOWER}]
    chain = rag(listed(Document(TOWER)), lambda prompt: blocks)
    report = crp(chain.invoke(QUESTION, {"callbacks": [DPECallbackHandler(attach="full")]}))
    assert report["grounding_pct"] == 1.0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_retriever_called_inside_a_function_is_found(asynchronous: bool) -> None:
    source, model = listed(Document(TOWER)), Chat(reply=lambda prompt: TOWER)

    def ask(question: str) -> Any:
        return model.invoke(envelope_text(source.invoke(question)))

    async def aask(question: str) -> Any:
        return await model.ainvoke(envelope_text(await source.ainvoke(question)))

    config = {"callbacks": [DPECallbackHandler(attach="full")]}
    if asynchronous:
        message = asyncio.run(RunnableLambda(aask).ainvoke(QUESTION, config))
    else:
        message = RunnableLambda(ask).invoke(QUESTION, config)
    assert crp(message)["grounding_pct"] == 1.0


def test_a_fallback_and_a_retry_keep_the_context() -> None:
    tries: list[str] = []

    def once_broken(prompt: str) -> str:
        tries.append(prompt)
        if len(tries) == 1:
            raise RuntimeError("first time")
        return TOWER

    def broken(prompt: str) -> str:
        raise RuntimeError("always")

    config = {"callbacks": [DPECallbackHandler(attach="full")]}
    again = rag(listed(Document(TOWER)), once_broken).with_retry(
        stop_after_attempt=2, wait_exponential_jitter=False
    )
    assert crp(again.invoke(QUESTION, config))["grounding_pct"] == 1.0
    model = Chat(reply=broken).with_fallbacks([Chat(reply=lambda prompt: TOWER)])
    other = listed(Document(TOWER)) | RunnableLambda(envelope_text) | model
    assert crp(other.invoke(QUESTION, config))["grounding_pct"] == 1.0


@pytest.mark.parametrize("said", ["", " \n"])
def test_an_answer_without_text_says_that_it_was_not_checked(said: str) -> None:
    heard: list[dict[str, Any]] = []
    handler = DPECallbackHandler(attach="full", on_report=heard.append)
    answer = rag(listed(Document(TOWER)), lambda prompt: said).invoke(
        QUESTION, {"callbacks": [handler]}
    )
    assert crp(answer)["risk_level"] == "UNKNOWN"
    assert crp(answer)["reasons"] == ["the answer has no text"]
    assert heard == [crp(answer)]


class AgentChat(Chat):
    """Asks for the tool `search` once, then answers."""

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.seen.append("\n".join(str(message.content) for message in messages))
        if messages[-1].type == "tool":
            answer = AIMessage(self.reply(""))
        else:
            call = {"name": "search", "args": {"query": QUESTION}, "id": "c1"}
            answer = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@pytest.mark.parametrize("form", ["content", "content_and_artifact"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_with_a_retriever_tool_is_checked(form: Any, asynchronous: bool) -> None:
    source = wrapped(*(Document(text) for text in FACTS))
    tool = create_retriever_tool(source, "search", "Finds facts.", response_format=form)
    model = AgentChat(reply=lambda prompt: FACTS[0].replace("412", "512"), seen=[])
    agent = create_agent(model, [tool], checkpointer=InMemorySaver())
    handler = DPECallbackHandler(attach="full", judge=figures_judge())
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "1"}}
    given: Any = {"messages": [("user", QUESTION)]}
    state = (
        asyncio.run(agent.ainvoke(given, config)) if asynchronous else agent.invoke(given, config)
    )
    *_, calling, _, answer = state["messages"]
    assert "crp" not in calling.response_metadata  # it says nothing that could be checked
    assert crp(answer)["distortion_types"] == ["NUMBER_CHANGED"]
    assert not [prompt for prompt in model.seen if "crp" in prompt or "etag" in prompt]
    assert len(handler._runs) == 0
    kept = agent.get_state({"configurable": {"thread_id": "1"}}).values["messages"][-1]
    assert crp(kept) == crp(answer)
    json.dumps([messages_to_dict([kept]), dumpd(kept)])
    # The next turn of the conversation retrieves nothing: what the tool found before counts.
    model.reply = lambda prompt: "Tulips."
    silent = Chat(reply=lambda prompt: "Tulips.").invoke(
        [*state["messages"]], {"callbacks": [handler]}
    )
    assert crp(silent)["risk_level"] == "LOW"
    assert "not-examined" not in crp(silent)["flags"]


class Sleepy(BaseRetriever):
    """Never answers."""

    def _get_relevant_documents(self, query, *, run_manager):
        raise NotImplementedError

    async def _aget_relevant_documents(self, query, *, run_manager):
        await asyncio.Event().wait()


async def cancelled(work: Any, started: Any) -> None:
    task = asyncio.create_task(work)
    while not started():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_chain_is_forgotten() -> None:
    handler = DPECallbackHandler(attach="full")
    chain = rag(Sleepy(), lambda prompt: "x")
    await cancelled(
        chain.ainvoke(QUESTION, {"callbacks": [handler]}), lambda: len(handler._runs) >= 3
    )
    assert len(handler._runs) == 0


def test_an_abandoned_stream_is_forgotten() -> None:
    handler = DPECallbackHandler(attach="full")
    chain = rag(listed(Document(TOWER)), lambda prompt: TOWER)
    stream = chain.stream(QUESTION, {"callbacks": [handler]})
    next(stream)
    stream.close()
    assert len(handler._runs) == 0


def test_trees_that_nobody_ends_are_given_up_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MAX_TREES", 3)
    runs = trees.RunTree()
    roots = [uuid4() for _ in range(5)]
    for root in roots:
        runs.start(root, None)
        runs.start(uuid4(), root)
    assert len(runs) == 2 * 3
    late, model = uuid4(), uuid4()
    runs.start(late, roots[0])  # its tree was given up
    runs.add_documents(late, [Document(TOWER)])
    runs.start(model, roots[0])
    assert runs.context_of(model) is None
