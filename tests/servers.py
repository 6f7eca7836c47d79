"""Loopback servers: they record what arrives, count it, and fail when told to.

`openai_double` is in the OpenAI shape; `tests/shapes.py` has Anthropic's and Gemini's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

# Status, code and message by fault; a shape writes them as its provider does.
FAULTS = {
    "unauthorised": (401, "invalid_api_key", "Incorrect API key provided"),
    "forbidden": (403, "forbidden", "You may not use this model"),
    "not-found": (404, "model_not_found", "The model does not exist"),
    "request-timeout": (408, "request_timeout", "The request took too long"),
    "conflict": (409, "conflict", "The thread is locked"),
    "unprocessable": (422, "invalid_type", "temperature is no number"),
    "no-credit": (402, "no_credit", "Nothing is left on the account"),
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
# What a model that takes only so much says; both numbers are real.
TOO_LONG = (
    "This model's maximum context length is {limit} tokens. However, your messages resulted in "
    "{seen} tokens."
)
PROMPT_TOKENS, COMPLETION_TOKENS = 11, 7
# What no prompt may hold, in lower case.
SECRETS = ("crp", "etag", "sha256", "composite", "fact_id", "risk_level")


def no_metadata(sent: str) -> bool:
    """Whether nothing of CRP stands in what was sent."""
    return not [secret for secret in SECRETS if secret in sent.lower()]


@dataclass
class Recorded:
    """One request as it came over the wire, header names in lower case.

    Attributes:
        fault: what was done to it, empty when it was answered.
    """

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: str
    model: str = ""
    system: str = ""
    question: str = ""
    fault: str = ""

    @property
    def context(self) -> str:
        """The envelope's text as the model saw it."""
        return self.system.partition("<context>\n")[2].removesuffix("\n</context>")


@dataclass
class Window:
    """What a model takes: tokens, and how its own tokenizer counts messages in the OpenAI shape."""

    tokens: int
    count: Callable[[list[dict[str, Any]]], int]


class OpenAIShape:
    """Chat completions as OpenAI sends them."""

    root = "/v1"
    ends = "data: [DONE]\n\n"

    def read(self, seen: Recorded) -> bool:
        """Note model, system and question; whether a stream is wanted."""
        seen.model = seen.body.get("model", "")
        said = self.messages(seen)
        seen.system = "".join(m["content"] for m in said if m["role"] == "system")
        seen.question = said[-1]["content"] if said else ""
        return bool(seen.body.get("stream"))

    def messages(self, seen: Recorded) -> list[dict[str, Any]]:
        """The conversation in the OpenAI shape, for counting."""
        return [{**m, "content": m.get("content") or ""} for m in seen.body.get("messages", ())]

    def refusal(self, status: int, code: str, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": code, "code": code, "param": None}}

    def whole(self, double: Double, seen: Recorded) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": double.answer(seen)}
        if double.tool_calls:
            message["tool_calls"] = double.tool_calls
            message["content"] = None
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if double.tool_calls else "stop",
        }
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": seen.model,
            "choices": [choice],
            "usage": self.usage(double, seen),
        }

    def empty(self, double: Double, seen: Recorded) -> dict[str, Any]:
        return {**self.whole(double, seen), "choices": []}

    def usage(self, double: Double, seen: Recorded) -> dict[str, int]:
        prompt = double.counted(seen) or PROMPT_TOKENS
        return {
            "prompt_tokens": prompt,
            "completion_tokens": COMPLETION_TOKENS,
            "total_tokens": prompt + COMPLETION_TOKENS,
        }

    def pieces(self, double: Double, seen: Recorded) -> Iterator[tuple[str, bool]]:
        """Server-sent events, and whether each belongs to the end, which a cut stream lacks."""
        frame = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": seen.model,
        }

        def chunk(delta: dict[str, Any], finish: str | None = None) -> tuple[str, bool]:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return event({**frame, "choices": [choice]}), finish is not None

        yield chunk({"role": "assistant", "content": ""})
        for place, call in enumerate(double.tool_calls):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            half = len(arguments) // 2
            opening = {
                "index": place,
                "id": call["id"],
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            yield chunk({"tool_calls": [opening]})
            for part in (arguments[:half], arguments[half:]):
                yield chunk({"tool_calls": [{"index": place, "function": {"arguments": part}}]})
        if not double.tool_calls:
            for piece in words(double.answer(seen), double.piece_words):
                yield chunk({"content": piece})
        yield chunk({}, "tool_calls" if double.tool_calls else "stop")
        yield event({**frame, "choices": [], "usage": self.usage(double, seen)}), True


@dataclass
class Double:
    """The server's answer and memory.

    `fault` is a key of FAULTS, or `malformed` (no JSON), `empty` (no choices), `slow` (longer
    than any test waits), `drop` (the connection is closed instead of an answer), `break` (a
    stream that ends in the middle), `cut` (a stream that ends in time but never says so),
    `garbled` (a stream whose events are no JSON) or `trickle` (a stream that takes its time).
    `faults` by model name win over `fault`, and `choose`, called with the request, over both.

    Attributes:
        answers: the text for a request; None answers `text` to all.
        piece_words: words of one piece of a stream, in the OpenAI shape.
        refusal_headers: that go along with a fault's status, such as `Retry-After`.
        hung_up: a client went away in the middle of a stream.
        windows: what models take, by name; a request that does not fit is refused with numbers.
    """

    url: str = ""
    text: str = "The answer is 42."
    fault: str = ""
    faults: dict[str, str] = field(default_factory=dict)
    choose: Callable[[Recorded], str] | None = None
    answers: Callable[[Recorded], str] | None = None
    windows: dict[str, Window] = field(default_factory=dict)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    requests: list[Recorded] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    shape: Any = field(default_factory=OpenAIShape)
    pause_s: float = 0.02
    piece_words: int = 1
    refusal_headers: dict[str, str] = field(default_factory=dict)
    hung_up: bool = False

    def answer(self, seen: Recorded) -> str:
        return self.answers(seen) if self.answers else self.text

    def counted(self, seen: Recorded) -> int:
        """Tokens of a request by its model's own tokenizer; 0 for a model without a window."""
        window = self.windows.get(seen.model)
        return window.count(self.shape.messages(seen)) if window else 0

    def does(self, seen: Recorded) -> tuple[str, str]:
        """The fault of a request, and words for it where they depend on the request."""
        chosen = self.choose(seen) if self.choose else self.faults.get(seen.model, self.fault)
        window = self.windows.get(seen.model)
        if chosen or window is None:
            return chosen, ""
        tokens = self.counted(seen)
        wanted = tokens + int(seen.body.get("max_tokens") or 0)
        if wanted <= window.tokens:
            return "", ""
        return "context", TOO_LONG.format(limit=window.tokens, seen=wanted)


def event(value: dict[str, Any], name: str = "") -> str:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n"


def words(text: str, at_once: int = 1) -> list[str]:
    """The pieces of a streamed text, so many words each, which joined are the text."""
    first, *rest = text.split(" ")
    single = [first, *(" " + word for word in rest)]
    return ["".join(single[at : at + at_once]) for at in range(0, len(single), at_once)]


class _Handler(BaseHTTPRequestHandler):
    double: ClassVar[Double]
    protocol_version = "HTTP/1.1"
    # One packet an answer: a head sent alone would wait for the client's acknowledgement.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        double = self.double
        seen = Recorded(
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            json.loads(raw),
            raw.decode(),
        )
        streamed = double.shape.read(seen)
        fault, told = double.does(seen)
        seen.fault = fault
        double.requests.append(seen)
        if fault in FAULTS:
            status, code, message = FAULTS[fault]
            return self._send(
                status,
                json.dumps(double.shape.refusal(status, code, told or message)),
                double.refusal_headers,
            )
        if fault in ("slow", "drop"):
            if fault == "slow":
                double.released.wait(20)
            self.close_connection = True
            return None
        if fault == "malformed":
            return self._send(200, "{ this is no JSON")
        if fault == "empty":
            return self._send(200, json.dumps(double.shape.empty(double, seen)))
        if streamed:
            return self._stream(double, seen)
        return self._send(200, json.dumps(double.shape.whole(double, seen)))

    def _send(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, double: Double, seen: Recorded) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, (piece, ending) in enumerate(double.shape.pieces(double, seen)):
            if seen.fault == "break" and number == 3:
                # No closing chunk: the client sees a connection that died.
                self.close_connection = True
                return
            if seen.fault == "cut" and (number > 3 or ending):
                break
            if seen.fault == "garbled" and number == 2:
                piece = "data: { this is no JSON\n\n"
            if seen.fault == "trickle":
                time.sleep(double.pause_s)
            self._piece(piece)
            time.sleep(0)
        else:
            if double.shape.ends:
                self._piece(double.shape.ends)
        self.wfile.write(b"0\r\n\r\n")

    def _piece(self, text: str) -> None:
        data = text.encode()
        try:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        except ConnectionError:
            self.double.hung_up = True
            raise


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A burst of new connections must not be turned away.
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone, after its timeout, is no news."""


@contextmanager
def running(double: Double) -> Iterator[Double]:
    """A running server on the loopback interface."""
    handler = type("Handler", (_Handler,), {"double": double})
    server = _Server(("127.0.0.1", 0), handler)
    double.url = f"http://127.0.0.1:{server.server_address[1]}{double.shape.root}"
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


def openai_double(**options: Any) -> Any:
    """A running server in the OpenAI shape."""
    return running(Double(**options))
