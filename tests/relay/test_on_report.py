"""`on_report` is called once with the report of each answer, whoever checks and however asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations import Relay, Report, SafetyHalt
from crp_integrations.litellm import CRPRouter
from tests.doubles import ScriptedModel
from tests.relay.judges import CONTRADICTED, scripted_judge

FACTS = [
    "The Meridian plan costs 4.20 euros a month.",
    "The Larkspur plan costs 7.10 euros a month.",
]
QUESTION = "What does the Meridian plan cost?"
BOTH = "What does the Meridian plan cost, and what does the Larkspur plan cost?"
RIGHT = FACTS[0]
WRONG = RIGHT.replace("4.20", "4.80")


def opened(*script: Any, **options: Any) -> Relay:
    relay = Relay.open(models=ScriptedModel(*script), model="any/model", **options)
    relay.add(FACTS)
    return relay


async def _streamed(relay: Relay, **how: Any) -> None:
    async for _ in relay.astream(QUESTION, **how):
        pass


DOORS: dict[str, Callable[..., Any]] = {
    "ask": lambda relay, **how: relay.ask(QUESTION, **how),
    "aask": lambda relay, **how: asyncio.run(relay.aask(QUESTION, **how)),
    "stream": lambda relay, **how: list(relay.stream(QUESTION, **how)),
    "live": lambda relay, **how: list(relay.stream(QUESTION, live=True, **how)),
    "astream": lambda relay, **how: asyncio.run(_streamed(relay, **how)),
    "fan": lambda relay, **how: relay.ask(BOTH, strategy="hierarchical", **how),
    "continued": lambda relay, **how: relay.ask(BOTH, **how),
}
CONTINUED = {"dispatch": {"continue_partial": True, "continue_incomplete": True}}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("at", ["question", "relay"])
def test_it_is_called_once_an_answer_without_a_judge(door: str, at: str) -> None:
    handed: list[Report] = []
    how: dict[str, Any] = {"on_report": handed.append}
    options = {**(how if at == "relay" else {}), **(CONTINUED if door == "continued" else {})}
    with opened(WRONG, FACTS[1], WRONG, **options) as relay:
        DOORS[door](relay, **(how if at == "question" else {}))
    (report,) = handed
    assert report.risk_level == "HIGH"


def test_a_batch_hands_over_one_report_a_question() -> None:
    handed: list[Report] = []
    with opened(RIGHT) as relay:
        relay.batch([QUESTION, QUESTION], on_report=handed.append)
    assert len(handed) == 2


def test_a_withheld_answer_is_handed_over_too() -> None:
    handed: list[Report] = []
    judge = scripted_judge({"4.80": CONTRADICTED})
    with opened(WRONG, judge=judge) as relay, pytest.raises(SafetyHalt) as halt:
        relay.ask(QUESTION, policy="halt-on HIGH", on_report=handed.append)
    assert handed == [halt.value.report]


def test_a_questions_own_receiver_stands_in_for_the_relays() -> None:
    relays: list[Report] = []
    questions: list[Report] = []
    with opened(RIGHT, on_report=relays.append) as relay:
        relay.ask(QUESTION, on_report=questions.append)
        assert (len(relays), len(questions)) == (0, 1)
        relay.ask(QUESTION)
    assert (len(relays), len(questions)) == (1, 1)


def test_a_failing_receiver_loses_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def failing(report: Report) -> None:
        raise ValueError(report.claims[0].text)

    with opened(RIGHT) as relay:
        assert relay.ask(QUESTION, on_report=failing).text == RIGHT
    assert "on_report failed with ValueError" in caplog.text
    assert "Meridian" not in caplog.text


@pytest.mark.parametrize("at", ["router", "call"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_router_hands_over_each_answers_report(at: str, stream: bool) -> None:
    handed: list[Report] = []
    how: dict[str, Any] = {"on_report": handed.append}
    entry = {
        "model_name": "main",
        "litellm_params": {"model": "openai/any", "api_key": "x", "mock_response": WRONG},
    }
    with Relay.open() as relay:
        relay.add(FACTS)
        router = CRPRouter([entry], relay=relay, **(how if at == "router" else {}))
        response = router.completion(
            "main",
            [{"role": "user", "content": QUESTION}],
            stream=stream,
            **(how if at == "call" else {}),
        )
        if stream:
            list(response)
    (report,) = handed
    assert report.risk_level == "HIGH"
