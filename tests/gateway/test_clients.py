"""Clients as they are: OpenAI's for Python, and httpx, over a port; callers that go away."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from crp_integrations import Relay
from crp_integrations.gateway import KeyFile
from crp_integrations.gateway.admission import new_key
from crp_integrations.guard.decisions import Subject
from tests.doubles import HashEmbedder
from tests.gateway.application import BODY, Served, served
from tests.gateway.test_chat_completions import BAD, CALLED, TOOL
from tests.judges import named
from tests.servers import Double, openai_double

TEXT = "Plant 7 was built in 1957."


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Served, Double]]:
    with openai_double(text=TEXT) as double, served(tmp_path, double) as found:
        yield found, double


def outcomes(store: Path) -> list[str]:
    """How the windows of `acme` ended; the chain is verified on the way."""
    with (
        Relay.open(store, subject=Subject(tenant="acme"), embedder=HashEmbedder()) as relay,
        relay.fabric.begin(write=False) as transaction,
    ):
        relay.verify()
        return [seal.outcome for seal in transaction.journal.all_seals()]


def soon(store: Path, wanted: list[str]) -> None:
    for _ in range(200):
        if outcomes(store) == wanted:
            return
        time.sleep(0.1)
    assert outcomes(store) == wanted


def test_openais_client_gets_crp_headers(running: tuple[Served, Double]) -> None:
    gateway, _ = running
    with gateway.openai() as client:
        raw = client.chat.completions.with_raw_response.create(**BODY)
        assert raw.headers["CRP-Safety-Hallucination-Risk"]
        assert raw.headers["CRP-Context-Quality-Tier"] in tuple("SABCD")
        completion = raw.parse()
        assert completion.choices[0].message.content == TEXT
        assert completion.usage is not None
        assert completion.usage.total_tokens == 18
        assert completion.model_extra is not None
        assert completion.model_extra["crp"]["window_id"].startswith("crp_win_")
        session = raw.headers["CRP-Context-Session-Id"]
        again = client.chat.completions.with_raw_response.create(
            **BODY, extra_headers={"CRP-Context-Session-Id": session}, extra_body={"crp": {"k": 2}}
        )
        assert again.headers["CRP-Context-Window"].startswith("2/")
        assert again.headers["CRP-Context-Facts-Used"].startswith("2/")


def test_openais_client_streams(running: tuple[Served, Double]) -> None:
    gateway, double = running
    with gateway.openai() as client:
        with client.chat.completions.with_streaming_response.create(**BODY, stream=True) as raw:
            assert raw.headers["CRP-Context-Session-Id"]
        chunks = list(
            client.chat.completions.create(
                **BODY, stream=True, stream_options={"include_usage": True}
            )
        )
        said = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
        assert said == TEXT
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == 18
        proofs = [one.model_extra["crp"] for one in chunks if one.model_extra]
        assert [proof["headers"]["CRP-Context-ETag"][:7] for proof in proofs] == ["sha256:"]
        with client.chat.completions.stream(**BODY) as events:
            assert events.get_final_completion().choices[0].message.content == TEXT
        double.fault = "break"
        with pytest.raises(openai.APIError):
            list(client.chat.completions.create(**BODY, stream=True))


async def test_openais_asynchronous_client(running: tuple[Served, Double]) -> None:
    gateway, _ = running
    async with AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=gateway.keys["acme"], max_retries=0
    ) as client:
        answered = await asyncio.gather(
            *(client.chat.completions.with_raw_response.create(**BODY) for _ in range(8))
        )
        sessions = {raw.headers["CRP-Context-Session-Id"] for raw in answered}
        assert len(sessions) == 8
        pieces = [
            chunk.choices[0].delta.content or ""
            async for chunk in await client.chat.completions.create(**BODY, stream=True)
        ]
    assert "".join(pieces) == TEXT


def test_openais_client_makes_the_round_of_tools(running: tuple[Served, Double]) -> None:
    gateway, double = running
    double.tool_calls = [CALLED]
    with gateway.openai() as client:
        first = client.chat.completions.create(**BODY, tools=[TOOL])  # type: ignore[list-item]
        message = first.choices[0].message
        assert message.tool_calls
        double.tool_calls = []
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Rain."}
        # As clients do: the whole message back, with every field that is None.
        for back in (message, message.model_dump(), message.model_dump(exclude_none=True)):
            second = client.chat.completions.create(
                model="gpt-4o-mini",
                messages=[*BODY["messages"], back, result],  # type: ignore[misc]
                tools=[TOOL],  # type: ignore[list-item]
            )
            assert second.choices[0].message.content == TEXT


def test_openais_client_raises_what_the_statuses_mean(
    tmp_path: Path, server: Double, judge: Double
) -> None:
    reading = {"options": {"judge": named(judge)}}
    with served(tmp_path, server, **reading) as gateway, gateway.openai() as client:
        create = client.chat.completions.create
        with pytest.raises(openai.BadRequestError) as bad:
            create(**BODY, extra_headers={"CRP-Safety-Policy": "nonsense 1"})
        assert bad.value.code == "unknown_directive"
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="sk-wrong").chat.completions.create(**BODY)
        with pytest.raises(openai.PermissionDeniedError):
            create(**BODY, extra_headers={"CRP-Agent-Loop-Depth": "9"})
        server.text = BAD
        with pytest.raises(openai.APIStatusError) as withheld:
            create(**BODY, extra_headers={"CRP-Safety-Policy": "halt-on HIGH; block-distortion"})
        assert withheld.value.status_code == 451
        assert withheld.value.type == "safety_halt"
        assert withheld.value.response.json()["crp_halt_reason"] == withheld.value.code


# --- callers that go away ----------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_who_goes_away_leaves_a_sealed_window(
    running: tuple[Served, Double], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "crp_integrations.gateway.access")
    gateway, double = running
    double.fault = "trickle" if stream else "slow"
    double.pause_s = 0.5
    headers = {"Authorization": f"Bearer {gateway.keys['acme']}"}
    with httpx.Client(base_url=gateway.url, headers=headers) as client:
        if stream:
            body = {**BODY, "stream": True}
            with client.stream("POST", "/v1/chat/completions", json=body) as response:
                assert b"data:" in next(response.iter_bytes())
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=BODY, timeout=1.0)
    soon(gateway.store, ["cancelled"])
    if stream:
        # The log has the session that the caller was told of.
        for _ in range(200):
            if caplog.records:
                break
            time.sleep(0.1)
        (line,) = [json.loads(one.getMessage()) for one in caplog.records]
        assert line["session"] == response.headers["CRP-Context-Session-Id"]
    double.released.set()
    double.fault = ""
    assert gateway.openai().chat.completions.create(**BODY).choices[0].message.content == TEXT


def test_a_connection_that_is_reset_leaves_a_sealed_window(
    running: tuple[Served, Double],
) -> None:
    gateway, double = running
    double.fault = "slow"
    body = json.dumps(BODY).encode()
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
            + gateway.keys["acme"].encode()
            + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        for _ in range(500):
            if double.requests:
                break
            time.sleep(0.01)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    soon(gateway.store, ["cancelled"])
    double.released.set()


def test_a_gateway_that_is_killed_in_a_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    """`crp serve` in a process of its own, ended by SIGKILL while an answer is on its way."""
    key, kept = new_key("acme")
    KeyFile(tmp_path / "keys").add(kept)
    store = tmp_path / "store"
    with Relay.open(store, subject=Subject(tenant="acme")) as relay:
        relay.fabric.add(["Plant 7 was built in 1957 by the Northfield company near the river."])

    def start(url: str) -> tuple[subprocess.Popen[str], int]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "crp_integrations.cli.app", "serve", str(store)]
        command += ["--upstream", url, "--keys", str(tmp_path / "keys"), "--port", str(port)]
        process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE)
        for _ in range(600):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200:
                    return process, port
            except httpx.HTTPError:
                time.sleep(0.1)
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
        raise AssertionError("the gateway did not begin")

    headers = {"Authorization": f"Bearer {key}"}
    with openai_double(text=TEXT, fault="trickle", pause_s=0.3) as double:
        process, port = start(double.url)
        try:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            body = {**BODY, "stream": True}
            with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as response:
                assert b"data:" in next(response.iter_bytes())
                process.send_signal(signal.SIGKILL)
                process.wait()
        finally:
            process.kill()
            process.communicate()
        double.fault = ""
        process, port = start(double.url)
        try:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            assert httpx.post(url, json=BODY, headers=headers, timeout=60).status_code == 200
            # Told to end, it ends in order.
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, -signal.SIGTERM)
        finally:
            process.kill()
            process.communicate()
    with Relay.open(store, subject=Subject(tenant="acme")) as relay:
        trail = relay.verify()
        assert trail.windows == 1
