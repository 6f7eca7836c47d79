"""A request that is sent before the one before it was answered is looked at like any other."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.gateway.houses import Served, served
from tests.servers import openai_double

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
