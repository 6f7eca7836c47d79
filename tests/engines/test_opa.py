"""The guard over an OPA server: a loopback server that speaks `/v1/data`, and what goes wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from crp_integrations.engines.guards import guard_of
from crp_integrations.engines.rego import LONGEST_ANSWER, OpaEngine, RegoEngine
from crp_integrations.errors import AccessDenied, ConfigError, EngineError
from crp_integrations.guard.access import access
from crp_integrations.guard.decisions import Subject, require
from crp_integrations.guard.settings import GuardSettings

ANNA = Subject(tenant="acme", name="anna", roles=("reader",))
NUMBER = "4ca636c1-55e4-417a-b1d8-4aceb67960d1"


class Opa(ThreadingHTTPServer):
    """Answers as an OPA server that holds the shipped policy.

    Attributes:
        fault: status and body to answer with; None to decide.
        asked: path and input of each request.
        drips: whether an answer comes byte by byte.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault: tuple[int, bytes] | None = None
        self.asked: list[tuple[str, Any]] = []
        self.drips = False
        self.policy = RegoEngine()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Opa

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body["input"]))
        status, said = self.server.fault or (200, b"")
        if self.server.fault is None:
            told: dict[str, Any] = {"decision_id": NUMBER}
            # A path that nothing is defined at has no result, and that is no error for OPA.
            if self.path == "/v1/data/crp/access/decision":
                told["result"] = dict(self.server.policy.decide(access(), body["input"]))
            said = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if not self.server.drips:
            self.wfile.write(said)
            return
        with suppress(OSError):
            for number in range(len(said)):
                self.wfile.write(said[number : number + 1])
                time.sleep(0.02)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def opa() -> Iterator[Opa]:
    with Opa() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=5)


def test_it_decides_as_the_policy_in_this_process_and_gives_the_servers_number(opa: Opa) -> None:
    remote, own = (
        guard_of(GuardSettings(opa_url=opa.url + "/")),
        guard_of(GuardSettings(policy=True)),
    )
    for labels in (("class:public",), ("class:internal", "pii:low"), ("class:secret",)):
        far, near = remote.decide(ANNA, "read", labels), own.decide(ANNA, "read", labels)
        assert (far.allowed, far.redact, far.reason) == (near.allowed, near.redact, near.reason)
        assert far.id == NUMBER
        assert not far.lasting
    path, asked = opa.asked[1]
    assert path == "/v1/data/crp/access/decision"
    assert asked == {
        "subject": {"tenant": "acme", "name": "anna", "roles": ["reader"]},
        "action": "read",
        "resource": {"tenant": "acme", "labels": ["class:internal", "pii:low"]},
    }


def test_a_policy_that_the_server_changes_holds_at_once(opa: Opa) -> None:
    remote = guard_of(GuardSettings(opa_url=opa.url))
    assert remote.decide(ANNA, "read", ("class:public",)).allowed
    opa.fault = (200, json.dumps({"result": {"allow": False, "reason": "closed"}}).encode())
    found = remote.decide(ANNA, "read", ("class:public",))
    assert (found.allowed, found.reason) == (False, "closed")


@pytest.mark.requirement("SUM-store-4")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ((500, b'{"code": "internal_error"}'), "answered with status 500"),
        ((401, b"{}"), "answered with status 401"),
        ((200, b"<html>"), "did not answer with JSON"),
        ((200, b"[]"), "has no object at crp/access/decision"),
        ((200, b'{"result": true}'), "has no object at crp/access/decision"),
        ((200, b'{"result": {"allow": "true"}}'), "gave no decision"),
    ],
)
def test_whatever_is_no_decision_denies_and_says_why(
    opa: Opa, fault: tuple[int, bytes], says: str
) -> None:
    opa.fault = fault
    remote = guard_of(GuardSettings(opa_url=opa.url))
    with pytest.raises(AccessDenied, match=says):
        require(remote, ANNA, "read", ("class:public",))
    opa.fault = None
    assert require(remote, ANNA, "read", ("class:public",)).allowed


def test_a_rule_that_the_server_does_not_have_denies(opa: Opa) -> None:
    remote = guard_of(GuardSettings(opa_url=opa.url, entrypoint="crp/other/decision"))
    with pytest.raises(AccessDenied, match="has no object at crp/other/decision; is the policy"):
        require(remote, ANNA, "read", ("class:public",))


def test_a_server_that_is_down_or_slow_denies() -> None:
    # Nobody listens on the discard port.
    down = guard_of(GuardSettings(opa_url="http://127.0.0.1:9", opa_timeout_s=0.5))
    with pytest.raises(
        AccessDenied, match=r"OPA server at http://127\.0\.0\.1:9 cannot be reached"
    ):
        require(down, ANNA, "read", ("class:public",))
    engine = OpaEngine("http://127.0.0.1:9", timeout_s=0.5)
    with pytest.raises(EngineError, match="cannot be reached"):
        engine.decide(access(), {})
    engine.close()


@pytest.mark.parametrize(
    "url", ["nonsense", "http://", "http://[::bad", "ftp://10.0.0.1", "http://crp:hunter2"]
)
def test_an_address_that_is_none_is_refused_when_the_guard_is_made(url: str) -> None:
    with pytest.raises(ConfigError, match=r"guard\.opa_url is not the address") as caught:
        guard_of(GuardSettings(opa_url=url))
    assert "hunter2" not in str(caught.value)


def test_name_and_password_of_an_address_are_told_nowhere(
    opa: Opa, caplog: pytest.LogCaptureFixture
) -> None:
    asked = guard_of(GuardSettings(opa_url=opa.url.replace("//", "//crp:hunter2@")))
    assert asked.decide(ANNA, "read", ("class:public",)).allowed
    opa.fault = (503, b"")
    failed = asked.decide(ANNA, "read", ("class:internal",))
    assert opa.url in failed.reason
    told = f"{failed!r} {caplog.text} {OpaEngine(opa.url.replace('//', '//crp:hunter2@')).identity}"
    assert "hunter2" not in told


def test_an_answer_that_nests_without_end_denies(opa: Opa) -> None:
    opa.fault = (200, b"[" * 200_000)
    found = guard_of(GuardSettings(opa_url=opa.url)).decide(ANNA, "read", ("class:public",))
    assert (found.allowed, found.failed) == (False, True)


def test_an_answer_that_does_not_end_denies(opa: Opa) -> None:
    # Each byte comes long before the client would give a single read up.
    opa.fault, opa.drips = (200, b'{"result": ' + b" " * 2_000 + b"{}}"), True
    engine = OpaEngine(opa.url, timeout_s=0.5)
    with pytest.raises(EngineError, match=r"did not end its answer in 0\.5 s"):
        engine.decide(access(), {})


def test_an_answer_without_end_denies(opa: Opa) -> None:
    opa.fault = (200, b'{"result": {"reason": "' + b"a" * LONGEST_ANSWER + b'"}}')
    with pytest.raises(EngineError, match="more than 1000000 bytes"):
        OpaEngine(opa.url).decide(access(), {})
