"""Tool calls of LangChain's agents, checked before the tools run."""

from __future__ import annotations

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from crp_integrations import Judge
from crp_integrations.errors import ConfigError
from crp_integrations.langchain import CRPMiddleware
from crp_integrations.vocabulary import EventType
from tests.adapters.actions import (
    ORDER,
    RIGHT,
    WRONG,
    ActionJudge,
    assert_checked_in_region,
    in_region,
)
from tests.adapters.langchain_doubles import opened, prompts, scripted
from tests.relay.scripted_relays import session_events

SHARED_THREAD = {"configurable": {"thread_id": "payments"}}


def calls(*each, name="pay"):
    return AIMessage(
        "", tool_calls=[{"name": name, "args": a, "id": f"c{n}"} for n, a in enumerate(each)]
    )


class Payments:
    """An agent that pays, with what was paid, and its judge."""

    def __init__(
        self, *script, saver=None, tools=(), others=(), response_format=None, relay=None, **options
    ):
        self.paid = []
        self.judge = ActionJudge()

        @tool
        def pay(iban: str, euros: int) -> str:
            """Pay an amount to an account."""
            self.paid.append(iban)
            return "paid"

        self.model = scripted(*script)
        options = {"ground_tools": True, "judge": self.judge, "judge_when": "doubt", **options}
        self.relay = relay or opened()
        self.make = lambda: create_agent(
            self.model,
            [pay, *tools],
            middleware=[CRPMiddleware(self.relay, **options), *others],
            checkpointer=saver,
            response_format=response_format,
        )
        self.agent = self.make()

    def run(self, given=None, config=SHARED_THREAD):
        return self.agent.invoke(given or {"messages": [("user", ORDER)]}, config)


def results(state):
    return [m for m in state["messages"] if isinstance(m, ToolMessage)]


def entries(state):
    return [m.response_metadata.get("crp_actions") for m in state["messages"] if m.type == "ai"]


def resumed(*decisions):
    return Command(resume={"decisions": list(decisions)})


def test_calls_are_reported_and_run_by_default():
    reports = []
    payments = Payments(calls(RIGHT, WRONG), "Done.", on_action=reports.append)
    state = payments.run()
    assert sorted(payments.paid) == sorted([RIGHT["iban"], WRONG["iban"]])
    right, wrong = entries(state)[0]
    assert (right["may_run"], wrong["may_run"]) == (True, False)
    assert [report.may_run for report in reports] == [True, False]
    assert payments.judge.asked == 2
    assert "crp_actions" not in prompts(payments.model), "no provider gets the reports"
    events = session_events(payments.relay, EventType.ACTION_CHECKED)
    assert [event.data["verdict"] for event in events] == ["runs", "stopped"]
    assert [event.data["report_hash"] for event in events] == [
        right["report_hash"],
        wrong["report_hash"],
    ]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_returned_call_does_not_run_and_its_error_names_the_argument(way):
    payments = Payments(calls(RIGHT, WRONG), calls(RIGHT), "Done.", on_ungrounded="return")
    if way == "invoke":
        state = payments.run()
    else:
        state = asyncio.run(payments.agent.ainvoke({"messages": [("user", ORDER)]}))
    assert payments.paid == [RIGHT["iban"]] * 2
    refused = next(m for m in results(state) if m.status == "error")
    assert refused.tool_call_id == "c1"
    assert "/iban" in refused.text
    assert WRONG["iban"] in refused.text


def test_an_error_is_no_evidence_for_the_next_call():
    payments = Payments(calls(WRONG), calls(WRONG), "I do not pay.", on_ungrounded="return")
    payments.run()
    assert payments.paid == []
    assert all(WRONG["iban"] not in text for text in payments.judge.evidence)


@pytest.mark.parametrize("decision", ["approve", "reject", "edit"])
def test_a_paused_run_asks_a_person_and_pays_the_judge_once(decision):
    saver = InMemorySaver()
    payments = Payments(calls(RIGHT, WRONG), "Done.", saver=saver, on_ungrounded="pause")
    paused = payments.run()
    assert payments.paid == [], "no tool of the step runs before the decision"
    value = paused["__interrupt__"][0].value
    request = value["action_requests"]
    assert [(r["name"], r["args"]) for r in request] == [("pay", WRONG)]
    assert "/iban" in request[0]["description"]
    assert value["review_configs"] == [
        {"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]}
    ]
    asked = payments.judge.asked
    # Another process resumes: nothing is in memory but the checkpoint.
    payments.agent = payments.make()
    edited = {**WRONG, "iban": "DE00000000000000000001"}
    answer = {
        "approve": {"type": "approve"},
        "reject": {"type": "reject", "message": "Not this account."},
        "edit": {"type": "edit", "edited_action": {"name": "pay", "args": edited}},
    }[decision]
    state = payments.run(resumed(answer))
    assert payments.judge.asked == asked == 2
    ran = {"approve": [WRONG["iban"]], "reject": [], "edit": [edited["iban"]]}[decision]
    assert sorted(payments.paid) == sorted([RIGHT["iban"], *ran])
    errors = [m.text for m in results(state) if m.status == "error"]
    assert ["Not this account." in text for text in errors] == [True] * (decision == "reject")


def test_an_approved_value_is_evidence_for_later_calls():
    payments = Payments(
        calls(WRONG), calls(WRONG), "Done.", saver=InMemorySaver(), on_ungrounded="pause"
    )
    payments.run()
    state = payments.run(resumed({"type": "approve"}))
    assert "__interrupt__" not in state
    assert payments.paid == [WRONG["iban"]] * 2


@pytest.mark.parametrize(
    "answer",
    [True, {"decisions": []}, {"decisions": [{"type": "yes"}]}, {"decisions": [{"type": "edit"}]}],
)
def test_a_decision_without_a_usable_value_is_asked_for_again(answer):
    payments = Payments(calls(WRONG), "Done.", saver=InMemorySaver(), on_ungrounded="pause")
    payments.run()
    again = payments.run(Command(resume=answer))
    assert "approve" in again["__interrupt__"][0].value["error"] or "args" in str(again)
    assert payments.paid == []
    payments.run(resumed({"type": "approve"}))
    assert payments.paid == [WRONG["iban"]]
    assert payments.judge.asked == 1


def test_a_pause_without_a_checkpointer_is_an_error_before_the_model_is_paid():
    payments = Payments(calls(WRONG), on_ungrounded="pause")
    with pytest.raises(ConfigError, match="checkpointer"):
        payments.run()
    assert payments.model.seen == []


def test_a_call_that_was_not_checked_does_not_run():
    class Swap(AgentMiddleware):
        def after_model(self, state, runtime):
            message = state["messages"][-1]
            if not message.tool_calls:
                return None
            return {
                "messages": [message.model_copy(update={"tool_calls": calls(WRONG).tool_calls})]
            }

    payments = Payments(calls(RIGHT), "Done.", others=[Swap()], on_ungrounded="return")
    payments.run()
    assert payments.paid == []


def test_a_summary_that_a_model_wrote_is_no_evidence():
    class Summary(AgentMiddleware):
        def before_model(self, state, runtime):
            summary = HumanMessage(WRONG["iban"], additional_kwargs={"lc_source": "summarization"})
            return {"messages": [summary]} if len(state["messages"]) == 1 else None

    payments = Payments(calls(WRONG), "Done.", others=[Summary()], on_ungrounded="return")
    payments.run()
    assert payments.paid == []


def test_an_unread_call_is_stopped():
    payments = Payments(calls(RIGHT), "Done.", on_ungrounded="return")
    payments.judge.fails = True
    payments.run()
    assert payments.paid == []


def test_checks_and_answers_share_one_budget_of_the_judge():
    payments = Payments(calls(RIGHT, WRONG), "Done.", judge_when=None, judge_budget=1)
    state = payments.run()
    assert payments.judge.asked == 1
    assert [entry["may_run"] for entry in entries(state)[0]].count(None) == 1
    assert "judge-not-asked=budget" in state["messages"][-1].response_metadata["crp"]["flags"]


def test_only_the_named_tools_are_checked():
    @tool
    def note(text: str) -> str:
        """Write a note."""
        return "noted"

    payments = Payments(
        calls({"text": "a free text"}, name="note"),
        "Done.",
        tools=[note],
        ground_tools=["pay"],
        on_ungrounded="return",
    )
    state = payments.run()
    assert [m.status for m in results(state)] == ["success"]
    assert payments.judge.asked == 0


@pytest.mark.parametrize("name", ["save_memory", "ask_colleague"])
def test_what_is_remembered_or_handed_on_is_checked_too(name):
    handed = []
    named = tool(name, description="Take a text.")(lambda text: handed.append(text) or "taken")
    payments = Payments(
        calls({"text": "40 euros"}, {"text": "80 euros"}, name=name),
        "Done.",
        tools=[named],
        ground_tools=[name],
        on_ungrounded="return",
    )
    payments.run()
    assert handed == ["40 euros"]


def test_rules_need_no_judge():
    rules = {"pay": {"iban": "exact:user", "euros": "exact"}}
    payments = Payments(
        calls(RIGHT, WRONG),
        "Done.",
        ground_tools=rules,
        judge=None,
        judge_when=None,
        on_ungrounded="return",
    )
    payments.run()
    assert payments.paid == [RIGHT["iban"]]


def test_a_structured_answer_is_no_action():
    class Receipt(BaseModel):
        iban: str

    payments = Payments(
        calls({"iban": "DE1"}, name="Receipt"),
        on_ungrounded="return",
        response_format=ToolStrategy(Receipt),
    )
    state = payments.run()
    assert state["structured_response"] == Receipt(iban="DE1")
    assert payments.judge.asked == 0


def test_a_name_that_is_no_tool_is_an_error_before_the_model_is_paid():
    payments = Payments("Done.", ground_tools=["pays"])
    with pytest.raises(ConfigError, match=r"'pays'.*: pay"):
        payments.run()
    assert payments.model.seen == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ground_tools": True, "on_ungrounded": "pause"}, "judge="),
        ({"ground_tools": ["pay"], "on_ungrounded": "return"}, "judge="),
        ({"ground_tools": "pay"}, "list of names"),
        ({"on_ungrounded": "pause"}, "ground_tools"),
        ({"ground_tools": True, "on_ungrounded": "halt"}, "report, pause, return"),
        ({"ground_tools": True, "judge": True}, "own tool calls"),
        ({"ground_tools": [1]}, "names of tools"),
    ],
)
def test_arguments_that_can_check_nothing_are_errors(options, words):
    with pytest.raises(ConfigError, match=words):
        CRPMiddleware(opened(), **options)


def test_a_call_is_checked_and_sealed_in_the_region_of_its_window(tmp_path):
    relay, model = in_region(tmp_path), ActionJudge()
    judge = Judge(model, withhold_labels=("secret",))
    payments = Payments(calls(RIGHT), "Done.", relay=relay, judge=judge, residency="eu")
    assert_checked_in_region(relay, entries(payments.run())[0], model)
