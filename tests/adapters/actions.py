"""A judge of tool calls: a value is grounded if it stands in the conversation or an approval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crp_integrations import Relay
from crp_integrations.audit.records import Event
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.vocabulary import EventType
from tests.adapters.langchain_doubles import opened
from tests.relay.scripted_relays import session_events

ORDER = "Pay 40 euros to DE02120300000000202051."
RIGHT = {"iban": "DE02120300000000202051", "euros": 40}
WRONG = {"iban": "DE99999999999999999999", "euros": 40}


class ActionJudge:
    """Answers what it is asked about tool calls, and counts; other questions get no verdict.

    Attributes:
        evidence: for each action asked about, the texts that were shown for it.
    """

    model_name = "gpt-4o-mini"

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.evidence: list[str] = []

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        text = call.messages[-1].content
        if '"tool":' not in text:
            return Reply(text="{}", model=self.model_name)
        self.asked += 1
        if self.fails:
            raise RuntimeError("no answer")
        material = json.loads(text[text.index('{"id"') :])
        shown = [
            *(part for part in material["conversation"] if part[1] != "assistant"),
            *([name, "", text] for name, text in material.get("facts", ())),
            *([name, "", text] for name, text in material.get("approvals", ())),
        ]
        self.evidence.append("\n".join(part[2] for part in shown))
        verdicts = [
            _verdict(number, str(value), shown) for number, _, value, *_ in material["arguments"]
        ]
        runs = all(verdict["status"] == "GROUNDED" for verdict in verdicts)
        reply = {
            "id": material["id"],
            "arguments": verdicts,
            "missing": "",
            "run": runs,
            "reason": "",
        }
        return Reply(text=json.dumps(reply), model=self.model_name)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        return self.call(call)


def _verdict(number: int, value: str, shown: list[list[str]]) -> dict[str, Any]:
    name = next((part[0] for part in shown if value in part[2]), "")
    quotes = [{"in": name, "text": value}] if name else []
    status = "GROUNDED" if name else "UNGROUNDED"
    return {"n": number, "status": status, "quotes": quotes, "reason": "" if name else "invented"}


def checked_action(relay: Relay, session_id: str) -> Event:
    """The only event about a checked tool call in a session's trail."""
    events = session_events(relay, EventType.ACTION_CHECKED)
    (event,) = [event for event in events if event.session_id == session_id]
    return event


def in_region(folder: Path) -> Relay:
    """A relay with a region that contains a fact which the judge may not see."""
    relay = opened(regions={"eu": folder})
    relay.region("eu").put(
        [
            Fact(content=f"{ORDER} The account is of Northfield.", labels=("secret",)),
            Fact(content="Orders of 40 euros need no second signature."),
        ]
    )
    return relay


def assert_checked_in_region(
    relay: Relay, entries: list[dict[str, Any]], judge: ActionJudge
) -> None:
    """The only call was checked without the withheld fact, and its event is in the region."""
    assert session_events(relay, EventType.ACTION_CHECKED) == []
    (event,) = session_events(relay, EventType.ACTION_CHECKED, residency="eu")
    assert event.data["report_hash"] == entries[0]["report_hash"]
    assert "second signature" in judge.evidence[0]
    assert "Northfield" not in judge.evidence[0]
