"""A receipt tells which claims of sub-agents' answers were rejected, and replays without them."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.receipt.records import write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.verify import verify
from tests.receipt.judging import judged
from tests.receipt.relayed import asked
from tests.relay.conftest import FACTS

WRONG = FACTS[0].replace("412", "512")
CLAIM = RejectedClaim(
    text="The Meridian reactor delivers 512 megawatts.",
    said="delivers 512 megawatts.",
    wrong="512 megawatts",
    reason="NUMBER: the evidence says “412 megawatts”",
    window_id="crp_win_0123456789abcdef",
)
TOOL = [
    {"role": "user", "content": "How much power is it?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": WRONG},
]


def test_it_replays() -> None:
    receipt = asked("How much power is it?", WRONG, history=TOOL, rejected=[CLAIM])
    told = receipt.content["examined"]["rejected"]
    assert [receipt.text(one["leaf"]) for one in told] == [CLAIM.text]
    assert verify(write(receipt)).ok
    again = replay(receipt)
    assert (again.same, again.whole) == (True, True), again.parts
    kinds = [f["kind"] for c in receipt.content["report"]["claims"] for f in c["findings"]]
    assert "rejected" in kinds


@pytest.mark.parametrize("rejected", [[CLAIM], []])
def test_it_replays_with_a_judge(rejected: list[RejectedClaim]) -> None:
    receipt, _, _ = judged(rejected=rejected)
    again = replay(receipt)
    assert (again.same, again.whole) == (True, True), again.parts


def test_no_text_of_a_claim_stands_in_what_is_signed() -> None:
    receipt = asked("How much power is it?", WRONG, history=TOOL, rejected=[CLAIM])
    payload = receipt.signed.payload.decode()
    for words in (CLAIM.text, CLAIM.said, CLAIM.reason):
        assert words not in payload
