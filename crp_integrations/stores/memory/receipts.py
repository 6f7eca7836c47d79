"""The receipts facet over one draft."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from crp_integrations.errors import StoreError
from crp_integrations.receipt.merkle import grown, position
from crp_integrations.receipt.records import LeftOut, Receipt
from crp_integrations.receipt.redaction import emptied, erased
from crp_integrations.stores.memory.state import Draft
from crp_integrations.vocabulary import FactStatus


class MemoryReceipts:
    """Receipts of one namespace, and their log."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def add(self, receipt: Receipt, sources: Mapping[str, str]) -> int:
        """Add a receipt and its leaf of the log."""
        self._draft.gate.writing()
        state = self._draft.state
        if receipt.receipt_id in state.receipt_places:
            raise StoreError(f"receipt {receipt.receipt_id} is there already; it is added once")
        gone = [
            leaf.fact_id
            for leaf in receipt.leaves
            if leaf.fact_id in state.withdrawn and not self._is_here(leaf.fact_id)
        ]
        place = len(state.receipts)
        state = self._draft.change(
            "receipts", "receipt_places", "receipt_log", "receipt_sources", "receipt_windows"
        )
        state.receipts.append(erased(receipt, gone))
        state.receipt_places[receipt.receipt_id] = place
        state.receipt_windows[receipt.chain.window_id] = place
        state.receipt_sources.append(dict(sources))
        for _, _, root in grown(place, receipt.log_hash, self.node):
            state.receipt_log.append(root)
        return place

    def get(self, receipt_id: str) -> Receipt | None:
        """A receipt, with the texts that are left of it."""
        place = self.place(receipt_id)
        return None if place is None else self._draft.state.receipts[place]

    def of_window(self, window_id: str) -> Receipt | None:
        """The receipt on a window."""
        state = self._draft.state
        place = state.receipt_windows.get(window_id)
        return None if place is None else state.receipts[place]

    def ids(self, *, after: int = -1, limit: int = 1_000, session_id: str = "") -> list[str]:
        """Ids of receipts in the order of the log."""
        wanted = self._draft.state.receipts[max(0, after + 1) :]
        if session_id:
            wanted = [one for one in wanted if one.chain.session_id == session_id]
        return [one.receipt_id for one in wanted[: max(0, limit)]]

    def place(self, receipt_id: str) -> int | None:
        """A receipt's place in the log, from 0."""
        return self._draft.state.receipt_places.get(receipt_id)

    def size(self) -> int:
        """How many receipts are in the log."""
        return len(self._draft.state.receipts)

    def node(self, level: int, place: int) -> bytes:
        """The root of a complete subtree of the log."""
        log, at = self._draft.state.receipt_log, position(level, place)
        if at >= len(log):
            raise StoreError(f"the log of receipts has no node {place} of level {level}")
        return log[at]

    def _is_here(self, fact_id: str) -> bool:
        stored = self._draft.state.facts.get(fact_id)
        return stored is not None and stored.status is not FactStatus.DELETED


def erase(
    draft: Draft, fact_ids: Collection[str], source_id: str, windows: Collection[str]
) -> set[str]:
    """Take texts out of receipts.

    Args:
        windows: ids of windows that are emptied.

    Returns:
        Ids of the windows whose receipts lost a text.
    """
    state = draft.state
    wanted = {*fact_ids}
    touched: dict[int, Receipt] = {}
    for place, receipt in enumerate(state.receipts):
        sources = state.receipt_sources[place]
        facts = {
            leaf.fact_id
            for leaf, text in zip(receipt.leaves, receipt.texts, strict=True)
            if leaf.fact_id
            and not isinstance(text, LeftOut)
            and (leaf.fact_id in wanted or (source_id and sources.get(leaf.fact_id) == source_id))
        }
        new = erased(receipt, facts, said=receipt.chain.window_id in windows)
        if new.texts != receipt.texts:
            touched[place] = new
    if touched:
        table = draft.change("receipts").receipts
        for place, receipt in touched.items():
            table[place] = receipt
    return {receipt.chain.window_id for receipt in touched.values()}


def forget(draft: Draft, session_id: str) -> None:
    """Take every text out of a session's receipts."""
    places = [
        place
        for place, one in enumerate(draft.state.receipts)
        if one.chain.session_id == session_id
    ]
    if places:
        table = draft.change("receipts").receipts
        for place in places:
            table[place] = emptied(table[place])
