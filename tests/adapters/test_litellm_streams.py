"""`CRPRouter` streams as applications read LiteLLM's: by `next`, in part, with and without usage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import litellm
import pytest

from crp_integrations import Relay
from crp_integrations.errors import ModelError, RequestError, SafetyHalt
from crp_integrations.litellm import CRPRouter, CRPStream
from tests.adapters.litellm_deployments import (
    ASKED,
    FACTS,
    GOOD,
    JUDGE,
    entry,
    outcomes,
    router,
)
from tests.doubles import HashEmbedder
from tests.servers import Double, openai_double

SESSION = "crp_sess_" + "4" * 16
USAGE = {"stream_options": {"include_usage": True}}
# Nothing may withhold the answer; something may.
POLICIES = {"live": None, "withholding": {"policy": "halt-on CRITICAL", "judge": JUDGE}}
MOCK = "Plant 7 was built in 1957."


@pytest.fixture
def called(relay: Relay, server: Double) -> CRPRouter:
    return router(relay, entry(server, "main", "gpt-4o"))


def read_sync(called: CRPRouter, **options: Any) -> tuple[CRPStream, list[Any]]:
    stream = called.completion("main", ASKED, stream=True, **options)
    found = []
    while True:
        try:
            found.append(next(stream))
        except StopIteration:
            return stream, found


def read_async(called: CRPRouter, **options: Any) -> tuple[CRPStream, list[Any]]:
    async def read() -> tuple[CRPStream, list[Any]]:
        stream = await called.acompletion("main", ASKED, stream=True, **options)
        found = []
        while True:
            try:
                found.append(await anext(stream))
            except StopAsyncIteration:
                return stream, found

    return asyncio.run(read())


READERS = pytest.mark.parametrize("read", [read_sync, read_async])
Read = Callable[..., tuple[CRPStream, list[Any]]]


def said(chunks: list[Any]) -> str:
    return "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)


def fields(chunks: list[Any]) -> list[dict[str, Any]]:
    """What chunks hold, but for what differs from call to call."""
    aside = {"id", "created", "crp", "crp_envelope", "crp_headers", "crp_calls", "crp_cost"}
    return [one.model_dump(exclude=aside) for one in chunks]


@READERS
@pytest.mark.parametrize("usage", [{}, USAGE], ids=["plain", "usage"])
@pytest.mark.parametrize("policy", POLICIES)
def test_chunks_are_those_that_litellm_sends(
    called: CRPRouter, server: Double, read: Read, usage: dict[str, Any], policy: str
) -> None:
    server.text = GOOD

    async def plain() -> list[Any]:
        stream = await called.router.acompletion("main", ASKED, stream=True, **usage)
        return [chunk async for chunk in stream]

    theirs = asyncio.run(plain())
    stream, ours = read(called, crp=POLICIES[policy], **usage)
    assert fields(ours) == fields(theirs)
    assert said(ours) == GOOD
    assert [bool(one.choices) for one in ours[:-1]] == [True] * (len(ours) - 1)
    assert bool(ours[-1].choices) is not bool(usage)
    ending = [one for one in ours if one.choices][-1]
    assert ending.crp == stream.crp
    assert stream.usage.total_tokens == 18


@READERS
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("usage", [{}, USAGE], ids=["plain", "usage"])
def test_a_mocked_stream_needs_no_provider(
    called: CRPRouter, server: Double, read: Read, usage: dict[str, Any], policy: str
) -> None:
    stream, chunks = read(called, mock_response=MOCK, crp=POLICIES[policy], **usage)
    assert said(chunks) == MOCK
    assert len([one for one in chunks if one.choices and one.choices[0].delta.content]) > 3
    assert bool(chunks[-1].choices) is not bool(usage)
    assert stream.crp is not None
    assert server.requests == []


# --- when chunks come ----------------------------------------------------------------------


@pytest.fixture
def slow(server: Double) -> Double:
    """A server whose answer takes at least a second."""
    server.text, server.fault, server.pause_s = GOOD, "trickle", 0.2
    return server


def first_chunk(called: CRPRouter, relay: Relay, **options: Any) -> tuple[float, list[str]]:
    """Seconds until a piece of the text is there, and which windows are sealed by then."""
    began = time.perf_counter()
    stream = called.completion("main", ASKED, stream=True, session_id=SESSION, **options)
    while not (chunk := next(stream)).choices[0].delta.content:
        pass
    seconds, sealed = time.perf_counter() - began, outcomes(relay, SESSION)
    assert stream.crp is None or sealed
    assert chunk.choices[0].delta.content + said(list(stream)) == GOOD
    return seconds, sealed


def test_chunks_pass_as_they_come_where_nothing_may_withhold(
    called: CRPRouter, relay: Relay, slow: Double
) -> None:
    called.completion("main", ASKED, mock_response=MOCK)
    assert first_chunk(called, relay)[1] == []
    assert outcomes(relay, SESSION) == ["released"]


@pytest.mark.parametrize(
    "options",
    [
        {"crp": {"policy": "halt-on CRITICAL", "judge": JUDGE}},
        {"crp": {"policy": "upgrade-on-risk reflexive", "judge": JUDGE}},
        {"crp": {"strategy": "fan-out"}},
        {"crp": {"accept_risk": "MEDIUM", "judge": JUDGE}},
        {"judge": True, "judge_failure": "halt"},
    ],
    ids=["halt", "upgrade", "parts", "accept", "judge"],
)
def test_chunks_wait_for_the_verdict_where_the_answer_may_not_be_the_last_word(
    called: CRPRouter, relay: Relay, slow: Double, options: dict[str, Any]
) -> None:
    slow.pause_s = 0.01
    if "judge" in options:
        with pytest.raises(SafetyHalt):
            called.completion("main", ASKED, stream=True, session_id=SESSION, **options)
        return
    assert first_chunk(called, relay, **options)[1] == ["released"]


@pytest.mark.parametrize(
    "settings",
    [
        {"dispatch": {"continue_incomplete": True}},
        {"dispatch": {"redispatch_on_contradiction": True}},
    ],
    ids=["continued", "asked-again"],
)
def test_settings_that_act_on_an_answer_are_waited_for(
    server: Double, settings: dict[str, Any]
) -> None:
    server.text = GOOD
    with Relay.open(embedder=HashEmbedder(), **settings) as relay:
        relay.fabric.add(FACTS)
        called = router(relay, entry(server, "main", "gpt-4o"))
        stream = called.completion("main", ASKED, stream=True)
        assert stream.crp is not None
        assert said(list(stream)) == GOOD


@pytest.mark.parametrize("text", [GOOD, "Two  words,\nand\ttabs.  ", ""])
def test_a_whole_answer_is_streamed_in_pieces_that_join_to_it(
    relay: Relay, server: Double, text: str
) -> None:
    # Of Gemini's streams LiteLLM cannot tell the end, and a mock has none: both are called whole.
    called = router(relay, entry(server, "main", "gpt-4o"))
    if not text:
        server.text = text
        assert said(read_sync(called)[1]) == text
        return
    _, chunks = read_sync(called, mock_response=text)
    assert said(chunks) == text
    assert [one.choices[0].finish_reason for one in chunks] == [None] * (len(chunks) - 1) + ["stop"]


def test_tool_calls_of_a_stream_are_those_of_the_model(called: CRPRouter, server: Double) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"a":1}'}}
    server.tool_calls = [call]
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    _, chunks = read_sync(called, tools=[tool])
    whole: Any = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.tool_calls[0].function.arguments == '{"a":1}'
    assert whole.choices[0].finish_reason == "tool_calls"


# --- streams that end early ----------------------------------------------------------------


@READERS
def test_a_stream_that_breaks_off_in_the_middle_is_an_error_and_sealed(
    called: CRPRouter, relay: Relay, server: Double, read: Read
) -> None:
    server.fault = "break"
    with pytest.raises(ModelError) as caught:
        read(called, session_id=SESSION)
    assert isinstance(caught.value, litellm.exceptions.APIConnectionError | litellm.APIError)
    assert outcomes(relay, SESSION) == ["failed"]


@pytest.mark.parametrize("fault", ["empty", "malformed"])
def test_a_stream_that_breaks_off_before_its_first_word_is_asked_of_the_next(
    relay: Relay, server: Double, fault: str
) -> None:
    server.text, server.faults = GOOD, {"gpt-4o": fault}
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "gpt-4o-mini"),
        fallbacks=[{"main": ["small"]}],
    )
    stream, chunks = read_sync(called)
    assert said(chunks) == GOOD
    assert stream.crp_calls is not None
    assert stream.crp_calls[0]["tried"] == ["openai/gpt-4o", "openai/gpt-4o-mini"]


@pytest.fixture
def endless() -> Iterator[Double]:
    with openai_double(text="word " * 400, fault="trickle", pause_s=0.02) as double:
        yield double


def test_closing_a_half_read_stream_frees_the_provider_and_the_session(
    relay: Relay, endless: Double
) -> None:
    called = router(relay, entry(endless, "main", "gpt-4o"))
    stream = called.completion("main", ASKED, stream=True, session_id=SESSION)
    assert next(stream).choices
    began = time.perf_counter()
    stream.close()
    assert list(stream) == []
    stream.close()
    assert time.perf_counter() - began < 4.0
    assert outcomes(relay, SESSION) == ["cancelled"]
    after = called.completion("main", ASKED, session_id=SESSION, mock_response=MOCK)
    assert after.crp["window_number"] == 2
    assert relay.verify().windows == 2
    hung_up(endless)


async def test_closing_a_half_read_stream_of_a_loop(relay: Relay, endless: Double) -> None:
    called = router(relay, entry(endless, "main", "gpt-4o"))
    stream = await called.acompletion("main", ASKED, stream=True, session_id=SESSION)
    assert (await anext(stream)).choices
    await stream.aclose()
    assert [chunk async for chunk in stream] == []
    assert outcomes(relay, SESSION) == ["cancelled"]
    await asyncio.to_thread(hung_up, endless)

    stream = await called.acompletion("main", ASKED, stream=True, session_id=SESSION)
    # Within the loop, which it must not block.
    stream.close()
    while len(outcomes(relay, SESSION)) < 2:
        await asyncio.sleep(0.01)


def hung_up(server: Double) -> None:
    """Wait until the server notices that nobody listens, long before its answer is over."""
    until = time.perf_counter() + 4.0
    while not server.hung_up and time.perf_counter() < until:
        time.sleep(0.02)
    assert server.hung_up


# --- who reads it --------------------------------------------------------------------------


async def test_a_stream_of_another_loop_is_read_with_either_loop(
    called: CRPRouter, server: Double
) -> None:
    server.text = GOOD
    made_elsewhere = called.completion("main", ASKED, stream=True)
    assert said([chunk async for chunk in made_elsewhere]) == GOOD
    made_here = await called.acompletion("main", ASKED, stream=True)
    assert said(await asyncio.to_thread(list, made_here)) == GOOD


async def test_a_blocking_read_within_the_streams_own_loop_is_refused(
    called: CRPRouter, server: Double
) -> None:
    stream = await called.acompletion("main", ASKED, stream=True)
    with pytest.raises(RequestError, match="async for"):
        list(stream)
    await stream.aclose()
