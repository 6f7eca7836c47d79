"""Server-sent events: live where nothing may withhold the answer, else after the verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.gateway import GatewaySettings
from tests.gateway.application import BODY, Gateway, opened
from tests.gateway.test_chat_completions import BAD, CALLED, TOOL
from tests.servers import Double, OpenAIShape, Recorded

CHAT = "/v1/chat/completions"
STREAM = {**BODY, "stream": True}


def events(text: str) -> list[Any]:
    blocks = [block for block in text.split("\n\n") if block]
    assert all(block.startswith("data: ") for block in blocks)
    return [
        one if one == "[DONE]" else json.loads(one)
        for one in (block.removeprefix("data: ") for block in blocks)
    ]


def told(found: list[Any]) -> str:
    return "".join(
        one["choices"][0]["delta"].get("content") or "" for one in found[:-1] if one["choices"]
    )


@pytest.mark.parametrize("live", [True, False])
def test_a_stream_is_openais_with_the_proof_on_its_finish(
    tmp_path: Path, server: Double, live: bool
) -> None:
    with opened(tmp_path, server, settings=GatewaySettings(live_streams=live)) as gateway:
        response = gateway.post(CHAT, {**STREAM, "stream_options": {"include_usage": True}})
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["CRP-Context-Session-Id"].startswith("crp_sess_")
    # Before the verdict nothing else is known.
    assert ("CRP-Context-ETag" in response.headers) is not live
    found = events(response.text)
    assert found[-1] == "[DONE]"
    assert told(found) == server.text
    assert len({one["id"] for one in found[:-1]}) == 1
    finish = [one for one in found[:-1] if one["choices"] and one["choices"][0]["finish_reason"]]
    assert [one["choices"][0]["finish_reason"] for one in finish] == ["stop"]
    assert finish[0]["crp"]["headers"]["CRP-Context-ETag"]
    assert finish[0]["crp"]["session_id"] == response.headers["CRP-Context-Session-Id"]
    assert found[-2]["choices"] == []
    assert found[-2]["usage"]["total_tokens"] == 18


def test_usage_comes_only_when_it_was_asked_for(gateway: Gateway) -> None:
    found = events(gateway.post(CHAT, STREAM).text)
    assert all(one["choices"] for one in found[:-1])


def test_a_policy_makes_a_stream_wait_and_a_halt_leaks_no_token(
    judged: Gateway, server: Double
) -> None:
    server.text = BAD
    policy = {"CRP-Safety-Policy": "halt-on HIGH; block-distortion"}
    response = judged.post(CHAT, STREAM, **policy)
    assert response.status_code == 451
    assert response.json()["crp_halt_reason"]
    for word in ("Atlantis", "2077", "billion"):
        assert word not in response.text


def test_tool_calls_are_streamed_with_their_arguments(gateway: Gateway, server: Double) -> None:
    server.tool_calls = [CALLED]
    found = events(gateway.post(CHAT, {**STREAM, "tools": [TOOL]}).text)
    deltas = [one["choices"][0]["delta"] for one in found[:-1]]
    calls = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert calls == [[{"index": 0, **CALLED}]]
    assert found[-2]["choices"][0]["finish_reason"] == "tool_calls"


class Unnumbered(OpenAIShape):
    """Parallel calls as servers send them that number none: all under one index, or without."""

    def __init__(self, index: str) -> None:
        self.index = index

    def pieces(self, double: Double, seen: Recorded) -> Iterator[tuple[str, bool]]:
        for text, ending in super().pieces(double, seen):
            yield re.sub(r'"index": \d+, "(?=id|function)', self.index + '"', text), ending


@pytest.mark.parametrize("index", ["", '"index": 0, '])
def test_parallel_calls_that_a_server_does_not_number_stay_apart(
    gateway: Gateway, server: Double, index: str
) -> None:
    server.shape = Unnumbered(index)
    other = {"name": "weather", "arguments": '{"place": "Southfield"}'}
    server.tool_calls = [CALLED, {**CALLED, "id": "call_2", "function": other}]
    found = events(gateway.post(CHAT, {**STREAM, "tools": [TOOL]}).text)
    deltas = [one["choices"][0]["delta"] for one in found[:-1]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    wanted = [{"index": place, **call} for place, call in enumerate(server.tool_calls)]
    assert calls == wanted


@pytest.mark.parametrize("fault", ["break", "cut", "garbled"])
def test_a_stream_that_breaks_off_ends_in_an_error(
    gateway: Gateway, server: Double, fault: str
) -> None:
    server.fault = fault
    response = gateway.post(CHAT, STREAM)
    last = events(response.text)[-1]
    assert last["error"]["type"] == "server_error"
    assert "[DONE]" not in response.text
    with gateway.relay() as relay, relay.fabric.begin(write=False) as transaction:
        assert [seal.outcome for seal in transaction.journal.all_seals()] == ["failed"]


def test_an_upstream_that_fails_at_once_has_its_status(gateway: Gateway, server: Double) -> None:
    server.fault = "unavailable"
    assert gateway.post(CHAT, STREAM).status_code == 502


def test_a_question_in_parts_is_streamed_after_its_verdict(
    gateway: Gateway, server: Double
) -> None:
    parts = ["When was plant 7 built?", "How many megawatts does plant 3 deliver?"]
    asked = {**STREAM, "crp": {"sub_queries": parts}}
    response = gateway.post(CHAT, asked, **{"CRP-Agent-Dispatch-Strategy": "hierarchical"})
    assert response.status_code == 200
    # A call for each part, and one that puts them together.
    assert len(server.requests) == 3
    assert response.headers["CRP-Context-Strategy"] == "hierarchical"
    assert events(response.text)[-1] == "[DONE]"
