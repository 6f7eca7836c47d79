"""Processes that begin with everything loaded: each is forked from one that imports and waits.

An interpreter takes two seconds to import the package and six to import a framework too, a fork a
few hundredths. What hangs on how an interpreter starts, such as its encoding, its seed of hashes,
an output that is closed, or what it finds to import, needs one of its own: `sys.executable`.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from tests.requirements.rows import ROOT

# What nearly every command of the package loads.
PACKAGE = (
    "crp_integrations.cli.app",
    "crp_integrations.cli.terminal",
    "crp_integrations.cli.ask",
    "crp_integrations.cli.ingest",
    "crp_integrations.cli.ingest",
    "crp_integrations.engines.onnx",
    "crp_integrations.stores.sqlite",
    "crp_integrations.relay.relay",
)
# Each adapter with its framework.
FRAMEWORKS = (
    "crp_integrations.langchain",
    "crp_integrations.llama_index",
    "crp_integrations.litellm",
    "langchain.agents",
    "langgraph.graph",
)
# Processes of `multiprocessing`, forked likewise where there is fork.
BEGUN = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
if hasattr(os, "fork"):
    BEGUN.set_forkserver_preload(
        [
            "tests.stores.jobs_processes",
            "crp_integrations.relay.build",
            "crp_integrations.relay.relay",
        ]
    )
LENGTH = struct.Struct("!I")
STREAMS = 3


class Running:
    """A process that was forked; what it writes is kept in files until it has ended."""

    def __init__(self, told: int, out: IO[bytes] | None, err: IO[bytes]) -> None:
        self._told, self._out, self._err = told, out, err
        self.pid = int(self._line(None))
        self.returncode: int | None = None

    def wait(self, timeout: float = 240.0) -> int:
        if self.returncode is None:
            self.returncode = int(self._line(timeout))
            os.close(self._told)
        return self.returncode

    def communicate(self, timeout: float = 240.0) -> tuple[str, str]:
        self.wait(timeout)
        return _read(self._out), _read(self._err)

    def _line(self, timeout: float | None) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._told], [], [], timeout)[0]:
                os.kill(self.pid, signal.SIGKILL)
                raise TimeoutError(f"process {self.pid} still runs after {timeout} seconds")
            read = os.read(self._told, 1)
            assert read, f"what was to be forked ended: {_read(self._err)[-3000:]}"
            line += read
        return line


def _read(file: IO[bytes] | None) -> str:
    if file is None:
        return ""
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


class Waiting:
    """A process that has imported some modules and forks when it is told to."""

    def __init__(self, *modules: str, below: Waiting | None = None) -> None:
        self._ours, theirs = socket.socketpair()
        self._sending = threading.Lock()
        words = ["-m", "tests.forking", *modules]
        with theirs:
            if below is None:
                environment = os.environ | {"PYTHONUTF8": "1"}
                self._process: Any = subprocess.Popen(
                    [sys.executable, *words], stdin=theirs.fileno(), cwd=ROOT, env=environment
                )
            else:
                self._process = below.start(words, cwd=ROOT, env=os.environ, stdin=theirs.fileno())

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
    ) -> Running:
        """Run what the interpreter would with these words after its name.

        Args:
            stdin, stdout: open files; else nothing is read, and what is written is kept.
        """
        told, tell = os.pipe()
        # They are closed when they are read.
        err = tempfile.TemporaryFile()  # noqa: SIM115
        out = tempfile.TemporaryFile() if stdout is None else None  # noqa: SIM115
        nothing = os.open(os.devnull, os.O_RDONLY)
        asked = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode()
        streams = [nothing if stdin is None else stdin]
        streams += [stdout if stdout is not None else out.fileno() if out else 1, err.fileno()]
        try:
            with self._sending:
                socket.send_fds(self._ours, [LENGTH.pack(len(asked))], [*streams, tell])
                self._ours.sendall(asked)
        finally:
            os.close(tell)
            os.close(nothing)
        return Running(told, out, err)


@cache
def waiting(*modules: str) -> Waiting:
    """The process of these modules beside the package's, one for each process that runs tests."""
    return Waiting(*modules, below=waiting()) if modules else Waiting(*PACKAGE)


def run(
    words: Sequence[object],
    *,
    cwd: Path,
    env: Mapping[str, str],
    modules: Sequence[str] = (),
    told: str = "",
    stdout: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` of the interpreter with these words gives, in a forked process.

    Args:
        modules: what else is imported beforehand.
        told: what it can read.
    """
    said = [str(word) for word in words]
    if not hasattr(os, "fork"):
        return subprocess.run(
            [sys.executable, *said],
            cwd=cwd,
            env=dict(env),
            input=told,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            timeout=240,
        )
    with tempfile.TemporaryFile() as given:
        given.write(told.encode())
        given.seek(0)
        running = waiting(*modules).start(
            said, cwd=cwd, env=env, stdin=given.fileno(), stdout=stdout
        )
        out, err = running.communicate()
    return subprocess.CompletedProcess(said, running.wait(), out, err)


# --- the process that waits ----------------------------------------------------------------


def _asked(wire: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What is to be run, in the process that is to run it; this one ends with who tells it."""
    watching: set[int] = set()
    while True:
        head, fds, _, _ = socket.recv_fds(wire, LENGTH.size, STREAMS + 1)
        if not head:
            os._exit(0)
        (length,) = LENGTH.unpack(head)
        body = b""
        while len(body) < length:
            body += wire.recv(length - len(body))
        *streams, tell = fds
        watch = os.fork()
        if not watch and not _watched(tell):
            os.close(tell)
            wire.close()
            return json.loads(body), streams
        for fd in fds:
            os.close(fd)
        watching.add(watch)
        watching -= {pid for pid in watching if os.waitpid(pid, os.WNOHANG)[0]}


def _watched(tell: int) -> int:
    """Fork, tell how that process ends, and end; 0 in the process that is watched."""
    child = os.fork()
    if not child:
        return 0
    os.write(tell, b"%d\n" % child)
    _, status = os.waitpid(child, 0)
    # Nobody hears of one that ends with the tests.
    with suppress(BrokenPipeError):
        os.write(tell, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """Be the interpreter that was asked for."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    # Those that there are know whether the files of the process that waited can be sought in.
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = os.fdopen(  # type: ignore[misc]
        1, "w", encoding="utf-8", errors="surrogateescape", closefd=False
    )
    sys.stderr = sys.__stderr__ = os.fdopen(  # type: ignore[misc]
        2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    more = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    first, *rest = asked["words"]
    if first == "-m":
        sys.argv, sys.path[:1] = rest, [asked["cwd"], *more]
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[:1] = ["-c", *rest[1:]], ["", *more]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[:1] = [first, *rest], [str(Path(first).parent), *more]
        runpy.run_path(first, run_name="__main__")


def main() -> None:
    """Import the modules that are named, then fork for whoever tells so on the standard input."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    wire = socket.socket(fileno=os.dup(0))
    _become(*_asked(wire))


if __name__ == "__main__":
    main()
