"""Tool calls in answers of `CRPRouter`, reported on or withheld."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crp_integrations import ActionReport, Relay
from crp_integrations.errors import ConfigError, SafetyHalt
from crp_integrations.litellm import CRPRouter
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL
from crp_integrations.seals import sha256
from tests.adapters.actions import ORDER, RIGHT, WRONG, ActionJudge, checked_action
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


def asked(
    how: str, arguments: dict[str, Any], judge: Any, relay: Relay | None = None, **options: Any
) -> Any:
    """What a router gives, whose model calls a tool with these arguments."""
    with openai_double(tool_calls=[call(arguments)]) as server:
        router = CRPRouter(
            [entry(server, "main", "gpt-4o")],
            relay=relay or opened(),
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
    relay, judge, reports = opened(), ActionJudge(), []
    options = {"on_ungrounded": "withhold", "on_action": reports.append}
    with pytest.raises(SafetyHalt, match="UNGROUNDED_ACTION") as halted:
        asked(how, WRONG, judge, relay, **options)
    error = halted.value
    assert (error.directive, judge.asked) == ("on_ungrounded withhold", 1)
    # Logs contain errors, so an error has no text of an argument.
    assert error.value == "pay /iban"
    assert WRONG["iban"] not in str(error)
    receipt = relay.receipt(error.trail)
    assert receipt is not None
    policy = receipt.content["policy"]
    assert (policy["decision"], policy["reason"]) == ("withhold", "UNGROUNDED_ACTION")
    assert receipt.chain.outcome == "halted"
    assert replay(receipt).part("policy").state == EQUAL
    event = checked_action(relay, error.session_id)
    report = reports[0].changed(exchange=None)
    assert event.data["report_hash"] == sha256(report.model_dump_json())
    assert (event.data["verdict"], event.data["action"]) == ("stopped", "withhold")
    assert event.window_id == receipt.chain.window_id


@pytest.mark.parametrize("how", WAYS)
def test_a_call_that_may_run_is_returned(how: str) -> None:
    relay = opened()
    response = asked(how, RIGHT, ActionJudge(), relay, on_ungrounded="withhold")
    (entry,) = response.crp_actions
    assert entry["may_run"] is True
    event = checked_action(relay, response.crp["session_id"])
    assert (event.data["verdict"], event.data["report_hash"]) == ("runs", entry["report_hash"])
    if how == "stream":
        pieces = [c.choices[0].delta.tool_calls for c in response.chunks if c.choices]
        written = "".join(part[0].function.arguments or "" for part in pieces if part)
    else:
        written = response.choices[0].message.tool_calls[0].function.arguments
    assert json.loads(written) == RIGHT


def test_an_unread_call_is_withheld() -> None:
    judge = ActionJudge()
    judge.fails = True
    with pytest.raises(SafetyHalt, match="pay /iban /euros"):
        asked("completion", RIGHT, judge, on_ungrounded="withhold")


@pytest.mark.parametrize("how", WAYS)
def test_an_error_of_a_receiver_costs_no_answer(how: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: ActionReport) -> None:
        raise RuntimeError(report.arguments[0].value)

    assert asked(how, RIGHT, ActionJudge(), on_action=fail).crp_actions
    assert "on_action failed with RuntimeError" in caplog.text
    assert RIGHT["iban"] not in caplog.text


@pytest.mark.parametrize("cache", ["no-store", None])
def test_under_no_store_the_trail_has_no_hash_of_the_arguments(cache: str | None) -> None:
    relay = opened()
    with openai_double(tool_calls=[call(RIGHT)]) as server:
        options = {"relay": relay, "ground_tools": True, "judge": ActionJudge()}
        router = CRPRouter([entry(server, "main", "gpt-4o")], **options)
        fields = {"cache": cache} if cache else {}
        response = router.completion("main", MESSAGES, tools=[PAY], crp=fields)
    event = checked_action(relay, response.crp["session_id"])
    assert ("arguments_hash" in event.data) is not (cache == "no-store")


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
