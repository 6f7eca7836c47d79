"""Receipts that may not be on disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from crp_integrations.receipt.records import Receipt


class Made(NamedTuple):
    """A receipt, and whether the store keeps it."""

    receipt: Receipt
    written: bool


class Unwritten:
    """Receipts on `no-store` windows, and on those with facts held in memory. Safe under threads.

    They are in no log and end with their session, with the relay, or when there are too many.
    """

    def __init__(self, most: int = 1_000) -> None:
        self._most = most
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()
        self._lock = threading.Lock()

    def noted(self, made: Made | None) -> str:
        """Hold a receipt unless it was written; its id, empty for none."""
        if made is None:
            return ""
        id_ = made.receipt.receipt_id
        if not made.written:
            with self._lock:
                self._receipts[id_] = made.receipt
                while len(self._receipts) > self._most:
                    self._receipts.popitem(last=False)
        return id_

    def find(self, name: str) -> Receipt | None:
        """A receipt by its id or its window's."""
        with self._lock:
            found = self._receipts.get(name)
            if found is not None:
                return found
            held = reversed(self._receipts.values())
            return next((one for one in held if one.chain.window_id == name), None)

    def of_session(self, session_id: str) -> list[str]:
        """Ids of a session's receipts, oldest first."""
        with self._lock:
            return [
                id_
                for id_, one in self._receipts.items()
                if session_id in ("", one.chain.session_id)
            ]

    def end(self, session_id: str) -> None:
        """Forget those of a session."""
        with self._lock:
            for id_ in [
                id_ for id_, one in self._receipts.items() if one.chain.session_id == session_id
            ]:
                del self._receipts[id_]
