"""What a receipt says was sent, to be laid beside what arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL
from crp_integrations.receipt.verify import verify

Sent = list[tuple[str, str]]


def told(receipt: Receipt) -> list[Sent]:
    """The messages of each call, whole: what a later one repeats of the first stands there once."""
    found: list[Sent] = []
    for call in receipt.content["calls"]:
        own = [(one["role"], receipt.text(one["leaf"]) or "") for one in call["messages"]]
        found.append([*(found[0] if call["follows"] else ()), *own])
    return found


def arrived(messages: Sequence[Mapping[str, Any]]) -> Sent:
    """Messages of a body in the OpenAI shape."""
    return [(one["role"], one.get("content") or "") for one in messages]


def replays(receipt: Receipt) -> bool:
    """Whether a receipt verifies and everything of it replays, the prompt too, from its file."""
    data = write(receipt)
    found = replay(read(data))
    return verify(data).ok and found.whole and found.part("prompt").state == EQUAL
