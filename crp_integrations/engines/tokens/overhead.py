"""Tokens that a chat format adds around messages, and the arithmetic that all counters share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crp_integrations.messages import Message


@dataclass(frozen=True, slots=True)
class Overhead:
    """Tokens of a chat format besides the texts.

    Attributes:
        message: tokens around each message.
        name: tokens of a message's name field, besides the name.
        tool_call: tokens around each tool call.
        reply: tokens that open the answer, once.
    """

    message: int
    name: int
    tool_call: int
    reply: int


# As OpenAI's cookbook counts chat models since gpt-3.5-turbo-0613; tool calls are not
# published, so theirs is a cautious guess.
OPENAI = Overhead(message=3, name=1, tool_call=8, reply=3)

# Other formats use between one marker and five a message; unpublished ones get the most.
GENERIC = Overhead(message=5, name=1, tool_call=8, reply=5)


def messages_tokens(
    messages: Sequence[Message], count: Callable[[str], int], overhead: Overhead
) -> int:
    """Tokens of a conversation: roles, contents, names, tool calls and the format around them."""
    total = overhead.reply
    for message in messages:
        total += overhead.message + count(message.role) + count(message.content)
        if message.name is not None:
            total += overhead.name + count(message.name)
        for call in message.tool_calls:
            total += overhead.tool_call + count(call.name) + count(call.arguments)
    return total
