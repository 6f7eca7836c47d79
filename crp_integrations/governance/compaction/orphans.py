"""Turns of a history: what stays or goes together, so that no call is left without its result."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.errors import RequestError
from crp_integrations.messages import Message


def turns(messages: Sequence[Message]) -> list[list[int]]:
    """The messages by turns: a call with all its results, or one message alone.

    Results belong to the call just before them, since some models use the same ids again. Only the
    last turn may wait for results.

    Raises:
        RequestError: a result has no call, a call no result, or two.
    """
    found: list[list[int]] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        turn = [place]
        place += 1
        if message.role == "tool":
            raise RequestError(
                f"message {turn[0]} is the result of call {message.tool_call_id!r:.60}, and the "
                "message before the results makes no such call; leave it out or give the call"
            )
        if message.tool_calls:
            while place < len(messages) and messages[place].role == "tool":
                turn.append(place)
                place += 1
            _check(messages, turn, last=place == len(messages))
        found.append(turn)
    return found


def _check(messages: Sequence[Message], turn: Sequence[int], *, last: bool) -> None:
    asked = [call.id for call in messages[turn[0]].tool_calls]
    if len(set(asked)) < len(asked):
        raise RequestError(f"message {turn[0]} makes two calls with one id; give each its own")
    answered: set[str] = set()
    for place in turn[1:]:
        name = messages[place].tool_call_id or ""
        if name not in asked:
            raise RequestError(
                f"message {place} is the result of call {name!r:.60}, and message {turn[0]} makes "
                "no such call; leave it out or give the call"
            )
        if name in answered:
            raise RequestError(f"call {name!r:.60} of message {turn[0]} has two results; give one")
        answered.add(name)
    waiting = [name for name in asked if name not in answered]
    if waiting and not last:
        raise RequestError(
            f"call {waiting[0]!r:.60} of message {turn[0]} has no result, and the history goes on; "
            "give it one, if only that it was given up"
        )
