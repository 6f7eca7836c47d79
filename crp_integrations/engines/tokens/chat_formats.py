"""Chat formats of model families and token counts with them; each number has its source.

If several versions of a format are in use, the numbers are those with the most tokens. A number
that is not published is marked as a cautious guess. The texts here are counted and never sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from crp_integrations.messages import Message, ToolCall

Tools = Sequence[Mapping[str, Any]]


def dumped(value: object, indent: int | None = None) -> str:
    """JSON without escaping to ASCII, as chat templates write it."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def as_typescript(tools: Tools) -> str:
    """Tool definitions as the TypeScript namespace that OpenAI sends to its models.

    The format is not documented; it was found by comparing with the counts that the API reports.
    Schemas that it cannot express are written as JSON.
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
    """One JSON definition per line."""
    return "\n".join(dumped({"type": "function", "function": _function(tool)}) for tool in tools)


def as_indented_json(tools: Tools) -> str:
    """One indented JSON definition after the other, the longest format in common use."""
    return "\n\n".join(
        dumped({"type": "function", "function": _function(tool)}, indent=4) for tool in tools
    )


def call_texts(call: ToolCall) -> tuple[str, ...]:
    """A tool call as different chat formats write it; the one with most tokens is counted."""
    arguments = _parsed(call.arguments)
    return (
        f"{call.name} {call.arguments} {call.id}",
        dumped([{"name": call.name, "arguments": arguments, "id": call.id}]),
        dumped({"name": call.name, "arguments": call.arguments}),
    )


def result_texts(message: Message) -> tuple[str, ...]:
    """A tool's result as different chat formats write it: plain, or as JSON with name and call."""
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
    for name, property_schema in properties.items():
        about = property_schema if isinstance(property_schema, Mapping) else {}
        if about.get("description"):
            lines.append(f"// {about['description']}")
        if "default" in about:
            lines.append(f"// default: {dumped(about['default'])}")
        mark = "" if name in required else "?"
        lines.append(f"{name}{mark}: {_type(property_schema, indent)},")
    # If a description has several lines, only the first is indented.
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


Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The tokens that a family of models gets in addition to the texts.

    Attributes:
        name: name of the format.
        message: tokens around each message, besides its role and content.
        field: tokens of a message's name field, besides the name.
        call: tokens around each tool call.
        result: tokens around each tool's result, besides those of every message.
        reply: tokens that open the conversation and the answer, once.
        opening: a text that the provider puts before the conversation, once.
        definitions: function that writes tool definitions as the family gets them.
        tools: tokens around all definitions, once: the text that explains how to call a tool.
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


# Messages and names: OpenAI's cookbook, "How to count tokens with tiktoken", chat models since
# gpt-3.5-turbo-0613. Tools: with 9 tokens around the namespace the counts equal all known counts
# of the API (they are in the tests). Calls and results: not published; 3 tokens were observed.
OPENAI: Final = ChatFormat(
    "OpenAI", message=3, field=1, call=8, result=4, reply=3, tools=9, definitions=as_typescript
)

# OpenAI's harmony format, which open-weight servers render. Each message has three markers, an
# answer also its channel; a call or result names channel, recipient and content type. The format's
# system message is fixed; the caller's is put under a separate heading.
HARMONY: Final = ChatFormat(
    "harmony",
    message=6,
    field=2,
    call=16,
    result=12,
    reply=12,
    tools=40,
    definitions=as_typescript,
    opening=(
        "You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-31\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every "
        "message.\nCalls to these tools must go to the commentary channel: 'functions'."
    ),
)

# From mistral-common's own encoders v1 to v7, with which tests compare. v1 writes its markers
# as text: [INST] and [/INST] take nine tokens there, and two from v2 on.
MISTRAL_V1: Final = ChatFormat(
    "Mistral v1", message=12, field=1, call=4, result=4, reply=1, tools=4, definitions=as_json_list
)
MISTRAL: Final = ChatFormat(
    "Mistral", message=5, field=1, call=4, result=4, reply=1, tools=4, definitions=as_json_list
)

# Meta's `llama_models` ChatFormat: two header markers, an empty line and an end marker; the
# answer's header is left open. The template of Llama 3.1 adds dates to the system message, or
# creates one, and about 70 tokens of text around indented definitions.
LLAMA: Final = ChatFormat(
    "Llama 3", message=5, field=1, call=4, result=2, reply=12, tools=100,
    definitions=as_indented_json,
    opening="Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024",
)  # fmt: skip

# Qwen's template (ChatML): two markers, two line ends; a system message of 20 tokens if none
# is given; about 110 tokens of text around the definitions in Qwen2.5 and Qwen3, and 196 in
# Qwen3.5 according to LiteLLM's table.
CHATML: Final = ChatFormat(
    "Qwen", message=5, field=2, call=12, result=12, reply=30, tools=200, definitions=as_json_lines
)

# DeepSeek's template has one marker per message and an end marker; 222 tokens around the
# definitions according to LiteLLM's table.
DEEPSEEK_CHAT: Final = ChatFormat(
    "DeepSeek", message=3, field=2, call=12, result=8, reply=4, tools=225, definitions=as_json_lines
)

# Claude 2 gets "\n\nHuman:" and "\n\nAssistant:" as text. Its number for tools was never
# published; this is that of Claude 3 Opus.
CLAUDE_TEXT: Final = ChatFormat(
    "Claude 2", message=8, field=2, call=40, result=40, reply=8, tools=530,
    definitions=as_indented_json,
)  # fmt: skip

# Anthropic's page on tool use gives 159 to 530 tokens for its system prompt, by model; the rest
# of the format is not published, so it is a guess.
CLAUDE: Final = replace(CLAUDE_TEXT, name="Claude")

# Unpublished formats get the highest numbers of the published ones.
GENERIC: Final = ChatFormat(
    "unpublished", message=5, field=2, call=16, result=12, reply=12, tools=225,
    definitions=as_indented_json,
)  # fmt: skip
