"""What counts as evidence for an answer, and what does not: tools, system prompts, earlier turns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from crp_integrations import Fact, PolicyRelaxed, Relay, SafetyHalt, examine
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.messages import Message, Reply, ToolCall, with_forced_calls
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.replay import replay
from crp_integrations.relay.evidence import (
    answer_text,
    evidence_of,
    readable,
    tool_results,
    without_echoes,
)
from crp_integrations.relay.records import conversation_of, message_of
from crp_integrations.vocabulary import Attribution, DistortionType, EventType, RiskLevel
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, KEY, Opener
from tests.relay.judges import CONTRADICTED, MEASURED, scripted_judge
from tests.relay.need_questions import COMMISSIONED, COOLING, MODEL, NEEDS, REVENUE, made
from tests.relay.need_questions import QUESTION as NEEDED
from tests.relay.scripted_relays import (
    HIGH,
    LOW,
    OPERATOR,
    QUESTION,
    SESSION,
    answered,
    continued,
    opened,
    session_events,
)

DATED = "The Meridian reactor was commissioned on 4 March 2019."
RESULT = '{"tariff": "Blue", "price": "0.31 EUR per kWh", "valid_until": "30 June 2026"}'
ASKED = "What does the Blue tariff cost?"
RIGHT = "The Blue tariff costs 0.31 EUR per kWh until 30 June 2026."
WRONG = "The Blue tariff costs 0.37 EUR per kWh until 30 June 2026."
# Reads every answer: those figures are wrong, all else is right.
JUDGE = scripted_judge({"0.37": CONTRADICTED, "900": CONTRADICTED})

OPENAI: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "tariffs", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": RESULT},
]
ANTHROPIC: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "tariffs", "input": {"name": "Blue"}}],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": [{"type": "text", "text": RESULT}],
            }
        ],
    },
]


def observing(*script: Any, **options: Any) -> tuple[Relay, ScriptedModel]:
    """A relay that was told nothing."""
    model = ScriptedModel(*script)
    given_ = {"embedder": HashEmbedder(), "key": KEY, "clock": NOON, "models": model, **options}
    relay = Relay.open(**given_)
    relay.fabric.add(list(FACTS))
    return relay, model


def halted(relay: Relay) -> SafetyHalt:
    """Ask again and again in one session until an answer is withheld."""
    for _ in range(30):
        try:
            relay.ask(QUESTION, model="any/model", session_id=SESSION)
        except SafetyHalt as halt:
            return halt
    raise AssertionError("no answer was withheld")


# --- tools' results ------------------------------------------------------------------------


@pytest.mark.parametrize("form", [OPENAI, ANTHROPIC])
def test_a_tools_result_in_the_messages_is_evidence_in_every_form(form: Any) -> None:
    messages = [message_of(one) for one in form]
    assert tool_results(messages) == (("tool:tariffs#1", RESULT),)
    right = examine(RIGHT, [], ASKED, conversation=form, judge=JUDGE)
    wrong = examine(WRONG, [], ASKED, conversation=form, judge=JUDGE)
    assert right.risk_level is RiskLevel.LOW
    assert right.fabrication_count == right.distortion_count == 0
    assert wrong.risk_level in (RiskLevel.HIGH, RiskLevel.MEDIUM)


@pytest.mark.parametrize(("text", "low"), [(RIGHT, True), (WRONG, False)])
def test_a_result_of_an_earlier_turn_counts_in_any_process(text: str, low: bool) -> None:
    relay, _ = observing(text, judge=JUDGE)
    history = [{"role": "user", "content": "Which tariffs are there?"}, *OPENAI]
    history.append({"role": "assistant", "content": "There is Blue."})
    report = relay.ask(ASKED, model="any/model", history=history).report
    assert (report.risk_level is RiskLevel.LOW) is low


def test_a_receipt_replays_with_a_tools_result_as_evidence() -> None:
    relay, _ = observing(WRONG)
    answer = relay.ask(ASKED, model="any/model", history=OPENAI)
    receipt = relay.receipt(answer.receipt_id)
    assert receipt is not None
    found = replay(read(write(receipt)))
    assert (found.same, found.whole) == (True, True), found.parts


def test_what_a_model_said_is_no_evidence() -> None:
    said = Message(role="assistant", content=WRONG, tool_calls=(ToolCall(id="c", name="tariffs"),))
    found = evidence_of([Fact(content=RIGHT)], [said, Message(role="user", content=WRONG)])
    assert [text for _, text in found.passages] == [RIGHT]


@given(st.text(alphabet=st.characters(codec=None)))
def test_an_odd_character_costs_that_character(text: str) -> None:
    clean = readable(text)
    assert len(clean) == len(text)
    clean.encode()
    assert "\x00" not in clean
    odd = f"The fee\x00 is 40 euros \ud800 {text}"
    ((_, shown),) = tool_results([Message(role="tool", name="fees", content=odd)])
    assert shown.startswith("The fee\ufffd is 40 euros \ufffd")


# --- sessions ------------------------------------------------------------------------------


def test_an_earlier_answer_is_no_source_and_its_facts_stay_evidence(open_relay: Opener) -> None:
    relay, model = opened(open_relay, HIGH, f"{HIGH} {DATED}")
    first = answered(relay)
    second = continued(relay, first)
    assert LOW not in [fact.content for fact in second.envelope.facts]
    (wrong,) = [claim for claim in second.report.claims if "900" in claim.text]
    right = second.report.claims[-1]
    # The repeated wrong figure is found, although the model was shown its own words.
    assert wrong.findings
    assert not right.findings
    assert right.attribution is Attribution.CONTEXT_GROUNDED
    assert "which is no source" in model.calls[1].messages[0].content


def test_a_session_is_one_by_its_id_alone() -> None:
    relay, _ = observing(LOW)
    relay.ask(QUESTION, model="any/model", session_id=SESSION)
    again = relay.ask(QUESTION, model="any/model", session_id=SESSION)
    assert again.report.repetition_overlap > 0.9
    # A question of its own is shown what it needs, whatever was shown before.
    assert LOW in [fact.content for fact in again.envelope.facts]
    other = relay.ask(QUESTION, model="any/model")
    assert other.report.repetition_overlap == 0.0


# --- the report covers what the caller gets --------------------------------------------------


def test_the_report_is_of_all_windows(open_relay: Opener) -> None:
    changed = COMMISSIONED.replace("412", "512")
    assert changed != COMMISSIONED
    relay = made(open_relay, ScriptedModel(changed, f"{REVENUE} {COOLING}"))
    answer = relay.ask(NEEDED, model=MODEL, k=2)
    assert len(answer.pieces) == 2
    assert answer.report.risk_level is RiskLevel.MEDIUM
    found = [one for one in answer.report.findings if one.kind == DistortionType.NUMBER_CHANGED]
    assert any("512" in answer.text[one.start : one.end] for one in found)
    assert [one.window_id for one in answer.window_reports] == [p.window_id for p in answer.pieces]
    assert answer.window_reports[1].risk_level is RiskLevel.LOW
    # Completeness is of the whole question.
    assert len(answer.report.quality.completeness.covered) == len(NEEDS)
    assert max(claim.end for claim in answer.report.claims) == len(answer.text)


# --- nothing acts unasked --------------------------------------------------------------------


def test_doubtful_answers_end_no_session_and_take_nothing_away() -> None:
    relay, model = observing(HIGH)
    for _ in range(9):
        answer = relay.ask(QUESTION, model="any/model", session_id=SESSION)
        assert answer.report.risk_level is RiskLevel.HIGH
    assert len(model.calls) == 9
    assert LOW in [fact.content for fact in answer.envelope.facts]
    # It is counted, and shown to who looks.
    (fact_id,) = relay.fabric.due_for_review()
    (fact,) = relay.fabric.facts([fact_id])
    assert fact.content == LOW
    assert relay.fabric.due_for_review(least=10) == []


def test_the_protocol_does_what_the_specifications_do() -> None:
    relay, _ = observing(HIGH, profile="protocol", dpe=MEASURED)
    assert "OVERSIGHT_REQUIRED" in str(halted(relay))
    other = relay.ask(QUESTION, model="any/model")
    assert LOW not in [fact.content for fact in other.envelope.facts]


def test_a_budget_is_set_anew_by_a_person() -> None:
    relay, _ = observing(HIGH, sessions={"budget": {"enforce": True}})
    assert halted(relay).reason
    assert relay.reset_budget(SESSION) == 1.0
    assert relay.ask(QUESTION, model="any/model", session_id=SESSION).text == HIGH
    (event,) = session_events(relay, EventType.OVERSIGHT_TRIGGERED)
    assert event.data["approved"] is True
    assert relay.verify().windows > 1


# --- policies ----------------------------------------------------------------------------------


def test_a_child_is_bound_by_the_parent_that_it_names() -> None:
    relay, _ = observing(HIGH, LOW, HIGH, judge=JUDGE)
    parent = relay.ask(QUESTION, model="any/model")
    relay.ask(OPERATOR, model="any/model", session_id=parent.session_id, policy="halt-on HIGH")
    child = {"parent_session": parent.session_id, "loop_depth": 1}
    with pytest.raises(SafetyHalt, match="halt-on HIGH"):
        relay.ask(QUESTION, model="any/model", **child)
    with pytest.raises(PolicyRelaxed, match="halt-on"):
        relay.ask(QUESTION, model="any/model", policy="halt-on CRITICAL", **child)
    other = relay.ask(QUESTION, model="any/model", parent_session="crp_sess_" + "z" * 16)
    assert other.text == HIGH


FARE = "The night fare is 14 euros."


def called(arguments: dict[str, Any], content: Any, **fields: Any) -> list[dict[str, Any]]:
    """A tool call with its result, in the OpenAI shape."""
    function = {"name": "fares", "arguments": json.dumps(arguments)}
    return [
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": content, **fields},
    ]


def anthropic(*results: tuple[str, bool]) -> list[dict[str, Any]]:
    """Tools' results in one message of the user's, as Anthropic has them."""
    blocks = [
        {"type": "tool_result", "tool_use_id": f"c{n}", "content": text, "is_error": failed}
        for n, (text, failed) in enumerate(results)
    ]
    return [{"role": "user", "content": blocks}]


@pytest.mark.parametrize(
    "messages",
    [
        called({}, FARE, status="error"),
        called({}, FARE, isError=True),
        called({}, {"content": [{"type": "text", "text": FARE}], "isError": True}),
        called({}, json.dumps({"content": [{"type": "text", "text": FARE}], "isError": True})),
        anthropic((FARE, True)),
    ],
)
def test_what_a_failed_tool_says_is_no_evidence(messages: list[dict[str, Any]]) -> None:
    assert tool_results(conversation_of(messages)) == ()


def test_of_several_results_the_failed_one_is_left_out() -> None:
    found = tool_results(conversation_of(anthropic((FARE, False), ("Fare 99 is unknown.", True))))
    assert [text for _, text in found] == [FARE]
    answered = called({}, {"content": [{"type": "text", "text": FARE}], "isError": False})
    assert [text for _, text in tool_results(conversation_of(answered))] == [FARE]


@pytest.mark.parametrize(
    ("arguments", "result", "left"),
    [
        # A statement under the argument's own key is the model's.
        ({"note": FARE}, {"saved": True, "note": FARE}, {"saved": True}),
        # A label says what the result is about.
        ({"city": "Oslo"}, {"city": "Oslo", "degrees": 9}, {"city": "Oslo", "degrees": 9}),
        ({"order": 4417}, {"order": 4417, "state": "sent"}, {"order": 4417, "state": "sent"}),
        # Nothing but arguments.
        ({"city": "Oslo", "nights": 3}, {"query": {"city": "Oslo", "nights": 3}, "hits": []}, None),
        # The same words under another key are what the tool found.
        ({"text": FARE}, {"line": FARE}, {"line": FARE}),
    ],
)
def test_arguments_that_a_json_result_gives_back_are_no_evidence(
    arguments: dict[str, Any], result: dict[str, Any], left: dict[str, Any] | None
) -> None:
    text = without_echoes(json.dumps(result), json.dumps(arguments))
    assert (json.loads(text) if text else None) == left


@pytest.mark.parametrize(
    ("arguments", "result", "left"),
    [
        ({"note": FARE}, f"Saved: {FARE}", "Saved: …"),
        ({"note": FARE}, FARE, ""),
        ({"query": "night fare of line nine"}, "Hits for 'night fare of line nine': 14",
         "Hits for '…': 14"),
        # What was searched for stands in the document that was found.
        ({"query": "The night fare"}, FARE, FARE),
        ({"expression": "12 * 18.90 + 3"}, "12 * 18.90 + 3 = 229.8", "12 * 18.90 + 3 = 229.8"),
    ],
)  # fmt: skip
def test_arguments_that_a_text_gives_back_are_no_evidence(
    arguments: dict[str, Any], result: str, left: str
) -> None:
    assert without_echoes(result, arguments) == left


def test_the_system_prompt_is_the_last_passage() -> None:
    evidence = evidence_of(
        ["Lunch is at noon."], conversation_of(called({}, FARE)), system="Ferry."
    )
    assert evidence.ids == ("context-1", "tool:fares#1", "system")
    assert evidence.system == "Ferry."
    assert evidence_of(["Lunch is at noon."], system=" ").ids == ("context-1",)


@pytest.mark.parametrize("form", ["system_prompt", "conversation"])
def test_facts_in_the_system_prompt_are_evidence(form: str) -> None:
    told = f"Answer from this context. {FARE}"
    how: dict[str, Any] = (
        {"system_prompt": told}
        if form == "system_prompt"
        else {"conversation": [{"role": "system", "content": told}]}
    )
    report = examine(FARE, [], "What does the night fare cost?", **how)
    assert [one.status.value for one in report.claims] == ["SUPPORTED"]
    wrong = examine(FARE.replace("14", "15"), [], "What does the night fare cost?", **how)
    assert wrong.flagged


def test_a_judge_is_shown_the_system_prompt_under_its_name_alone() -> None:
    seen: list[str] = []

    class Judging:
        """Notes what it is sent; its replies cannot be read."""

        def call(self, call: Any) -> Reply:
            seen.append(call.messages[-1].content)
            return Reply(text="{}")

        async def acall(self, call: Any) -> Reply:
            return self.call(call)

    report = examine("Supper is served at nine in the harbour hall.", ["Lunch is at noon."],
                     "When is supper?", system_prompt=FARE, judge=Judging())  # fmt: skip
    data = json.loads(seen[0])
    assert data["system"] == FARE
    assert data["passages"] == [["1", "Lunch is at noon."]]
    assert "note" not in data
    assert report.judge is not None and report.judge.passages == 1


def test_a_rejected_claim_is_no_evidence_in_a_text_of_the_caller() -> None:
    rejected = [RejectedClaim(text=FARE, said=FARE, wrong="14 euros")]
    evidence = evidence_of([f"{FARE} It is paid on board."], rejected=rejected)
    assert evidence.passages == (("context-1", "… It is paid on board."),)
    report = examine(FARE, [FARE], "What is the night fare?", rejected=rejected)
    assert report.flagged


class Fare(BaseModel):
    city: str
    euros: float


@dataclass
class Plain:
    city: str
    euros: float


@pytest.mark.parametrize(
    "answer", [Fare(city="Oslo", euros=14), {"euros": 14, "city": "Oslo"}, Plain("Oslo", 14)]
)
def test_a_structured_answer_is_examined_as_canonical_json(answer: Any) -> None:
    assert answer_text(answer) == '{"city":"Oslo","euros":14}'
    report = examine(answer, ['{"city": "Oslo", "euros": 14}'], "What is the fare?")
    assert report.claims_total and not report.flagged
    assert {one.text for one in report.claims} <= set(answer_text(answer).split("\n")) or all(
        one.text in answer_text(answer) for one in report.claims
    )


@pytest.mark.parametrize(
    "said",
    [
        "I cannot answer that from the given documents.",
        "I'm sorry, but the context does not say what the night fare is.",
    ],
)
@pytest.mark.parametrize("context", [[], [FARE], ["The context does not say anything."]])
def test_a_refusal_is_no_claim_whatever_the_passages_hold(said: str, context: list[str]) -> None:
    report = examine(said, context, "What is the night fare?")
    assert not report.flagged
    assert {one.status.value for one in report.claims} <= {"NOT_CHECKABLE"}


def test_a_call_that_the_caller_forces_is_the_answer() -> None:
    calls = (ToolCall(id="c1", name="fare", arguments='{"euros": 14}'),)
    reply = Reply(text="", tool_calls=calls)
    forced = {"type": "function", "function": {"name": "fare"}}
    assert with_forced_calls(reply, forced).answer == '{"euros": 14}'
    for choice in (None, "auto", "required", {"type": "auto"}):
        assert with_forced_calls(reply, choice).answer == ""
    assert with_forced_calls(reply.changed(text=FARE), forced).answer == FARE
