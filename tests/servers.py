"""A loopback server in the OpenAI shape: it records what arrives and fails when told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = {
    "unauthorised": (401, "invalid_api_key", "Incorrect API key provided"),
    "forbidden": (403, "forbidden", "You may not use this model"),
    "not-found": (404, "model_not_found", "The model does not exist"),
    "rate": (429, "rate_limit_exceeded", "Rate limit reached"),
    "broken": (500, "server_error", "The server had an error"),
    "unavailable": (503, "overloaded", "Try again later"),
    "context": (
        400,
        "context_length_exceeded",
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted"
            " in 200000 tokens."
        ),
    ),
    "bad-request": (400, "invalid_value", "Your message SECRET-ECHO was refused"),
}


@dataclass
class Recorded:
    """One request as it came over the wire, header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: str


@dataclass
class Double:
    """The server's answer and memory.

    `fault` is a key of FAULTS, or `malformed` (no JSON), `empty` (no choices), `slow` (longer
    than any test waits), `break` (a stream that ends in the middle) or `cut` (a stream that
    ends in time but never says so).
    `faults` by model name win over `fault`.
    """

    url: str = ""
    text: str = "The answer is 42."
    fault: str = ""
    faults: dict[str, str] = field(default_factory=dict)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    requests: list[Recorded] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def _body(self, model: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
            message["content"] = None
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if self.tool_calls else "stop",
                }
            ],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }

    def _chunks(self, model: str) -> Iterator[dict[str, Any]]:
        frame = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
        }

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": ""})
        if self.tool_calls:
            for place, call in enumerate(self.tool_calls):
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                half = len(arguments) // 2
                opening = {"name": name, "arguments": ""}
                yield chunk(
                    {
                        "tool_calls": [
                            {
                                "index": place,
                                "id": call["id"],
                                "type": "function",
                                "function": opening,
                            }
                        ]
                    }
                )
                for part in (arguments[:half], arguments[half:]):
                    yield chunk({"tool_calls": [{"index": place, "function": {"arguments": part}}]})
        else:
            for word in self.text.split(" "):
                yield chunk({"content": word if word == self.text.split(" ")[0] else " " + word})
        yield chunk({}, "tool_calls" if self.tool_calls else "stop")
        yield {
            **frame,
            "choices": [],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }


class _Handler(BaseHTTPRequestHandler):
    double: Double
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw)
        double = self.double
        double.requests.append(
            Recorded(
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                body,
                raw.decode(),
            )
        )
        model = body.get("model", "")
        fault = double.faults.get(model, double.fault)
        if fault in FAULTS:
            status, code, message = FAULTS[fault]
            error = {"error": {"message": message, "type": code, "code": code, "param": None}}
            return self._send(status, json.dumps(error))
        if fault == "slow":
            double.released.wait(20)
            return None
        if fault == "malformed":
            return self._send(200, "{ this is no JSON")
        if fault == "empty":
            return self._send(200, json.dumps({**double._body(model), "choices": []}))
        if body.get("stream"):
            return self._stream(double, model, fault)
        return self._send(200, json.dumps(double._body(model)))

    def _send(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, double: Double, model: str, fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, chunk in enumerate(double._chunks(model)):
            if fault == "break" and number == 3:
                # No closing chunk: the client sees a connection that died.
                self.close_connection = True
                return
            if fault == "cut" and (number > 3 or not chunk["choices"]):
                break
            self._piece(f"data: {json.dumps(chunk)}\n\n")
            time.sleep(0)
        else:
            self._piece("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _piece(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


@contextmanager
def openai_double(**options: Any) -> Iterator[Double]:
    """A running server on the loopback interface."""
    double = Double(**options)
    handler = type("Handler", (_Handler,), {"double": double})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    double.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    # A short poll lets the server close at once.
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield double
    finally:
        double.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
