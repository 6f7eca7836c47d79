"""Published verifiers are fetched from a hub once, compared with their hash, and used by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from crp_integrations.engines.verifiers.model_catalogue import (
    PUBLISHED,
    RECORD,
    fetch,
    model_hash,
    published_verifier,
)
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.relay.defaults import default_verifier

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"\x00" * 4_096}
NAME = "nli"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a snapshot asks for."""

    asked: list[str] = []

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        repository = PUBLISHED[NAME].repository
        if self.path.startswith(f"/api/models/{repository}/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                for name, content in FILES.items()
            ]
            self._send(json.dumps(tree).encode(), {}, body)
            return
        if self.path.startswith(f"/api/models/{repository}"):
            listed = {
                "id": repository,
                "sha": COMMIT,
                "siblings": [{"rfilename": name} for name in FILES],
            }
            self._send(json.dumps(listed).encode(), {}, body)
            return
        name = self.path.rpartition("/")[2].partition("?")[0]
        content = FILES.get(name)
        if content is None or COMMIT not in self.path:
            self.send_error(404)
            return
        tag = hashlib.sha256(content).hexdigest()
        self._send(content, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}, body)

    def _send(self, content: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("huggingface_hub")
    # The tests' own guard against downloads; this hub is on the loopback.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("CRP_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("CRP_MODELS_MIRROR", address)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    Hub.asked.clear()
    yield address
    server.shutdown()
    server.server_close()


@pytest.fixture
def wanted(tmp_path: Path) -> str:
    folder = tmp_path / "right"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return model_hash(folder)


@pytest.mark.enable_socket
def test_a_model_is_fetched_from_the_mirror_and_compared(
    hub: str, wanted: str, tmp_path: Path
) -> None:
    record = fetch(NAME, COMMIT, wanted)
    folder = tmp_path / "models" / NAME
    assert record["sha256"] == wanted and record["pinned"]
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert json.loads((folder / RECORD).read_text()) == record
    assert Hub.asked


@pytest.mark.enable_socket
def test_other_files_than_the_pinned_ones_are_refused(hub: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="wanted sha256:0000"):
        fetch(NAME, COMMIT, "sha256:" + "0" * 64)
    assert not (tmp_path / "models" / NAME / RECORD).exists()
    with pytest.raises(ConfigError, match="fetch it with fetch\\('nli'"):
        published_verifier(NAME)


@pytest.mark.enable_socket
def test_who_takes_what_comes_says_so(hub: str, tmp_path: Path) -> None:
    record = fetch(NAME, COMMIT, unpinned=True)
    assert not record["pinned"]
    assert json.loads((tmp_path / "models" / NAME / RECORD).read_text()) == record


def test_a_model_without_a_hash_or_a_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRP_MODELS", str(tmp_path))
    with pytest.raises(ConfigError, match="unpinned=True"):
        fetch(NAME, COMMIT)
    with pytest.raises(ConfigError, match="wanted one of lettucedetect"):
        fetch("unknown", COMMIT)
    default_verifier.cache_clear()
    with pytest.raises(ConfigError, match="fetch it with fetch\\('lettucedetect'"):
        default_verifier("lettucedetect")
