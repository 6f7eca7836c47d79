"""A conversation in the OpenAI shape as a question with its system prompt and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crp_integrations.errors import RequestError
from crp_integrations.messages import Message
from crp_integrations.relay.records import message_of


@dataclass(frozen=True, slots=True)
class ConversationQuestion:
    """A conversation as a question.

    Attributes:
        system: the system messages joined by an empty line.
        history: all other messages in order.
        results: how many messages at the history's end follow the question: tool calls with what
            the tools answered.
    """

    question: str
    system: str
    history: tuple[Message, ...]
    results: int = 0


def question_of(messages: Sequence[Mapping[str, Any]]) -> ConversationQuestion:
    """The question, the system prompt and the history of a conversation."""
    if not isinstance(messages, Sequence):
        raise RequestError(f"messages is {type(messages).__name__}, wanted a list of messages")
    read = [message_of(message) for message in messages]
    last = read[-1].role if read else ""
    places = [place for place, one in enumerate(read) if one.role == "user"]
    if last not in ("user", "tool") or not places:
        raise RequestError(
            "the last message must be the user's question, or a tool's result after it"
        )
    system = "\n\n".join(one.content for one in read if one.role == "system" and one.content)
    before = [one for one in read[: places[-1]] if one.role != "system"]
    after = [one for one in read[places[-1] + 1 :] if one.role != "system"]
    return ConversationQuestion(read[places[-1]].content, system, (*before, *after), len(after))
