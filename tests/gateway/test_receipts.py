"""Receipts that the gateway hands out, laid beside what arrived at the upstream."""

from __future__ import annotations

import pytest

from crp_integrations.receipt.records import read
from tests.gateway.houses import ASKED, BODY, Gateway
from tests.gateway.test_chat import CALLED, CHAT, TOOL
from tests.receipt.wire import arrived, replays, told
from tests.servers import Double

HELLO = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "content": "It rains."}
ROUND = [*HELLO, *ASKED, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, ANSWERED]


@pytest.mark.parametrize("messages", [ASKED, [*HELLO, *ASKED], ROUND])
def test_a_receipt_has_the_messages_as_they_arrived(
    gateway: Gateway, server: Double, messages: list[dict[str, object]]
) -> None:
    said = gateway.post(CHAT, {**BODY, "messages": messages, "tools": [TOOL]}).json()
    receipt = read(gateway.get(f"/v1/receipts/{said['crp']['receipt_id']}").content)
    (seen,) = server.requests
    assert told(receipt) == [arrived(seen.body["messages"])]
    assert replays(receipt)
