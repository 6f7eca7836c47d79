"""Frames around messages and tools: never fewer tokens than the known renderings have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import counter_for
from crp_integrations.engines.tokens.chat_formats import (
    CHATML,
    HARMONY,
    LLAMA,
    ChatFormat,
    as_typescript,
    messages_tokens,
    tools_tokens,
)
from crp_integrations.engines.tokens.counters import CounterBase
from crp_integrations.messages import Message, ToolCall
from tests.laws.samples import NASTY, SAMPLES

Json = dict[str, Any]
STRING: Json = {"type": "string"}


def tool(name: str, about: str = "", required: Sequence[str] = (), **fields: Json) -> Json:
    parameters: Json = {"type": "object", "properties": fields}
    if required:
        parameters["required"] = list(required)
    described = {"description": about} if about else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": parameters}}


def talk(*said: tuple[str, str]) -> list[Message]:
    return [Message.model_validate({"role": role, "content": text}) for role, text in said]


WEATHER = tool(
    "get_current_weather",
    "Get the current weather in a given location",
    ["location"],
    location={**STRING, "description": "The city and state, e.g. San Francisco, CA"},
    unit={
        **STRING,
        "description": "The unit of temperature to return",
        "enum": ["celsius", "fahrenheit"],
    },
)
ASKING = talk(
    ("system", "You are a helpful assistant that can answer to questions about the weather."),
    ("user", "What's the weather like in San Francisco?"),
)
INGREDIENTS: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "unit", "amount"],
        "properties": {
            "name": STRING,
            "unit": {"enum": ["grams", "ml", "cups", "pieces", "teaspoons"], **STRING},
            "amount": {"type": "number"},
        },
    },
}
CHOICE: Json = {
    "type": "object",
    "properties": {"bar": {**STRING, "enum": ["a", "b", "c"]}, "baz": {"type": "boolean"}},
}


# What the API reported for gpt-3.5-turbo: published with the open-source counters that were made
# by trying, and, last, in OpenAI's own cookbook.
@pytest.mark.parametrize(
    ("said", "tools", "reported"),
    [
        (talk(("user", "hello")), [], 8),
        (talk(("user", "hello world")), [], 9),
        (talk(("system", "hello:")), [], 9),
        (
            talk(
                ("system", "# Important: you're the best robot"),
                ("user", "hello robot"),
                ("assistant", "hello world"),
            ),
            [],
            27,
        ),
        (talk(("user", "hello")), [tool("foo")], 31),
        (talk(("user", "hello")), [tool("foo", "Do a foo")], 36),
        (talk(("user", "hello")), [tool("bing_bong", "Do a bing bong", foo=STRING)], 49),
        (
            talk(("user", "hello")),
            [
                tool(
                    "bing_bong",
                    "Do a bing bong",
                    foo=STRING,
                    bar={"type": "number", "description": "A number"},
                )
            ],
            57,
        ),
        (talk(("user", "hello")), [tool("bing_bong", "Do a bing bong", foo=CHOICE)], 68),
        (
            talk(("user", "hello")),
            [
                tool(
                    "get_recipe",
                    "",
                    ["ingredients", "instructions", "time_to_cook"],
                    ingredients=INGREDIENTS,
                    instructions={
                        "type": "array",
                        "items": STRING,
                        "description": "Steps to prepare the recipe (no numbering)",
                    },
                    time_to_cook={
                        "type": "number",
                        "description": "Total time to prepare the recipe in minutes",
                    },
                )
            ],
            106,
        ),
        (talk(("system", "Hello"), ("user", "Hi there")), [tool("do_stuff")], 35),
        (
            talk(("system", "Hello:"), ("system", "Hello"), ("user", "Hi there")),
            [tool("do_stuff")],
            40,
        ),
        (ASKING, [WEATHER], 105),
    ],
)
def test_openai_requests_count_as_the_api_reported(
    said: list[Message], tools: list[Json], reported: int
) -> None:
    counter = counter_for("gpt-3.5-turbo")
    counted = counter.count_messages(said) + counter.count_tools(tools)
    # Beside a system message the API takes four off, which is left in.
    assert reported <= counted <= reported + (4 if said[0].role == "system" and tools else 0)


def test_every_word_of_a_definition_is_counted_under_every_format() -> None:
    names = ("gpt-4o", "gpt-oss-20b", "claude-2", "claude-3-opus", "deepseek-chat", "gemini-pro")
    for model in (
        *names,
        "mistral-large-2411",
        "llama-3",
        "qwen2.5-7b",
        "unheard-of",
        "extractive",
    ):
        counter = counter_for(model)
        assert isinstance(counter, CounterBase)
        text = counter.chat.definitions([WEATHER])
        for word in ("get_current_weather", "given location", "San Francisco", "fahrenheit"):
            assert word in text
        assert counter.count_tools([WEATHER]) >= counter.count(text)


# --- against renderings ------------------------------------------------------------------------

CALL = ToolCall(id="abcdefghi", name="get_current_weather", arguments='{"location":"Bern"}')
RESULT = Message(
    role="tool",
    tool_call_id="abcdefghi",
    name="get_current_weather",
    content='{"t":21,"note":"klar,\\n„schön“"}',
)
TALK = [
    *talk(
        ("system", "You are terse.\nAnswer in German."),
        ("user", "Hello\n\nworld"),
        ("assistant", "Hallo."),
        ("user", "Wie ist das Wetter in Bern?"),
    ),
]
WITH_CALL = [*TALK, Message(role="assistant", tool_calls=(CALL,)), RESULT]

Count = Callable[[str], int]


def parts(count: Count, *written: str) -> int:
    """Tokens of a rendering: each `<|marker|>` is one, what stands between is encoded."""
    pieces = re.split(r"<\|\w+\|>", "".join(written))
    return len(pieces) - 1 + sum(count(piece) for piece in pieces)


def chatml(said: Sequence[Message], tools: Sequence[Json]) -> str:
    """Qwen2.5's template as published with its weights (Apache 2.0)."""
    first = (
        said[0].content
        if said[0].role == "system"
        else ("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
    )
    if tools:
        first += (
            "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
        )
        first += "".join("\n" + json.dumps(one, ensure_ascii=False) for one in tools)
        first += (
            "\n</tools>\n\nFor each function call, return a json object with function name and "
            'arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": '
            '<function-name>, "arguments": <args-json-object>}\n</tool_call>'
        )
    out = f"<|im_start|>system\n{first}<|im_end|>\n"
    for one in said:
        if one.role == "tool":
            out += f"<|im_start|>user\n<tool_response>\n{one.content}\n</tool_response><|im_end|>\n"
        elif one.tool_calls:
            out += "<|im_start|>assistant"
            for call in one.tool_calls:
                asked = {"name": call.name, "arguments": json.loads(call.arguments)}
                out += f"\n<tool_call>\n{json.dumps(asked, ensure_ascii=False)}\n</tool_call>"
            out += "<|im_end|>\n"
        elif one.role != "system":
            out += f"<|im_start|>{one.role}\n{one.content}<|im_end|>\n"
    return out + "<|im_start|>assistant\n"


def llama(said: Sequence[Message], tools: Sequence[Json]) -> str:
    """Llama 3.1's template: dates in the system message, tools before the first question."""

    def turn(role: str, text: str) -> str:
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"

    system = said[0].content if said[0].role == "system" else ""
    ground = "Environment: ipython\n" if tools else ""
    ground += "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    out = "<|begin_of_text|>" + turn("system", ground + system)
    ahead = (
        "Given the following functions, please respond with a JSON for a function call with its "
        'proper arguments that best answers the given prompt.\n\nRespond in the format {"name": '
        'function name, "parameters": dictionary of argument name and its value}.Do not use '
        "variables.\n\n"
    )
    ahead += "".join(json.dumps(one, ensure_ascii=False, indent=4) + "\n\n" for one in tools)
    pending = ahead if tools else ""
    for one in said:
        if one.role == "tool":
            out += turn("ipython", json.dumps(one.content, ensure_ascii=False))
        elif one.tool_calls:
            (call,) = one.tool_calls
            asked = f'{{"name": "{call.name}", "parameters": {call.arguments}}}'
            out += turn("assistant", asked)
        elif one.role == "user":
            out += turn("user", pending + one.content)
            pending = ""
        elif one.role == "assistant":
            out += turn("assistant", one.content)
    return out + "<|start_header_id|>assistant<|end_header_id|>\n\n"


def harmony(said: Sequence[Message], tools: Sequence[Json]) -> str:
    """OpenAI's harmony format as its guide shows it."""
    out = f"<|start|>system<|message|>{HARMONY.opening}<|end|>"
    told = "".join(f"# Instructions\n\n{one.content}\n\n" for one in said if one.role == "system")
    if tools:
        told += f"# Tools\n\n## functions\n\n{as_typescript(tools)}"
    if told:
        out += f"<|start|>developer<|message|>{told}<|end|>"
    for one in said:
        if one.role == "tool":
            named = f"functions.{one.name} to=assistant"
            out += f"<|start|>{named}<|channel|>commentary<|message|>{one.content}<|end|>"
        elif one.tool_calls:
            (call,) = one.tool_calls
            out += (
                f"<|start|>assistant<|channel|>commentary to=functions.{call.name} "
                f"<|constrain|>json<|message|>{call.arguments}<|call|>"
            )
        elif one.role == "assistant":
            out += f"<|start|>assistant<|channel|>final<|message|>{one.content}<|end|>"
        elif one.role == "user":
            out += f"<|start|>user<|message|>{one.content}<|end|>"
    return out + "<|start|>assistant"


CONVERSATIONS = [
    pytest.param(talk(("user", "x")), [], id="one-word"),
    pytest.param(talk(("user", "x")), [WEATHER], id="one-word-tools"),
    pytest.param(TALK, [], id="talk"),
    pytest.param(TALK, [WEATHER, tool("do_stuff")], id="talk-tools"),
    pytest.param(WITH_CALL, [WEATHER], id="call"),
]


@pytest.mark.parametrize(("said", "tools"), CONVERSATIONS)
@pytest.mark.parametrize(
    ("chat", "template"), [(CHATML, chatml), (LLAMA, llama), (HARMONY, harmony)], ids=lambda x: ""
)
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4", "mistral-large-2411"])
def test_templates_are_never_counted_too_low(
    said: list[Message],
    tools: list[Json],
    chat: ChatFormat,
    template: Callable[[Sequence[Message], Sequence[Json]], str],
    model: str,
) -> None:
    count = counter_for(model).count
    counted = messages_tokens(said, count, chat) + tools_tokens(tools, count, chat)
    rendered = parts(count, template(said, tools))
    # High enough, and not so high that a short request would lose its room.
    assert rendered <= counted <= 1.35 * rendered + 130


CONTENT = st.one_of(
    st.sampled_from([*SAMPLES, *NASTY]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<|"), max_size=40),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), CONTENT), min_size=1, max_size=5))
def test_templates_with_any_text(said: list[tuple[str, str]]) -> None:
    count = counter_for("gpt-4o").count
    messages = talk(*[(role, text.replace("<|", "")) for role, text in said])
    for chat, template in ((CHATML, chatml), (LLAMA, llama), (HARMONY, harmony)):
        counted = messages_tokens(messages, count, chat)
        assert parts(count, template(messages, [])) <= counted


def openai_shape(message: Message) -> Json:
    said: Json = {"role": message.role, "content": message.content}
    if message.tool_calls:
        said["content"] = None
        said["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    if message.role == "tool":
        said |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return said


def mistral_library(model: str) -> Any:
    pytest.importorskip("mistral_common")
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    return {
        "mistral-medium-2312": MistralTokenizer.v1,
        "mistral-small-2402": MistralTokenizer.v2,
        "mistral-large-2407": MistralTokenizer.v3,
        "mistral-large-2411": MistralTokenizer.v7,
        "open-mistral-nemo": lambda: MistralTokenizer.v3(is_tekken=True),
    }[model]()


@pytest.mark.requirement("003-10.1-2")
@pytest.mark.parametrize(
    "model",
    [
        "mistral-medium-2312",
        "mistral-small-2402",
        "mistral-large-2407",
        "mistral-large-2411",
        "open-mistral-nemo",
    ],
)
def test_mistral_requests_are_never_counted_too_low(model: str) -> None:
    library = mistral_library(model)
    from mistral_common.protocol.instruct.request import ChatCompletionRequest

    counter = counter_for(f"mistral/{model}")
    # The first format knows no tools.
    asked = (
        CONVERSATIONS if model != "mistral-medium-2312" else [CONVERSATIONS[0], CONVERSATIONS[2]]
    )
    for said, tools in (case.values for case in asked):
        assert isinstance(said, list) and isinstance(tools, list)
        request = ChatCompletionRequest(
            messages=[openai_shape(message) for message in said], tools=tools or None
        )
        encoded = len(library.encode_chat_completion(request).tokens)
        counted = counter.count_messages(said) + counter.count_tools(tools)
        assert encoded <= counted <= 1.35 * encoded + 40
    for text in (*SAMPLES, *NASTY):
        if text.strip():
            request = ChatCompletionRequest(messages=[{"role": "user", "content": text}])
            encoded = len(library.encode_chat_completion(request).tokens)
            assert encoded <= counter.count_messages(talk(("user", text)))
