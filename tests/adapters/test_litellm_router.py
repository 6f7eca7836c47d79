"""`CRPRouter` over a real `litellm.Router` and loopback deployments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import litellm
import pytest

from crp_integrations import Relay
from crp_integrations.errors import (
    ModelError,
    ModelRateLimited,
    RequestError,
)
from crp_integrations.litellm import CRPRouter
from crp_integrations.litellm.deployments import own_loop as _loop
from tests.adapters.litellm_deployments import WAYS, answered, entry, text
from tests.doubles import HashEmbedder
from tests.relay.judges import scripted_judge
from tests.servers import Double, openai_double

FACTS = [
    f"The quality tier number {n} of the envelope is computed from saturation and score {n}."
    for n in range(1, 41)
]
QUESTION = "How is the quality tier of the envelope computed?"
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": QUESTION},
]


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double(text="The quality tier is computed from saturation and score.") as double:
        yield double


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay.open(embedder=HashEmbedder()) as opened:
        opened.fabric.add(FACTS)
        yield opened


def router(relay: Relay, server: Double, **options: Any) -> CRPRouter:
    entries = [
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "mistral-7b", info={"max_input_tokens": 500}),
        {"model_name": "local", "litellm_params": {"model": "extractive/best"}},
    ]
    return CRPRouter(entries, relay=relay, num_retries=0, **options)


def context(body: dict[str, Any]) -> str:
    return body["messages"][0]["content"].partition("<context>\n")[2].removesuffix("\n</context>")


@pytest.mark.requirement("CARD-3")
@pytest.mark.parametrize("how", WAYS[:2])
def test_an_answer_carries_its_proof(relay: Relay, server: Double, how: str) -> None:
    response = answered(how, router(relay, server), MESSAGES, budget_tokens=300)
    assert text(response) == server.text
    envelope, headers = response.crp_envelope, response.crp_headers
    assert json.loads(json.dumps(response.crp)) == response.crp
    assert response.crp["window_number"] == 1
    assert response.crp["hmac"].startswith("sha256:")
    assert 0 < envelope["token_count"] <= 300
    assert envelope["model"] == "openai/gpt-4o"
    assert headers["CRP-Context-Tokens-Used"] == str(envelope["token_count"])
    assert headers["CRP-Context-Session-Id"] == response.crp["session_id"]
    # It survives what applications do with responses.
    assert response.model_dump()["crp"] == response.crp


@pytest.mark.parametrize("how", WAYS)
def test_the_model_gets_the_context_and_the_conversation(
    relay: Relay, server: Double, how: str
) -> None:
    response = answered(how, router(relay, server), MESSAGES, budget_tokens=300, seed=3)
    body = server.requests[0].body
    assert context(body) == response.crp_envelope["text"]
    assert body["messages"][0]["content"].startswith("Be brief.\n\nPrefer the provided context")
    assert [m["content"] for m in body["messages"][1:]] == ["Hello.", "Hello!", QUESTION]
    assert body["seed"] == 3


@pytest.mark.parametrize("how", WAYS)
def test_a_failing_deployment_falls_back_to_quoting(relay: Relay, server: Double, how: str) -> None:
    server.fault = "broken"
    called = router(relay, server, fallbacks=[{"main": ["local"]}])
    response = answered(how, called, MESSAGES, budget_tokens=300)
    assert text(response).startswith("Quoted from the context:")
    assert response.crp_envelope["model"] == "extractive/best"


@pytest.mark.parametrize("group", ["main", "local"])
async def test_a_stream_that_may_be_withheld_comes_after_the_verdict(
    relay: Relay, server: Double, group: str
) -> None:
    called = router(relay, server, policy="halt-on CRITICAL", judge=scripted_judge())
    whole = (
        (await called.acompletion(group, MESSAGES, budget_tokens=300)).choices[0].message.content
    )
    stream = await called.acompletion(group, MESSAGES, budget_tokens=300, stream=True)
    assert stream.crp["risk_level"] == stream.crp_headers["CRP-Safety-Hallucination-Risk"]
    chunks = [chunk async for chunk in stream]
    assert len(chunks) > 2
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert chunks[-1].crp == stream.crp


async def test_a_cancelled_call_is_sealed(relay: Relay, server: Double) -> None:
    server.fault = "slow"
    session = "crp_sess_" + "8" * 16
    task = asyncio.create_task(
        router(relay, server).acompletion("main", MESSAGES, session_id=session)
    )
    while not server.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with relay.fabric.begin(write=False) as transaction:
        assert [seal.outcome for seal in transaction.journal.seals(session)] == ["cancelled"]


async def test_calls_of_others_are_left_alone(relay: Relay, server: Double) -> None:
    called = router(relay, server)
    plain = await called.router.acompletion(model="main", messages=MESSAGES)
    assert server.requests[0].body["messages"] == MESSAGES
    assert not hasattr(plain, "crp")


@pytest.mark.parametrize(
    ("messages", "options", "words"),
    [
        ([], {}, "last message"),
        ([{"role": "assistant", "content": "x"}], {}, "last message"),
        ([{"role": "oracle", "content": "x"}], {}, "oracle"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], {}, "text"),
        (MESSAGES, {"n": 2}, "n is 2"),
        (MESSAGES, {"grounding": "loose"}, "grounding"),
        (MESSAGES, {"session_id": 1.5}, "session_id"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_call(
    relay: Relay, server: Double, messages: list[Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        router(relay, server).completion("main", messages, **options)
    assert server.requests == []


def test_two_sync_calls_share_a_loop_and_an_open_loop_is_no_obstacle(
    relay: Relay, server: Double
) -> None:
    called = router(relay, server)

    async def inside_a_loop() -> Any:
        return called.completion("main", MESSAGES, budget_tokens=100)

    for response in (asyncio.run(inside_a_loop()), called.completion("main", MESSAGES)):
        assert response.crp["window_number"] == 1


def test_a_conversation_goes_on_with_the_messages_that_were_answered(
    relay: Relay, server: Double
) -> None:
    called = router(relay, server)
    asked: list[Any] = [{"role": "user", "content": QUESTION}]
    server.tool_calls = [
        {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    ]
    asked.append(called.completion("main", asked).choices[0].message)
    asked.append({"role": "tool", "tool_call_id": "c1", "content": "42"})
    server.tool_calls = []
    asked.append({"role": "user", "content": "What is tier number 3?"})
    response = called.completion("main", asked)
    # The last question alone is what the fabric is asked.
    assert response.crp_envelope["query"] == "What is tier number 3?"
    _, first, calling, result, last = server.requests[-1].body["messages"]
    assert (first["content"], last["content"]) == (QUESTION, "What is tier number 3?")
    assert calling["tool_calls"][0]["function"]["name"] == "look_up"
    assert (result["role"], result["content"]) == ("tool", "42")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("hello", "a message is a str"),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "names no function"),
        ({"role": "assistant", "tool_calls": ["x"]}, "names no function"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": None}}]}, "names no function"),
    ],
)
def test_a_malformed_message_is_a_request_error(
    relay: Relay, server: Double, message: Any, words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        router(relay, server).completion("main", [message, *MESSAGES])
    assert server.requests == []


def test_groups_by_alias_and_by_wildcard_are_packed_for_their_model(
    relay: Relay, server: Double
) -> None:
    anything = entry(server, "openai/*", "*")
    called = CRPRouter([anything], relay=relay, num_retries=0)
    response = called.completion("openai/gpt-4o-mini", MESSAGES)
    assert response.crp_envelope["model"] == "openai/gpt-4o-mini"
    response = router(relay, server, model_group_alias={"other": "small"}).completion(
        "other", MESSAGES
    )
    assert response.crp_envelope["model"] == "openai/mistral-7b"
    assert response.crp_envelope["token_budget"] < 500


def test_deployments_that_are_set_aside_are_a_reason_to_try_later(
    relay: Relay, server: Double
) -> None:
    server.fault = "rate"
    entries = [entry(server, "main", "gpt-4o"), entry(server, "main", "gpt-4o-mini")]
    called = CRPRouter(entries, relay=relay, num_retries=0, allowed_fails=0, cooldown_time=60)
    errors = []
    for _ in range(4):
        with pytest.raises(ModelRateLimited) as caught:
            called.completion("main", MESSAGES)
        errors.append(str(caught.value))
    assert "no deployment of model 'main'" in errors[-1]
    assert len(server.requests) < len(errors)


def test_a_retry_sends_the_same_envelope_again(relay: Relay, server: Double) -> None:
    server.fault = "broken"
    called = CRPRouter([entry(server, "main", "gpt-4o")], relay=relay, num_retries=1, retry_after=0)
    with pytest.raises(ModelError):
        called.completion("main", MESSAGES, budget_tokens=100)
    assert len(server.requests) == 2
    assert len({request.raw for request in server.requests}) == 1


def test_an_application_that_sets_its_own_callbacks_keeps_the_packing(
    relay: Relay, server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = router(relay, server, fallbacks=[{"main": ["small"]}])
    monkeypatch.setattr(litellm, "callbacks", [])
    server.faults = {"gpt-4o": "broken"}
    response = called.completion("main", MESSAGES)
    assert response.crp_envelope["model"] == "openai/mistral-7b"
    assert response.crp_envelope["token_budget"] < 500


def test_a_synchronous_call_within_a_call_is_refused_and_does_not_hang(
    relay: Relay, server: Double
) -> None:
    called = router(relay, server)

    async def inside() -> Any:
        return called.completion("main", MESSAGES)

    with pytest.raises(RequestError, match="await acompletion"):
        asyncio.run_coroutine_threadsafe(inside(), _loop()).result(timeout=30)
