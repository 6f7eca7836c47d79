"""Reports on sealed windows, handed to a receiver by a thread of their own.

One after the other, in the order in which their windows were sealed. What a receiver takes too
slowly has no room at last; it is named in the log, and stays readable as `Relay.report`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Protocol

from crp_integrations.dpe.records import Report
from crp_integrations.relay.world import Receiver

_LOG = logging.getLogger("crp_integrations.relay")


class PendingDeliveries(Protocol):
    """What is on its way to somebody: reports, and violations of policies."""

    def close(self, timeout_s: float) -> None:
        """Wait for it, at most so long."""
        ...


class ReportDelivery:
    """Hands reports on. Safe under threads; none runs before the first report."""

    def __init__(self, receiver: Receiver, capacity: int) -> None:
        """Prepare to hand on."""
        self._receiver = receiver
        self._capacity = capacity
        self._changed = threading.Condition()
        # The first of them is the one that is being received.
        self._waiting: deque[Report] = deque()
        self._running = self._closed = False

    def take(self, report: Report) -> None:
        """Take a report; never waits for the receiver and never raises.

        Spec: CRP-SPEC-005 §15.4
        """
        with self._changed:
            hindrance = self._hindrance()
            if not hindrance:
                self._waiting.append(report)
                if not self._running:
                    hindrance = self._started()
        if hindrance:
            _LOG.warning(
                "the report on window %s was not received: %s", report.window_id, hindrance
            )

    def close(self, timeout_s: float) -> None:
        """Wait until all were received, at most so long; what waits then is dropped."""
        with self._changed:
            self._closed = True
            if self._changed.wait_for(lambda: not self._waiting, timeout_s):
                return
            left = list(self._waiting)
            self._waiting.clear()
        _LOG.warning(
            "%d reports were not received, the first of window %s", len(left), left[0].window_id
        )

    def _hindrance(self) -> str:
        if self._closed:
            return "closed"
        waiting = len(self._waiting)
        return f"{waiting} are waiting" if waiting >= self._capacity else ""

    def _started(self) -> str:
        """Begin the thread; why that is not possible, else nothing."""
        thread = threading.Thread(target=self._run, name="crp-reports", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._waiting.clear()
            return f"no thread can be started: {type(error).__name__}"
        self._running = True
        return ""

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    # The next report begins another thread, so an idle relay has none.
                    self._running = False
                    return
                report = self._waiting[0]
            try:
                self._receiver(report)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the receiver's
                why = type(error).__name__
                _LOG.warning("the report on window %s was not received: %s", report.window_id, why)
            with self._changed:
                if self._waiting and self._waiting[0] is report:
                    self._waiting.popleft()
                self._changed.notify_all()
