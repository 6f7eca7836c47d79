"""A `ReActAgent`: its question is the user's, and what its tools answered is no question."""

from __future__ import annotations

import pytest
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.base.llms.types import ChatMessage

from crp_integrations.llama_index import CRPAgentLLM, DPEEventHandler
from crp_integrations.llama_index.messages import count_reasoning, read_conversation, tool_results
from tests.adapters.llama_index_doubles import FACTS, QUESTION, heard, opened, outputs, scripted
from tests.relay.judges import UNSUPPORTED, scripted_judge

SAID = "At this moment the Meridian reactor delivers 388 megawatts to the northern grid."
LOOK = "Thought: I look it up.\nAction: load_now\nAction Input: {'plant': 'Meridian'}"
ANSWER = f"Thought: I can answer.\nAnswer: {FACTS[0]} {SAID}"


def load_now(plant: str) -> str:
    """What a plant delivers at this moment."""
    return SAID


def broken(plant: str) -> str:
    """What a plant delivers at this moment."""
    raise RuntimeError("The sensor of the Meridian reactor is out of order since this morning.")


def react(relay, llm, tool=load_now, **fields):
    return ReActAgent(name="root", description="answers", llm=llm, tools=[tool], **fields)


@pytest.mark.parametrize("streaming", [True, False])
async def test_every_turn_is_packed_for_the_users_question(streaming):
    relay = opened()
    llm = scripted(LOOK, ANSWER)
    judge = scripted_judge({"Thought": UNSUPPORTED})
    made = react(relay, CRPAgentLLM(relay, llm, judge=judge, attach="full"), streaming=streaming)
    events, result, error = await heard(made.run(QUESTION))
    assert error is None and str(result) == f"{FACTS[0]} {SAID}"
    assert [one.metadata["crp_agent"]["turn"] for one in outputs(events)] == [1, 2]
    first, second = llm.seen
    # The facts are those of the question in both turns, and the agent's messages are its own.
    assert all(FACTS[0] in seen[0].content for seen in (first, second))
    assert [one.content for one in second[1:]] == [QUESTION, LOOK, f"Observation: {SAID}"]
    # What the tool answered is evidence in the second turn, and was none in the first.
    assert SAID not in first[0].content
    # It stands there once, as the agent's own message.
    assert SAID not in second[0].content
    claims = result.metadata["crp"]["claims"]
    rests = [one["attribution"] == "CONTEXT_GROUNDED" for one in claims]
    # All but the thought.
    assert rests == ["Thought" not in one["text"] for one in claims]
    assert relay.verify().windows == 2


async def test_an_error_of_a_tool_is_no_evidence():
    relay = opened()
    told = "The sensor of the Meridian reactor is out of order since this morning."
    llm = scripted(LOOK.replace("load_now", "broken"), f"{ANSWER} {told}")
    own = CRPAgentLLM(relay, llm, attach="full")
    _, result, error = await heard(react(relay, own, broken).run(QUESTION))
    assert error is None
    repeated = [one for one in result.metadata["crp"]["claims"] if "sensor" in one["text"]]
    assert [one["attribution"] for one in repeated] == ["UNVERIFIABLE"]
    observation = llm.seen[1][-1].content
    assert "out of order" in observation
    assert "out of order" not in llm.seen[1][0].content


async def test_what_the_agent_says_of_an_unread_answer_is_no_question():
    relay = opened()
    llm = scripted("Thought: The reactor is a fine one.", LOOK, ANSWER)
    _, result, error = await heard(react(relay, CRPAgentLLM(relay, llm)).run(QUESTION))
    assert error is None and str(result) == f"{FACTS[0]} {SAID}"
    assert len(llm.seen) == 3
    assert all(FACTS[0] in seen[0].content for seen in llm.seen)


async def test_the_handler_knows_the_question_and_the_evidence():
    llm = scripted(LOOK, SAID)
    with DPEEventHandler(attach="full"):
        result = await react(None, llm).run(QUESTION)
    (claim,) = result.metadata["crp"]["claims"]
    assert claim["attribution"] == "CONTEXT_GROUNDED"


def test_only_reasoning_at_the_end_is_left_out():
    def said(*texts: str) -> list[ChatMessage]:
        roles = ("user", "assistant")
        return [ChatMessage(role=roles[n % 2], content=text) for n, text in enumerate(texts)]

    whole = said("When?", LOOK, "Observation: in 1957", LOOK, "Observation: nothing new")
    assert count_reasoning(whole) == 4
    assert read_conversation(whole).question == "When?"
    found = tool_results(whole)
    assert [(one.name, one.text) for one in found] == [
        ("load_now", "in 1957"),
        ("load_now", "nothing new"),
    ]
    assert found[0].asked == {"plant": "Meridian"}
    # A user's own words, and an observation that no action asked for.
    assert read_conversation(said("Observation: it rains")).question == "Observation: it rains"
    assert (
        read_conversation(said("When?", "In 1957.", "Observation: no")).question
        == "Observation: no"
    )
    assert read_conversation(said("When?", LOOK, "Why?")).question == "Why?"
