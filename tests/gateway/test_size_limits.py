"""Limits of the parts of requests and answers, and of requests sent ahead of an answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.gateway import GatewaySettings
from tests.gateway.application import ASKED, BODY, FAST, Gateway, Served, opened, served
from tests.servers import Double, openai_double

CHAT = "/v1/chat/completions"
LIMITS = GatewaySettings(
    **FAST,
    question_characters=60,
    messages=4,
    conversation_characters=200,
    field_characters=300,
    answer_characters=80,
)
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}


def called(arguments: str, result: str) -> list[dict[str, Any]]:
    function = {"name": "look_up", "arguments": arguments}
    asked = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": function}]}
    return [*ASKED, asked, {"role": "tool", "tool_call_id": "c1", "content": result}]


def tool(description: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "description": description}}


@pytest.mark.parametrize("path", [CHAT, "/v1/preview"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"messages": [{"role": "user", "content": "a" * 61}]}, "question and its sub-queries"),
        ({"crp": {"sub_queries": ["a" * 20, "b" * 20]}}, "question and its sub-queries"),
        ({"messages": [*ASKED] * 5}, "the conversation has 5 messages, at most 4"),
        ({"messages": [{"role": "system", "content": "a" * 201}, *ASKED]}, "201 characters"),
        ({"messages": [{"role": "user", "content": "a" * 201}, *ASKED]}, "201 characters"),
        ({"messages": called("{}", "a" * 200)}, "209 characters"),
        ({"messages": called('"' + "a" * 200 + '"', "b")}, "210 characters"),
        ({"tools": [tool("a" * 300)]}, "the fields other than the messages"),
        ({"response_format": {"schema": "a" * 300}}, "the fields other than the messages"),
        ({"metadata": {"a": "b" * 300}}, "the fields other than the messages"),
    ],
    ids=range(10),
)
def test_a_part_that_is_too_long_is_400(
    tmp_path: Path, server: Double, path: str, given: dict[str, Any], told: str
) -> None:
    with opened(tmp_path, server, settings=LIMITS) as gateway:
        response = gateway.post(path, {**BODY, **given})
        assert response.status_code == 400
        assert told in response.json()["error"]["message"]
        assert "aaaa" not in response.text
        assert not server.requests
        # What is within all of them is answered.
        assert gateway.post(path, {**BODY, "messages": called("{}", "It runs.")}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("policy", ["", "halt-on CRITICAL; unchecked allow"])
def test_an_answer_that_is_too_long_is_none(
    tmp_path: Path, server: Double, stream: bool, policy: str
) -> None:
    server.text = "Plant 7 was built in 1957. " * 4
    headers = {"CRP-Safety-Policy": policy} if policy else {}
    with opened(tmp_path, server, settings=LIMITS) as gateway:
        response = gateway.post(CHAT, {**BODY, "stream": stream}, **headers)
        if stream and not policy:
            # It was being shown as it came: it ends in an error, and without its end.
            assert response.status_code == 200
            assert '"error"' in response.text
            assert "[DONE]" not in response.text
        else:
            assert response.status_code == 502
            # A client that repeats it would pay the model again.
            assert response.headers["X-Should-Retry"] == "false"
            assert "Plant 7" not in response.text
        outcomes = ended(gateway)
        assert outcomes == ["failed"]
        server.text = "Plant 7 was built in 1957."
        assert gateway.post(CHAT, {**BODY, "stream": stream}, **headers).status_code == 200


def ended(gateway: Gateway) -> list[str]:
    """How the windows of the tenant ended."""
    with gateway.relay() as relay, relay.fabric.begin(write=False) as transaction:
        return [
            seal.outcome
            for session in {event.session_id for event in transaction.journal.events()} - {""}
            for seal in transaction.journal.seals(session)
        ]


FIRST = b"GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        openai_double(text="Plant 7 was built in 1957.") as double,
        served(tmp_path_factory.mktemp("pipelined"), double) as found,
    ):
        yield found


def second(gateway: Served, *lines: str) -> bytes:
    head = (
        "GET /v1/facts?limit=1 HTTP/1.1",
        "Host: gateway",
        f"Authorization: Bearer {gateway.keys['acme']}",
        *lines,
        "Connection: close",
    )
    return ("\r\n".join(head) + "\r\n\r\n").encode()


def statuses(gateway: Served, *pieces: bytes) -> list[bytes]:
    received = b""
    address = ("127.0.0.1", gateway.port)
    with socket.create_connection(address, timeout=10) as connection, suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.1)
        while got := connection.recv(65_536):
            received += got
    return [one.split(b" ", 1)[0] for one in received.split(b"HTTP/1.1 ")[1:]]


def test_pipelined_requests_are_answered_in_turn(gateway: Served) -> None:
    assert statuses(gateway, FIRST + second(gateway)) == [b"200", b"200"]
    assert statuses(gateway, FIRST + FIRST + second(gateway)) == [b"200"] * 3


FOLDED = "CRP-Context-Cache: no-store\r\n ,no-cache"


def test_a_folded_head_that_came_early_never_reaches_the_application(gateway: Served) -> None:
    assert statuses(gateway, FIRST + second(gateway, FOLDED)) == [b"200"]
    assert statuses(gateway, FIRST + FIRST + second(gateway, FOLDED)) == [b"200"] * 2


def test_a_fold_is_seen_across_packets_of_a_head_that_came_early(gateway: Served) -> None:
    whole = second(gateway, FOLDED)
    at = whole.index(b"\r\n ,no") + 2
    assert b"200" not in statuses(gateway, FIRST + whole[:at], whole[at:])[1:]
