"""Retrieval, packing and examination in a LangChain chain."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_tests.integration_tests import RetrieversIntegrationTests

from crp_integrations import Relay
from crp_integrations.engines.tokens import counter_for
from crp_integrations.langchain import CRPRetriever, DPECallbackHandler, envelope_text
from crp_integrations.langchain.runs import RunTree
from crp_integrations.vocabulary import RiskLevel
from tests.adapters.langchain_doubles import FACTS, Listed

QUESTION = "When was the Meridian reactor commissioned?"
PROMPT = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")


@pytest.fixture(scope="module")
def relay() -> Relay:
    made = Relay.open()
    made.fabric.add(list(FACTS))
    return made


class Chat(BaseChatModel):
    """Answers with a function of the prompt and keeps what it was sent."""

    reply: Any
    seen: list[str] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        prompt = "\n".join(str(message.content) for message in messages)
        self.seen.append(prompt)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.reply(prompt)))])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        text = self._generate(messages).generations[0].message.content
        for word in text.split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word + " "))


class TestRetrieverSuite(RetrieversIntegrationTests):
    """LangChain's own suite over the fabric."""

    @pytest.fixture(autouse=True)
    def _relay(self, relay):
        type(self).shared = relay

    @property
    def retriever_constructor(self):
        return CRPRetriever

    @property
    def retriever_constructor_params(self):
        return {"relay": self.shared, "model": "gpt-4o", "budget_tokens": 2000}

    @property
    def retriever_query_example(self):
        return QUESTION


class TestWrappedSuite(TestRetrieverSuite):
    """LangChain's own suite over a retriever that is packed."""

    @property
    def retriever_constructor_params(self):
        source = Listed(documents=[Document(text) for text in FACTS])
        return {"source": source, "model": "gpt-4o", "budget_tokens": 2000}


@pytest.mark.requirement("CARD-1", "CARD-17")
@pytest.mark.parametrize("budget", [30, 60, 2000])
def test_documents_are_the_packed_envelope(relay, budget):
    retriever = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=budget)
    assert isinstance(retriever, BaseRetriever)
    envelope = relay.turn(QUESTION, model="gpt-4o", budget_tokens=budget).preview()
    documents = retriever.invoke(QUESTION)
    assert [d.page_content for d in documents] == [f.content for f in envelope.facts]
    assert [d.id for d in documents] == [f.fact_id for f in envelope.facts]
    assert envelope_text(documents) == envelope.text
    assert counter_for("gpt-4o").count(envelope_text(documents)) <= budget
    for document, fact in zip(documents, envelope.facts, strict=True):
        assert document.metadata["crp_fact"]["position"] == fact.position
        assert document.metadata["crp_fact"]["envelope"]["etag"] == envelope.etag
        json.dumps(document.metadata)


@pytest.mark.requirement("CARD-24")
def test_wrapping_an_existing_retriever_keeps_chain_ids_and_metadata():
    documents = [
        Document(text, id=f"d{n}", metadata={"source": f"file-{n}.md", "page": n})
        for n, text in enumerate(FACTS)
    ]
    existing = Listed(documents=documents)

    def chain(retriever):
        return (
            {"context": retriever | envelope_text, "question": RunnablePassthrough()}
            | PROMPT
            | Chat(reply=lambda prompt: FACTS[0] if FACTS[0] in prompt else "Not known.")
        )

    assert chain(existing).invoke(QUESTION).content == FACTS[0]
    wrapped = CRPRetriever.wrap(existing, model="gpt-4o", budget_tokens=40)
    assert chain(wrapped).invoke(QUESTION).content == FACTS[0]
    packed = wrapped.invoke(QUESTION)
    assert 0 < len(packed) < len(FACTS)
    for document in packed:
        original = next(d for d in documents if d.id == document.id)
        assert {k: v for k, v in document.metadata.items() if k != "crp_fact"} == original.metadata
        assert "crp_fact" not in original.metadata


def test_nothing_of_crp_reaches_the_model(relay):
    chat = Chat(reply=lambda prompt: "ok", seen=[])
    chain = (
        {
            "context": CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=60) | envelope_text,
            "question": RunnablePassthrough(),
        }
        | PROMPT
        | chat
    )
    chain.invoke(QUESTION, config={"callbacks": [DPECallbackHandler(attach="full")]})
    (prompt,) = chat.seen
    assert FACTS[0] in prompt
    for secret in ("crp", "etag", "sha256", "composite", "fact_id"):
        assert secret not in prompt.lower()


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_envelope_is_published_as_a_custom_event(relay, asynchronous):
    heard = []

    class Listener(BaseCallbackHandler):
        def on_custom_event(self, name, data, *, run_id, **kwargs):
            heard.append((name, data))

    retriever = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=40)
    config = {"callbacks": [Listener()]}
    if asynchronous:
        await retriever.ainvoke(QUESTION, config)
    else:
        retriever.invoke(QUESTION, config)
    ((name, envelope),) = heard
    assert name == "crp_envelope"
    assert len(envelope["facts"]) + len(envelope["dropped"]) == len(FACTS)
    json.dumps(envelope)


def rag(retriever, reply):
    return (
        {"context": retriever | envelope_text, "question": RunnablePassthrough()}
        | PROMPT
        | Chat(reply=reply)
    )


@pytest.mark.requirement("CARD-21")
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_the_report_is_attached_to_the_answer(relay, way):
    heard: list[dict[str, Any]] = []
    handler = DPECallbackHandler(attach="full", on_report=heard.append)
    chain = rag(
        CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=2000),
        lambda prompt: FACTS[0].replace("412", "512"),
    )
    config = {"callbacks": [handler]}
    message = (
        await chain.ainvoke(QUESTION, config)
        if way == "ainvoke"
        else chain.invoke(QUESTION, config)
    )
    report = message.response_metadata["crp"]
    assert report["distortion_types"] == ["NUMBER_CHANGED"]
    assert report["risk_level"] != RiskLevel.LOW.value
    assert json.loads(json.dumps(report)) == report
    assert heard == [report]
    assert len(handler._runs) == 0


def test_a_stream_reports_through_the_hook(relay):
    heard: list[dict[str, Any]] = []
    chain = rag(
        CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=2000), lambda prompt: FACTS[0]
    )
    config = {"callbacks": [DPECallbackHandler(attach="full", on_report=heard.append)]}
    assert len(list(chain.stream(QUESTION, config))) > 3
    assert [report["risk_level"] for report in heard] == ["LOW"]


@pytest.mark.parametrize("way", ["batch", "abatch"])
async def test_concurrent_answers_are_paired_with_their_own_context(way):
    count = 6
    barrier = threading.Barrier(count, timeout=30)
    texts = [f"The tower of town number {n} is {100 + n} metres high." for n in range(count)]

    class PerQuestion(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(texts[int(query)], id=query)]

    def answer(prompt: str) -> str:
        barrier.wait()  # all retrievals are over before the first answer ends
        return texts[int(prompt.rsplit(" ", 1)[1])]

    chain = rag(PerQuestion(), answer)
    config = {"callbacks": [DPECallbackHandler(attach="full")], "max_concurrency": count}
    questions = [str(n) for n in range(count)]
    if way == "batch":
        messages = chain.batch(questions, config)
    else:
        messages = await chain.abatch(questions, config)
    for number, message in enumerate(messages):
        report = message.response_metadata["crp"]
        assert {e["fact_id"] for c in report["claims"] for e in c["evidence"]} == {str(number)}
        assert report["grounding_pct"] == 1.0


def test_a_wrapper_hides_what_it_dropped(relay):
    handler = DPECallbackHandler(attach="full")
    existing = Listed(documents=[Document(text, id=f"d{n}") for n, text in enumerate(FACTS)])
    chain = rag(
        CRPRetriever.wrap(existing, model="gpt-4o", budget_tokens=2000, k=1),
        lambda prompt: FACTS[2],
    )
    report = chain.invoke(QUESTION, {"callbacks": [handler]}).response_metadata["crp"]
    assert report["grounding_pct"] < 1.0


def test_a_call_without_retrieval_says_that_it_was_not_checked():
    message = Chat(reply=lambda prompt: "All is well.").invoke(
        "Hello", config={"callbacks": [DPECallbackHandler(attach="full")]}
    )
    crp = message.response_metadata["crp"]
    assert crp["risk_level"] == "UNKNOWN"
    assert "no retriever" in crp["reasons"][0]


def test_a_failed_examination_is_never_clean(relay, monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("boom")

    monkeypatch.setattr("crp_integrations.adapters.observed_answers.examine", broken)
    chain = rag(CRPRetriever(relay=relay, model="gpt-4o"), lambda prompt: FACTS[0])
    crp = chain.invoke(
        QUESTION, {"callbacks": [DPECallbackHandler(attach="full")]}
    ).response_metadata["crp"]
    assert crp["risk_level"] == "UNKNOWN"
    assert "ValueError" in crp["reasons"][0]


def test_trees_are_forgotten_when_their_root_fails():
    handler = DPECallbackHandler(attach="full")

    def fail(_: Any) -> str:
        raise RuntimeError("no")

    chain = Listed(documents=[Document("x")]) | RunnableLambda(fail)
    with pytest.raises(RuntimeError):
        chain.invoke("q", {"callbacks": [handler]})
    assert len(handler._runs) == 0


def test_an_unknown_run_has_no_context():
    from uuid import uuid4

    runs = RunTree()
    runs.add_documents(uuid4(), [Document("x")])
    assert runs.context_of(uuid4()) is None
