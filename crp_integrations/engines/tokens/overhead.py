"""The chat format around a conversation, and the arithmetic that all counters share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crp_integrations.engines.tokens.schemas import Tools, call_texts, result_texts
from crp_integrations.messages import Message

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What a family of models is sent besides the texts. Numbers are tokens.

    Attributes:
        name: what the format is called.
        message: around each message, besides its role and content.
        field: of a message's name field, besides the name.
        call: around each tool call.
        result: around each tool's result, besides what every message has.
        reply: what opens the conversation and the answer, once.
        opening: a text that the provider puts before the conversation, once.
        definitions: tool definitions as the family sends them.
        tools: around all definitions, once: the words that explain how to call a tool.
    """

    name: str
    message: int
    field: int
    call: int
    result: int
    reply: int
    tools: int
    definitions: Callable[[Tools], str]
    opening: str = ""


def messages_tokens(messages: Sequence[Message], count: Count, chat: ChatFormat) -> int:
    """Tokens of a conversation: roles, contents, names, tool calls and the format around them.

    Spec: CRP-SPEC-003 §10.1
    """
    total = chat.reply + count(chat.opening)
    for message in messages:
        total += chat.message + count(message.role)
        if message.role == "tool":
            total += chat.result + max(count(text) for text in result_texts(message))
        else:
            total += count(message.content)
        if message.name is not None:
            total += chat.field + count(message.name)
        for call in message.tool_calls:
            total += chat.call + max(count(text) for text in call_texts(call))
    return total


def tools_tokens(tools: Tools, count: Count, chat: ChatFormat) -> int:
    """Tokens that tool definitions add to a request; 0 without any.

    Spec: CRP-SPEC-003 §10.1
    """
    return chat.tools + count(chat.definitions(tools)) if tools else 0
