"""Tool calls in answers of `CRPRouter`, reported on or withheld."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crp_integrations.errors import ConfigError, SafetyHalt
from crp_integrations.litellm import CRPRouter
from tests.adapters.actions import ORDER, RIGHT, WRONG, ActionJudge
from tests.adapters.langchain_doubles import opened
from tests.adapters.litellm_deployments import WAYS, answered, entry
from tests.servers import openai_double

MESSAGES = [{"role": "user", "content": ORDER}]
PAY = {
    "type": "function",
    "function": {
        "name": "pay",
        "description": "Pay an amount to an account.",
        "parameters": {
            "type": "object",
            "properties": {"iban": {"type": "string"}, "euros": {"type": "integer"}},
        },
    },
}


def call(arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "pay", "arguments": json.dumps(arguments)}
    return {"id": "c1", "type": "function", "function": function}


def asked(how: str, arguments: dict[str, Any], judge: Any, **options: Any) -> Any:
    """What a router gives, whose model calls a tool with these arguments."""
    with openai_double(tool_calls=[call(arguments)]) as server:
        router = CRPRouter(
            [entry(server, "main", "gpt-4o")],
            relay=opened(),
            num_retries=0,
            **{"ground_tools": True, "judge": judge, **options},
        )
        return answered(how, router, MESSAGES, tools=[PAY])


@pytest.mark.parametrize("how", WAYS)
def test_calls_are_reported_by_default(how: str) -> None:
    judge, reports = ActionJudge(), []
    response = asked(how, WRONG, judge, on_action=reports.append)
    (report,) = response.crp_actions
    assert report["may_run"] is False
    assert [argument["status"] for argument in report["arguments"]] == ["UNGROUNDED", "GROUNDED"]
    assert [each.tool for each in reports] == ["pay"]
    assert judge.asked == 1


@pytest.mark.parametrize("how", WAYS)
def test_a_call_that_may_not_run_is_withheld(how: str) -> None:
    with pytest.raises(SafetyHalt, match="/iban") as halted:
        asked(how, WRONG, ActionJudge(), on_ungrounded="withhold")
    assert halted.value.trail
    assert halted.value.session_id


@pytest.mark.parametrize("how", WAYS)
def test_a_call_that_may_run_is_returned(how: str) -> None:
    response = asked(how, RIGHT, ActionJudge(), on_ungrounded="withhold")
    assert response.crp_actions[0]["may_run"] is True
    if how == "stream":
        pieces = [c.choices[0].delta.tool_calls for c in response.chunks if c.choices]
        written = "".join(part[0].function.arguments or "" for part in pieces if part)
    else:
        written = response.choices[0].message.tool_calls[0].function.arguments
    assert json.loads(written) == RIGHT


def test_an_unread_call_is_withheld() -> None:
    judge = ActionJudge()
    judge.fails = True
    with pytest.raises(SafetyHalt):
        asked("completion", RIGHT, judge, on_ungrounded="withhold")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_ungrounded": "pause"}, "report, withhold"),
        ({"on_ungrounded": "withhold", "judge": None}, "judge="),
        ({"ground_tools": ["pays"]}, "'pays'"),
        ({"ground_tools": {"pay": {"iban": "some"}}}, "exact"),
        ({"ground_tools": {"pay": {"bic": "exact"}}}, "bic"),
    ],
)
def test_arguments_that_can_check_nothing_are_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked("completion", RIGHT, **{"judge": ActionJudge(), **options})
