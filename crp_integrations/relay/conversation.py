"""Messages as callers have them: our own, or in the OpenAI shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from crp_integrations.errors import RequestError
from crp_integrations.messages import Message, ToolCall


def conversation_of(messages: Iterable[object]) -> list[Message]:
    """The messages that a caller has, in the shape of this package or of OpenAI.

    Raises:
        RequestError: one of them is none, or one stands in the place of a list.
    """
    # A mapping would be gone through by its keys, and a message by its fields.
    if isinstance(messages, (Message, str, Mapping)) or not isinstance(messages, Iterable):
        raise RequestError(f"messages is of type {type(messages).__name__}, wanted a list of them")
    return [message_of(message) for message in messages]


def message_of(given: object) -> Message:
    """A message of this package, or one in the OpenAI shape.

    Raises:
        RequestError: it is no message, has another role, or holds something other than text.
    """
    if isinstance(given, Message):
        return given
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
