"""Violation reports over real HTTP: busy, broken, slow and private receivers, and none at all."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from crp_integrations.engines import violation_reports
from crp_integrations.engines.violation_reports import HttpReports, is_public
from crp_integrations.errors import ConfigError
from crp_integrations.policy.directives import ReportSettings, ViolationType
from crp_integrations.policy.records import Policy, ViolationReport, ViolationSink

REPORT = ViolationReport(
    session_id="crp_sess_0123456789abcdef",
    window_id="crp_win_0123456789abcdef",
    timestamp="2026-05-25T10:00:00Z",
    violation_type=ViolationType.FABRICATION,
    directive_violated="block-fabrication",
)
# Longer than any test needs; it ends a test that hangs.
PATIENCE = 60.0


@dataclass
class Receiver:
    """A loopback server: it answers with the statuses in turn, the last one for good."""

    statuses: list[int] = field(default_factory=lambda: [204])
    hangs: bool = False
    location: str = ""
    url: str = ""
    got: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    peers: list[tuple[str, int]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def policy(self) -> Policy:
        return Policy(report_uri=(self.url,))


@contextmanager
def receiver(**how: Any) -> Iterator[Receiver]:
    double = Receiver(**how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            double.headers.append({name.lower(): value for name, value in self.headers.items()})
            double.peers.append(self.client_address)
            double.got.append(json.loads(body))
            double.arrived.set()
            if double.hangs:
                double.released.wait(PATIENCE)
                self.close_connection = True
                return
            status = double.statuses[min(len(double.got), len(double.statuses)) - 1]
            self.send_response(status)
            if double.location:
                self.send_header("Location", double.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        double.url = f"http://127.0.0.1:{server.server_port}/crp?key=SECRET-KEY"
        try:
            yield double
        finally:
            double.released.set()
            server.shutdown()
            thread.join()


@contextmanager
def sink(**how: Any) -> Iterator[HttpReports]:
    given = {"hosts": ("127.0.0.1",), "backoff_seconds": 0.001, **how}
    made = HttpReports(ReportSettings(**given))
    try:
        yield made
    finally:
        made.close(PATIENCE)


def counts(reports: HttpReports) -> tuple[int, int]:
    assert reports.flush(PATIENCE)
    return reports.sent, reports.dropped


def test_a_report_arrives_as_json() -> None:
    with receiver() as double, sink() as reports:
        carried: ViolationSink = reports
        carried.take(REPORT, double.policy())
        assert counts(reports) == (1, 0)
    assert double.got == [REPORT.model_dump(mode="json")]
    assert double.headers[0]["content-type"] == "application/json"
    assert not [name for name in double.headers[0] if name.startswith("crp-")]


def test_without_an_address_nothing_begins() -> None:
    before = threading.active_count()
    with sink() as reports:
        reports.take(REPORT, Policy())
        assert counts(reports) == (0, 0)
        assert threading.active_count() == before


@pytest.mark.parametrize("last", [200, 500])
@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_a_busy_receiver_is_asked_again_and_a_broken_one_is_given_up(
    status: int, last: int
) -> None:
    with receiver(statuses=[status, status, last]) as double, sink(attempts=3) as reports:
        reports.take(REPORT, double.policy())
        assert counts(reports) == ((1, 0) if last == 200 else (0, 1))
    assert len(double.got) == 3


@pytest.mark.parametrize("status", [301, 400, 404])
def test_a_receiver_that_refuses_is_not_asked_again(status: int) -> None:
    with receiver() as other:
        with receiver(statuses=[status], location=other.url) as double, sink() as reports:
            reports.take(REPORT, double.policy())
            assert counts(reports) == (0, 1)
        # A redirect is not followed.
        assert (len(double.got), other.got) == (1, [])


def test_a_refused_connection_is_tried_again_and_given_up() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        policy = Policy(report_uri=(f"http://127.0.0.1:{closed.getsockname()[1]}/",))
        with sink(attempts=2) as reports:
            reports.take(REPORT, policy)
            assert counts(reports) == (0, 1)


def test_a_silent_receiver_is_left_after_its_deadline() -> None:
    with receiver(hangs=True) as double, sink(timeout_seconds=0.3, attempts=2) as reports:
        reports.take(REPORT, double.policy())
        assert counts(reports) == (0, 1)


def test_a_receiver_that_answers_by_drips_is_left_after_its_deadline() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            # Each byte comes well before a read would time out; the headers never end.
            while not ended.wait(0.02):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    policy = Policy(report_uri=(f"http://127.0.0.1:{listening.getsockname()[1]}/",))
    with listening, sink(timeout_seconds=0.5, attempts=1) as reports:
        reports.take(REPORT, policy)
        assert counts(reports) == (0, 1)
        ended.set()
        thread.join(PATIENCE)


def test_who_gives_a_report_never_waits_and_one_receiver_does_not_hold_up_another() -> None:
    with (
        receiver(hangs=True) as slow,
        receiver() as quick,
        sink(timeout_seconds=PATIENCE) as reports,
    ):
        reports.take(REPORT, slow.policy())
        assert slow.arrived.wait(PATIENCE)
        reports.take(REPORT, quick.policy())
        assert quick.arrived.wait(PATIENCE)
        # The slow one is still under way, so a short flush says that not all is done.
        assert not reports.flush(0.0)
        slow.released.set()


def test_the_queue_is_bounded_and_what_is_dropped_is_counted() -> None:
    with receiver(hangs=True) as double, sink(capacity=2, timeout_seconds=PATIENCE) as reports:
        for _ in range(5):
            reports.take(REPORT, double.policy())
        assert reports.dropped == 3
        double.hangs = False
        double.released.set()
        assert counts(reports)[1] == 3


def test_many_threads_give_reports_and_none_is_lost() -> None:
    with receiver() as double, sink() as reports:
        threads = [
            threading.Thread(
                target=lambda: [reports.take(REPORT, double.policy()) for _ in range(10)]
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts(reports) == (80, 0)
    assert len(double.got) == 80


def test_closing_ends_what_hangs_and_takes_nothing_more() -> None:
    with receiver(hangs=True) as double, sink(timeout_seconds=PATIENCE) as reports:
        reports.take(REPORT, double.policy())
        assert double.arrived.wait(PATIENCE)
        reports.close(0.01)
        assert counts(reports) == (0, 1)
        reports.take(REPORT, double.policy())
        assert counts(reports) == (0, 2)
    assert not [one for one in threading.enumerate() if one.name == "crp-violation-reports"]


def test_a_connection_is_not_kept_for_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolved(host: str, port: int) -> str:
        return "127.0.0.1"

    monkeypatch.setattr(violation_reports, "_public", resolved)
    with receiver() as double, sink(hosts=()) as reports:
        for name in ("one.example", "two.example"):
            uri = double.url.replace("127.0.0.1", name)
            reports.take(REPORT, Policy(report_uri=(uri,)))
            assert reports.flush(PATIENCE)
    assert [headers["host"].split(":")[0] for headers in double.headers] == [
        "one.example",
        "two.example",
    ]
    assert len(set(double.peers)) == 2


def test_every_address_of_a_policy_gets_the_report_once() -> None:
    with receiver() as one, receiver() as other:
        with sink(hosts=("127.0.0.1",), receivers={"Ops": other.url}) as reports:
            both = Policy(report_uri=(one.url, other.url), report_to=("ops", "nobody"))
            reports.take(REPORT, both)
            assert counts(reports) == (2, 1)
        assert (len(one.got), len(other.got)) == (1, 1)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "[::ffff:127.0.0.1]"]
)
def test_a_private_host_that_is_not_listed_is_never_connected_to(host: str) -> None:
    with receiver() as double, sink(hosts=()) as reports:
        uri = double.url.replace("127.0.0.1", host)
        reports.take(REPORT, Policy(report_uri=(uri,)))
        assert counts(reports) == (0, 1)
    assert double.got == []


def test_a_receiver_that_the_operator_names_may_be_private() -> None:
    with receiver() as double, sink(hosts=(), receivers={"ops": double.url}) as reports:
        reports.take(REPORT, Policy(report_to=("ops",)))
        assert counts(reports) == (1, 0)


def test_a_name_is_connected_to_by_the_address_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The loopback address stands in for a public one; the name itself leads nowhere.
    async def resolved(host: str, port: int) -> str:
        assert host == "collector.example"
        return "127.0.0.1"

    monkeypatch.setattr(violation_reports, "_public", resolved)
    with receiver() as double, sink(hosts=()) as reports:
        uri = double.url.replace("127.0.0.1", "collector.example")
        reports.take(REPORT, Policy(report_uri=(uri,)))
        assert counts(reports) == (1, 0)
    port = double.url.split(":")[2].split("/")[0]
    assert double.headers[0]["host"] == f"collector.example:{port}"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("224.0.0.1", False),
        ("0.0.0.0", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:a00:1::", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_logs_name_the_window_and_nothing_of_the_report(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "crp_integrations.engines")
    with receiver(statuses=[500]) as double, sink(attempts=1) as reports:
        reports.take(REPORT, double.policy())
        assert counts(reports) == (0, 1)
    (message,) = caplog.messages
    assert "crp_win_0123456789abcdef" in message
    assert "status 500" in message
    for word in ("SECRET-KEY", "127.0.0.1", "block-fabrication"):
        assert word not in message


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": 0},
        {"attempts": 0},
        {"timeout_seconds": 0.0},
        {"backoff_seconds": -1.0},
        {"receivers": {"ops": "ftp://a.example/"}},
        {"receivers": {"o/ps": "https://a.example/"}},
    ],
)
def test_unusable_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, ValueError), match=r"capacity|attempts|seconds|receiver"):
        ReportSettings(**wrong)
