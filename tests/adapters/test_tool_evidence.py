"""Tools' results are evidence in agents, whoever looks: handler, middleware, router, logger."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from crp_integrations import Relay, SafetyHalt, examine
from crp_integrations.langchain import CRPMiddleware, DPECallbackHandler
from crp_integrations.litellm import CRPRouter
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.vocabulary import RiskLevel
from tests.adapters.langchain_doubles import Chat, scripted
from tests.adapters.litellm_deployments import entry
from tests.adapters.tool_results import RESULTS, answers, conversation
from tests.doubles import HashEmbedder
from tests.judges import claims_of, material
from tests.relay.judges import CONTRADICTED, SUPPORTED, ScriptedJudge, scripted_judge
from tests.servers import Double

# Prose, restated with other words: somebody has to read it.
_, QUESTION, RESULT, RIGHT, CHANGES = next(one for one in RESULTS if one[0] == "prose")
WRONG = RIGHT.replace(*CHANGES[0])


class Recorded:
    """A judge that gives a recorded reply under the id of what it is asked now.

    An id is made of a prompt, whose form is a later one than the replies'; the numbers of claims
    and passages are what they were.
    """

    model_name = "judge-1"

    def __init__(self, reply: str) -> None:
        self._reply: dict[str, Any] = json.loads(reply)

    def call(self, call: ModelCall) -> Reply:
        """The reply, where it is one on these claims."""
        asked = material(str(message.content) for message in call.messages)
        assert asked is not None, "this is no call of a judge"
        told = [one["n"] for one in self._reply["claims"]]
        assert told == [number for number, _ in claims_of(asked)]
        return Reply(text=json.dumps({**self._reply, "id": asked["id"]}), model=self.model_name)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        return self.call(call)


def tool_caller(*texts: str) -> Chat:
    """A model that calls the tool first, and then says each text."""
    call = {"name": "lookup", "args": {}, "id": "c1", "type": "tool_call"}
    return scripted(AIMessage("", tool_calls=[call]), *texts)


@tool
def lookup() -> str:
    """Look something up."""
    return RESULT


def asked(agent: Any, question: str = QUESTION, **config: Any) -> Any:
    return agent.invoke({"messages": [("user", question)]}, config)["messages"][-1]


def reading(right: bool = True) -> ScriptedJudge:
    """A judge that supports all that an answer says, or says that all of it is wrong."""
    return scripted_judge(SUPPORTED if right else CONTRADICTED)


def test_without_a_judge_no_right_answer_about_a_tool_is_flagged_and_no_wrong_one_low() -> None:
    """Ten kinds of results, four ways to attribute them."""
    for question, result, answer, right in answers():
        report = examine(answer, [], question, conversation=conversation(question, result))
        if right:
            assert report.risk_level in (RiskLevel.LOW, RiskLevel.UNKNOWN), answer
        else:
            assert report.risk_level is not RiskLevel.LOW, answer


def test_with_a_judge_changed_answers_are_found_and_right_ones_stay_low() -> None:
    """Recorded replies of a model that was sent the prompts alone, a variant of each kind at once."""
    path = Path(__file__).with_name("tool_replies.jsonl")
    known = {one["answer"]: one["reply"] for one in map(json.loads, path.open(encoding="utf-8"))}
    flagged = {True: 0, False: 0}
    counted = {True: 0, False: 0}
    for question, result, answer, right in answers():
        if answer not in known:
            continue
        judge = Recorded(known[answer])
        talk = conversation(question, result)
        report = examine(answer, [], question, conversation=talk, judge=judge)
        counted[right] += 1
        flagged[right] += report.risk_level is not RiskLevel.LOW
    assert sum(counted.values()) == len(known) >= 60
    assert flagged[True] <= 0.03 * counted[True]
    assert flagged[False] >= 0.95 * counted[False]


@pytest.mark.parametrize(("said", "low"), [(RIGHT, True), (WRONG, False)])
def test_a_handler_alone_takes_an_ordinary_tool_as_evidence(said: str, low: bool) -> None:
    handler = DPECallbackHandler(attach="full", judge=reading(low))
    message = asked(create_agent(tool_caller(said), [lookup]), callbacks=[handler])
    report = message.response_metadata["crp"]
    assert (report["risk_level"] == "LOW") is low
    assert handler.last_report == report


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_answer_has_one_verdict(asynchronous: bool) -> None:
    heard: list[Any] = []
    with Relay.open(embedder=HashEmbedder()) as relay:
        handler = DPECallbackHandler(attach="full", on_report=heard.append)
        middleware = [CRPMiddleware(relay, attach="full")]
        agent = create_agent(tool_caller(WRONG), [lookup], middleware=middleware)
        given: Any = {"messages": [("user", QUESTION)]}
        config: Any = {"callbacks": [handler]}
        result = (
            asyncio.run(agent.ainvoke(given, config))
            if asynchronous
            else agent.invoke(given, config)
        )
        *_, calling, _, answer = result["messages"]
        # The step that only calls a tool says nothing, and is not reported as grounded.
        assert "crp" not in calling.response_metadata
        assert heard == [answer.response_metadata["crp"]]
        assert heard[0]["risk_level"] != "LOW"
        assert heard[0]["window_id"]
        assert "CRP-Set-Session" not in answer.response_metadata["crp_headers"]


def test_a_result_of_an_earlier_turn_counts_in_another_process() -> None:
    """Two relays without a common store stand for two workers behind one checkpointer."""
    saver = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "t"}}
    how: dict[str, Any] = {"policy": "halt-on HIGH", "judge": scripted_judge({"71": CONTRADICTED})}
    with Relay.open(embedder=HashEmbedder()) as first:
        agent = create_agent(
            tool_caller(RIGHT), [lookup], checkpointer=saver,
            middleware=[CRPMiddleware(first, **how)],
        )  # fmt: skip
        assert asked(agent, **thread).content == RIGHT
    for said, withheld in ((RIGHT, False), (WRONG, True)):
        with Relay.open(embedder=HashEmbedder()) as second:
            model = scripted(said)
            agent = create_agent(
                model, [lookup], checkpointer=saver,
                middleware=[CRPMiddleware(second, **how)],
            )  # fmt: skip
            if withheld:
                with pytest.raises(SafetyHalt, match="halt-on HIGH"):
                    asked(agent, "And once more?", **thread)
            else:
                assert asked(agent, "How was it again?", **thread).content == RIGHT


@pytest.mark.parametrize(("said", "withheld"), [(RIGHT, False), (WRONG, True)])
def test_a_router_takes_tools_results_as_evidence(
    relay: Relay, server: Double, said: str, withheld: bool
) -> None:
    server.answers = lambda seen: said
    how: dict[str, Any] = {"policy": "halt-on HIGH", "judge": reading(not withheld)}
    router = CRPRouter([entry(server, "main", "gpt-4o")], relay=relay, **how)
    messages = conversation(QUESTION, RESULT)
    if withheld:
        with pytest.raises(SafetyHalt, match="halt-on HIGH"):
            router.completion("main", messages)
    else:
        assert router.completion("main", messages).crp["risk_level"] == "LOW"


# Every third of them has all kinds and attributions, right and wrong; the gateway's are in its tests.
SOME = list(islice(answers(), 0, None, 3))


def answered(result: str, said: str, question: str, **how: Any) -> Any:
    """The last message of an agent whose tool gives a result and whose model says this of it."""
    look = tool("lookup", description="Look something up.")(lambda: result)
    middleware = how.pop("middleware", [])
    agent = create_agent(tool_caller(said), [look], middleware=middleware)
    return asked(agent, question, **how)


@pytest.mark.parametrize("door", ["handler", "middleware", "router"])
def test_ten_kinds_of_results_have_one_verdict_behind_every_door(door: str, server: Double) -> None:
    levels: dict[bool, list[str]] = {True: [], False: []}
    with Relay.open(embedder=HashEmbedder()) as relay:
        router = CRPRouter([entry(server, "main", "gpt-4o")], relay=relay)
        for question, result, said, right in SOME:
            server.text = said
            talk = conversation(question, result)
            judge = reading(right)
            if door == "handler":
                how: dict[str, Any] = {"callbacks": [DPECallbackHandler(judge=judge)]}
                report = answered(result, said, question, **how).response_metadata["crp"]
            elif door == "middleware":
                how = {"middleware": [CRPMiddleware(relay, judge=judge)]}
                report = answered(result, said, question, **how).response_metadata["crp"]
            else:
                report = router.completion("main", talk, judge=judge).crp
            wanted = examine(said, [], question, conversation=talk, judge=judge).risk_level
            assert report["risk_level"] == wanted, (question, said)
            levels[right].append(report["risk_level"])
    assert set(levels[True]) == {"LOW"}
    assert set(levels[False]) <= {"HIGH", "CRITICAL"}


@pytest.mark.parametrize(("figure", "withheld"), [("31", False), ("13", True)])
def test_a_router_examines_a_call_that_its_caller_forces(
    relay: Relay, server: Double, figure: str, withheld: bool
) -> None:
    """A structured answer: the caller names the one tool, whose arguments are the answer."""
    written = json.dumps({"weather": RIGHT.replace("31", figure)})
    function = {"name": "answer", "arguments": written}
    server.tool_calls = [{"id": "c9", "type": "function", "function": function}]
    server.answers = lambda seen: ""
    router = CRPRouter([entry(server, "main", "gpt-4o")], relay=relay)
    response = router.completion(
        "main",
        messages=conversation(QUESTION, RESULT),
        tools=[{"type": "function", "function": {"name": "answer", "parameters": {}}}],
        tool_choice={"type": "function", "function": {"name": "answer"}},
    )
    assert response.choices[0].message.tool_calls[0].function.arguments == written
    assert response.crp["claims_total"] >= 1
    supported = {one["status"] for one in response.crp["claims"]} == {"SUPPORTED"}
    assert not (withheld and supported)
