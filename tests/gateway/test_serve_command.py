"""`crp keys`, `crp serve` before it listens, and the process that serves."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from crp_integrations.gateway import KeyFile
from crp_integrations.gateway.admission import Scope, find_key, new_key
from crp_integrations.gateway.server import serve
from tests.commands import Here


def crp(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crp_integrations.cli.app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_key_is_made_listed_and_revoked(here: Here, tmp_path: Path) -> None:
    file = str(tmp_path / "keys")
    made = here(*("keys", "acme", "--keys", file, "--scope", "ask", "--days", "7"), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    kept = find_key(KeyFile(file).all(), key, datetime.now(UTC))
    assert kept is not None
    assert (kept.tenant, kept.scopes) == ("acme", (Scope.ASK,))
    assert key.split("_", 2)[2] not in Path(file).read_text(encoding="utf-8")
    listed = here("keys", "--keys", file, cwd=tmp_path).stdout
    assert kept.key_id in listed
    assert "acme" in listed
    assert here("keys", "--revoke", kept.key_id, "--keys", file, cwd=tmp_path).returncode == 0
    assert not KeyFile(file).all()
    # Who has the key alone revokes it by that, and an error repeats none of its secret.
    other = here("keys", "acme", "--keys", file, cwd=tmp_path).stdout.strip()
    assert here("keys", "--revoke", other, "--keys", file, cwd=tmp_path).returncode == 0
    assert not KeyFile(file).all()
    again = here("keys", "--revoke", other, "--keys", file, cwd=tmp_path)
    assert again.returncode == 1
    assert other.removeprefix("crp_key_")[13:21] not in again.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "{store}", "--keys", "{none}"), "there is no key file"),
        (("serve", "{store}", "--keys", "{empty}"), "has no key"),
        (("serve", "{store}", "--keys", "{keys}", "--upstream", "ftp://x"), "not an http"),
        (("serve", "{store}", "--keys", "{keys}", "--policy", "nonsense 1"), "nonsense"),
        (("keys", " ", "--keys", "{keys}"), "needs a tenant"),
        (("keys", "shared:a", "--keys", "{keys}"), "reserved for shared namespaces"),
        (("keys", "a", "--scope", "fly", "--keys", "{keys}"), "--scope"),
        (("keys", "--revoke", "none", "--keys", "{keys}"), "no key has the id"),
        (("keys", "--keys", "{none}"), "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    here: Here, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").write_text("\n")
    KeyFile(tmp_path / "keys").add(new_key("acme")[1])
    names = {name: str(tmp_path / name) for name in ("store", "none", "empty", "keys")}
    done = here(*(one.format(**names) for one in arguments), cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert said in done.stderr
    assert done.stderr.startswith("crp: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_process_says_its_sentence_and_nothing_else(tmp_path: Path) -> None:
    done = crp("serve", str(tmp_path / "store"), "--keys", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("crp: there is no key file")
    assert len(done.stderr.splitlines()) == 1


def test_a_place_that_cannot_be_served_is_refused_before_it_listens(
    here: Here, tmp_path: Path
) -> None:
    """A file in the place of a store, and an address that another process has."""
    keys = str(tmp_path / "keys")
    KeyFile(keys).add(new_key("acme")[1])
    (tmp_path / "notes.md").write_text("A refund is granted within 30 days of purchase.")
    done = here("serve", "notes.md", "--keys", keys, "--port", "0", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "crp: store notes.md cannot be a folder: notes.md is a file\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = here("serve", "kb", "--keys", keys, "--port", port, cwd=tmp_path)
    assert done.returncode == 1
    empty, refused = done.stderr.splitlines()
    assert empty == "crp: there is no store at 'kb' yet; every tenant is empty"
    assert refused.startswith(f"crp: cannot listen on '127.0.0.1', port {port}: ")
    done = here("serve", "kb", "--keys", keys, "--host", "256.1.1.1", cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot listen on '256.1.1.1', port 8080: " in done.stderr


def test_every_line_of_a_json_log_is_an_object(tmp_path: Path) -> None:
    keys = str(tmp_path / "keys")
    KeyFile(keys).add(new_key("acme")[1])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    arguments = ("serve", str(tmp_path / "kb"), "--keys", keys, "--port", port)
    command = [sys.executable, "-W", "always", "-m", "crp_integrations.cli.app", *arguments]
    with subprocess.Popen(
        [*command, "--host", "0.0.0.0", "--json-logs"], stderr=subprocess.PIPE, text=True
    ) as served:
        assert served.stderr is not None
        lines = []
        for line in served.stderr:
            lines.append(json.loads(line))
            if "Uvicorn running" in str(lines[-1]["message"]):
                break
        assert httpx.get(f"http://127.0.0.1:{port}/v1/facts").status_code == 401
        served.terminate()
        lines += [json.loads(line) for line in served.stderr]
    assert {"at", "level", "logger"} <= set.intersection(*({*line} for line in lines))
    (access,) = (line for line in lines if line["logger"] == "crp_integrations.gateway.access")
    assert (access["status"], access["method"]) == (401, "GET")
    messages = [str(line.get("message")) for line in lines]
    assert any("no store" in message for message in messages)
    assert any("plain HTTP" in message for message in messages)


def test_what_other_packages_log_is_an_object_too(tmp_path: Path) -> None:
    script = """
import logging, warnings
from crp_integrations.cli.serve import _configure_logging
_configure_logging(access=True, as_json=True)
try:
    raise ValueError("the server is gone")
except ValueError:
    logging.getLogger("psycopg.pool").warning("error connecting: %s", "x", exc_info=True)
logging.getLogger("asyncio").error("Task exception was never retrieved")
logging.getLogger("asyncio").info("too low")
logging.getLogger("uvicorn.access").info("%s - %s", "127.0.0.1", "GET /")
logging.getLogger("crp_integrations.gateway.access").info("no object")
logging.getLogger("crp_integrations.gateway.access").info("[1]")
logging.getLogger("another.access").warning("GET /")
warnings.warn("a warning", stacklevel=1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["logger"] for line in lines] == [
        "psycopg.pool", "asyncio", "uvicorn.access", *["crp_integrations.gateway.access"] * 2,
        "another.access", "py.warnings",
    ]  # fmt: skip
    assert "the server is gone" in lines[0]["exception"] and lines[3]["message"] == "no object"
    assert done.stdout == ""


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that is never asked."""


def test_the_collector_leaves_alone_what_was_there_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, bool]] = []
    before = object.__new__(type("Before", (), {"__slots__": ("other",)}))

    def run(self: uvicorn.Server) -> None:
        seen.append((gc.get_freeze_count(), any(one is before for one in gc.get_objects())))

    monkeypatch.setattr(uvicorn.Server, "run", run)
    try:
        serve(_nothing)
    finally:
        gc.unfreeze()
    ((frozen, looked_at),) = seen
    assert frozen > 10_000
    assert not looked_at
