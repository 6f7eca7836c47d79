"""Messages in the OpenAI shape turned into a question, and an answer turned into its proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.engines.litellm import message_json
from crp_integrations.errors import RequestError
from crp_integrations.messages import Message
from crp_integrations.relay.conversation import message_of
from crp_integrations.relay.records import Answer


def asked(messages: Sequence[Mapping[str, Any]]) -> tuple[str, str, tuple[Message, ...]]:
    """The question, the system prompt and the history of a conversation.

    Args:
        messages: OpenAI shape; the last one is the user's question.

    Returns:
        Question; the system messages joined by an empty line; all other messages in order.

    Raises:
        RequestError: the last message is not the user's, or a content is not text.
    """
    read = [message_of(message) for message in messages]
    if not read or read[-1].role != "user":
        raise RequestError("the last message must be the user's question")
    system = "\n\n".join(one.content for one in read if one.role == "system" and one.content)
    return read[-1].content, system, tuple(one for one in read[:-1] if one.role != "system")


def sent(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in the OpenAI shape."""
    return [message_json(message) for message in messages]


def proof(answer: Answer) -> dict[str, Any]:
    """What a response carries beside LiteLLM's own fields, as plain JSON.

    Returns:
        `crp`, the report; `crp_envelope`, what the model saw; `crp_headers`, by name.
    """
    return {
        "crp": answer.report.model_dump(mode="json"),
        "crp_envelope": answer.envelope.model_dump(mode="json"),
        "crp_headers": dict(answer.headers),
    }
