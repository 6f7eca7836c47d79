"""The model client against a loopback server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from crp_integrations.engines.litellm import LiteLLMModel, register_extractive, tells_end
from crp_integrations.engines.litellm_versions import library
from crp_integrations.errors import (
    ConfigError,
    CRPError,
    ModelAuthError,
    ModelContextExceeded,
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
)
from crp_integrations.messages import Message, ModelCall, Reply, ToolCall
from tests.servers import Double, openai_double
from tests.shapes import gemini_double

TOOL = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}},
}
TOOL_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"what": "tier"}'},
}


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double() as double:
        yield double


def model(server: Double, **options: object) -> LiteLLMModel:
    return LiteLLMModel(
        timeout_s=options.pop("timeout_s", 20.0),
        options={"api_base": server.url, "api_key": "sk-test"},
        **options,
    )


def call(name: str = "openai/gpt-4o-mini", **fields: object) -> ModelCall:
    messages = (
        Message(role="system", content="<context>\n[1] Tiers go from S to D.\n</context>"),
        Message(role="user", content="Which tiers are there?"),
    )
    return ModelCall(**{"model": name, "messages": messages, **fields})


async def answered(engine: LiteLLMModel, asked: ModelCall, how: str) -> tuple[Reply, list[str]]:
    """The reply by one of the four ways, with the pieces of a stream."""
    if how == "call":
        return engine.call(asked), []
    if how == "acall":
        return await engine.acall(asked), []
    if how == "stream":
        parts = list(engine.stream(asked))
    else:
        parts = [part async for part in engine.astream(asked)]
    assert isinstance(parts[-1], Reply)
    assert all(isinstance(part, str) for part in parts[:-1])
    return parts[-1], parts[:-1]


WAYS = ("call", "acall", "stream", "astream")


@pytest.mark.requirement("CARD-3")
@pytest.mark.parametrize("how", WAYS)
async def test_text_usage_and_model_come_back(server: Double, how: str) -> None:
    reply, pieces = await answered(model(server), call(), how)
    assert reply.text == "The answer is 42."
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (11, 7)
    assert reply.model == "gpt-4o-mini"
    assert reply.finish_reason == "stop"
    if how.endswith("stream"):
        assert len(pieces) > 2
        assert "".join(pieces) == reply.text
    else:
        assert reply.usage.cost_usd is not None
        assert reply.usage.cost_usd > 0
    assert len(server.requests) == 1
    assert server.requests[0].path.endswith("/chat/completions")


@pytest.mark.parametrize("how", WAYS)
async def test_tool_calls_come_back_with_their_arguments_unchanged(
    server: Double, how: str
) -> None:
    server.tool_calls = [TOOL_CALL, {**TOOL_CALL, "id": "call_2"}]
    reply, _ = await answered(model(server), call(tools=(TOOL,)), how)
    assert reply.text == ""
    assert reply.finish_reason == "tool_calls"
    assert reply.tool_calls == (
        ToolCall(id="call_1", name="look_up", arguments='{"what": "tier"}'),
        ToolCall(id="call_2", name="look_up", arguments='{"what": "tier"}'),
    )
    assert server.requests[0].body["tools"] == [TOOL]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("unauthorised", ModelAuthError),
        ("forbidden", ModelAuthError),
        ("not-found", ModelNotFound),
        ("rate", ModelRateLimited),
        ("context", ModelContextExceeded),
        ("broken", ModelError),
        ("unavailable", ModelError),
        ("bad-request", ModelError),
        ("malformed", ModelError),
        ("empty", ModelError),
    ],
)
async def test_each_failure_has_its_error(
    server: Double, how: str, fault: str, error: type[CRPError]
) -> None:
    if fault in ("malformed", "empty") and how.endswith("stream"):
        fault = "cut"
    server.fault = fault
    with pytest.raises(error) as caught:
        await answered(model(server), call(), how)
    assert type(caught.value) is error
    sentence = str(caught.value)
    assert "gpt-4o-mini" in sentence
    assert "\n" not in sentence
    # Neither the prompt nor the key is in the message; what the provider says is.
    assert not any(part in sentence for part in ("Which tiers", "S to D", "sk-test"))
    assert ("SECRET-ECHO" in sentence) is (fault == "bad-request")


@pytest.mark.parametrize("how", WAYS)
async def test_a_slow_provider_is_given_up(server: Double, how: str) -> None:
    server.fault = "slow"
    with pytest.raises(ModelTimeout, match="in time"):
        await answered(model(server, timeout_s=0.3), call(), how)
    assert len(server.requests) == 1


@pytest.mark.parametrize("how", ["stream", "astream"])
@pytest.mark.parametrize("fault", ["break", "cut"])
async def test_a_stream_that_breaks_off_is_an_error(server: Double, how: str, fault: str) -> None:
    server.fault = fault
    with pytest.raises(ModelError):
        await answered(model(server), call(), how)


def test_an_unknown_name_says_how_to_name_a_model(server: Double) -> None:
    engine = LiteLLMModel()
    for act in (lambda: engine.known("no-such-model"), lambda: engine.call(call("no-such-model"))):
        with pytest.raises(ModelNotFound, match=r"PROVIDER/MODEL.*extractive"):
            act()
    engine.known("openai/anything-new")
    engine.known("gpt-4o-mini")


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelAuthError, match="OPENAI_API_KEY"):
        LiteLLMModel().call(call())


def test_a_provider_that_is_not_there_is_said_to_be_out_of_reach() -> None:
    options = {"api_base": "http://127.0.0.1:9/v1", "api_key": "k"}
    with pytest.raises(ModelError, match="cannot be reached"):
        LiteLLMModel(timeout_s=5.0, options=options).call(call())


def test_only_what_was_set_is_sent(server: Double) -> None:
    model(server).call(call())
    model(server).call(call(temperature=0.2, seed=7, max_tokens=50))
    plain, full = (request.body for request in server.requests)
    assert set(plain) == {"model", "messages"}
    assert (full["temperature"], full["seed"], full["max_tokens"]) == (0.2, 7, 50)


def test_messages_go_out_as_they_are(server: Double) -> None:
    history = (
        Message(role="assistant", tool_calls=(ToolCall(id="c1", name="look_up", arguments="{}"),)),
        Message(role="tool", content="found", tool_call_id="c1"),
        Message(role="user", content="and?", name="ada"),
    )
    model(server).call(call(messages=history))
    assistant, tool, user = server.requests[0].body["messages"]
    assert assistant["tool_calls"][0]["function"] == {"name": "look_up", "arguments": "{}"}
    assert tool == {"role": "tool", "content": "found", "tool_call_id": "c1"}
    assert user == {"role": "user", "content": "and?", "name": "ada"}


async def test_no_crp_metadata_is_on_the_wire(server: Double) -> None:
    engine = model(server, headers={"X-Title": "docs"})
    for how in WAYS:
        await answered(engine, call(), how)
    assert len(server.requests) == len(WAYS)
    for request in server.requests:
        assert not [name for name in request.headers if name.startswith("crp-")]
        assert request.headers["x-title"] == "docs"
        assert set(request.body) <= {"model", "messages", "stream", "stream_options"}
        assert "crp" not in request.raw.lower()


def test_crp_headers_and_reserved_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="CRP-Context-ETag"):
        LiteLLMModel(headers={"CRP-Context-ETag": "x"})
    with pytest.raises(ConfigError, match="metadata"):
        LiteLLMModel(options={"metadata": {"crp": 1}})


def test_the_import_is_late_and_downloads_nothing() -> None:
    code = (
        "import os, sys\n"
        "from crp_integrations.engines import litellm, models\n"
        "assert 'litellm' not in sys.modules\n"
        "litellm.library()\n"
        "print(os.environ['LITELLM_LOCAL_MODEL_COST_MAP'])"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LITELLM")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean
    )
    assert done.stdout == "True\n"


@pytest.mark.requirement("CARD-3")
@pytest.mark.parametrize("how", WAYS)
async def test_extractive_is_a_litellm_provider(how: str) -> None:
    register_extractive()
    register_extractive()
    litellm = library()
    assert [item["provider"] for item in litellm.custom_provider_map].count("extractive") == 1
    reply, pieces = await answered(LiteLLMModel(), call("extractive/best"), how)
    assert reply.text == 'Quoted from the context:\n\n"Tiers go from S to D." [1]'
    if how.endswith("stream"):
        assert len(pieces) == 2


def test_a_name_taken_by_another_handler_is_not_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = {"provider": "extractive", "custom_handler": object()}
    monkeypatch.setattr(library(), "custom_provider_map", [other])
    with pytest.raises(ConfigError, match="extractive"):
        register_extractive()
    assert library().custom_provider_map == [other]


@pytest.mark.parametrize("how", WAYS)
async def test_a_provider_whose_streams_do_not_tell_their_end_is_called_whole(how: str) -> None:
    # LiteLLM reads each piece of Gemini's streams as if it were the last: one that is cut off
    # looks whole.
    with gemini_double(fault="cut") as server:
        reply, parts = await answered(model(server), call("gemini/gemini-2.5-flash"), how)
        assert reply.text == server.text
        assert "".join(parts[:-1]) in ("", server.text)
        assert server.requests[0].path == "/models/gemini-2.5-flash:generateContent"
    with openai_double(fault="cut") as server:
        assert tells_end(library(), "openai/gpt-4o-mini")
        if "stream" in how:
            with pytest.raises(ModelError, match="broke off"):
                await answered(model(server), call(), how)


@pytest.mark.parametrize("how", WAYS)
async def test_a_mock_response_is_answered_and_streamed_whole(how: str) -> None:
    # LiteLLM adds the end of a mock's stream itself, as for one that is cut off.
    mocked = LiteLLMModel(options={"mock_response": "It sails at nine."})
    reply, parts = await answered(mocked, call(), how)
    assert reply.text == "It sails at nine."
    assert parts[:-1] in ([], [reply.text])


@pytest.mark.parametrize("how", WAYS)
async def test_a_cost_is_none_without_a_price(server: Double, how: str) -> None:
    reply, _ = await answered(model(server), call("openai/nobody-knows-13b"), how)
    assert reply.usage.cost_usd is None
    assert reply.usage.total_tokens == 18
    # A router in the same process puts the name into LiteLLM's table, without any price.
    library().Router(
        model_list=[
            {
                "model_name": "main",
                "litellm_params": {"model": "openai/nobody-knows-13b", "api_key": "sk-test"},
            }
        ]
    )
    reply, _ = await answered(model(server), call("openai/nobody-knows-13b"), how)
    assert reply.usage.cost_usd is None
