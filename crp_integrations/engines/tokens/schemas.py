"""Tool definitions, calls and results as texts, in the forms that providers put into a prompt.

Nothing here is sent anywhere: the texts are only counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.messages import Message, ToolCall

Tools = Sequence[Mapping[str, Any]]


def dumped(value: object, indent: int | None = None) -> str:
    """JSON with every character as itself, as chat templates write it."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def as_typescript(tools: Tools) -> str:
    """Tool definitions as the TypeScript namespace that OpenAI's models are shown.

    The form is not documented; it was found by comparing with the counts that the API reports.
    What it has no words for stands in it as JSON.
    """
    lines = ["namespace functions {", ""]
    for tool in tools:
        function = _function(tool)
        if not isinstance(function.get("name"), str):
            lines += [dumped(tool), ""]
            continue
        if function.get("description"):
            lines.append(f"// {function['description']}")
        fields = _fields(function.get("parameters"), 0)
        opening = f"type {function['name']} = ("
        lines += [opening + "_: {", *fields, "}) => any;"] if fields else [opening + ") => any;"]
        lines.append("")
    return "\n".join([*lines, "} // namespace functions"])


def as_json_list(tools: Tools) -> str:
    """All definitions as one JSON array."""
    return dumped([{"type": "function", "function": _function(tool)} for tool in tools])


def as_json_lines(tools: Tools) -> str:
    """One definition a line."""
    return "\n".join(dumped({"type": "function", "function": _function(tool)}) for tool in tools)


def as_indented_json(tools: Tools) -> str:
    """One indented definition after the other, the longest form in common use."""
    return "\n\n".join(
        dumped({"type": "function", "function": _function(tool)}, indent=4) for tool in tools
    )


def call_texts(call: ToolCall) -> tuple[str, ...]:
    """A tool call in the forms that chat formats write; the dearest one is counted."""
    arguments = _parsed(call.arguments)
    return (
        f"{call.name} {call.arguments} {call.id}",
        dumped([{"name": call.name, "arguments": arguments, "id": call.id}]),
        dumped({"name": call.name, "arguments": call.arguments}),
    )


def result_texts(message: Message) -> tuple[str, ...]:
    """A tool's result likewise: as it is, or as a JSON value beside its name and call."""
    whole = {"name": message.name, "content": message.content, "call_id": message.tool_call_id}
    return (
        f"{message.tool_call_id or ''} {message.content}",
        dumped([whole]),
        dumped([{**whole, "content": _parsed(message.content)}]),
    )


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _fields(schema: Any, indent: int) -> list[str]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return []
    required = schema.get("required") or ()
    lines: list[str] = []
    for name, given in properties.items():
        about = given if isinstance(given, Mapping) else {}
        if about.get("description"):
            lines.append(f"// {about['description']}")
        if "default" in about:
            lines.append(f"// default: {dumped(about['default'])}")
        mark = "" if name in required else "?"
        lines.append(f"{name}{mark}: {_type(given, indent)},")
    # Of a description with several lines only the first is indented.
    return [" " * indent + line for line in lines]


def _type(schema: Any, indent: int) -> str:
    if not isinstance(schema, Mapping):
        return dumped(schema)
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            return " | ".join(_type(choice, indent) for choice in schema[union])
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list):
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if kind == "array":
        return f"{_type(schema['items'], indent)}[]" if "items" in schema else "any[]"
    if kind == "object" and schema.get("properties"):
        return "\n".join(["{", *_fields(schema, indent + 2), "}"])
    if kind in ("string", "boolean", "null", "object"):
        return str(kind)
    if kind in ("integer", "number"):
        return "number"
    return dumped(schema)
