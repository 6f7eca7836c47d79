"""What an agent's model gets in the end is the evidence, and a structured answer is an answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, dynamic_prompt
from langchain.agents.structured_output import ToolStrategy
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from pydantic import BaseModel

from crp_integrations import Relay
from crp_integrations.adapters.observed_answers import (
    SUMMARY_BYTES,
    attachment_of,
    summarise_report,
    unread_report,
    was_examined,
)
from crp_integrations.langchain import CRPGate, CRPMiddleware, DPECallbackHandler
from crp_integrations.relay.storeless_functions import examine
from tests.adapters.langchain_doubles import Listed, scripted
from tests.doubles import HashEmbedder

FARE = "The night fare from Oslo to Moss is 14 euros."
WRONG = FARE.replace("14", "15")
ASK: Any = {"messages": [("user", "What is the night fare from Oslo to Moss?")]}
RAG = f"Answer from this context.\n\n{FARE}"


def calling(name: str, args: dict[str, Any], text: str = "") -> AIMessage:
    call = {"name": name, "args": args, "id": "c1", "type": "tool_call"}
    return AIMessage(text, tool_calls=[call])


@dynamic_prompt
def rag_prompt(request: Any) -> str:
    """The usual pattern: the application retrieves, and writes the system prompt."""
    return RAG


class Appending(AgentMiddleware[Any, Any]):
    """Adds the context behind the system message that is there."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._with_context(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._with_context(request))

    def _with_context(self, request: Any) -> Any:
        before = request.system_message.text if request.system_message else ""
        return request.override(system_message=SystemMessage(f"{before}\n\n{RAG}"))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("other", [rag_prompt, Appending()], ids=["replaced", "appended"])
def test_context_in_the_system_prompt_is_evidence_in_any_order(
    other: Any, inner: bool, asynchronous: bool
) -> None:
    with Relay.open(embedder=HashEmbedder()) as relay:
        reports = []
        for said in (FARE, WRONG):
            own = CRPMiddleware(relay, attach="full")
            middleware = [own, other] if inner else [other, own]
            agent = create_agent(scripted(said), [], middleware=middleware)
            run = asyncio.run(agent.ainvoke(ASK)) if asynchronous else agent.invoke(ASK)
            reports.append(run["messages"][-1].response_metadata["crp"])
    right, wrong = reports
    assert [one["status"] for one in right["claims"]] == ["SUPPORTED"]
    assert wrong["flagged"]


def test_of_several_models_the_answering_one_counts() -> None:
    """A middleware that asks another model afterwards does not take the evidence away."""

    class Guarding(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            response = handler(request.override(system_message=SystemMessage(RAG)))
            scripted("SAFE").invoke([("system", "Say SAFE or UNSAFE."), ("user", "Well?")])
            return response

    with Relay.open(embedder=HashEmbedder()) as relay:
        middleware = [CRPMiddleware(relay, attach="full"), Guarding()]
        agent = create_agent(scripted(FARE), [], middleware=middleware)
        report = agent.invoke(ASK)["messages"][-1].response_metadata["crp"]
    assert [one["status"] for one in report["claims"]] == ["SUPPORTED"]


def test_a_handler_alone_takes_the_system_prompt_as_evidence() -> None:
    handler = DPECallbackHandler(attach="full")
    sent = [("system", RAG), *ASK["messages"]]
    for said, flagged in ((FARE, False), (WRONG, True)):
        message = scripted(said).invoke(sent, {"callbacks": [handler]})
        assert message.response_metadata["crp"]["flagged"] is flagged
        assert handler.last_report is not None
        assert not flagged or handler.last_report["reasons"]


@tool
def fares() -> ToolMessage:
    """Look up fares."""
    return ToolMessage(FARE, tool_call_id="c1", status="error")


@pytest.mark.parametrize("door", ["handler", "middleware"])
def test_a_failed_tool_is_no_evidence_at_any_door(door: str) -> None:
    with Relay.open(embedder=HashEmbedder()) as relay:
        middleware = [CRPMiddleware(relay, attach="full")] if door == "middleware" else []
        handlers = [DPECallbackHandler(attach="full")] if door == "handler" else []
        agent = create_agent(scripted(calling("fares", {}), FARE), [fares], middleware=middleware)
        last = agent.invoke(ASK, {"callbacks": handlers})["messages"][-1]
    report = last.response_metadata["crp"]
    assert "SUPPORTED" not in {one["status"] for one in report["claims"]}


class Fare(BaseModel):
    """A fare."""

    origin: str
    euros: int


EVIDENCE = 'Fares: {"origin": "Oslo", "euros": 14}'


@pytest.mark.parametrize("door", ["handler", "middleware"])
@pytest.mark.parametrize("words", ["", "Here it is."])
def test_an_agents_structured_answer_is_examined(door: str, words: str) -> None:
    with Relay.open(embedder=HashEmbedder()) as relay:
        middleware = [CRPMiddleware(relay, attach="full")] if door == "middleware" else []
        handler = DPECallbackHandler(attach="full")
        agent: Any = create_agent(
            scripted(calling("Fare", {"origin": "Oslo", "euros": 14}, words)),
            [],
            system_prompt=EVIDENCE,
            response_format=ToolStrategy(Fare),
            middleware=middleware,
        )
        result = agent.invoke(ASK, {"callbacks": [handler] if door == "handler" else []})
    assert result["structured_response"] == Fare(origin="Oslo", euros=14)
    said = next(one for one in result["messages"] if isinstance(one, AIMessage))
    report = said.response_metadata["crp"]
    if door == "middleware" or not words:
        assert any("14" in one["text"] for one in report["claims"])


def test_what_an_agent_answered_by_a_call_is_no_evidence_later() -> None:
    """LangChain writes the model's own answer into a tool's message."""
    with Relay.open(embedder=HashEmbedder()) as relay:
        said = [
            *ASK["messages"],
            calling("Fare", {"origin": "Oslo", "euros": 15}),
            ToolMessage(f"Returning structured response: {WRONG}", tool_call_id="c1"),
            ("user", "How much was it again?"),
        ]
        agent = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(relay, attach="full")])
        last = agent.invoke({"messages": said})["messages"][-1]
    claims = last.response_metadata["crp"]["claims"]
    assert "SUPPORTED" not in {one["status"] for one in claims}


def test_with_structured_output_is_examined_by_a_handler() -> None:
    heard: list[Any] = []
    handler = DPECallbackHandler(attach="full", on_report=heard.append)
    model = scripted(calling("Fare", {"origin": "Oslo", "euros": 14}))
    bound = model.bind(ls_structured_output_format={"kwargs": {}, "schema": Fare})
    bound.invoke([("system", EVIDENCE), *ASK["messages"]], {"callbacks": [handler]})
    assert len(heard) == 1 and was_examined_json(heard[0])
    assert any("14" in one["text"] for one in heard[0]["claims"])
    # Without the mark a call is a step, and nothing is attached.
    other = scripted(calling("Fare", {"origin": "Oslo", "euros": 14}))
    other.invoke([("system", EVIDENCE), *ASK["messages"]], {"callbacks": [handler]})
    assert len(heard) == 1


def was_examined_json(report: dict[str, Any]) -> bool:
    return "not-examined" not in report["flags"]


@pytest.mark.parametrize(
    "answer",
    [
        Fare(origin="Oslo", euros=14),
        {"origin": "Oslo", "euros": 14},
        {"raw": AIMessage("x"), "parsed": Fare(origin="Oslo", euros=14), "parsing_error": None},
        calling("Fare", {"origin": "Oslo", "euros": 14}),
        {"answer": Fare(origin="Oslo", euros=14)},
    ],
    ids=["object", "dict", "raw", "call", "answer"],
)
def test_a_gate_examines_structures_by_field(answer: Any) -> None:
    shown = Listed(documents=[Document('{"origin": "Oslo", "euros": 14}')])
    heard: list[Any] = []
    gate = CRPGate.around(
        shown | RunnableLambda(lambda _: answer), "warn-on HIGH", on_report=heard.append
    )
    given = gate.invoke("What is the fare from Oslo?")
    if isinstance(answer, dict):
        given = {name: value for name, value in given.items() if name != "crp"}
    if isinstance(answer, AIMessage):
        given = answer
    assert given == answer
    assert heard[0].claims_total and any("14" in one.text for one in heard[0].claims)
    assert not heard[0].flagged
    streamed = list(gate.stream("What is the fare from Oslo?"))
    assert streamed


def test_a_gate_takes_a_structure_beside_its_context() -> None:
    context = ['{"origin": "Oslo", "euros": 14}']
    given = {"answer": {"origin": "Oslo", "euros": 14}, "context": context, "question": "Fare?"}
    assert not CRPGate("warn-on HIGH").invoke(given)["crp"]["claims"]
    assert CRPGate("warn-on HIGH").check(Fare(origin="Oslo", euros=14), context).claims_total


@pytest.mark.parametrize("attach", ["full", "summary", "id"])
def test_every_attachment_has_the_same_keys(attach: str) -> None:
    examined = examine(FARE, [FARE], "What is the night fare?")
    unread = unread_report("the answer has no text")
    assert attachment_of(examined, attach).keys() == attachment_of(unread, attach).keys()
    assert was_examined(examined) and not was_examined(unread)


def test_an_answer_that_was_not_examined_is_unknown_and_says_why() -> None:
    told = summarise_report(unread_report("no retriever ran"))
    assert told["risk_level"] == "UNKNOWN" and told["risk_score"] is None
    assert told["claim_counts"] == {"read": 0, "supported": 0, "wrong": 0, "unread": 0}
    assert told["reasons"] == ["no retriever ran"] and told["flags"] == ["not-examined"]
    assert len(json.dumps(told)) <= SUMMARY_BYTES
