"""Receipts on answers of the router: what they say was sent is what arrived at the deployment."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Relay
from tests.adapters.litellm_deployments import ASKED, GOOD, WAYS, answered, entry, router, text
from tests.counting import mistral, window
from tests.receipt.wire import arrived, replays, told
from tests.servers import Double

SESSION = "crp_sess_" + "7" * 16
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
ROUND: list[Any] = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hello!"},
    *ASKED,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "1957"},
]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("messages", [ASKED, ROUND])
def test_the_receipt_has_the_messages_as_they_arrived(
    relay: Relay, server: Double, how: str, messages: Any
) -> None:
    called = router(relay, entry(server, "main", "gpt-4o"))
    response = answered(how, called, messages, tools=[TOOL], session_id=SESSION)
    assert text(response) == GOOD
    (seen,) = server.requests
    (id_,) = relay.receipts().ids(SESSION)
    receipt = relay.receipt(id_)
    assert receipt is not None
    assert told(receipt) == [arrived(seen.body["messages"])]
    assert replays(receipt)


def test_after_a_fallback_the_receipt_has_what_the_smaller_model_got(
    relay: Relay, server: Double
) -> None:
    server.faults = {"gpt-4o": "broken"}
    server.windows = {"open-mistral-7b": window(1_500, mistral())}
    small = entry(server, "small", "open-mistral-7b", info={"max_input_tokens": 1_500})
    called = router(relay, entry(server, "main", "gpt-4o"), small, fallbacks=[{"main": ["small"]}])
    response = answered("completion", called)
    failed, seen = server.requests
    assert (failed.fault, seen.model) == ("broken", "open-mistral-7b")
    assert 0 < len(seen.context) < len(failed.context)
    receipt = relay.receipt(response.crp["window_id"])
    assert receipt is not None
    assert told(receipt) == [arrived(seen.body["messages"])]
    assert receipt.content["model"]["asked"] == "openai/open-mistral-7b"
    assert replays(receipt)
