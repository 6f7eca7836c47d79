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
        # By region and id; a region's receipts are read there alone.
        self._receipts: OrderedDict[tuple[str, str], Receipt] = OrderedDict()
        self._lock = threading.Lock()

    def noted(self, made: Made | None, residency: str) -> str:
        """Hold a receipt unless it was written; its id, empty for none.

        Args:
            residency: the region of its window.
        """
        if made is None:
            return ""
        id_ = made.receipt.receipt_id
        if not made.written:
            with self._lock:
                self._receipts[residency, id_] = made.receipt
                while len(self._receipts) > self._most:
                    self._receipts.popitem(last=False)
        return id_

    def find(self, name: str, residency: str) -> Receipt | None:
        """A region's receipt by its id or its window's."""
        with self._lock:
            found = self._receipts.get((residency, name))
            if found is not None:
                return found
            held = reversed(self._receipts.items())
            return next(
                (
                    one
                    for (region, _), one in held
                    if region == residency and one.chain.window_id == name
                ),
                None,
            )

    def of_session(self, session_id: str, residency: str) -> list[str]:
        """Ids of a session's receipts in a region, oldest first; of every session for no name."""
        with self._lock:
            return [
                id_
                for (region, id_), one in self._receipts.items()
                if region == residency and session_id in ("", one.chain.session_id)
            ]

    def end(self, session_id: str) -> None:
        """Forget those of a session, in every region."""
        with self._lock:
            ended = [
                key for key, one in self._receipts.items() if one.chain.session_id == session_id
            ]
            for key in ended:
                del self._receipts[key]
