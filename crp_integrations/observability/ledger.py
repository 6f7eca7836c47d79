"""What a namespace's ledger holds on its windows: packs, reports, receipts, what they took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crp_integrations.dpe.records import Report
from crp_integrations.fabric.ports import Transaction
from crp_integrations.governance.tracing import PackTrace, pack_traces
from crp_integrations.receipt.ports import receipts_of
from crp_integrations.session.ports import sessions_of
from crp_integrations.vocabulary import EventType


@dataclass(frozen=True, slots=True)
class Ledger:
    """A namespace's windows as they were sealed; equal stores read to equal ledgers.

    Attributes:
        packs: traces of context packs, in the journal's order.
        report_hashes: by window, as the journal has them.
        reports: by window, as far as they are kept.
        receipts: ids of receipts by window, as far as they are kept.
        tokens, cost_microusd: of all model calls whose usage was told.
        last_seq: of the journal's last event.
    """

    packs: tuple[PackTrace, ...] = ()
    report_hashes: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[str, Report] = field(default_factory=dict)
    receipts: Mapping[str, str] = field(default_factory=dict)
    tokens: int = 0
    cost_microusd: int = 0
    last_seq: int = 0

    @classmethod
    def read(cls, transaction: Transaction, *, after: int = 0) -> Ledger:
        """Read a namespace's ledger.

        Args:
            after: sequence number of the last event that is not wanted.

        Raises:
            StoreError: the store cannot be read.
        """
        events = list(transaction.journal.events(after=after))
        sessions, kept = sessions_of(transaction), receipts_of(transaction)
        hashes: dict[str, str] = {}
        tokens = cost = 0
        for event in events:
            if event.event_type is EventType.DPE_COMPLETED:
                hashes[event.window_id] = str(event.data.get("report_hash", ""))
            elif event.event_type is EventType.DISPATCH_COMPLETED:
                tokens += event.data.get("prompt_tokens", 0)
                tokens += event.data.get("completion_tokens", 0)
                cost += event.data.get("cost_microusd", 0)
        reports: dict[str, Report] = {}
        receipts: dict[str, str] = {}
        for window_id in hashes:
            text = sessions.report(window_id)
            if text is not None:
                reports[window_id] = Report.model_validate_json(text)
            receipt = kept.of_window(window_id) if kept is not None else None
            if receipt is not None:
                receipts[window_id] = receipt.receipt_id
        return cls(
            packs=tuple(pack_traces(events)),
            report_hashes=hashes,
            reports=reports,
            receipts=receipts,
            tokens=tokens,
            cost_microusd=cost,
            last_seq=events[-1].seq if events else after,
        )
