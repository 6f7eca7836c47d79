"""What a sub-agent's report rejects is no fact above, in any framework, process or protocol."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from crp_integrations.langchain import CRPMiddleware, DPECallbackHandler
from crp_integrations.llama_index import CRPAgentLLM, DPEEventHandler
from tests.adapters import llama_index_doubles as llama
from tests.adapters.langchain_doubles import opened, scripted
from tests.adapters.test_langchain_agents import calling
from tests.doubles import stands
from tests.relay.conftest import FACTS

QUESTION = "How much power does the Meridian reactor deliver?"
ASK: Any = {"messages": [("user", QUESTION)]}
WRONG = FACTS[0].replace("412", "512")
REPEAT = "According to the other agent, " + WRONG[0].lower() + WRONG[1:]
# The outer agent knows nothing of reactors.
OTHER = ("The canteen on the second floor opens at seven in the morning.",)
HIGH = ("HIGH", "CRITICAL")


def is_flagged(report: dict[str, Any]) -> bool:
    """Whether a report flags a claim for what a sub-agent's report said."""
    return report["risk_level"] in HIGH and any("412" in one for one in reasons(report))


def reasons(report: dict[str, Any]) -> list[str]:
    return [claim["reason"] for claim in report["claims"] if claim["reason"]]


def inner_tool(inner: Any) -> Any:
    @tool
    async def ask() -> str:
        """Ask another agent."""
        return str((await inner.ainvoke(ASK))["messages"][-1].content)

    @tool("ask")
    def ask_now() -> str:
        """Ask another agent."""
        return str(inner.invoke(ASK)["messages"][-1].content)

    return {"ainvoke": ask, "invoke": ask_now}


async def answer_of(agent: Any, way: str, given: Any = ASK, **config: Any) -> list[Any]:
    run = getattr(agent, way)(given, config)
    return list((await run if way == "ainvoke" else run)["messages"])


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("shared", [True, False])
async def test_middleware_above_middleware(way: str, shared: bool) -> None:
    """The same whether the two agents have one relay or two."""
    below = opened()
    above = below if shared else opened(*OTHER)
    inner = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(below, attach="full")])
    outer = create_agent(
        scripted(calling("ask", {}), REPEAT),
        [inner_tool(inner)[way]],
        middleware=[CRPMiddleware(above, attach="full")],
    )
    *_, result, answer = await answer_of(outer, way)
    assert result.response_metadata["crp_flagged"][0]["said"] in WRONG
    if shared:
        # The outer agent has the fact itself, so that its answer is wrong by it too.
        assert answer.response_metadata["crp"]["risk_level"] in HIGH
    assert is_flagged(answer.response_metadata["crp"])


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_one_handler_over_both_agents(way: str) -> None:
    @tool
    def plant_facts() -> str:
        """Facts about plants."""
        return FACTS[0]

    inner = create_agent(scripted(calling("plant_facts", {}), WRONG), [plant_facts])
    outer = create_agent(scripted(calling("ask", {}), REPEAT), [inner_tool(inner)[way]])
    handler = DPECallbackHandler(attach="full")
    *_, result, answer = await answer_of(outer, way, callbacks=[handler])
    assert isinstance(result, ToolMessage)
    assert result.response_metadata["crp_flagged"]
    assert is_flagged(answer.response_metadata["crp"])


def test_a_rejected_claim_is_held_as_no_fact() -> None:
    relay = opened(*OTHER)
    below = opened()
    inner = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(below, attach="full")])
    model = scripted(calling("ask", {}), "Done.")
    outer = create_agent(model, [inner_tool(inner)["invoke"]], middleware=[CRPMiddleware(relay)])
    outer.invoke(ASK)
    assert not stands("512", str(model.seen[-1][0].content))


def test_it_stays_with_the_thread_in_another_process() -> None:
    """The claims stand on the tool's message, which the checkpointer keeps.

    Two relays without a common store stand for two workers behind one checkpointer.
    """
    saver, thread = InMemorySaver(), {"configurable": {"thread_id": "t"}}
    below = opened()
    inner = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(below, attach="full")])
    for turn, script in enumerate(((calling("ask", {}), "Done."), (REPEAT,))):
        outer = create_agent(
            scripted(*script), [inner_tool(inner)["invoke"]],
            middleware=[CRPMiddleware(opened(*OTHER), attach="full")], checkpointer=saver,
        )  # fmt: skip
        answer = outer.invoke(ASK, thread)["messages"][-1]
        assert is_flagged(answer.response_metadata["crp"]) is (turn == 1)


def test_nothing_of_it_reaches_a_provider() -> None:
    below = opened()
    inner = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(below, attach="full")])
    model = scripted(calling("ask", {}), REPEAT)
    outer = create_agent(
        model, [inner_tool(inner)["invoke"]],
        middleware=[CRPMiddleware(opened(*OTHER), attach="full")], checkpointer=InMemorySaver(),
    )  # fmt: skip
    outer.invoke(ASK, {"configurable": {"thread_id": "t"}})
    assert not [one for sent in model.seen for one in sent if "crp_flagged" in repr(one)]


@pytest.mark.parametrize("said", [REPEAT, FACTS[0], "I do not know."])
async def test_llama_index_agents(said: str) -> None:
    inner = llama.agent(CRPAgentLLM(opened(), llama.scripted(WRONG)), name="inner")

    async def ask() -> str:
        """Ask another agent."""
        return str(await inner.run(QUESTION))

    relay = opened()
    for below in (relay, opened()):
        inner = llama.agent(CRPAgentLLM(below, llama.scripted(WRONG)), name="inner")
        model = llama.scripted([("ask", {})], said)
        outer = llama.agent(CRPAgentLLM(relay, model), [ask])
        result = await outer.run(QUESTION)
        assert (result.metadata["crp"]["risk_level"] in HIGH) is (said == REPEAT)


@pytest.mark.parametrize("said", [REPEAT, "I do not know."])
async def test_a_llama_index_handler_over_both_agents(said: str) -> None:
    def plant_facts() -> str:
        """Facts about plants."""
        return FACTS[0]

    inner = llama.agent(llama.scripted([("plant_facts", {})], WRONG), [plant_facts], name="inner")

    async def ask() -> str:
        """Ask another agent."""
        return str(await inner.run(QUESTION))

    with DPEEventHandler(attach="full"):
        result = await llama.agent(llama.scripted([("ask", {})], said), [ask]).run(QUESTION)
    report = result.metadata["crp"]
    assert is_flagged(report) is (said == REPEAT)
