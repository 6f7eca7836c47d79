"""The reflexive strategy: draft, verification, refinement, in one window."""

from __future__ import annotations

import pytest

from crp_integrations.errors import ModelError
from crp_integrations.messages import Reply
from crp_integrations.relay.strategies.single_window import REFINE, VERIFY
from crp_integrations.vocabulary import Purpose
from tests.doubles import ScriptedModel
from tests.relay.conftest import Opener
from tests.relay.played import (
    COMMISSIONED,
    COST,
    INVENTED,
    MODEL,
    NEEDS,
    looks_up,
    made,
    question,
    roles,
    session,
    windows,
)

ASKED = f"{NEEDS[0]}?"
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
    model = ScriptedModel(COMMISSIONED, "All of it is wrong.", INVENTED)
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
            ASKED, model=MODEL, strategy=strategy, max_tokens=500
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


async def test_the_asynchronous_twin_takes_the_same_passes(open_relay: Opener) -> None:
    model = ScriptedModel(INVENTED, OBJECTION, COMMISSIONED)
    answer = await made(open_relay, model).aask(ASKED, model=MODEL, strategy="reflexive")
    assert (answer.text, len(model.calls)) == (COMMISSIONED, 3)
    assert answer.headers["CRP-Agent-Revision-Round"] == "2/3"
