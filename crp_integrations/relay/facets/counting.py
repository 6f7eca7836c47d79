"""Counting for callers: how many tokens, how surely, by which vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.errors import RequestError
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.relay.conversation import message_of
from crp_integrations.relay.records import TokenCount

Conversation = Sequence[Message | Mapping[str, Any]]


def counted(
    what: str | Conversation,
    counter: TokenCounter,
    tools: Sequence[Mapping[str, Any]] = (),
) -> TokenCount:
    """The tokens of a text or of a conversation, with what the count is worth.

    Spec: CRP-SPEC-003 §10.1 (decision E19)

    Args:
        what: a text, counted alone; or messages, counted with the format around them.
        tools: tool definitions in the OpenAI shape, sent beside the messages.

    Raises:
        RequestError: it is neither, or a message holds something other than text.
    """
    given: object = what
    if isinstance(given, str):
        texts, n = [given], counter.count(given)
    elif isinstance(given, Sequence):
        messages = [message_of(message) for message in given]
        texts = [message.content for message in messages]
        n = counter.count_messages(messages)
    else:
        raise RequestError(f"what is {type(given).__name__}, wanted a text or a list of messages")
    n += counter.count_tools(_definitions(tools))
    return TokenCount(
        n=n,
        exactness=counter.exactness,
        source=counter.source,
        overhead=max(0, n - sum(counter.count_many(texts))),
    )


def _definitions(tools: Sequence[object]) -> list[Mapping[str, Any]]:
    read = []
    for number, tool in enumerate(tools, start=1):
        if not isinstance(tool, Mapping):
            raise RequestError(f"tool {number} is {type(tool).__name__}, wanted a definition")
        read.append(tool)
    return read
