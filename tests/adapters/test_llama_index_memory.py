"""A memory block that remembers in a session of the relay."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import InsertMethod, Memory

from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.llama_index import CRPMemoryBlock
from tests.adapters.llama_index_doubles import (
    FACTS,
    QUESTION,
    agent,
    no_metadata,
    opened,
    prompts,
    scripted,
)

SECRET = "My bicycle is a green Peugeot of 1978 with five gears and a broken bell."


def said(text, role="user"):
    return ChatMessage(role=role, content=text)


async def test_what_falls_out_of_the_short_term_memory_is_found_again():
    relay = opened()
    block = CRPMemoryBlock(relay, model="gpt-4o", budget_tokens=120)
    memory = Memory.from_defaults(
        session_id="anna", token_limit=120, token_flush_size=20, memory_blocks=[block]
    )
    await memory.aput(said(SECRET))
    for n in range(12):
        await memory.aput(
            said(f"And here is remark number {n} on the weather in the town.", "user")
        )
        await memory.aput(said("I see.", "assistant"))
    await memory.aput(said("What colour is my bicycle?"))
    sent = await memory.aget()
    assert SECRET in str(sent[0].content)
    assert no_metadata("".join(repr(message) for message in sent))
    assert not [one for one in sent if "session_id" in one.additional_kwargs]
    # Nobody else finds it, and nothing of it is stored.
    other = Memory.from_defaults(session_id="berta", memory_blocks=[block])
    await other.aput(said("What colour is my bicycle?"))
    assert "Peugeot" not in repr(await other.aget())
    assert len(relay.fabric.facts([])) == 0
    assert "Peugeot" not in relay.turn("What colour is my bicycle?", model="gpt-4o").preview().text


async def test_facts_of_the_fabric_are_found_within_the_budget():
    block = CRPMemoryBlock(opened(), model="gpt-4o", budget_tokens=60)
    text = await block.aget([said("hello"), said(QUESTION), said("let me see", "assistant")])
    assert FACTS[0] in text
    assert counter_for("gpt-4o").count(text) <= 60
    shorter = await block.atruncate(text, 10)
    assert shorter and text.startswith(shorter) and FACTS[0] in shorter
    assert counter_for("gpt-4o").count(shorter) <= counter_for("gpt-4o").count(text) - 10
    assert await block.atruncate(text, 1_000) is None
    assert await block.aget([]) == "" == await block.aget([said("  ")])


async def test_whose_words_are_remembered():
    relay = opened()
    session = "crp_sess_" + "b" * 16
    lie = "The bell of the bicycle is made of gold and was never broken by anybody at all."
    await CRPMemoryBlock(relay, session_id=session).aput([said(SECRET), said(lie, "assistant")])
    question = "What is the bell of the bicycle made of?"
    text = await CRPMemoryBlock(relay, session_id=session).aget([said(question)])
    assert SECRET in text and lie not in text
    every = CRPMemoryBlock(relay, session_id=session, roles=("user", "assistant"))
    await every.aput([said(lie, "assistant"), said("Hi."), said("Hi.", "assistant")])
    assert lie in await every.aget([said(question)])
    with pytest.raises(RequestError, match="'system' is not one of"):
        CRPMemoryBlock(relay, roles=("system",))


async def test_without_a_session_nothing_is_remembered():
    relay = opened()
    block = CRPMemoryBlock(relay)
    await block.aput([said(SECRET)])
    assert SECRET not in await block.aget([said("What colour is my bicycle?")])


async def test_32_callers_remember_their_own():
    relay = opened()
    block = CRPMemoryBlock(relay, model="gpt-4o", budget_tokens=200)

    async def one(n):
        key = f"caller-{n}"
        own = f"The number of my account at the savings bank is {n * 7919 + 100_000} since May."
        await block.aput([said(own)], session_id=key)
        return own, await block.aget([said("What is the number of my account?")], session_id=key)

    for own, text in await asyncio.gather(*(one(n) for n in range(32))):
        assert own in text and text.count("account at the savings bank") == 1


@pytest.mark.parametrize("place", [InsertMethod.SYSTEM, InsertMethod.USER])
async def test_an_agent_with_it(place):
    relay = opened()
    llm = scripted(FACTS[0])
    memory = Memory.from_defaults(
        session_id="anna",
        insert_method=place,
        memory_blocks=[CRPMemoryBlock(relay, model="gpt-4o", budget_tokens=60)],
    )
    assert str(await agent(llm).run(QUESTION, memory=memory)) == FACTS[0]
    assert FACTS[0] in prompts(llm) and no_metadata(prompts(llm))
