"""Receipts on answers of LlamaIndex's query engines and agents."""

from __future__ import annotations

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool

from crp_integrations.errors import SafetyHalt
from crp_integrations.llama_index import (
    CRPAgentLLM,
    CRPQueryEngine,
    CRPRetriever,
    DPEEventHandler,
    ReportEvent,
)
from crp_integrations.llama_index.nodes import hide_own_metadata
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL
from crp_integrations.receipt.verify import verify
from tests.adapters.llama_index_doubles import (
    FACTS,
    HALTING,
    QUESTION,
    WRONG,
    agent,
    heard,
    opened,
    outputs,
    scripted,
)
from tests.doubles import ScriptedModel
from tests.receipt.wire import replays, told


def weather(city: str) -> str:
    """How the weather is in a city."""
    return f"The weather in {city} is sunny with 31 degrees and a light wind."


WEATHER = FunctionTool.from_defaults(weather)


def sound(receipt: Receipt) -> bool:
    """Whether a receipt verifies, and nothing of it differs when it is done again."""
    data = write(receipt)
    found = replay(read(data))
    return verify(data).ok and found.same and found.part("examination").state == EQUAL


@pytest.mark.parametrize("way", ["query", "aquery"])
async def test_a_handler_with_a_relay_hands_receipts_on(way: str) -> None:
    relay = opened()
    receipts: list[Receipt] = []
    reported: list[ReportEvent] = []
    retriever = CRPRetriever(relay, model="gpt-4o", budget_tokens=2_000)
    llm = scripted(WRONG)
    engine = RetrieverQueryEngine.from_args(retriever, llm=llm)
    with DPEEventHandler(
        attach="full", relay=relay, on_receipt=receipts.append, on_report=reported.append
    ):
        response = engine.query(QUESTION) if way == "query" else await engine.aquery(QUESTION)
    (receipt,) = receipts
    assert response.metadata["crp_receipt"] == receipt.receipt_id
    assert response.metadata["crp"]["distortion_types"] == ["NUMBER_CHANGED"]
    assert reported[0].report == response.metadata["crp"]
    assert sound(receipt)
    assert receipt.text(receipt.number("request")) == QUESTION
    sent = receipt.content["calls"][0]["messages"]
    said = [receipt.text(one["leaf"]) for one in sent]
    assert said == [message.content for message in llm.seen[-1]]
    # Its facts are the fabric's, so it is in the log.
    assert relay.receipts().ids(receipt.chain.session_id) == [receipt.receipt_id]
    relay.verify()


def test_nodes_of_nobodys_fabric_are_in_the_receipt_and_on_no_disk() -> None:
    relay = opened()
    receipts: list[Receipt] = []
    text = "The dam was built in 1987 and is 40 metres high."
    index = VectorStoreIndex.from_documents(
        [Document(text=text)], embed_model=MockEmbedding(embed_dim=8)
    )
    with DPEEventHandler(attach="full", relay=relay, on_receipt=receipts.append):
        index.as_query_engine(llm=scripted("It was built in 1987.")).query("When was it built?")
    (receipt,) = receipts
    assert sound(receipt)
    assert text in [one.text for one in receipt.texts if not isinstance(one, str)]
    assert relay.receipts().head().head.size == 0


def test_a_query_engines_window_names_its_receipt() -> None:
    relay = opened(models=ScriptedModel(FACTS[0]))
    response = CRPQueryEngine(relay, model="gpt-4o", budget_tokens=60).query(QUESTION)
    receipt = relay.receipt(response.metadata["crp_receipt"])
    assert receipt is not None
    assert sound(receipt)
    assert replay(receipt).whole


def test_the_id_of_a_receipt_is_hidden_from_models() -> None:
    """An index node with a query engine behind it is given the response's whole metadata."""
    node = TextNode(text="An answer.", metadata={"crp_receipt": "crp_rcpt_1", "page": 3})
    hide_own_metadata([NodeWithScore(node=node)])
    assert "crp_rcpt" not in node.get_content(metadata_mode=MetadataMode.LLM)
    assert "crp_rcpt" not in node.get_content(metadata_mode=MetadataMode.EMBED)
    assert "page: 3" in node.get_content(metadata_mode=MetadataMode.LLM)


@pytest.mark.parametrize("kind", ["FunctionAgent", "ReActAgent"])
async def test_a_call_with_tools_results_is_in_the_receipt_as_it_was_sent(kind: str) -> None:
    relay = opened()
    thought = 'Thought: I look.\nAction: weather\nAction Input: {"city": "Rome"}'
    said = "It is sunny in Rome with 31 degrees."
    if kind == "FunctionAgent":
        llm = scripted([("weather", {"city": "Rome"})], said)
        asking = agent(CRPAgentLLM(relay, llm), [WEATHER])
    else:
        llm = scripted(thought, f"Thought: I know.\nAnswer: {said}", calls_tools=False)
        asking = ReActAgent(llm=CRPAgentLLM(relay, llm), tools=[WEATHER])
    with instrument_tags({"session_id": "anna"}):
        events, _, error = await heard(asking.run("How is the weather in Rome?"))
    assert error is None
    named = [one.metadata["crp_receipt"] for one in outputs(events)]
    assert len(named) == len(llm.seen) == 2
    for id_, seen in zip(named, llm.seen, strict=True):
        receipt = relay.receipt(id_)
        assert receipt is not None
        assert told(receipt) == [[(one.role.value, one.content or "") for one in seen]]
        assert replays(receipt)


async def test_a_run_of_its_own_session_hands_receipts_on() -> None:
    relay, receipts = opened(), list[Receipt]()
    llm = scripted([("weather", {"city": "Rome"})], "It is sunny in Rome with 31 degrees.")
    own = CRPAgentLLM(relay, llm, on_receipt=receipts.append)
    asking = agent(own, [WEATHER])
    events, _, error = await heard(asking.run("How is the weather in Rome?"))
    assert error is None
    named = [one.metadata["crp_receipt"] for one in outputs(events)]
    assert [receipt.receipt_id for receipt in receipts] == named
    assert all(map(sound, receipts))


def test_a_call_outside_of_an_agent_hands_its_receipt_on() -> None:
    relay, receipts = opened(), list[Receipt]()
    llm = CRPAgentLLM(relay, scripted(FACTS[0]), on_receipt=receipts.append)
    response = llm.chat([ChatMessage(role="user", content=QUESTION)])
    (receipt,) = receipts
    assert receipt.receipt_id == response.additional_kwargs["crp_receipt"]
    assert sound(receipt)


async def test_the_receipt_of_a_withheld_window_is_handed_on() -> None:
    relay, receipts = opened(), list[Receipt]()
    llm = CRPAgentLLM(relay, scripted(WRONG), **HALTING, on_receipt=receipts.append)
    _, _, error = await heard(agent(llm, []).run(QUESTION))
    assert isinstance(error, SafetyHalt)
    (receipt,) = receipts
    assert receipt.chain.window_id == error.trail
    assert sound(receipt)
