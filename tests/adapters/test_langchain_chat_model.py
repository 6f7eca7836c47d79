"""LangChain's own suites over the chat model, against a server on the loopback interface."""

from __future__ import annotations

import json
import re

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from crp_integrations.engines.litellm import LiteLLMModel
from crp_integrations.errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelNotFound,
    RequestError,
)
from crp_integrations.langchain import CRPChatModel, CRPMiddleware, CRPRunnable
from tests.adapters.langchain_doubles import FACTS, no_metadata, opened, reader
from tests.servers import OpenAIShape, openai_double

QUESTION = "How much power does the Meridian reactor deliver?"


class Mind(OpenAIShape):
    """Calls the tool that it is offered, fills in its arguments, and tells what a tool answered.

    What a reply says follows from its request alone, so that requests side by side do not mix.
    """

    def whole(self, double, seen):
        return super().whole(_Minded(double, self.calls(seen)), seen)

    def pieces(self, double, seen):
        return super().pieces(_Minded(double, self.calls(seen)), seen)

    def read(self, seen):
        seen.model = seen.body.get("model", "")
        return bool(seen.body.get("stream"))

    def whole_text(self, double, seen):
        """A JSON object where one is asked for."""
        wanted = (seen.body.get("response_format") or {}).get("type")
        if not wanted or wanted == "text":
            return double.answer(seen)
        schema = seen.body["response_format"].get("json_schema", {}).get("schema") or {}
        text = seen.body["messages"][-1]["content"]
        names = schema.get("properties") or {
            name: {} for name in ("setup", "punchline") if name in str(seen.body["messages"])
        }
        return json.dumps({name: value(name, one, text) for name, one in names.items()})

    def calls(self, seen):
        tools, choice = seen.body.get("tools") or [], seen.body.get("tool_choice")
        said = seen.body["messages"]
        if not tools or choice == "none" or said[-1]["role"] == "tool":
            return []
        functions = [one["function"] for one in tools]
        if isinstance(choice, dict):
            functions = [one for one in functions if one["name"] == choice["function"]["name"]]
        chosen = functions[0]
        parameters = chosen.get("parameters") or {}
        arguments = {
            name: value(name, one, said[-1]["content"])
            for name, one in (parameters.get("properties") or {}).items()
            if name in parameters.get("required", ())
        }
        function = {"name": chosen["name"], "arguments": json.dumps(arguments)}
        return [{"id": "call_1", "type": "function", "function": function}]


def value(name, schema, text):
    kind = schema.get("type") or next(
        (one.get("type") for one in schema.get("anyOf", ()) if one.get("type") != "null"), "string"
    )
    if "enum" in schema:
        return schema["enum"][0]
    if kind in ("integer", "number"):
        found = re.search(r"-?\d+", str(text))
        return int(found[0]) if found else 3
    foreign = re.search(r"[^\x00-\x7f]+", str(text))
    named = foreign[0] if foreign else f"a {name}"
    return {"boolean": True, "array": [], "object": {}}.get(kind, named)


class _Minded:
    """The server's double with the tool calls of one request."""

    def __init__(self, double, calls):
        self._double = double
        self.tool_calls = calls

    def answer(self, seen):
        return self._double.shape.whole_text(self._double, seen)

    def __getattr__(self, name):
        return getattr(self._double, name)


@pytest.fixture
def server():
    with openai_double(shape=Mind(), text="Hello there, the answer is 42.") as double:
        yield double


def model_at(double, **fields):
    return CRPChatModel(
        **{"model": "openai/gpt-4o-mini", "api_base": double.url, "api_key": "k", **fields}
    )


class TestUnitSuite(ChatModelUnitTests):
    """LangChain's unit tests of chat models."""

    @property
    def chat_model_class(self):
        return CRPChatModel

    @property
    def chat_model_params(self):
        return {"model": "openai/gpt-4o-mini", "api_key": "k"}

    @property
    def has_tool_choice(self):
        return True


class TestIntegrationSuite(ChatModelIntegrationTests):
    """LangChain's integration tests of chat models."""

    @pytest.fixture(autouse=True)
    def _server(self, server):
        type(self).url = server.url

    @property
    def chat_model_class(self):
        return CRPChatModel

    @property
    def chat_model_params(self):
        return {"model": "openai/gpt-4o-mini", "api_base": self.url, "api_key": "k"}

    @property
    def has_tool_choice(self):
        return True

    @property
    def model_override_value(self):
        return "gpt-4o"

    @property
    def supports_json_mode(self):
        return True


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def test_the_wire_holds_what_was_asked_for_and_nothing_of_crp(server):
    answered = CRPRunnable(opened(), llm=model_at(server)).invoke(QUESTION)
    assert answered.response_metadata["crp"]
    model = model_at(
        server, temperature=0.0, max_tokens=9, seed=4, stop=["END"], headers={"X-Team": "a"}
    )
    model.bind_tools([multiply], tool_choice="multiply").invoke(
        [HumanMessage(QUESTION), answered, HumanMessage("And 2 times 3?")], top_p=0.5
    )
    first, last = server.requests
    assert FACTS[0] in first.raw
    for seen in (first, last):
        assert no_metadata(seen.raw)
        assert not [name for name in seen.headers if name.startswith("crp")]
    assert last.headers["x-team"] == "a"
    body = last.body
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.0, 9, 4)
    assert (body["stop"], body["top_p"]) == (["END"], 0.5)
    assert body["tool_choice"] == {"type": "function", "function": {"name": "multiply"}}
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_a_stream_tells_usage_and_tool_calls(server, way):
    model = model_at(server).bind_tools([multiply])
    if way == "astream":
        chunks = [chunk async for chunk in model.astream("2 times 3")]
    else:
        chunks = list(model.stream("2 times 3"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.tool_calls == [
        {"name": "multiply", "args": {"a": 2, "b": 2}, "id": "call_1", "type": "tool_call"}
    ]
    assert whole.usage_metadata == {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    assert whole.response_metadata["finish_reason"] == "tool_calls"
    told = []

    class Listener(BaseCallbackHandler):
        def on_llm_new_token(self, token, **kwargs):
            told.append(token)

    list(model_at(server).stream("Hello", {"callbacks": [Listener()]}))
    assert "".join(told) == server.text


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
async def test_structured_output_as_json(server, method):
    class Joke(BaseModel):
        """A joke."""

        setup: str
        punchline: str

    model = model_at(server)
    asked = "A joke with setup and punchline."
    told = {"setup": "a setup", "punchline": "a punchline"}
    made = model.with_structured_output(Joke, method=method)
    assert made.invoke(asked) == await made.ainvoke(asked) == Joke(**told)
    plain = model.with_structured_output(Joke.model_json_schema(), method=method)
    assert plain.invoke(asked) == told
    both = model.with_structured_output(Joke, method=method, include_raw=True).invoke(asked)
    assert both["parsed"] == Joke(**told) and both["parsing_error"] is None
    sent = server.requests[0].body["response_format"]
    assert sent["type"] == ("json_schema" if method == "json_schema" else "json_object")
    server.shape.whole_text = lambda double, seen: "no JSON"
    failed = model.with_structured_output(Joke, method=method, include_raw=True).invoke(asked)
    assert failed["parsed"] is None and failed["parsing_error"] is not None
    with pytest.raises(RequestError, match="'xml'"):
        model.with_structured_output(Joke, method="xml")


def test_a_strict_schema_says_what_strictness_asks_for(server):
    """Providers refuse a strict schema that leaves open what else an object may hold."""

    class Inner(BaseModel):
        n: int

    class Outer(BaseModel):
        inner: Inner

    for strict in (True, None):
        made = model_at(server).with_structured_output(
            Outer, method="json_schema", strict=strict, include_raw=True
        )
        made.invoke("Say something.")
        form = server.requests[-1].body["response_format"]["json_schema"]
        schema = form["schema"]
        assert form.get("strict") == strict
        closed = [
            one.get("additionalProperties") for one in (schema, schema["properties"]["inner"])
        ]
        assert closed == ([False, False] if strict else [None, None])


def test_what_cannot_be_sent_is_refused(server):
    with pytest.raises(RequestError, match="'divide'"):
        model_at(server).bind_tools([multiply], tool_choice="divide")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(RequestError, match="'image_url'"):
        model_at(server).invoke([HumanMessage([picture])])
    with pytest.raises(ConfigError, match="CRP"):
        model_at(server, headers={"CRP-Session-Id": "x"})
    with pytest.raises(ConfigError, match="extra_body"):
        model_at(server).invoke("Hello", extra_body={"a": 1})
    assert server.requests == []


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("unauthorised", ModelAuthError), ("not-found", ModelNotFound), ("break", ModelError)],
)
def test_errors_are_the_package_s_own(server, fault, kind):
    server.fault = fault
    with pytest.raises(kind):
        list(model_at(server).stream("Hello"))


def test_the_key_is_in_no_representation(server):
    model = model_at(server, api_key="very-secret")
    assert "very-secret" not in repr(model) + str(model.model_dump())
    assert model.invoke("Hello").content == server.text
    assert server.requests[-1].headers["authorization"] == "Bearer very-secret"


def boundary(seen):
    """Nothing of CRP in a request but the facts' own text."""
    assert no_metadata(seen.raw)
    assert not [name for name in seen.headers if "crp" in name]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_agent_with_tools_keeps_the_boundary(server, way):
    server.text = FACTS[0]
    relay = opened(policy="warn-on MEDIUM", judge=reader())
    policy = "halt-on CRITICAL; warn-on MEDIUM"
    middleware = CRPMiddleware(relay, policy=policy, max_turns=5)
    saver = InMemorySaver()
    agent = create_agent(model_at(server), [multiply], middleware=[middleware], checkpointer=saver)
    config = {"configurable": {"thread_id": "somebody"}}
    ask = {"messages": [("user", QUESTION + " And what is 2 times 2?")]}
    for _ in range(2):
        # The second time the answers of the first are in the history, reports and all.
        state = await agent.ainvoke(ask, config) if way == "ainvoke" else agent.invoke(ask, config)
    assert [one.type for one in state["messages"]] == ["human", "ai", "tool", "ai"] * 2
    assert state["messages"][-1].response_metadata["crp"]["window_id"]
    assert len(server.requests) == 4
    for seen in server.requests:
        boundary(seen)
        assert "somebody" not in seen.raw
    roles = [one["role"] for one in server.requests[-1].body["messages"]]
    assert roles == ["system", *("user assistant tool assistant user assistant tool".split())]


def test_a_runnable_over_the_relay_s_own_client_keeps_the_boundary(server):
    server.text = FACTS[0]
    client = LiteLLMModel(options={"api_base": server.url, "api_key": "k"})
    crp = CRPRunnable(
        opened(models=client),
        model="openai/gpt-4o-mini",
        strategy="reflexive",
        policy="warn-on HIGH",
    )
    config = {"configurable": {"thread_id": "somebody"}, "metadata": {"crp": "x"}, "tags": ["crp"]}
    first = crp.invoke(QUESTION, config)
    crp.invoke([HumanMessage(QUESTION), first, HumanMessage("And who operates it?")], config)
    assert len(server.requests) >= 4
    for seen in server.requests:
        boundary(seen)
