"""What receipts need of a store, within one transaction of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from crp_integrations.fabric.ports import Transaction
from crp_integrations.receipt.records import Receipt


class ReceiptsFacet(Protocol):
    """The receipts of one namespace, and the log that they are leaves of. Append-only.

    What was signed stays for ever. The texts beside it are content: the text of a fact goes when
    the fact is withdrawn or removed, with every text that may quote it; what may repeat a window
    goes when `SessionsFacet` empties that window; and all of them with their session.
    """

    def add(self, receipt: Receipt, sources: Mapping[str, str]) -> int:
        """Add a receipt and its leaf of the log.

        The text of a fact that was withdrawn while the window was under way is not kept, and
        neither is what may quote it.

        Args:
            sources: of facts in the receipt, by their ids; facts without one are left out.

        Returns:
            Its place in the log, from 0.
        """
        ...

    def get(self, receipt_id: str) -> Receipt | None:
        """A receipt, with the texts that are left of it."""
        ...

    def of_window(self, window_id: str) -> Receipt | None:
        """The receipt on a window."""
        ...

    def ids(self, *, after: int = -1, limit: int = 1_000, session_id: str = "") -> list[str]:
        """Ids of receipts in the order of the log.

        Args:
            after: place in the log of the last one that is not wanted.
        """
        ...

    def place(self, receipt_id: str) -> int | None:
        """A receipt's place in the log, from 0."""
        ...

    def size(self) -> int:
        """How many receipts are in the log."""
        ...

    def node(self, level: int, place: int) -> bytes:
        """The root of a complete subtree of the log (`merkle.Nodes`).

        Raises:
            StoreError: the log is not that long.
        """
        ...


class _WithReceipts(Protocol):
    @property
    def receipts(self) -> ReceiptsFacet: ...


def receipts_of(transaction: Transaction) -> ReceiptsFacet | None:
    """The receipts of an open transaction's store; None for a store that keeps none."""
    if not hasattr(transaction, "receipts"):
        return None
    return cast("_WithReceipts", transaction).receipts
