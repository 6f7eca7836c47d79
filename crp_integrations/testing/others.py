"""Other processes of a test, started by name and killed at any moment.

One fresh process is started for a test, and makes a copy of itself for each call: a copy of the
test's own process might hold threads, locks and connections, and a fresh one takes a second to
start.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import pytest

# A function of a module, called with its end of a wire and what it was given.
Work = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Failed:
    """What a process says that ends with an error."""

    trace: str


class Other:
    """A process that was started, and what it says."""

    def __init__(self, wire: Connection) -> None:
        self.wire = wire
        self.pid = int(wire.recv())

    def hear(self) -> Any:
        """The next thing that it says; waits for it.

        Raises:
            EOFError: it has ended.
            AssertionError: it failed, with what it says of that.
        """
        said = self.wire.recv()
        if isinstance(said, Failed):
            raise AssertionError(said.trace)
        return said

    def tell(self, word: object) -> None:
        """Say something to it."""
        self.wire.send(word)

    def rest(self) -> list[Any]:
        """Everything that it says until it ends."""
        said = []
        with suppress(EOFError):
            while True:
                said.append(self.hear())
        return said

    def kill(self) -> list[Any]:
        """Kill it as `kill -9` does; what it had said and nobody had heard."""
        os.kill(self.pid, signal.SIGKILL)
        return self.rest()


class Others:
    """Processes for the length of a block; those that are left are killed at its end."""

    def __init__(self, most: int) -> None:
        """Start the process that the others are copies of.

        Args:
            most: how many are started in all.
        """
        if not hasattr(os, "fork"):
            pytest.skip("this system makes no copies of a process")
        spawn = multiprocessing.get_context("spawn")
        self._orders, orders = spawn.Pipe()
        pairs = [spawn.Pipe() for _ in range(most)]
        self._wires = [ours for ours, _ in pairs]
        self._started: list[Other] = []
        ends = [theirs for _, theirs in pairs]
        self._first = spawn.Process(target=_copies, args=(orders, ends))
        self._first.start()
        for end in (orders, *ends):
            end.close()

    def start(self, work: Work, *given: object) -> Other:
        """Call a function in a process of its own.

        Args:
            work: found by its name, so a function of a module.
            given: what it is called with after its end of the wire; must be picklable.
        """
        self._orders.send((work, given))
        other = Other(self._wires[len(self._started)])
        self._started.append(other)
        return other

    def __enter__(self) -> Others:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for other in self._started:
            # Its wire ends with it; a process that has ended takes no signal.
            with suppress(ProcessLookupError):
                os.kill(other.pid, signal.SIGKILL)
        self._orders.close()
        self._first.join()
        for wire in self._wires:
            wire.close()


def _copies(orders: Connection, ends: Sequence[Connection]) -> None:
    """Make a copy of this process for each order, until there are no more."""
    # Nobody waits for the copies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number, end in enumerate(ends):
        try:
            work, given = orders.recv()
        except EOFError:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (orders, *ends[number + 1 :]):
                other.close()
            _called(work, end, given)
        end.close()
    with suppress(EOFError):
        orders.recv()


def _called(work: Work, wire: Connection, given: Sequence[object]) -> None:
    try:
        wire.send(os.getpid())
        work(wire, *given)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - told to whoever listens, then the process ends
        wire.send(Failed(traceback.format_exc()))
    finally:
        os._exit(1)
