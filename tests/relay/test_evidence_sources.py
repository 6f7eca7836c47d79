"""What counts as evidence and as an answer: failed tools, echoes, system prompts, structures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from crp_integrations import examine
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.messages import Reply, ToolCall, with_forced_calls
from crp_integrations.relay.evidence import (
    answer_text,
    evidence_of,
    tool_results,
    without_echoes,
)
from crp_integrations.relay.records import conversation_of

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
