"""Receipts of judged answers: a judge whose reply is made of what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from crp_integrations.errors import ModelError, SafetyHalt
from crp_integrations.messages import ModelCall, Reply, Usage
from crp_integrations.receipt.records import Receipt
from tests.receipt.relayed import MODEL, QUESTION, SESSION, opened, receipt_of

Say = Callable[[dict[str, Any]], str]


class Judge:
    """A judge; it keeps what it was asked."""

    model = "any/judge"

    def __init__(self, *says: Say) -> None:
        self.says = list(says)
        self.asked: list[dict[str, Any]] = []

    def call(self, call: ModelCall) -> Reply:
        self.asked.append(json.loads(call.messages[1].content))
        say = self.says[min(len(self.asked), len(self.says)) - 1]
        usage = Usage(prompt_tokens=400, completion_tokens=90, cost_usd=0.0001234567)
        return Reply(text=say(self.asked[-1]), model="any/judge-2026", usage=usage)

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


def place_of(asked: dict[str, Any], words: str) -> str:
    """The number of the passage that has some words."""
    return next(number for number, text in asked["passages"] if words in text)


def right(asked: dict[str, Any]) -> str:
    """What a judge replies who reads well."""
    return json.dumps(
        {
            "id": asked["id"],
            "claims": [
                {
                    "n": 1,
                    "status": "SUPPORTED",
                    "quotes": [
                        {
                            "in": place_of(asked, "4 March 2019"),
                            "text": "commissioned on 4 march 2019",
                        }
                    ],
                },
                {
                    "n": 2,
                    "status": "CONTRADICTED",
                    "kind": "NUMBER",
                    "wrong": "512 megawatts",
                    "quotes": [{"in": place_of(asked, "412"), "text": "412 megawatts"}],
                    "reason": "It is 412.",
                },
                {"n": 3, "status": "UNSUPPORTED", "kind": "INVENTION", "wrong": "$97 million"},
            ],
            "unnumbered": [],
        }
    )


def lenient(asked: dict[str, Any]) -> str:
    """What a judge replies who finds nothing: in a fence, behind its thoughts."""
    reply = json.loads(right(asked))
    reply["claims"][1:] = [
        {"n": n, "status": "SUPPORTED", "quotes": reply["claims"][0]["quotes"]} for n in (2, 3)
    ]
    return f"<think>{{hm}}</think>Sure:\n```json\n{json.dumps(reply)}\n```"


def misquoting(asked: dict[str, Any]) -> str:
    """What a judge replies who makes up the words that it rests on."""
    return right(asked).replace("412 megawatts", "4 megawatts")


def nonsense(asked: dict[str, Any]) -> str:
    """What a judge replies who does not do as he is told."""
    return "I would rather not judge."


def failing(asked: dict[str, Any]) -> str:
    """A provider that cannot be reached."""
    raise ModelError("no connection")


def judged(*says: Say, **asking: Any) -> tuple[Receipt, Judge, Any]:
    """The receipt of one judged answer, its judge, and the answer or the error in its place."""
    judge = Judge(*(says or (right,)))
    given = {"model": judge, **asking.pop("fields", {})}
    options = {"judge": given, **asking.pop("options", {})}
    relay, _ = opened(*asking.pop("script", ()), **asking.pop("opening", {}))
    relay.fabric.add(list(asking.pop("facts", ())))
    asking = {"model": MODEL, "session_id": SESSION, **asking}
    answer: Any
    try:
        answer = relay.ask(asking.pop("question", QUESTION), **asking, **options)
    except SafetyHalt as error:
        # A window that was withheld has a receipt too.
        answer = error
    return receipt_of(relay, relay.receipts().ids()[-1]), judge, answer
