"""What a caller gets of an upstream's refusal: its status, its words, and when to ask again."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest

from crp_integrations.errors import ModelTimeout
from crp_integrations.gateway import GatewaySettings, OpenAIServer, Routed
from crp_integrations.messages import Message, ModelCall
from tests.gateway.application import BODY, FAST, Gateway, Served, served
from tests.gateway.test_streams import CHAT, STREAM, events
from tests.servers import FAULTS, Double, OpenAIShape, Recorded, event, openai_double

# Fault of the upstream, and what OpenAI's client raises for its status.
PASSED = [
    ("bad-request", openai.BadRequestError),
    ("unauthorised", openai.AuthenticationError),
    ("forbidden", openai.PermissionDeniedError),
    ("not-found", openai.NotFoundError),
    ("conflict", openai.ConflictError),
    ("unprocessable", openai.UnprocessableEntityError),
    ("rate", openai.RateLimitError),
]
FAILED = ["request-timeout", "no-credit", "broken", "unavailable", "malformed", "drop", "empty"]
# Of those, what another attempt may change; OpenAI's client tries it again by itself.
PASSING = ["rate", "request-timeout", "broken", "unavailable", "drop"]


class Refusing(OpenAIShape):
    """Refuses as OpenAI does, with a type and a parameter of its own."""

    def refusal(self, status: int, code: str, message: str) -> dict[str, Any]:
        error = {"message": message, "type": "a_type", "param": "a_param", "code": code}
        return {"error": error}


@pytest.fixture(scope="module", params=["http", "litellm"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, Double]]:
    with openai_double(text="Plant 7 was built in 1957.", shape=Refusing()) as double:
        more: dict[str, Any] = {}
        if request.param == "litellm":
            options = {
                "api_base": double.url,
                "api_key": "sk-test",
                "custom_llm_provider": "openai",
            }
            more["upstream"] = Routed(options=options)
        settings = GatewaySettings(**FAST, models=(BODY["model"],))
        store = tmp_path_factory.mktemp("store")
        with served(store, double, settings, **more) as gateway:
            yield gateway, double


@pytest.fixture
def upstream(running: tuple[Served, Double]) -> Iterator[Double]:
    _, double = running
    double.requests.clear()
    yield double
    double.fault, double.refusal_headers = "", {}


def ask(client: Any, stream: bool, **more: Any) -> Any:
    answered = client.chat.completions.create(**BODY, stream=stream, **more)
    return list(answered) if stream else answered


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fault", "kind"), PASSED)
def test_a_refusal_of_the_upstream_is_the_callers(
    running: tuple[Served, Double],
    upstream: Double,
    fault: str,
    kind: type[openai.APIStatusError],
    stream: bool,
) -> None:
    upstream.fault, upstream.refusal_headers = fault, {"Retry-After": "7"}
    with running[0].openai() as client, pytest.raises(kind) as caught:
        ask(client, stream)
    status, code, message = FAULTS[fault]
    assert caught.value.status_code == status
    told = {"message": message, "type": "a_type", "param": "a_param", "code": code}
    assert caught.value.body == told
    assert (caught.value.code, caught.value.param) == (code, "a_param")
    assert caught.value.response.headers["Retry-After"] == "7"
    assert caught.value.response.headers["CRP-Context-Session-Id"]
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", FAILED)
def test_every_other_failure_is_502_and_quotes_nothing(
    running: tuple[Served, Double], upstream: Double, fault: str, stream: bool
) -> None:
    if stream and fault in ("malformed", "empty"):
        pytest.skip("faults of whole answers")
    upstream.fault = fault
    with running[0].openai() as client, pytest.raises(openai.InternalServerError) as caught:
        ask(client, stream)
    assert caught.value.status_code == 502
    body: Any = caught.value.body
    assert set(body) == {"message", "type", "param", "code"}
    assert (body["type"], body["param"]) == ("server_error", None)
    assert caught.value.response.headers["CRP-Context-Session-Id"]
    if fault in FAULTS:
        assert FAULTS[fault][2] not in caught.value.response.text


@pytest.mark.parametrize("fault", [*(fault for fault, _ in PASSED), *FAILED[:4], "drop"])
def test_openais_client_asks_again_only_where_that_may_help(
    running: tuple[Served, Double], upstream: Double, fault: str
) -> None:
    upstream.fault, upstream.refusal_headers = fault, {"Retry-After": "0.01"}
    with running[0].openai() as client, pytest.raises(openai.APIStatusError):
        ask(client.with_options(max_retries=1), False)
    assert len(upstream.requests) == (2 if fault in PASSING else 1)


@pytest.mark.parametrize("fault", ["break", "cut", "garbled"])
def test_openais_client_pays_no_second_answer_after_one_that_broke_off(
    running: tuple[Served, Double], upstream: Double, fault: str
) -> None:
    upstream.fault = fault
    withheld = {"CRP-Safety-Policy": "halt-on CRITICAL; unchecked allow"}
    with running[0].openai() as client, pytest.raises(openai.InternalServerError) as caught:
        ask(client.with_options(max_retries=1), True, extra_headers=withheld)
    assert caught.value.status_code == 502
    assert caught.value.response.headers["X-Should-Retry"] == "false"
    assert len(upstream.requests) == 1


# --- in this process ----------------------------------------------------------------------


class Answering(OpenAIShape):
    """Refuses with a body of its own."""

    def __init__(self, body: Any) -> None:
        self.body = body

    def refusal(self, status: int, code: str, message: str) -> Any:
        return self.body


@pytest.mark.parametrize(
    ("body", "told"),
    [
        # vLLM, Ollama, FastAPI, and a server in front that knows nothing of errors in JSON.
        (
            {"object": "error", "message": "m is missing", "type": "T", "param": None, "code": 400},
            {"message": "m is missing", "type": "T", "param": None, "code": 400},
        ),
        (
            {"error": "m is missing"},
            {"message": "m is missing", "type": "invalid_request_error", "param": None},
        ),
        ({"detail": "m is missing"}, {"message": "m is missing", "code": None}),
        ({"detail": [{"loc": ["m"], "msg": "x"}]}, {"message": '[{"loc": ["m"], "msg": "x"}]'}),
        ({"error": {"message": "m\ud800" + "a" * 9_000, "code": ["x"]}}, {"code": None}),
        (["?"], {"param": None, "code": "model_error"}),
        ({"error": {"code": "x"}}, {"param": None, "code": "model_error"}),
    ],
    ids=range(7),
)
def test_servers_that_word_their_errors_otherwise_have_the_same_shape(
    gateway: Gateway, server: Double, body: Any, told: dict[str, Any]
) -> None:
    server.fault, server.shape = "bad-request", Answering(body)
    response = gateway.ask()
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error == {**error, **told}
    assert 0 < len(error["message"]) <= 2_000


@pytest.mark.parametrize("after", ["7", "Wed, 21 Oct 2026 07:28:00 GMT", "", "7\x01", "9" * 99])
def test_a_retry_after_that_no_header_can_hold_is_left_out(
    gateway: Gateway, server: Double, after: str
) -> None:
    server.fault, server.refusal_headers = "rate", {"Retry-After": after}
    response = gateway.ask()
    assert response.status_code == 429
    usable = after.isprintable() and len(after) < 64
    assert response.headers.get("Retry-After", "") == (after if usable else "")


def test_the_operators_key_is_in_no_words_of_the_upstream(gateway: Gateway, server: Double) -> None:
    said = "Incorrect API key provided: sk-upstream, sk-proj-*****8gA or Bearer sk-abcdefgh."
    server.fault, server.shape = "unauthorised", Answering({"error": {"message": said}})
    response = gateway.ask()
    assert response.status_code == 401
    told = "Incorrect API key provided: [key], [key] or Bearer [key]."
    assert response.json()["error"]["message"] == told


def test_an_upstreams_words_are_for_the_caller_alone(
    gateway: Gateway, server: Double, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "crp_integrations")
    server.fault = "bad-request"
    response = gateway.ask()
    assert response.status_code == 400
    assert "SECRET-ECHO" in response.json()["error"]["message"]
    assert "SECRET-ECHO" not in caplog.text
    # The operator reads of every refusal, also of one that the caller has to act on.
    assert f"request {response.headers['X-Request-Id']}: ModelError: " in caplog.text
    with gateway.relay() as relay:
        assert relay.verify().windows == 1
        with relay.fabric.begin(write=False) as transaction:
            sealed = [
                json.dumps(one.model_dump(mode="json")) for one in transaction.journal.all_seals()
            ]
    assert "SECRET-ECHO" not in "".join(sealed)


class EndingInError(OpenAIShape):
    """Streams an error after so many events."""

    def __init__(self, after: int, error: Any) -> None:
        self.after, self.error = after, error

    def pieces(self, double: Double, seen: Recorded) -> Iterator[tuple[str, bool]]:
        for number, piece in enumerate(super().pieces(double, seen)):
            if number == self.after:
                yield event({"error": self.error}), True
                return
            yield piece


OVERLOADED = {"message": "Slow down", "type": "TooManyRequests", "param": "n", "code": 429}


def test_an_error_before_the_first_text_of_a_stream_is_no_stream(
    gateway: Gateway, server: Double
) -> None:
    server.shape = EndingInError(0, OVERLOADED)
    response = gateway.post(CHAT, STREAM)
    assert (response.status_code, response.json()["error"]) == (429, OVERLOADED)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OVERLOADED, OVERLOADED),
        # Without a status it is a failure of the upstream, whose words say nothing to a caller.
        ({"message": "Boom", "code": "boom"}, {"type": "server_error", "code": "model_error"}),
        ("Boom", {"type": "server_error", "param": None, "code": "model_error"}),
    ],
)
def test_an_error_after_the_first_text_is_an_event_of_the_same_shape(
    gateway: Gateway, server: Double, error: Any, told: dict[str, Any]
) -> None:
    server.shape = EndingInError(3, error)
    response = gateway.post(CHAT, STREAM)
    assert response.status_code == 200
    found = events(response.text)
    assert "error" not in found[0]
    assert set(found[-1]["error"]) == {"message", "type", "param", "code"}
    assert found[-1]["error"] == {**found[-1]["error"], **told}
    assert "Boom" not in response.text


# --- refusals of the gateway's own --------------------------------------------------------

OWN = [
    ({"Authorization": "Bearer crp_key_none"}, {}, openai.AuthenticationError, None, "token_refused"),
    ({}, {"model": "nobody"}, openai.NotFoundError, "model", "model_unlisted"),
    ({}, {"temperature": -1}, openai.BadRequestError, "temperature", "request_error"),
    ({}, {"no_such_field": 1}, openai.BadRequestError, "no_such_field", "request_error"),
    (
        {"CRP-Safety-Policy": "no-such"}, {}, openai.BadRequestError,
        "CRP-Safety-Policy", "unknown_directive",
    ),
    ({"CRP-Agent-Loop-Depth": "9"}, {}, openai.PermissionDeniedError, None, "access_denied"),
    ({"CRP-Safety-Oversight-Mode": "halt"}, {}, openai.APIStatusError, None, "OVERSIGHT_REQUIRED"),
    ({"CRP-Accept-Quality": "S"}, {}, openai.InternalServerError, None, "quality_unreachable"),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("headers", "body", "kind", "param", "code"), OWN)
def test_the_gateways_own_refusals_have_openais_shape(
    running: tuple[Served, Double],
    upstream: Double,
    headers: dict[str, str],
    body: dict[str, Any],
    kind: type[openai.APIStatusError],
    param: str | None,
    code: str,
    stream: bool,
) -> None:
    with running[0].openai() as client, pytest.raises(kind) as caught:
        ask(client, stream, extra_headers=headers, extra_body=body)
    told: Any = caught.value.body
    assert set(told) == {"message", "type", "param", "code"}
    assert (caught.value.param, caught.value.code) == (param, code)
    assert told["message"]
    # A tier is known once an envelope was made; everything else is refused before any call.
    assert len(upstream.requests) == int(code == "quality_unreachable")


def test_too_many_requests_have_openais_shape(tmp_path: Path, server: Double) -> None:
    limits = GatewaySettings(requests_per_minute=1, burst=1)
    with served(tmp_path, server, limits) as gateway, gateway.openai() as client:
        ask(client, False)
        with pytest.raises(openai.RateLimitError) as caught:
            ask(client, False)
    assert (caught.value.param, caught.value.code) == (None, "gateway_busy")
    assert int(caught.value.response.headers["Retry-After"]) >= 1


def test_a_halt_names_directive_and_value(judged: Gateway, server: Double) -> None:
    server.text = "Plant 7 was built in 2077 by Acme Corporation for 9 billion dollars in Atlantis."
    response = judged.ask(**{"CRP-Safety-Policy": "block-distortion"})
    said = response.json()
    assert response.status_code == 451
    assert said["directive"] == "block-distortion"
    assert said["value"]
    assert said["error"]["code"] == said["crp_halt_reason"]
    assert said["error"]["param"] is None
    assert said["directive"] in said["error"]["message"]
    assert said["value"] in said["error"]["message"]


@contextmanager
def dripping(sent_at_once: bytes) -> Iterator[str]:
    """The address of a server that never ends its answer and sends a byte of it at a time."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65_536)
            client.sendall(sent_at_once)
            while not over.wait(0.02):
                client.sendall(b" ")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        over.set()
        listening.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@pytest.mark.parametrize("sent_at_once", [HEAD, HEAD[:30]], ids=["body", "head"])
async def test_an_answer_that_drips_in_ends_at_the_deadline(sent_at_once: bytes) -> None:
    call = ModelCall(model="m", messages=(Message(role="user", content="Go on."),))
    with dripping(sent_at_once) as address:
        server = OpenAIServer(address, deadline_s=0.1)
        with pytest.raises(ModelTimeout):
            await server.acall(call)
        with pytest.raises(ModelTimeout):
            [piece async for piece in server.astream(call)]
        if sent_at_once == HEAD:
            with pytest.raises(ModelTimeout):
                await asyncio.to_thread(server.call, call)
            with pytest.raises(ModelTimeout):
                await asyncio.to_thread(lambda: [*server.stream(call)])
            assert await asyncio.to_thread(server.context_limit, "m") is None
        await server.aclose()
