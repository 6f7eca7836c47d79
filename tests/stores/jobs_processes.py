"""What the processes of the tests of jobs run; importable by name."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crp_integrations import Relay
from tests.doubles import HashEmbedder
from tests.stores.postgres_processes import OPTIONS, SPAWN


class Processes(Executor):
    """A process for each call; one that dies leaves the others alone."""

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=_called, args=(theirs, call, given, named))
        process.start()
        theirs.close()

        def hear() -> None:
            try:
                future.set_result(ours.recv())
            except EOFError as error:
                future.set_exception(error)
            process.join()

        threading.Thread(target=hear).start()
        return future


def _called(wire: Connection, call: Callable[..., Any], given: Any, named: Any) -> None:
    wire.send(call(*given, **named))


def die_once(flag: Path) -> None:
    """Kill this process, the first that comes here."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(HashEmbedder):
    """Kills the first process that embeds a text with a word."""

    def __init__(self, flags: Path) -> None:
        super().__init__()
        self._flags = flags

    def embed_passages(self, texts: Any) -> Any:
        for word in ("tides", "moons"):
            if any(word in text for text in texts):
                die_once(self._flags / word)
        return super().embed_passages(texts)


def opened(address: str) -> Relay:
    return Relay.open(address, **OPTIONS)


def opened_to_die(address: str, flags: Path, parent: int, *, embedding: bool = True) -> Relay:
    """A relay whose process dies twice while it embeds, and once after it has stored."""
    if os.getpid() == parent:
        return opened(address)
    relay = Relay.open(address, **({**OPTIONS, "embedder": Dying(flags)} if embedding else OPTIONS))
    ingest = relay.ingest

    def dying(what: Any, **options: Any) -> Any:
        report = ingest(what, **options)
        if "reefs" in str(what):
            die_once(flags / "stored")
        return report

    relay.ingest = dying
    return relay
