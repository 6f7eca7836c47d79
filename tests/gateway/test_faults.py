"""A full disk, a stopped database and idle callers: no model is paid in vain, nobody is locked out."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from crp_integrations.gateway import GatewaySettings
from crp_integrations.gateway.server import server as make_server
from tests.doubles import HashEmbedder
from tests.gateway.application import (
    BODY,
    FAST,
    Gateway,
    application,
    furnish,
    key_for,
    opened,
    served,
)
from tests.postgres import Server as Database
from tests.postgres import server as database
from tests.servers import Double, openai_double

CHAT = "/v1/chat/completions"
ANSWER = "Plant 7 was built in 1957."


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own in memory; the test is skipped where it cannot be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=777", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user cannot mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_disk(folder: Path) -> Path:
    """A file that takes all the room but less than a page."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4_096):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return path


def refused_four_times(
    gateway: Gateway, server: Double, logged: pytest.LogCaptureFixture, cause: str
) -> None:
    for _ in range(4):
        logged.clear()
        refused = gateway.ask()
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) > 0
        # No model was paid, so a client may retry.
        assert "X-Should-Retry" not in refused.headers
        # The log names the cause, which is not for callers.
        assert cause in logged.text and "disk" not in refused.text
    assert server.requests == []


def test_a_full_disk_pays_no_model(
    tmp_path: Path, server: Double, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 32) as disk:
        kb = disk / "kb"
        kb.mkdir()
        with opened(kb, server) as gateway:
            # Opening a database makes its lock file, which needs room as well.
            assert gateway.post("/v1/preview", BODY).status_code == 200
            ballast = fill_disk(disk)
            refused_four_times(gateway, server, caplog, "left on its disk")
            # Reading goes on, and asking does when there is room.
            assert gateway.post("/v1/preview", BODY).status_code == 200
            ballast.unlink()
            assert gateway.ask().status_code == 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A small disk and the address of a database on it."""
    own = database()
    with small_disk(tmp_path / "disk", 48) as folder, ExitStack() as after:
        own.give(folder / "space")
        # The server runs as another user, which pytest's own folders keep out.
        for parent in (tmp_path, *tmp_path.parents):
            if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & stat.S_IXOTH:
                parent.chmod(0o755)
        with psycopg.connect(own.address(), autocommit=True) as raw:
            raw.execute(f"CREATE TABLESPACE small LOCATION '{folder / 'space'}'")
            raw.execute("CREATE DATABASE small TABLESPACE small")

            def drop() -> None:
                (folder / "ballast").unlink(missing_ok=True)
                with psycopg.connect(own.address(), autocommit=True) as raw:
                    raw.execute("DROP DATABASE small WITH (FORCE)")
                    raw.execute("DROP TABLESPACE small")

        after.callback(drop)
        yield folder, own.address("small")


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRP_KEY", "ab" * 32)


def test_a_full_disk_of_a_database_pays_no_model(
    with_key: None, disk: tuple[Path, str], server: Double, caplog: pytest.LogCaptureFixture
) -> None:
    folder, address = disk
    with opened(address, server) as gateway:
        assert gateway.ask().status_code == 200
        server.requests.clear()
        ballast = fill_disk(folder)
        refused_four_times(gateway, server, caplog, "no room left on its disk")
        assert gateway.post("/v1/preview", BODY).status_code == 200
        ballast.unlink()
        assert gateway.ask().status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_disk_that_fills_up_while_a_model_answers_tells_clients_not_to_retry(
    with_key: None, disk: tuple[Path, str], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder, address = disk

    def answer(seen: Any) -> str:
        fill_disk(folder)
        return ANSWER * 400

    with (
        openai_double(answers=answer) as server,
        opened(address, server, settings=GatewaySettings(**FAST, live_streams=False)) as gateway,
    ):
        refused = gateway.post(CHAT, {**BODY, "stream": stream})
        assert refused.status_code == 503
        assert refused.headers["X-Should-Retry"] == "false"
        assert "no room left on its disk" in caplog.text
        assert len(server.requests) == 1


def test_a_stopped_database_is_503_after_the_wait_that_was_set(
    with_key: None, server: Double, caplog: pytest.LogCaptureFixture
) -> None:
    own = Database()
    settings = GatewaySettings(**FAST, busy_seconds=0.6)
    with own.database() as name, opened(own.address(name), server, settings=settings) as gateway:
        assert gateway.ask().status_code == 200
        server.requests.clear()
        own.stop()
        for path in (CHAT, "/v1/preview"):
            caplog.clear()
            refused = gateway.post(path, BODY)
            assert refused.status_code == 503 and int(refused.headers["Retry-After"]) > 0
            assert "gave up after 0.6 s" in caplog.text or "cannot be reached" in caplog.text
        assert server.requests == []
        own.start()
        assert gateway.ask().status_code == 200
    own.close()


def test_a_database_that_stops_while_a_model_answers_tells_clients_not_to_retry(
    with_key: None,
) -> None:
    own = Database()

    def answer(seen: Any) -> str:
        own.stop()
        return ANSWER

    settings = GatewaySettings(**FAST, busy_seconds=0.6)
    with (
        openai_double(answers=answer) as server,
        own.database() as name,
        opened(own.address(name), server, settings=settings) as gateway,
    ):
        refused = gateway.ask()
        assert refused.status_code == 503
        assert refused.headers["X-Should-Retry"] == "false"
        own.start()
    own.close()


# --- idle callers ------------------------------------------------------------------------

MOST = 12


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"])
def test_idle_connections_lock_nobody_out(tmp_path: Path, server: Double, sent: bytes) -> None:
    patient = {"header_seconds": 600.0, "idle_seconds": 600.0}
    settings = GatewaySettings(**FAST, **patient, connections=MOST)
    with served(tmp_path, server, settings) as gateway, ExitStack() as idle:
        for _ in range(3 * MOST):
            caller = idle.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            caller.sendall(sent)
        headers = {"Authorization": f"Bearer {gateway.keys['acme']}"}
        for _ in range(3):
            with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as client:
                assert client.post(CHAT, json=BODY).status_code == 200
                # A connection that is kept alive is idle after its answer.
                assert client.get("/v1/facts").status_code == 200


def test_a_running_request_is_not_cut_for_a_new_connection(tmp_path: Path) -> None:
    with openai_double(text=ANSWER, fault="trickle", pause_s=0.2) as server:
        settings = GatewaySettings(**FAST, connections=MOST)
        with served(tmp_path, server, settings) as gateway, ExitStack() as idle:
            with gateway.openai(timeout=60).chat.completions.create(**BODY, stream=True) as stream:
                first = next(iter(stream))
                assert first.choices
                for _ in range(3 * MOST):
                    idle.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            assert text == ANSWER


def test_a_response_that_is_still_being_read_is_not_cut_for_a_new_connection() -> None:
    size, answered = 16 << 20, threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for stage in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{stage}.complete"})
            return
        length = [(b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": bytes(size)})
        answered.set()

    running = make_server(app, port=0, settings=GatewaySettings(connections=MOST))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.01)
    address = running.servers[0].sockets[0].getsockname()
    with ExitStack() as open_sockets:
        reader = open_sockets.enter_context(socket.create_connection(address, 60))
        reader.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answered.wait(60)
        for _ in range(3 * MOST):
            open_sockets.enter_context(socket.create_connection(address))
        received = 0
        # The header lines come on top.
        while received < size and (piece := reader.recv(1 << 20)):
            received += len(piece)
    assert received >= size
    running.should_exit = True
    thread.join(30)


@pytest.mark.skipif(os.name != "posix", reason="files are limited on POSIX alone")
def test_connections_leave_files_for_stores_and_models(
    tmp_path: Path, server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (2 * MOST, 4_096))
    with served(tmp_path, server) as gateway, ExitStack() as idle:
        for _ in range(3 * MOST):
            idle.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
        assert httpx.get(f"{gateway.url}/healthz", timeout=60).status_code == 200


# --- a noisy tenant ----------------------------------------------------------------------


class SlowEmbedder(HashEmbedder):
    """Holds a thread for each question of the noisy tenant until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def embed_query(self, text: str) -> Any:
        if "noise" in text:
            self.released.wait(60)
        return super().embed_query(text)


@pytest.mark.parametrize("threads", [1, 4])
async def test_a_tenant_whose_questions_hold_every_thread_delays_only_itself(
    tmp_path: Path, server: Double, threads: int
) -> None:
    furnish(tmp_path)
    keys = {tenant: key_for(tenant) for tenant in ("acme", "globex")}
    embedder, limits = SlowEmbedder(), GatewaySettings(threads=threads)
    app = application(
        tmp_path,
        server,
        *(key for _, key in keys.values()),
        settings=limits,
        options={"embedder": embedder},
    )

    async def ask(tenant: str, question: str) -> int:
        headers = {"Authorization": f"Bearer {keys[tenant][0]}"}
        body = {**BODY, "messages": [{"role": "user", "content": question}]}
        return (await client.post(CHAT, json=body, headers=headers)).status_code

    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as client,
    ):
        assert await ask("globex", "When was plant 1 built?") == 200
        noisy = [asyncio.create_task(ask("acme", f"noise {number}")) for number in range(40)]
        await asyncio.sleep(0.3)
        for number in range(5):
            assert await ask("globex", f"When was plant {number} built?") == 200
        assert not [task for task in noisy if task.done()]
        embedder.released.set()
        assert set(await asyncio.gather(*noisy)) == {200}
