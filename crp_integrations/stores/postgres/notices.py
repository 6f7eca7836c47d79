"""What other processes erased: told by the server as they commit, so that memory lets go of it.

Every read asks for the state that is committed, so nothing erased is ever retrieved; this is about
texts that a process keeps ready for its next question.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

# The one channel: a note bears the schema of the namespace, a hash, and nothing else.
CHANNEL = "crp_erased"
# How long to wait before asking again whether the store was closed, and after a lost connection.
PAUSE_SECONDS = 0.25
# And after a refusal, as of a standby, which may be promoted.
REFUSED_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Listener:
    """Listens on a connection of its own for as long as its store is open."""

    def __init__(self, address: str, forget: Callable[[], None]) -> None:
        """Do nothing yet.

        Args:
            forget: called after each note, and whenever one may have been missed.
        """
        self._address = address
        self._forget = forget
        self._closed = threading.Event()
        self._listening = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen, once."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="crp-erased", daemon=True)
                self._thread.start()

    def listening(self, seconds: float) -> bool:
        """Wait until the server was told; whether it was."""
        return self._listening.wait(seconds)

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with psycopg.connect(self._address, autocommit=True) as raw:
                    raw.execute(f"LISTEN {CHANNEL}")
                    self._listening.set()
                    # Whatever was told before is not known here.
                    self._forget()
                    self._take(raw)
            except psycopg.Error as error:
                self._listening.clear()
                _log.info("the server's notes are not heard: %s", type(error).__name__)
                lost = isinstance(error, psycopg.OperationalError)
                self._closed.wait(PAUSE_SECONDS if lost else REFUSED_SECONDS)

    def _take(self, raw: psycopg.Connection) -> None:
        while not self._closed.is_set():
            for _ in raw.notifies(timeout=PAUSE_SECONDS, stop_after=1):
                self._forget()
