"""Answers in pieces: as they come where nothing may withhold them, else after the verdict."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.llms.types import ChatMessage as LlamaMessage

from crp_integrations import SafetyHalt
from crp_integrations.engines.models import text_pieces
from crp_integrations.langchain import CRPGate, CRPRunnable, report_of
from crp_integrations.llama_index import CRPAgentLLM, CRPQueryEngine
from crp_integrations.llama_index import report_of as report_on_response
from tests.adapters import llama_index_doubles as llama
from tests.adapters.langchain_doubles import FACTS, opened, overheard, scripted
from tests.adapters.llama_index_doubles import HALTING, QUESTION, WRONG, reader
from tests.judges import named
from tests.servers import openai_double

ASKED = [LlamaMessage(role="user", content=QUESTION)]


async def runnable(relay, text, way, **options):
    crp = CRPRunnable(relay, llm=scripted(text), **options)
    if way == "sync":
        for chunk in crp.stream(QUESTION):
            yield chunk.text, chunk
    else:
        async for chunk in crp.astream(QUESTION):
            yield chunk.text, chunk


async def agent_llm(relay, text, way, **options):
    llm = CRPAgentLLM(relay, llama.scripted(text), **options)
    if way == "sync":
        for part in llm.stream_chat(ASKED):
            yield part.delta, part
    else:
        async for part in await llm.astream_chat(ASKED):
            yield part.delta, part


async def query_engine(relay, text, way, **options):
    engine = CRPQueryEngine(
        relay,
        llm=llama.scripted(text),
        streaming=True,
        **options,
    )
    if way == "sync":
        response = engine.query(QUESTION)
        for piece in response.response_gen:
            yield piece, response
    else:
        response = await engine.aquery(QUESTION)
        async for piece in response.async_response_gen():
            yield piece, response
    assert response.source_nodes, "known at the end of a stream at the latest"


COMPONENTS = {"CRPRunnable": runnable, "CRPAgentLLM": agent_llm, "CRPQueryEngine": query_engine}
FREE = ({}, {"policy": "oversight log-only"})
UPGRADING = {"policy": "upgrade-on-risk reflexive", "judge": reader()}
HELD = (HALTING, UPGRADING)


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("options", [*FREE, *HELD], ids=lambda one: one.get("policy", "none"))
async def test_pieces_come_before_the_verdict_only_where_nothing_withholds(name, way, options):
    seen: list[object] = []
    pieces, sealed, last = [], [], None
    relay = opened()
    parts = COMPONENTS[name](relay, FACTS[0], way, on_report=seen.append, **options)
    async for piece, whole in parts:
        last = whole
        if piece:
            pieces.append(piece)
            sealed.append(relay.verify().windows)
    assert "".join(pieces) == FACTS[0]
    assert len(pieces) > 1
    # A window is sealed with its verdict.
    assert sealed == [int(options in HELD)] * len(pieces)
    found = report_of(last) or report_on_response(last)
    assert found["risk_level"] == "LOW"
    assert [one.risk_level for one in seen] == ["LOW"]


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_withheld_answer_has_no_piece(name, way):
    seen, pieces = [], []
    options = {**HALTING, "on_report": seen.append}

    async def read():
        async for piece, _ in COMPONENTS[name](opened(), WRONG, way, **options):
            pieces.append(piece)

    with pytest.raises(SafetyHalt):
        await read()
    assert (len(seen), pieces) == (1, [])


@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize("kind", ["text", "message", "dict"])
async def test_a_gate_gives_its_answer_in_pieces_that_add_up(kind, way):
    made = {"text": FACTS[0], "message": AIMessage(FACTS[0]), "dict": FACTS[0]}[kind]
    output = {"answer": made, "context": list(FACTS), "note": "n"}
    chain = RunnableLambda(lambda _: output)
    heard, error = await overheard(CRPGate.around(chain, **HALTING), QUESTION, way)
    assert error is None
    whole = heard[0]
    for chunk in heard[1:]:
        whole += chunk
    shown = whole["answer"]
    assert (shown if isinstance(shown, str) else shown.text) == FACTS[0]
    assert whole["note"] == "n" and whole["context"] == list(FACTS)
    assert report_of(whole)["risk_level"] == "LOW"
    assert sum("answer" in chunk for chunk in heard) > 2


def test_a_failing_judge_that_halts_leaks_nothing_of_a_live_stream():
    with opened() as relay, openai_double() as judge:
        judge.fault = "unauthorised"
        failing = {"judge": named(judge), "judge_failure": "halt"}
        parts = relay.stream(QUESTION, model="extractive", live=True, **failing)
        with pytest.raises(SafetyHalt):
            next(parts)


@pytest.mark.parametrize(
    "text", ["", " ", "one", FACTS[0], "x" * 99, "日本語" * 30, "a\n\n b\t" * 9]
)
def test_pieces_of_a_text_are_the_text(text):
    pieces = text_pieces(text)
    assert "".join(pieces) == text
    assert all(len(piece.rstrip()) <= 28 for piece in pieces)
