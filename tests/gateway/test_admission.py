"""Who is not let in: wrong keys, injected headers, large bodies, haste, and slow callers."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from crp_integrations.errors import ConfigError, RequestError, StoreBusy, StoreError
from crp_integrations.gateway import GatewaySettings, KeyFile
from crp_integrations.gateway.admission import (
    ConcurrencyLimit,
    GatewayBusy,
    Key,
    RequestRates,
    Scope,
    find_key,
    new_key,
)
from crp_integrations.stores.files import file_held
from tests.commands import script
from tests.doubles import NOON
from tests.gateway.application import (
    BODY,
    FAST,
    Gateway,
    Served,
    application,
    key_for,
    opened,
    served,
)
from tests.servers import Double

CHAT = "/v1/chat/completions"
# Short enough for a test, long enough for a busy machine.
PATIENCE = 0.6
SLOW = GatewaySettings(
    **FAST,
    header_seconds=PATIENCE,
    body_seconds=PATIENCE,
    send_seconds=PATIENCE,
    header_bytes=8_192,
    body_bytes=200_000,
)


# --- keys --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        "Bearer crp_key_000000000000_" + "A" * 43,
        "Basic {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer {key},{key}",
        "Bearer {almost}",
        "Bearer {upper}",
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/preview", "/v1/facts"])
def test_a_request_without_a_valid_key_is_401(
    gateway: Gateway, server: Double, value: str | None, path: str
) -> None:
    key = gateway.keys["acme"]
    almost = key[:-1] + ("A" if key[-1] != "A" else "B")
    headers = {}
    if value is not None:
        headers["Authorization"] = value.format(key=key, almost=almost, upper=key.upper())
    response = gateway.client.post(path, json=BODY, headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert key[-20:] not in response.text
    assert not server.requests


def test_two_keys_in_one_request_are_none(gateway: Gateway) -> None:
    both = [("Authorization", f"Bearer {gateway.keys[name]}") for name in ("acme", "globex")]
    assert gateway.client.post(CHAT, json=BODY, headers=both).status_code == 401


def test_a_key_does_what_its_scopes_say(tmp_path: Path, server: Double) -> None:
    key, kept = key_for("acme", Scope.FACTS)
    app = application(tmp_path, server, kept)
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(app) as client:
        assert client.get("/v1/facts", headers=headers).status_code == 200
        for method, path in (
            ("POST", CHAT),
            ("POST", "/v1/preview"),
            ("GET", "/v1/reports/crp_win_0000000000000000"),
            ("GET", "/v1/audit/crp_sess_0000000000000000"),
            ("GET", "/v1/receipts/crp_win_0000000000000000"),
            ("GET", "/metrics"),
        ):
            response = client.request(method, path, headers=headers)
            assert response.status_code == 403, path
        for path in ("/healthz", "/openapi.json"):
            assert client.get(path).status_code == 200


def test_a_secret_is_nowhere_in_what_is_kept() -> None:
    key, kept = new_key("acme")
    secret = key.rpartition(kept.key_id + "_")[2]
    assert secret not in kept.model_dump_json()
    assert find_key({kept.key_id: kept}, key, NOON) == kept
    assert find_key({}, key, NOON) is None


def test_an_expired_key_is_none() -> None:
    key, kept = new_key("acme", expires_at=NOON)
    assert find_key({kept.key_id: kept}, key, NOON - timedelta(seconds=1)) == kept
    assert find_key({kept.key_id: kept}, key, NOON) is None


@given(st.text(max_size=80))
def test_no_text_is_a_key_by_chance(text: str) -> None:
    _, kept = new_key("acme")
    assert find_key({kept.key_id: kept}, text, NOON) is None


def test_a_key_file_is_noticed_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    file = KeyFile(path, every_seconds=0)
    key, kept = new_key("acme")
    file.add(kept)
    assert path.stat().st_mode & 0o777 == 0o600
    reader = KeyFile(path, every_seconds=0)
    assert find_key(reader.all(), key, NOON)
    other, kept_other = new_key("globex")
    file.add(kept_other)
    assert find_key(reader.all(), other, NOON)
    file.revoke(kept.key_id)
    assert find_key(reader.all(), key, NOON) is None
    with pytest.raises(RequestError, match="no key has the id"):
        file.revoke(kept.key_id)


# One process imports the package, and its children write, each through a `KeyFile` of its own.
ADDING = """
import os
import sys
from crp_integrations.gateway.admission import KeyFile, new_key
path, *names = sys.argv[1:]
children = []
for name in names:
    children.append(os.fork())
    if not children[-1]:
        break
else:
    sys.exit(max(os.waitpid(child, 0)[1] for child in children) != 0)
file = KeyFile(path)
for number in range(4):
    key, kept = new_key(name)
    file.add(kept)
    if number % 2:
        file.revoke(kept.key_id)
"""


def test_processes_that_write_a_key_file_lose_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    names = [f"tenant-{number}" for number in range(4)]
    script("-c", ADDING, path, *names).check_returncode()
    kept = Counter(key.tenant for key in KeyFile(path).all().values())
    assert kept == dict.fromkeys(names, 2)


def test_a_writer_does_not_wait_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    with (
        file_held(path, 1.0),
        pytest.raises(StoreBusy, match="being written"),
        file_held(path, 0.05),
    ):
        pass
    with file_held(path, 0.05):
        pass
    with pytest.raises(StoreError, match="cannot be made"), file_held(path / "no" / "k", 0.05):
        pass


def test_a_key_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path, server: Double) -> None:
    from crp_integrations.gateway import OpenAIServer, create_app
    from tests.doubles import HashEmbedder

    path = tmp_path / "keys.jsonl"
    key, kept = new_key("acme")
    file = KeyFile(path, every_seconds=0)
    file.add(kept)
    app = create_app(
        tmp_path / "store",
        keys=KeyFile(path, every_seconds=0),
        upstream=OpenAIServer(server.url),
        options={"embedder": HashEmbedder()},
    )
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(app) as client:
        assert client.get("/v1/facts", headers=headers).status_code == 200
        for broken in ("{", '{"key_id": 1}', "[]"):
            path.write_text(broken)
            response = client.get("/v1/facts", headers=headers)
            assert response.status_code == 500
            assert str(path) not in response.text
            with pytest.raises(ConfigError):
                KeyFile(path).all()
        path.unlink()
        assert client.get("/v1/facts", headers=headers).status_code == 500


# --- how often, how many -----------------------------------------------------------------


def test_a_rate_is_kept_and_says_when(tmp_path: Path, server: Double) -> None:
    limits = GatewaySettings(requests_per_minute=1, burst=2)
    with opened(tmp_path, server, settings=limits) as gateway:
        assert [gateway.get("/v1/facts").status_code for _ in range(3)] == [200, 200, 429]
        response = gateway.get("/v1/facts")
        assert 1 <= int(response.headers["Retry-After"]) <= 60
        assert response.json()["error"]["type"] == "rate_limit_error"
        # Another key has its own bucket.
        assert gateway.get("/v1/facts", "globex").status_code == 200


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 5))
def test_no_bucket_gives_more_than_its_rate(waits: list[float], burst: int) -> None:
    rates, now, given_out = RequestRates(60, burst), 0.0, 0
    for wait in waits:
        now += wait
        with suppress(GatewayBusy):
            rates.take("key", now)
            given_out += 1
    assert given_out <= burst + now


def test_a_share_is_given_back_whatever_happens() -> None:
    together = ConcurrencyLimit(1, 2)
    with pytest.raises(ZeroDivisionError), together.one("a", "acme"):
        raise ZeroDivisionError
    with together.one("a", "acme"), together.one("b", "acme"):
        for key in ("a", "c"):
            with pytest.raises(GatewayBusy), together.one(key, "acme"):
                raise AssertionError
    assert together.running == 0
    assert not together._tenants


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=300), st.integers(1, 12))
def test_a_tenant_gets_its_share_whatever_the_others_run(
    events: list[tuple[int, bool]], in_all: int
) -> None:
    together, running = ConcurrencyLimit(1_000, in_all), list[tuple[int, ExitStack]]()
    for number, (tenant, begins) in enumerate(events):
        own = [entry for entry in running if entry[0] == tenant]
        if not begins:
            for entry in own[:1]:
                entry[1].close()
                running.remove(entry)
            continue
        stack, tenants = ExitStack(), {name for name, _ in running} | {tenant}
        names = f"key-{number}", f"tenant-{tenant}"
        if len(running) >= 2 * in_all:
            with pytest.raises(GatewayBusy, match="twice its limit"):
                stack.enter_context(together.one(*names))
        elif len(running) >= in_all and len(own) >= in_all // len(tenants):
            with pytest.raises(GatewayBusy, match="its share"):
                stack.enter_context(together.one(*names))
        else:
            stack.enter_context(together.one(*names))
            running.append((tenant, stack))
        assert len(running) == together.running <= 2 * in_all


def test_at_most_twice_the_limit_runs_however_many_tenants_come() -> None:
    together = ConcurrencyLimit(1_000, 256)
    with ExitStack() as running:
        for number in range(64):
            with suppress(GatewayBusy):
                while True:
                    running.enter_context(together.one(f"k{number}", f"t{number}"))
        assert together.running == 512
        with pytest.raises(GatewayBusy, match="512 requests, twice its limit of 256"):
            running.enter_context(together.one("new", "new"))


async def test_too_many_at_once_are_429(tmp_path: Path, server: Double) -> None:
    server.fault = "slow"
    key, kept = key_for("acme")
    app = application(tmp_path, server, kept, settings=GatewaySettings(**FAST, at_once=2))
    headers = {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        waiting = [
            asyncio.create_task(client.post(CHAT, json=BODY, headers=headers)) for _ in range(2)
        ]
        while len(server.requests) < 2:
            await asyncio.sleep(0.01)
        third = await client.post(CHAT, json=BODY, headers=headers)
        assert third.status_code == 429
        assert third.headers["Retry-After"] == "1"
        server.released.set()
        assert {done.status_code for done in await asyncio.gather(*waiting)} == {502}
        server.fault = ""
        assert (await client.post(CHAT, json=BODY, headers=headers)).status_code == 200


# --- headers -----------------------------------------------------------------------------


async def raw(app: Any, headers: list[tuple[bytes, bytes]], path: str = CHAT) -> tuple[int, str]:
    """What the application itself answers to headers that no client library would send."""
    body = json.dumps(BODY).encode()
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not said:
            return {"type": "http.request", "body": body, "more_body": False}
        return {"type": "http.disconnect"}

    sent = iter([{"type": "http.request", "body": body}])

    async def once() -> dict[str, Any]:
        for message in sent:
            return message
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "http_version": "1.1",
        "scheme": "http",
        "server": ("gateway", 80),
        "client": ("caller", 1),
        "asgi": {"version": "3.0"},
    }
    await app(scope, once, send)
    text = b"".join(one.get("body", b"") for one in said).decode()
    return said[0]["status"], text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"CRP-Safety-Policy", b"halt-on HIGH\r\nX-Injected: 1"),
        (b"CRP-Safety-Policy", b"halt-on HIGH\nX-Injected: 1"),
        (b"CRP-Safety-Policy", b"halt-on HIGH\r"),
        (b"CRP-Safety-Policy", b"halt-on \x00HIGH"),
        (b"CRP-Safety-Policy", "halt-on HIGH; ünder".encode()),
        (b"CRP-Safety-Policy", "halt-on HIGH; ünder".encode("latin-1")),
        (b"CRP-Context-Session-Id", "crp_sess_７f3a9bc2d4e1f083".encode()),
        (b"CRP-Context-If-Match", b"sha256:\xff"),
        (b"crp-safety-policy ", b"halt-on HIGH"),
        (b" CRP-Safety-Policy", b"halt-on HIGH"),
        ("CRP-Säfety-Policy".encode("latin-1"), b"halt-on HIGH"),
        (b"CRP-Safety-Report-URI", b"http://example.test/\r\nHost: evil"),
        (b"X-Request-Id", b"a\r\nSet-Cookie: b=1"),
    ],
)
async def test_an_injected_header_is_400(
    tmp_path: Path, server: Double, name: bytes, value: bytes
) -> None:
    key, kept = key_for("acme")
    app = application(tmp_path, server, kept)
    status, text = await raw(app, [(b"authorization", f"Bearer {key}".encode()), (name, value)])
    assert status == 400
    assert "evil" not in text
    assert not server.requests


async def test_a_header_that_stands_twice_is_400(tmp_path: Path, server: Double) -> None:
    key, kept = key_for("acme")
    app = application(tmp_path, server, kept)
    own = (b"authorization", f"Bearer {key}".encode())
    twice = [(b"crp-safety-policy", b"halt-on HIGH"), (b"CRP-Safety-Policy", b"warn-on HIGH")]
    status, text = await raw(app, [own, *twice])
    assert (status, "twice" in text) == (400, True)


async def test_large_headers_are_431(tmp_path: Path, server: Double) -> None:
    key, kept = key_for("acme")
    app = application(tmp_path, server, kept, settings=SLOW)
    status, _ = await raw(
        app, [(b"authorization", f"Bearer {key}".encode()), (b"x-large", b"a" * 9_000)]
    )
    assert status == 431


# --- bodies, over a socket ---------------------------------------------------------------


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Double]]:
    from tests.servers import openai_double

    with (
        openai_double(text="Plant 7 was built in 1957.") as double,
        served(tmp_path_factory.mktemp("patient"), double, SLOW) as found,
    ):
        yield found, double


def conversation(
    gateway: Served, *pieces: bytes, pause: float = 0.0, wait: float = 15.0
) -> tuple[bytes, float]:
    """Send pieces with pauses, and read until the connection ends or nothing more comes."""
    began = time.monotonic()
    received = b""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=wait) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            while piece := connection.recv(65_536):
                received += piece
        except (TimeoutError, ConnectionResetError):
            pass
    return received, time.monotonic() - began


def head(gateway: Served, *lines: str, path: str = CHAT) -> bytes:
    own = [
        f"POST {path} HTTP/1.1",
        "Host: gateway",
        f"Authorization: Bearer {gateway.keys['acme']}",
        "Content-Type: application/json",
        *lines,
    ]
    return ("\r\n".join(own) + "\r\n\r\n").encode("latin-1")


def status(received: bytes) -> int:
    return int(received.split(b" ", 2)[1]) if received else 0


def test_a_body_that_says_its_size_is_refused_before_it_comes(
    patient: tuple[Served, Double],
) -> None:
    gateway, _ = patient
    received, seconds = conversation(gateway, head(gateway, "Content-Length: 200001"))
    assert status(received) == 413
    assert b"connection: close" in received.lower()
    assert seconds < 10


@pytest.mark.parametrize("length", ["99999999999999999999999999", "-1", "1e3", "1, 2", "0x10"])
def test_a_length_that_is_none_is_refused(patient: tuple[Served, Double], length: str) -> None:
    gateway, _ = patient
    received, _ = conversation(gateway, head(gateway, f"Content-Length: {length}"))
    assert status(received) in (400, 413)


def test_a_body_without_a_size_is_cut_at_the_limit(patient: tuple[Served, Double]) -> None:
    gateway, double = patient
    before = len(double.requests)
    chunk = b"%x\r\n%s\r\n" % (50_000, b" " * 50_000)
    received, _ = conversation(gateway, head(gateway, "Transfer-Encoding: chunked"), *[chunk] * 20)
    assert status(received) in (413, 0)
    assert len(double.requests) == before


def test_length_and_chunks_together_are_refused_or_read_as_chunks(
    patient: tuple[Served, Double],
) -> None:
    gateway, double = patient
    before = len(double.requests)
    body = json.dumps(BODY).encode()
    smuggled = head(gateway, "Content-Length: 4", "Transfer-Encoding: chunked")
    received, _ = conversation(
        gateway, smuggled, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), wait=3
    )
    assert received.count(b"HTTP/1.1 ") == 1
    assert status(received) in (200, 400)
    assert len(double.requests) - before <= 1


@pytest.mark.parametrize(
    "line",
    [
        "CRP-Safety-Policy: halt-on HIGH\r\n warn-on HIGH",
        "CRP-Safety-Policy: halt-on\r\n\tHIGH",
        "X-Other: a\r\n b",
        "CRP-Safety-Policy : halt-on HIGH",
        "CRP-Safety-Policy: halt-on \x00HIGH",
        "CRP-Safety-Policy: halt-on \rHIGH",
        "CRP-Safety-Policy: halt-on H\xccGH",
        "no colon at all",
    ],
)
def test_a_header_line_that_bends_the_rules_is_400(
    patient: tuple[Served, Double], line: str
) -> None:
    gateway, double = patient
    before = len(double.requests)
    body = json.dumps(BODY).encode()
    received, _ = conversation(
        gateway, head(gateway, f"Content-Length: {len(body)}", line, "Connection: close") + body
    )
    assert status(received) == 400
    assert len(double.requests) == before


def test_a_fold_is_seen_across_packets(patient: tuple[Served, Double]) -> None:
    gateway, _ = patient
    whole = head(gateway, "CRP-Safety-Policy: halt-on HIGH\r\n warn-on HIGH")
    at = whole.index(b"\r\n warn") + 2
    received, _ = conversation(gateway, whole[:at], whole[at:], pause=0.1)
    assert status(received) == 400


def test_headers_without_end_are_refused(patient: tuple[Served, Double]) -> None:
    gateway, _ = patient
    lines = b"".join(b"X-%d: %s\r\n" % (n, b"a" * 100) for n in range(2_000))
    received, _ = conversation(gateway, b"GET /healthz HTTP/1.1\r\nHost: a\r\n", lines)
    assert status(received) in (400, 431, 0)


@pytest.mark.parametrize(
    "first", [b"", b"P", b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n"]
)
def test_a_caller_who_is_slow_with_headers_is_cut_off(
    patient: tuple[Served, Double], first: bytes
) -> None:
    gateway, _ = patient
    # Who has begun the headers goes on with them, one at a time, and has no end.
    more = [b"X-A: b\r\n"] * 100 if b"\r\n" in first else []
    received, seconds = conversation(gateway, first, *more, pause=0.05)
    assert received == b""
    # A test of the whole machine's load: the deadline is a tenth of this.
    assert seconds < 10 * PATIENCE + 10


def test_a_caller_who_is_slow_with_the_body_is_408(patient: tuple[Served, Double]) -> None:
    gateway, double = patient
    before = len(double.requests)
    received, _ = conversation(
        gateway, head(gateway, "Content-Length: 1000"), *[b" "] * 40, pause=0.05
    )
    assert status(received) == 408
    assert len(double.requests) == before


def test_a_caller_who_does_not_read_is_cut_off(patient: tuple[Served, Double]) -> None:
    gateway, _ = patient
    own = {"Authorization": f"Bearer {gateway.keys['acme']}"}
    with httpx.Client(base_url=gateway.url, headers=own, timeout=60) as client:
        # More than the system holds for somebody who reads nothing.
        for number in range(4):
            facts = [
                {
                    "content": f"Note {number}.{n} of the archive is a long one, kept as it is.",
                    "metadata": {"scan": "x" * 500_000},
                }
                for n in range(10)
            ]
            assert client.post("/v1/facts", json={"facts": facts}).status_code == 200

        def lines(*words: str) -> list[str]:
            shown = client.get("/metrics").text.splitlines()
            return [
                line
                for line in shown
                if not line.startswith("#") and all(word in line for word in words)
            ]

        before = lines("requests_total", '/v1/facts"', "GET")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.connect(("127.0.0.1", gateway.port))
            asked = head(gateway, path="/v1/facts?limit=1000").replace(b"POST", b"GET", 1)
            connection.sendall(asked)
            for _ in range(600):
                # Callers of the tests before may be on their way out; then this look is alone.
                if lines("requests_total", '/v1/facts"', "GET") != before and lines(
                    "requests_running "
                ) == ["crp_gateway_requests_running 1"]:
                    break
                time.sleep(0.1)
            else:
                pytest.fail("the caller was not cut off, or is still counted")


def test_after_all_that_the_gateway_answers(patient: tuple[Served, Double]) -> None:
    gateway, _ = patient
    answered = gateway.openai().chat.completions.create(**BODY)
    assert answered.choices[0].message.content == "Plant 7 was built in 1957."


def test_nothing_that_was_refused_is_a_path_or_a_method(gateway: Gateway) -> None:
    for method, path, wanted in (
        ("GET", "/", 404),
        ("POST", "/v1/nothing", 404),
        ("GET", CHAT, 405),
        ("TRACE", CHAT, 405),
        ("BREW", CHAT, 405),
        ("POST", CHAT + "/", 404),
        ("GET", "/v1/reports/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/facts/%00", 404),
    ):
        response = gateway.client.request(method, path, headers=gateway.headers())
        assert response.status_code == wanted, (method, path)
        assert response.json()["schema"] == "gateway-refusal/1"
    assert gateway.client.get(CHAT, headers=gateway.headers()).headers["Allow"] == "POST"


def test_keys_that_a_program_gives(caplog: pytest.LogCaptureFixture) -> None:
    _, kept = new_key("acme")
    with caplog.at_level(logging.DEBUG), pytest.raises(RequestError, match="needs a tenant"):
        new_key(" ")
    assert Key.model_validate_json(kept.model_dump_json()) == kept
