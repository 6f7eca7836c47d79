"""The interface that receipts need from a store, within one transaction of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from crp_integrations.fabric.ports import Transaction
from crp_integrations.receipt.records import Receipt


class ReceiptsFacet(Protocol):
    """The receipts of one namespace, and the append-only log whose leaves they are.

    Signed payloads are never deleted. Texts are: the text of a fact when the fact is withdrawn or
    removed, with every text that may quote it; texts that may repeat a window when `SessionsFacet`
    empties that window; and all texts of a session together with the session.
    """

    def add(self, receipt: Receipt, sources: Mapping[str, str]) -> int:
        """Add a receipt and its entry in the log.

        If a fact was withdrawn while the window was running, its text and the texts that may quote
        it are not stored.

        Args:
            sources: source id by fact id, without facts that have no source.

        Returns:
            The receipt's place in the log, from 0.
        """
        ...

    def get(self, receipt_id: str) -> Receipt | None:
        """A receipt, with the texts that were not erased."""
        ...

    def of_window(self, window_id: str) -> Receipt | None:
        """The receipt of a window."""
        ...

    def ids(self, *, after: int = -1, limit: int = 1_000, session_id: str = "") -> list[str]:
        """Ids of receipts in the order of the log.

        Args:
            after: place in the log after which the ids begin.
        """
        ...

    def place(self, receipt_id: str) -> int | None:
        """A receipt's place in the log, from 0."""
        ...

    def size(self) -> int:
        """Number of receipts in the log."""
        ...

    def node(self, level: int, place: int) -> bytes:
        """The root of a complete subtree of the log (`merkle.Nodes`).

        Raises:
            StoreError: the log is too short to have the subtree.
        """
        ...


class _WithReceipts(Protocol):
    @property
    def receipts(self) -> ReceiptsFacet: ...


def receipts_of(transaction: Transaction) -> ReceiptsFacet | None:
    """The receipts of an open transaction's store; None if the store does not support receipts."""
    if not hasattr(transaction, "receipts"):
        return None
    return cast("_WithReceipts", transaction).receipts
