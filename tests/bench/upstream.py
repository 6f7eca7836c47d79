"""A provider on the loopback interface: it answers by quoting the first sentences it is sent.

`python -m tests.bench.upstream` prints its port and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from crp_integrations import count_tokens
from crp_integrations.language.text import split_sentences

MODULE: Final = "tests.bench.upstream"
SENTENCES: Final = 3
_LENGTH: Final = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_MARKED: Final = re.compile(r"^\[\d+\] (.*)$", re.MULTILINE)


def quoted(messages: list[dict[str, Any]]) -> str:
    """The first sentence of each of the first facts in the context."""
    system = "".join(m["content"] for m in messages if m["role"] == "system")
    facts = _MARKED.findall(system)[:SENTENCES]
    return " ".join(split_sentences(fact)[0].of(fact) for fact in facts) or "There is no context."


async def serve() -> None:
    """Serve on a free port until the process ends."""
    server = await asyncio.start_server(_connection, "127.0.0.1", 0, limit=1 << 22)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


@contextmanager
def running() -> Iterator[str]:
    """The address of a server in a process of its own, whose time is not the client's."""
    # Our own module, through no shell.
    process = subprocess.Popen([sys.executable, "-m", MODULE], stdout=subprocess.PIPE, text=True)
    try:
        port = process.stdout.readline().strip() if process.stdout else ""
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


async def _connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            # A request without a body asks for the list of models.
            body = json.loads(await reader.readexactly(int(found[1]) if found else 0) or b"{}")
            streamed = bool(body.get("stream"))
            whole = _answer(body) if body else {"object": "list", "data": [{"id": "gpt-4o"}]}
            data = _events(body) if streamed else json.dumps(whole).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
                % (b"text/event-stream" if streamed else b"application/json", len(data))
            )
            writer.write(data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": quoted(body["messages"])}
    prompt = sum(count_tokens(m["content"], "gpt-4o").n for m in body["messages"])
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7},
    }


def _events(body: dict[str, Any]) -> bytes:
    """The same answer as a stream, word by word."""
    whole = _answer(body)
    frame = {**whole, "object": "chat.completion.chunk"}
    text = whole["choices"][0]["message"]["content"]
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"content": word}, None) for word in re.findall(r"\S+\s*", text)
    ]
    said = [
        {**frame, "usage": None, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (*deltas, ({}, "stop"))
    ]
    said.append({**frame, "choices": []})
    return (
        b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in said)
        + b"data: [DONE]\n\n"
    )


if __name__ == "__main__":
    asyncio.run(serve())
