"""The agentic strategy: the model searches the fabric before it answers.

The reflexive strategy: draft, verification, refinement, in one window.
"""

from __future__ import annotations

import json

import pytest

from crp_integrations import Relay
from crp_integrations.errors import ModelError
from crp_integrations.messages import Reply, ToolCall
from crp_integrations.relay.single_window import REFINE, SEARCH, STOP, UNREAD, VERIFY
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import EventType, Purpose
from tests.doubles import ScriptedModel
from tests.relay.conftest import Opener
from tests.relay.need_questions import (
    COMMISSIONED,
    COOLING,
    COST,
    GARDENS,
    INVENTED,
    MODEL,
    NEEDS,
    QUESTION,
    REVENUE,
    WHOLE,
    event_data,
    looks_up,
    made,
    question,
    roles,
    session,
    system,
    windows,
)

ASKED = f"{NEEDS[0]}?"
# Two are looked for, and their words alone count.
NARROW = {"envelope": {"k_nearest": 1, "k_lexical": 0}, "dispatch": {}}
BOOK = {"type": "function", "function": {"name": "book", "parameters": {}}}


def offered(model: ScriptedModel) -> list[list[str]]:
    return [[tool["function"]["name"] for tool in call.tools] for call in model.calls]


def narrow(open_relay: Opener, model: ScriptedModel, **dispatch: object) -> Relay:
    return made(open_relay, model, envelope=NARROW["envelope"], dispatch=dispatch)


def test_what_is_found_enters_the_envelope_and_is_examined_against(open_relay: Opener) -> None:
    query = "tulips and roses in the valley gardens"
    model = ScriptedModel(looks_up(query), f"{COMMISSIONED} {GARDENS}")
    relay = narrow(open_relay, model)
    answer = relay.ask(ASKED, model=MODEL, strategy="agentic")
    first, second = model.calls
    assert offered(model) == [[SEARCH], [SEARCH]]
    assert GARDENS not in system(first)
    assert GARDENS in system(second)
    assert query in system(second)
    assert {COMMISSIONED, GARDENS} <= {fact.content for fact in answer.envelope.facts}
    assert answer.report.grounding_pct == 1.0
    # Without the search the same sentence has nothing to stand on.
    alone = narrow(open_relay, ScriptedModel(f"{COMMISSIONED} {GARDENS}")).ask(ASKED, model=MODEL)
    assert alone.report.grounding_pct < 1.0
    # What was searched for on the way is no need of the question.
    assert answer.report.quality.completeness.covered == (ASKED,)
    assert answer.headers["CRP-Context-Strategy"] == "agentic"
    assert relay.verify().windows == 1


def test_searches_and_rounds_are_journalled_by_hashes(open_relay: Opener) -> None:
    query = "tulips and roses in the valley gardens"
    model = ScriptedModel(looks_up(query, "revenue"), COMMISSIONED)
    relay = narrow(open_relay, model)
    answer = relay.ask(ASKED, model=MODEL, strategy="agentic")
    calls = event_data(relay, answer.session_id, EventType.TOOL_CALL)
    assert [call["number"] for call in calls] == [1, 2]
    assert {call["tool"] for call in calls} == {sha256(SEARCH)}
    assert calls[0]["arguments_hash"] == sha256(json.dumps({"query": query}))
    rounds = event_data(relay, answer.session_id, EventType.AGENT_LOOP_ITERATION)
    assert [(one["iteration"], one["tool_calls"]) for one in rounds] == [(1, 2), (2, 2)]
    assert "tulips" not in str(event_data(relay, answer.session_id))
    assert answer.headers["CRP-Agent-Tool-Calls"] == "2"
    assert session(relay, answer.session_id).tool_calls == 2


def test_a_model_that_never_searches_costs_one_call(open_relay: Opener) -> None:
    model = ScriptedModel(WHOLE)
    answer = made(open_relay, model).ask(QUESTION, model=MODEL, strategy="agentic")
    assert (answer.text, len(model.calls)) == (WHOLE, 1)


def test_what_is_left_open_is_asked_for_until_it_is_answered(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, looks_up("revenue"), WHOLE)
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic")
    assert answer.text == WHOLE
    assert all(need in system(model.calls[1]) for need in NEEDS[1:])
    assert NEEDS[0] not in system(model.calls[1]).split("<context>")[0]
    assert len(windows(relay, answer.session_id)) == 1


def test_an_answer_that_is_complete_enough_is_not_sent_back(open_relay: Opener) -> None:
    model = ScriptedModel(f"{COMMISSIONED} {REVENUE}", WHOLE)
    relay = made(open_relay, model, dispatch={"agentic_completion": 0.66})
    assert relay.ask(QUESTION, model=MODEL, strategy="agentic").text == f"{COMMISSIONED} {REVENUE}"
    relay = made(open_relay, ScriptedModel(f"{COMMISSIONED} {REVENUE}", WHOLE))
    assert relay.ask(QUESTION, model=MODEL, strategy="agentic").text == WHOLE


def test_what_nothing_answers_is_asked_for_once(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED)
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic")
    assert (answer.text, len(model.calls)) == (COMMISSIONED, 2)


def test_ten_searches_end_the_search_and_the_model_must_answer(open_relay: Opener) -> None:
    number = iter(range(100))

    def four(call: object) -> Reply:
        return looks_up(*(f"thing number {next(number)}" for _ in range(4)))

    model = ScriptedModel(four, four, four, WHOLE)
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic")
    assert answer.text == WHOLE
    assert offered(model) == [[SEARCH], [SEARCH], [SEARCH], []]
    assert [STOP in system(call) for call in model.calls] == [False, False, False, True]
    assert len(event_data(relay, answer.session_id, EventType.TOOL_CALL)) == 10
    (stop,) = event_data(relay, answer.session_id, EventType.STOP_INJECT)
    assert (stop["reason"], stop["iteration"]) == ("limit", 3)


def test_eight_calls_are_the_most(open_relay: Opener) -> None:
    number = iter(range(100))
    model = ScriptedModel(lambda call: looks_up(f"thing {next(number)}"))
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic")
    assert len(model.calls) == 8
    assert offered(model)[-1] == []
    # Nobody but the relay can make the search that the last reply wants, so nobody gets it.
    assert (answer.text, answer.reply.tool_calls) == ("", ())
    (stop,) = event_data(relay, answer.session_id, EventType.STOP_INJECT)
    assert (stop["reason"], stop["iteration"]) == ("limit", 7)
    assert answer.report.quality.completeness.level == "INCOMPLETE"


def test_a_model_that_searches_on_after_the_stop_is_not_asked_again(open_relay: Opener) -> None:
    model = ScriptedModel(looks_up("a thing", "another thing"))
    relay = made(open_relay, model, dispatch={"agentic_tool_calls": 2})
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic")
    assert len(model.calls) == 2
    assert len(event_data(relay, answer.session_id, EventType.TOOL_CALL)) == 2
    assert len(event_data(relay, answer.session_id, EventType.STOP_INJECT)) == 1


def test_at_the_floor_of_the_safety_budget_nothing_more_is_tried(open_relay: Opener) -> None:
    model = ScriptedModel(f"{COMMISSIONED} {INVENTED}", looks_up("revenue"), COMMISSIONED)
    relay = made(open_relay, model, dispatch={"agentic_floor": 0.9})
    first = relay.ask(ASKED, model=MODEL)
    assert session(relay, first.session_id).safety_budget == 0.85
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic", session_id=first.session_id)
    assert offered(model)[1] == []
    assert len(model.calls) == 2
    assert answer.reply.tool_calls == ()
    (stop,) = event_data(relay, first.session_id, EventType.STOP_INJECT)
    assert stop["reason"] == "budget"


@pytest.mark.parametrize(
    "arguments", ["{oops", "[]", '"query"', "{}", '{"query": 7}', '{"query": "  "}', "[" * 100_000]
)
def test_arguments_that_say_nothing_count_and_are_told(open_relay: Opener, arguments: str) -> None:
    call = ToolCall(id="t", name=SEARCH, arguments=arguments)
    model = ScriptedModel(Reply(text="", tool_calls=(call,)), COMMISSIONED)
    relay = narrow(open_relay, model)
    answer = relay.ask(ASKED, model=MODEL, strategy="agentic")
    assert answer.text == COMMISSIONED
    assert UNREAD in system(model.calls[1])
    (event,) = event_data(relay, answer.session_id, EventType.TOOL_CALL)
    assert event["failed"] is True
    assert event["arguments_hash"] == sha256(arguments)


def test_calls_of_other_tools_are_passed_on(open_relay: Opener) -> None:
    model = ScriptedModel(looks_up("revenue"), looks_up(other=["book"]))
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic", tools=[BOOK])
    assert offered(model) == [["book", SEARCH]] * 2
    assert [call.name for call in answer.reply.tool_calls] == ["book"]
    assert len(model.calls) == 2


def test_a_reply_that_calls_both_searches_first(open_relay: Opener) -> None:
    model = ScriptedModel(looks_up("revenue", other=["book"]), looks_up(other=["book"]))
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic", tools=[BOOK])
    assert [call.name for call in answer.reply.tool_calls] == ["book"]
    # At the limit, the caller's calls alone are his.
    model = ScriptedModel(looks_up("revenue", other=["book"]))
    relay = made(open_relay, model, dispatch={"agentic_iterations": 1})
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic", tools=[BOOK])
    assert [call.name for call in answer.reply.tool_calls] == ["book"]
    assert len(model.calls) == 1


def test_all_calls_are_paid_and_the_last_answer_alone_is_risked(open_relay: Opener) -> None:
    search = looks_up("revenue").changed(usage=COST)
    model = ScriptedModel(search, Reply(text=WHOLE, usage=COST))
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="agentic")
    assert answer.reply.usage.prompt_tokens == 200
    assert session(relay, answer.session_id).safety_budget == 1.0


def test_a_search_finds_what_the_window_may_see_only(open_relay: Opener) -> None:
    model = ScriptedModel(looks_up("secret tulips"), COOLING)
    relay = narrow(open_relay, model)
    seen = relay.turn("tulips and roses in the valley gardens", k=1).preview().facts
    assert [fact.content for fact in seen] == [GARDENS]
    relay.fabric.quarantine([seen[0].fact_id])
    relay.ask(ASKED, model=MODEL, strategy="agentic")
    assert GARDENS not in system(model.calls[1])


OBJECTION = "The sale of the dam is not in the context."


def reply(text: str) -> Reply:
    return Reply(text=text, model=MODEL, usage=COST)


def test_an_answer_that_stands_takes_two_calls(open_relay: Opener) -> None:
    model = ScriptedModel(reply(COMMISSIONED), reply("NONE"))
    answer = made(open_relay, model).ask(ASKED, model=MODEL, strategy="reflexive", temperature=0.9)
    draft, verify = model.calls
    assert answer.text == COMMISSIONED
    assert (draft.temperature, verify.temperature) == (0.9, 0.2)
    assert (draft.purpose, verify.purpose) == (Purpose.ANSWER, Purpose.CRITIQUE)
    assert roles(verify.messages) == ["system", "user", "assistant", "user"]
    # The same context is before the model's eyes, and what it is to check is its own draft.
    assert verify.messages[0] == draft.messages[0]
    assert verify.messages[2].content == COMMISSIONED
    assert question(verify) == VERIFY
    assert answer.headers["CRP-Agent-Revision-Round"] == "1/2"
    assert answer.reply.usage.prompt_tokens == 200


def test_an_answer_with_faults_is_refined_in_a_third(open_relay: Opener) -> None:
    model = ScriptedModel(reply(INVENTED), reply(OBJECTION), reply(COMMISSIONED))
    relay = made(open_relay, model)
    answer = relay.ask(ASKED, model=MODEL, strategy="reflexive", temperature=0.9, seed=4)
    refine = model.calls[2]
    assert [call.temperature for call in model.calls] == [0.9, 0.2, 0.3]
    assert [call.seed for call in model.calls] == [4, 4, 4]
    assert roles(refine.messages) == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [m.content for m in refine.messages[2:]] == [INVENTED, VERIFY, OBJECTION, REFINE]
    assert answer.text == COMMISSIONED
    assert answer.headers["CRP-Agent-Revision-Round"] == "2/3"
    assert answer.reply.usage.prompt_tokens == 300
    assert answer.reply.usage.cost_usd == pytest.approx(0.03)
    # One window, of which the last answer was examined: the draft's risk costs nothing.
    (window,) = windows(relay, answer.session_id)
    assert (window.strategy, window.risk_level, window.tokens) == ("reflexive", "LOW", 330)
    assert session(relay, answer.session_id).safety_budget == 1.0


def test_only_the_last_risk_costs_of_the_budget(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, "All of it is wrong.", f"{COMMISSIONED} {INVENTED}")
    relay = made(open_relay, model)
    answer = relay.ask(ASKED, model=MODEL, strategy="reflexive")
    assert answer.report.risk_level == "HIGH"
    assert session(relay, answer.session_id).safety_budget == 0.85


@pytest.mark.parametrize("none", ["NONE", "none.", " **None** \n"])
def test_a_verification_finds_nothing_in_more_than_one_spelling(
    open_relay: Opener, none: str
) -> None:
    model = ScriptedModel(COMMISSIONED, none, "never asked for")
    answer = made(open_relay, model).ask(ASKED, model=MODEL, strategy="reflexive")
    assert (answer.text, len(model.calls)) == (COMMISSIONED, 2)


def test_a_refinement_without_a_word_leaves_the_draft(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, OBJECTION, "  \n")
    answer = made(open_relay, model).ask(ASKED, model=MODEL, strategy="reflexive")
    assert (answer.text, len(model.calls)) == (COMMISSIONED, 3)


def test_a_draft_that_calls_a_tool_is_passed_on_and_no_later_pass_may(open_relay: Opener) -> None:
    model = ScriptedModel(looks_up(other=["book"]))
    tools = [{"type": "function", "function": {"name": "book", "parameters": {}}}]
    answer = made(open_relay, model).ask(ASKED, model=MODEL, strategy="reflexive", tools=tools)
    assert len(model.calls) == 1
    assert [call.name for call in answer.reply.tool_calls] == ["book"]
    model = ScriptedModel(COMMISSIONED, looks_up(other=["book"], text="NONE"))
    answer = made(open_relay, model).ask(ASKED, model=MODEL, strategy="reflexive", tools=tools)
    assert [len(call.tools) for call in model.calls] == [1, 0]
    assert (answer.text, answer.reply.tool_calls) == (COMMISSIONED, ())


def test_room_is_left_for_the_drafts(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED, "NONE"), context_limits={MODEL: 4_000})

    def budget(strategy: str) -> int:
        return relay.ask(
            ASKED, model=MODEL, strategy=strategy, max_tokens=500, budget_tokens="window"
        ).envelope.token_budget

    # Two more of them, of which the margin for an estimated count takes a quarter anyway.
    assert budget("push") - budget("reflexive") == 750


def test_a_pass_that_fails_ends_the_window(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED, ModelError("gone")))
    turn = relay.turn(ASKED, model=MODEL, strategy="reflexive")
    with pytest.raises(ModelError, match="gone"):
        relay.ask(ASKED, model=MODEL, strategy="reflexive", session_id=turn.session_id)
    (window,) = windows(relay, turn.session_id)
    assert (window.outcome, window.safety_budget) == ("failed", 1.0)
    assert relay.verify().windows == 1
