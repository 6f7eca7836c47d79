"""The gateway that is measured, in a process of its own.

`python -m tests.bench.gateway_server STORE UPSTREAM KEYS EMBEDDER THREADS`

It prints its port, and then its memory in MB for each line that it is sent.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.measure import steady_mb

MODULE = "tests.bench.gateway_server"
# Caches that fill within the warm-up, so that what grows after it is none of them.
REUSE = {"envelopes": 16, "bytes": 2_000_000}
SHELVES = {"sessions": 32, "subjects": 8}


class Measured:
    """A running gateway."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}"

    def memory_mb(self) -> float:
        """What the process has in RAM, after a collection and without what is free."""
        if self._process.stdin is None or self._process.stdout is None:
            return 0.0
        self._process.stdin.write("memory\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def running(
    store: Path, upstream: str, keys: Path, embedder: str, threads: int
) -> Iterator[Measured]:
    """A gateway over a store, until the block ends."""
    command = [sys.executable, "-m", MODULE, str(store), upstream, str(keys), embedder]
    command.append(str(threads))
    # Our own module, through no shell.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = process.stdout.readline().strip() if process.stdout else ""
        yield Measured(process, int(port))
    finally:
        process.terminate()
        process.wait()


def main(arguments: list[str]) -> None:
    """Serve until the process ends."""
    from crp_integrations.gateway import GatewaySettings, KeyFile, OpenAIServer, create_app
    from crp_integrations.gateway.server import server
    from tests.bench.fabric_corpus import embedder_of

    store, upstream, keys, embedder, threads = arguments
    limits = GatewaySettings(requests_per_minute=1e9, burst=1_000_000, threads=int(threads))
    chosen = embedder_of("hash" if embedder == "hash" else "minilm")
    app = create_app(
        store,
        keys=KeyFile(keys),
        upstream=OpenAIServer(upstream),
        settings=limits,
        options={"embedder": chosen},
        # One model call a question: an answer that is incomplete stays so.
        dispatch={"redispatches": 0, "continue_incomplete": False},
        envelope={"reuse": REUSE},
        fabric={"shelves": SHELVES},
    )
    made = server(app, port=0, settings=limits)

    def told() -> None:
        for _ in sys.stdin:
            sys.stdout.write(f"{steady_mb():.1f}\n")
            sys.stdout.flush()

    def begun() -> None:
        while not made.started:
            threading.Event().wait(0.05)
        sys.stdout.write(f"{made.servers[0].sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        told()

    threading.Thread(target=begun, daemon=True).start()
    made.run()


if __name__ == "__main__":
    main(sys.argv[1:])
