"""Two receipts beside each other: whatever a reader could tell apart is a difference."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.cli import receipt_views
from crp_integrations.messages import Message, ToolCall
from crp_integrations.receipt.comparison import diff
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.redaction import redact
from tests.receipt.relayed import (
    ANSWER,
    MODEL,
    QUESTION,
    SESSION,
    asked,
    changed,
    opened,
    receipt_of,
)
from tests.relay.conftest import FACTS

OTHER_SESSION = "crp_sess_" + "t" * 16


def said(*texts: str, first: str = "user") -> list[Message]:
    roles = (first, "assistant") if first == "user" else ("assistant", "user")
    return [Message(role=roles[n % 2], content=text) for n, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        (
            {"system_prompt": "You are Anna, a lawyer."},
            {"system_prompt": "You are Otto, a lawyer."},
            "system-prompt, byte 8 (line 1)",
        ),
        (
            {"history": said("Hello Anna.", "Yes?")},
            {"history": said("Hello Otto.", "Yes?")},
            "history/1, byte 6 (line 1)",
        ),
        (
            {"history": said("Yes.", "Yes.")},
            {"history": said("Yes.", "Yes.", first="assistant")},
            "request.history[0].role",
        ),
        ({}, {"system_prompt": "You are Anna."}, "system-prompt"),
        ({"history": said("Hello.", "Yes?")}, {}, "history/2"),
    ],
)
def test_what_was_sent_beside_the_context_is_compared(
    left: dict[str, Any], right: dict[str, Any], place: str
) -> None:
    found = diff(asked(**left), asked(**right))
    assert not found.same
    assert place in [one.place for one in found.differences]


def test_two_windows_of_one_question_differ_by_part() -> None:
    relay, _ = opened(ANSWER, FACTS[0])
    first = relay.ask(QUESTION, model=MODEL, session_id=SESSION)
    second = relay.ask(QUESTION, model=MODEL, session_id=OTHER_SESSION, budget_tokens=45)
    left, right = receipt_of(relay, first.receipt_id), receipt_of(relay, second.receipt_id)
    compared = diff(left, right)
    assert not compared.same
    assert compared.facts_out
    parts = {one.part for one in compared.differences}
    assert {"fit", "envelope", "report", "text"} <= parts
    assert "candidates" not in parts
    places = [one.place for one in compared.differences]
    assert "fit.budget_tokens" in places
    assert any(place.startswith("answer, byte ") for place in places)
    assert compared.left_context.startswith("[1] ")


def test_candidates_are_compared_by_their_ids() -> None:
    receipt = asked()

    def rescored(content: dict[str, Any]) -> None:
        content["candidates"][0]["relevance"] += 1

    (unlike,) = [
        one
        for one in diff(receipt, changed(receipt, rescored)).differences
        if one.part == "candidates"
    ]
    assert unlike.place == f"candidates.{receipt.content['candidates'][0]['id']}.relevance"


def test_a_text_that_is_in_one_alone_says_which() -> None:
    found = diff(asked(), asked(system_prompt="You are Anna."))
    (one,) = [one for one in found.differences if one.place == "system-prompt"]
    assert (one.part, one.left, one.right) == ("text", "nothing", "a text")


def test_a_text_that_is_not_in_both_copies_is_not_taken_for_equal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = asked()
    found = diff(whole, redact(whole, names=["answer"]))
    assert found.same
    assert found.not_compared == ("answer",)
    receipt_views.draw_comparison(found)
    shown = capsys.readouterr().out
    assert "not compared, not in both copies: answer" in shown
    assert "nothing that was compared differs" in shown
    again = diff(whole, asked())
    assert (again.same, again.differences, again.not_compared) == (True, (), ())


def _conversation(session: str) -> Receipt:
    relay, _ = opened(FACTS[0], FACTS[2])
    first = relay.ask("When was the reactor commissioned?", model=MODEL, session_id=session)
    answer = relay.ask(
        "What revenue was reported?", model=MODEL, session_id=session, prior=[first.as_prior()]
    )
    return receipt_of(relay, answer.receipt_id)


def test_ids_of_windows_and_times_are_no_difference() -> None:
    left, right = _conversation(SESSION), _conversation(OTHER_SESSION)
    assert left.content["examined"]["prior"][0] != right.content["examined"]["prior"][0]
    found = diff(left, right)
    assert (found.same, found.differences) == (True, ())

    def later(content: dict[str, Any]) -> None:
        for one in content["candidates"]:
            one |= {"ingested_at": "2020-01-01T00:00:00Z", "decision": "another"}

    assert diff(left, changed(left, later)).same


def test_ids_of_tool_calls_are_no_difference_and_their_arguments_are() -> None:
    def called(id_: str, arguments: str) -> Receipt:
        call = ToolCall(id=id_, name="search", arguments=arguments)
        history = [
            Message(role="user", content="Look it up."),
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content="Nothing.", tool_call_id=id_),
        ]
        return asked(history=history)

    assert diff(called("call_1", "{}"), called("call_2", "{}")).same
    found = diff(called("call_1", "{}"), called("call_1", '{"q":1}'))
    assert any(one.place.startswith("history/2/frame") for one in found.differences)


def test_the_same_facts_in_another_order_are_a_difference() -> None:
    receipt = asked()
    facts = receipt.content["envelope"]["facts"]
    assert len(facts) > 1

    def turned(content: dict[str, Any]) -> None:
        shown = content["envelope"]["facts"]
        for one in shown:
            one |= {"tokens": 1, "composite": 1, "freshness": 1, "diversity": 1, "position": 1}

    def reversed_(content: dict[str, Any]) -> None:
        turned(content)
        content["envelope"]["facts"].reverse()

    left = redact(changed(receipt, turned), names=["context"])
    right = redact(changed(receipt, reversed_), names=["context"])
    assert not diff(left, right).same


def test_contexts_of_others_are_compared_by_their_words() -> None:
    relay, _ = opened("x")
    made = [
        observe_answer(relay, "It is.", [FACTS[0], other], "When?", session_id=SESSION).receipt
        for other in (FACTS[1], f"{FACTS[1][:-1]}!")
    ]
    left, right = made
    assert left is not None
    assert right is not None
    places = [one.place for one in diff(left, right).differences]
    assert any(place.startswith("fact/context-2, byte") for place in places)


def test_ids_of_a_strangers_receipt_do_not_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    receipt = asked()

    def hostile(content: dict[str, Any]) -> None:
        for number, one in enumerate(content["candidates"]):
            one["id"] = f"\x1b[2J{number}"

    receipt_views.draw_comparison(diff(receipt, changed(receipt, hostile)))
    shown = capsys.readouterr().out
    assert "[2J0" in shown
    assert "\x1b" not in shown
