"""Receipts on answers of LangChain's chains and agents."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnablePassthrough

from crp_integrations.errors import SafetyHalt
from crp_integrations.langchain import (
    CRPMiddleware,
    CRPRetriever,
    CRPRunnable,
    DPECallbackHandler,
    envelope_text,
)
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL
from crp_integrations.receipt.verify import verify
from tests.adapters.langchain_doubles import HALTING, Listed, opened, scripted
from tests.adapters.test_langchain_agents import (
    ASK,
    WRONG,
    agent_of,
    answers,
    calling,
    weather,
)
from tests.adapters.test_langchain_rag import PROMPT, QUESTION, Chat
from tests.doubles import ScriptedModel
from tests.receipt.wire import replays, told
from tests.relay.conftest import FACTS


def sound(receipt: Receipt) -> bool:
    """Whether a receipt verifies and replays from its file alone."""
    data = write(receipt)
    found = replay(read(data))
    return verify(data).ok and found.same and found.whole


def test_a_middlewares_window_replays_to_what_the_agents_model_was_sent() -> None:
    relay, model = opened(), scripted(FACTS[0])
    result = agent_of(model, relay, system_prompt="Be brief.").invoke(ASK)
    told = answers(result)[0].response_metadata
    receipt = relay.receipt(told["crp_receipt"])
    assert receipt is not None
    assert sound(receipt)
    ((system, question),) = model.seen
    first, last = (receipt.text(one["leaf"]) for one in receipt.content["calls"][0]["messages"])
    assert (first, last) == (system.content, question.content)
    assert isinstance(CRPMiddleware(relay), CRPMiddleware)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_run_of_its_own_session_hands_whole_receipts_on(way: str) -> None:
    relay, heard = opened(), list[Receipt]()
    said = "The weather in Rome is sunny with 31 degrees and a light wind from the north-west."
    model = scripted(calling("weather", {"city": "Rome"}), said)
    agent = agent_of(model, relay, [weather], on_receipt=heard.append)
    ask = {"messages": [("user", "How is the weather in Rome?")]}
    result = await agent.ainvoke(ask) if way == "ainvoke" else agent.invoke(ask)
    named = [one.response_metadata["crp_receipt"] for one in answers(result)]
    assert [receipt.receipt_id for receipt in heard] == named
    assert all(sound(receipt) for receipt in heard)
    assert any(said in (text or "") for text in heard[1].plain)
    # With the session went what its tools had answered.
    assert relay.receipt(named[1]) is None


def test_the_receipt_of_a_withheld_window_is_handed_on() -> None:
    relay, heard = opened(), list[Receipt]()
    agent = agent_of(scripted(WRONG), relay, on_receipt=heard.append, **HALTING)
    with pytest.raises(SafetyHalt) as halted:
        agent.invoke(ASK)
    (receipt,) = heard
    assert receipt.chain.window_id == halted.value.trail
    assert sound(receipt)


def test_a_runnables_answer_names_its_receipt() -> None:
    relay = opened(models=ScriptedModel(FACTS[0]))
    message = CRPRunnable(relay=relay, model="any/model").invoke(QUESTION)
    receipt = relay.receipt(message.response_metadata["crp_receipt"])
    assert receipt is not None
    assert sound(receipt)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_handler_with_a_relay_hands_receipts_on(way: str) -> None:
    relay = opened()
    heard: list[Receipt] = []
    handler = DPECallbackHandler(attach="full", relay=relay, on_receipt=heard.append)
    chat = Chat(reply=lambda prompt: FACTS[0].replace("412", "512"), seen=[])
    retriever = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=2000)
    chain = {"context": retriever | envelope_text, "question": RunnablePassthrough()}
    full = chain | PROMPT | chat
    config: RunnableConfig = {"callbacks": [handler]}
    message = (
        await full.ainvoke(QUESTION, config) if way == "ainvoke" else full.invoke(QUESTION, config)
    )
    (receipt,) = heard
    assert message.response_metadata["crp_receipt"] == receipt.receipt_id
    report = message.response_metadata["crp"]
    assert report["distortion_types"] == ["NUMBER_CHANGED"]
    assert sound(receipt)
    assert replay(receipt).part("examination").state == EQUAL
    sent = receipt.content["calls"][0]["messages"]
    assert [receipt.text(one["leaf"]) for one in sent] == chat.seen
    # Its facts are the fabric's, so it is in the log.
    assert relay.receipts().ids(receipt.chain.session_id) == [receipt.receipt_id]
    relay.verify()


def test_documents_of_nobodys_fabric_are_in_the_receipt_and_on_no_disk() -> None:
    relay = opened()
    heard: list[Receipt] = []
    handler = DPECallbackHandler(attach="full", relay=relay, on_receipt=heard.append)
    documents = [Document(page_content="The dam was built in 1987 and is 40 metres high.")]
    chain = {
        "context": Listed(documents=documents),
        "question": RunnablePassthrough(),
    } | (PROMPT | Chat(reply=lambda prompt: "It was built in 1987.", seen=[]))
    chain.invoke("When was it built?", {"callbacks": [handler]})
    (receipt,) = heard
    assert sound(receipt)
    texts = [one.text for one in receipt.texts if not isinstance(one, str)]
    assert documents[0].page_content in texts
    assert relay.receipts().head().head.size == 0


def test_without_a_relay_nothing_is_sealed() -> None:
    heard: list[Receipt] = []
    chat = Chat(reply=lambda prompt: "It was built in 1987.", seen=[])
    documents = [Document(page_content="The dam was built in 1987.")]
    chain = {"context": Listed(documents=documents), "question": RunnablePassthrough()} | (
        PROMPT | chat
    )
    message = chain.invoke(
        "When?", {"callbacks": [DPECallbackHandler(attach="full", on_receipt=heard.append)]}
    )
    assert isinstance(message, AIMessage)
    assert "crp_receipt" not in message.response_metadata
    assert heard == []


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_call_with_tools_results_is_in_the_receipt_as_it_was_sent(way: str) -> None:
    relay, heard = opened(), list[Receipt]()
    model = scripted(calling("weather", {"city": "Rome"}), "It is sunny in Rome with 31 degrees.")
    agent = agent_of(model, relay, [weather], on_receipt=heard.append)
    ask = {"messages": [("user", "Hello."), ("ai", "Hello!"), ("user", "How is it in Rome?")]}
    _ = await agent.ainvoke(ask) if way == "ainvoke" else agent.invoke(ask)
    roles = {"human": "user", "ai": "assistant"}
    sent = [[(roles.get(one.type, one.type), one.text) for one in seen] for seen in model.seen]
    assert [role for role, _ in sent[1]] == ["system", *["user", "assistant"] * 2, "tool"]
    assert [told(receipt) for receipt in heard] == [[one] for one in sent]
    assert all(replays(receipt) for receipt in heard)


@pytest.mark.parametrize(
    ("system", "messages"),
    [
        (None, [SystemMessage("Be brief."), HumanMessage(QUESTION)]),
        ("Be brief.", [HumanMessage("Hi."), SystemMessage("Be kind."), HumanMessage(QUESTION)]),
        (
            SystemMessage([{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]),
            [SystemMessage("Be kind."), HumanMessage(QUESTION)],
        ),
    ],
)
def test_system_messages_are_sent_once_in_front_and_stand_so_in_the_receipt(
    system: str | SystemMessage | None, messages: list[BaseMessage]
) -> None:
    relay, heard, model = opened(), list[Receipt](), scripted(FACTS[0])
    agent = agent_of(model, relay, on_receipt=heard.append, system_prompt=system)
    agent.invoke({"messages": messages})
    (first, *others) = model.seen[0]
    assert [one.type for one in others] == [one.type for one in messages if one.type != "system"]
    assert first.text.startswith("Be brief.\n\n")
    assert [first.text.count(words) for words in ("Be brief.", "Be kind.")] == [
        1,
        sum(one.text == "Be kind." for one in messages),
    ]
    (receipt,) = heard
    assert told(receipt) == [[("system", first.text), *(("user", one.text) for one in others)]]
    assert replays(receipt)
