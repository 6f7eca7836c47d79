"""What an upstream sets in one tenant's answer does not go along with another's question."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from crp_integrations.engines.openai_server import OpenAIServer
from crp_integrations.messages import Message, ModelCall

SAID = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
    ],
}
CALL = ModelCall(model="m", messages=(Message(role="user", content="Is it?"),))


class _Setting(BaseHTTPRequestHandler):
    cookies: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.cookies.append(self.headers["Cookie"])
        data = json.dumps(SAID).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "session=of-acme; Path=/")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *said: object) -> None:
        """Keep quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    _Setting.cookies.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Setting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_a_cookie_of_the_upstream_is_not_sent_back(url: str) -> None:
    model = OpenAIServer(url)
    for _ in range(2):
        assert model.call(CALL).text == "Yes."

    async def twice() -> None:
        for _ in range(2):
            await model.acall(CALL)
        await model.aclose()

    asyncio.run(twice())
    assert _Setting.cookies == [None] * 4
