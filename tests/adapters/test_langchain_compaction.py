"""Agents of LangChain whose messages are shortened before the model is asked."""

from __future__ import annotations

import json

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from crp_integrations.errors import RequestError
from crp_integrations.langchain import CRPMiddleware
from crp_integrations.langchain.model_calls import COMPACTION_KEY
from crp_integrations.vocabulary import EventType
from tests.adapters.langchain_doubles import FACTS, no_metadata, opened, prompts, scripted
from tests.relay.need_questions import event_data

LIMIT = 4_000
DONE = FACTS[0]


def log(station: int) -> str:
    lines = [f"2026-05-0{station} 12:00:{n:02d} INFO heartbeat of pump {n % 4}" for n in range(50)]
    return "\n".join([*lines, f"2026-05-0{station} 12:01:00 ERROR crane {station} stopped"])


@tool
def read_log(station: int) -> str:
    """The log of a station."""
    return log(station)


def calling(number: int, *stations: int) -> AIMessage:
    calls = [
        {"name": "read_log", "args": {"station": one}, "id": f"c{number}-{one}"} for one in stations
    ]
    return AIMessage("", tool_calls=calls)


def agent_of(relay, *script, **options):
    model = scripted(*script)
    middleware = CRPMiddleware(relay, **options)
    return create_agent(
        model, [read_log], middleware=[middleware], system_prompt="Be brief."
    ), model


ASK = {"messages": [HumanMessage("Why did crane 3 stop?")]}
SCRIPT = (calling(1, 1, 2), calling(2, 3, 4), calling(3, 5), DONE)
RUN = {"configurable": {"thread_id": "long"}}


def told(message: AIMessage) -> dict | None:
    return message.response_metadata.get(COMPACTION_KEY)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_long_messages_are_shortened_and_accounted_for(way):
    relay = opened(context_limits={"gpt-4o": LIMIT}, compaction={"enabled": True})
    agent, model = agent_of(relay, *SCRIPT)
    result = await agent.ainvoke(ASK) if way == "ainvoke" else agent.invoke(ASK)
    whole = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    # The run keeps every message as it was.
    assert [m.text for m in whole] == [log(n) for n in (1, 2, 3, 4, 5)]
    sent = model.seen[-1]
    tokens = relay.count_tokens([{"role": "user", "content": m.text} for m in sent[1:]], "gpt-4o").n
    assert tokens < 0.5 * LIMIT
    # Calls and results together, in the model's order.
    waiting: set[str] = set()
    for message in sent:
        if isinstance(message, AIMessage):
            assert not waiting
            waiting = {call["id"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)
    assert not waiting
    assert no_metadata(prompts(model))
    # What was left out stands on an answer, and by ids in the journal.
    accounts = [
        told(m)["account"] for m in result["messages"] if isinstance(m, AIMessage) and told(m)
    ]
    assert accounts and all(account["reports"] for account in accounts)
    json.dumps(accounts)
    session = result["messages"][-1].response_metadata["crp_agent"]["session_id"]
    dropped = event_data(relay, session, EventType.CONTEXT_DROPPED)
    said = [(one["report"], one["items"]) for one in dropped]
    assert said == [
        (report["id"], report["dropped_item_ids"]) for a in accounts for report in a["reports"]
    ]
    assert len(event_data(relay, session, EventType.CONTEXT_COMPACTED)) == len(model.seen)
    assert relay.verify().windows == len(model.seen)


def test_a_prompt_goes_on_from_what_was_shown():
    relay = opened(context_limits={"gpt-4o": LIMIT})
    agent, model = agent_of(relay, calling(1, 1, 2), calling(2, 3, 4), DONE, compact=True)
    result = agent.invoke(ASK)
    answers = [m for m in result["messages"] if isinstance(m, AIMessage)]
    assert told(answers[1])
    between = [message.text for message in model.seen[1][1:]]
    last = [message.text for message in model.seen[2][1:]]
    assert log(1) not in between
    # What was shortened stays so, and the beginning of the prompt stays the same.
    assert last[: len(between)] == between
    assert [text for _, text in told(answers[1])["shown"] if text is not None] == between[2:]


def test_messages_that_an_application_took_out_are_not_waited_for():
    relay = opened(context_limits={"gpt-4o": LIMIT})
    agent, _ = agent_of(relay, *SCRIPT, compact=True)
    messages = agent.invoke(ASK)["messages"]
    again, model = agent_of(relay, DONE, compact=True)
    again.invoke(
        {"messages": [HumanMessage("Another run."), *messages[4:], HumanMessage("And now?")]}
    )
    assert model.seen[0][-1].text == "And now?"


def test_a_result_with_a_picture_stays_whole():
    relay = opened(context_limits={"gpt-4o": 1_500})
    agent, model = agent_of(relay, DONE, compact=True)
    picture = [
        {"type": "text", "text": log(1)},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]
    agent.invoke(
        {
            "messages": [
                HumanMessage("Look."),
                calling(1, 1, 2),
                ToolMessage(picture, tool_call_id="c1-1"),
                ToolMessage(log(2), tool_call_id="c1-2"),
                AIMessage("I looked."),
                *(one for _ in range(4) for one in (HumanMessage("More."), AIMessage("Done."))),
                HumanMessage("Why did crane 2 stop?"),
            ]
        }
    )
    results = [m for m in model.seen[0] if isinstance(m, ToolMessage)]
    assert results[0].content == picture
    assert results[1].text != log(2)


def test_off_everything_is_sent_and_nothing_told():
    relay = opened(context_limits={"gpt-4o": LIMIT})
    agent, model = agent_of(relay, *SCRIPT)
    result = agent.invoke(ASK)
    assert [m.text for m in model.seen[-1] if isinstance(m, ToolMessage)] == [
        log(n) for n in (1, 2, 3, 4, 5)
    ]
    assert not any(told(m) for m in result["messages"] if isinstance(m, AIMessage))
    session = result["messages"][-1].response_metadata["crp_agent"]["session_id"]
    assert event_data(relay, session, EventType.CONTEXT_COMPACTED) == []


def test_the_relays_setting_can_be_left_for_an_agent():
    relay = opened(context_limits={"gpt-4o": LIMIT}, compaction={"enabled": True})
    agent, model = agent_of(relay, *SCRIPT, compact=False)
    agent.invoke(ASK)
    assert log(1) in [m.text for m in model.seen[-1]]
    with pytest.raises(RequestError, match="'compaction'"):
        CRPMiddleware(relay, compaction=None)
