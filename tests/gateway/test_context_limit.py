"""How much a model is taken to take in: as the operator, the upstream, or the model's name says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.engines.openai_server import OpenAIServer
from crp_integrations.gateway import GatewaySettings
from tests.gateway.application import FACTS, FAST, QUESTION, opened
from tests.servers import openai_double

HEADER = "crp-context-limit"
ASKED = [{"role": "user", "content": QUESTION}]


class Listing(BaseHTTPRequestHandler):
    """Lists models."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        self.send_response(server.status)
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def listing(body: Any, status: int = 200) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Listing)
    server.asked, server.status = [], status
    server.body = body if isinstance(body, bytes) else json.dumps(body).encode()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        server.address = f"http://127.0.0.1:{server.server_port}/v1"
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("field", ["context_length", "max_model_len", "context_window"])
def test_a_list_of_models_is_read_once(field: str) -> None:
    with listing({"data": [{"id": "own", field: 4_096}, {"id": "mute"}]}) as server:
        upstream = OpenAIServer(server.address)
        assert upstream.context_limit("own") == 4_096
        assert upstream.context_limit("openai/own") == 4_096
        assert upstream.context_limit("mute") is None
        assert upstream.context_limit("other") is None
        assert server.asked == ["/v1/models"]


class Limited(OpenAIServer):
    """A server whose list says how much its models take in."""

    def context_limit(self, model: str) -> int | None:
        """The same of every model."""
        return 2_500


def test_a_gateway_says_which_limit_it_used(tmp_path: Path) -> None:
    body = {"model": "nobody-knows-this", "messages": ASKED}
    with openai_double(text=FACTS[7]) as server:
        for number, (more, said) in enumerate(
            (
                ({}, "8192;source=default"),
                ({"upstream": Limited(server.url)}, "2500;source=stated"),
                (
                    {
                        "upstream": Limited(server.url),
                        "settings": GatewaySettings(**FAST, context_limit=3_000),
                    },
                    "3000;source=stated",
                ),
                ({"context_limits": {"nobody-knows-this": 4_000}}, "4000;source=setting"),
            )
        ):
            place = tmp_path / str(number)
            place.mkdir()
            with opened(place, server, **more) as gateway:
                answered = gateway.post("/v1/chat/completions", body)
                assert answered.headers[HEADER] == said
                assert gateway.post("/v1/preview", body).headers[HEADER] == said
                streamed = gateway.post("/v1/chat/completions", {**body, "stream": True})
                assert streamed.headers[HEADER] == said


def test_a_limit_that_no_fact_fits_in_is_told(tmp_path: Path) -> None:
    body = {"model": "nobody-knows-this", "messages": ASKED}
    settings = GatewaySettings(**FAST, context_limit=60)
    with (
        openai_double(text=FACTS[7]) as server,
        opened(tmp_path, server, settings=settings) as gateway,
    ):
        answered = gateway.post("/v1/chat/completions", body)
        assert answered.headers["crp-context-facts-used"].startswith("0/")
        window = answered.json()["crp"]["window_id"]
        report = gateway.get(f"/v1/reports/{window}").json()
        assert any(flag.startswith("facts-did-not-fit=") for flag in report["flags"])
