"""LangChain's `trim_messages`, and clearing of old results as `ClearToolUsesEdit` does it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)

from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter

NAME = f"LangChain trim_messages, last (core {version('langchain-core')})"


def trimmed(messages: Sequence[Message], budget: int, counter: TokenCounter) -> list[str]:
    """Contents that are left when the last messages are kept, from a turn's begin on."""
    own = {f"m{number}": message for number, message in enumerate(messages)}
    given = [theirs(message, name) for name, message in own.items()]

    def count(some: list[BaseMessage]) -> int:
        return counter.count_messages([own[one.id or ""] for one in some])

    left: Any = trim_messages(
        given,
        max_tokens=budget,
        token_counter=count,
        strategy="last",
        start_on=("human", "ai"),
        include_system=True,
    )
    return [own[one.id].content for one in left]


def theirs(message: Message, name: str) -> BaseMessage:
    """A message as LangChain's, under an id."""
    if message.role == "system":
        return SystemMessage(message.content, id=name)
    if message.role == "user":
        return HumanMessage(message.content, id=name)
    if message.role == "tool":
        return ToolMessage(message.content, tool_call_id=message.tool_call_id or "", id=name)
    calls: list[Any] = [{"name": c.name, "args": {}, "id": c.id} for c in message.tool_calls]
    return AIMessage(message.content, tool_calls=calls, id=name)
