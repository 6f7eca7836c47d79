"""Messages in the OpenAI shape turned into a question, and an answer turned into its proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.engines.litellm import message_json
from crp_integrations.errors import RequestError
from crp_integrations.messages import Message, ToolCall
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
    read = [_message(message) for message in messages]
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


def _message(given: object) -> Message:
    message = given
    if not isinstance(message, Mapping) and hasattr(message, "model_dump"):
        message = message.model_dump()  # what LiteLLM or the OpenAI client answered with
    if not isinstance(message, Mapping):
        raise RequestError(f"a message is a {type(given).__name__}; give a dict with a role")
    role = message.get("role")
    if role == "developer":
        role = "system"
    if role not in ("system", "user", "assistant", "tool"):
        raise RequestError(f"role {role!r:.40} is not one of system, user, assistant, tool")
    calls = tuple(_call(call) for call in message.get("tool_calls") or ())
    return Message(
        role=role,
        content=_text(message.get("content")),
        name=message.get("name"),
        tool_calls=calls,
        tool_call_id=message.get("tool_call_id"),
    )


def _call(call: object) -> ToolCall:
    if hasattr(call, "model_dump"):
        call = call.model_dump()
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise RequestError("a tool call names no function; give id and function")
    if not isinstance(function.get("name"), str):
        raise RequestError("a tool call names no function; give id and function")
    return ToolCall(
        id=call.get("id") or "",
        name=function["name"],
        arguments=function.get("arguments") or "{}",
    )


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else [content]
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise RequestError("a message holds something other than text; give text alone")
    return "".join(str(part["text"]) for part in parts if isinstance(part, Mapping))
