"""The table of service levels, computed from the sealed windows of a store.

Every number comes from the journal and the reports. A level without data is reported as not
measured, never as met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import Field

from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.report import report_hash
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.window_trace import (
    PackTrace,
    find_citations,
    is_consistent,
    pack_traces,
)
from crp_integrations.observability.evaluations import Evaluation
from crp_integrations.receipt.ports import receipts_of
from crp_integrations.records import Part, Record
from crp_integrations.session.ports import sessions_of
from crp_integrations.vocabulary import DropReason, EventType


@dataclass(frozen=True, slots=True)
class WindowLedger:
    """A namespace's sealed windows; equal stores give equal ledgers.

    Attributes:
        packs: traces of context packs, in the order of the journal.
        report_hashes: window id → hash of its report in the journal.
        reports: window id → report, if it is still stored.
        receipts: window id → id of its receipt, if one is stored.
        tokens, cost_microusd: totals of all model calls whose usage is known.
        last_seq: sequence number of the journal's last event.
    """

    packs: tuple[PackTrace, ...] = ()
    report_hashes: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[str, Report] = field(default_factory=dict)
    receipts: Mapping[str, str] = field(default_factory=dict)
    tokens: int = 0
    cost_microusd: int = 0
    last_seq: int = 0

    @classmethod
    def read(cls, transaction: Transaction, *, after: int = 0) -> WindowLedger:
        """Read a namespace's ledger."""
        events = list(transaction.journal.events(after=after))
        sessions, receipts_log = sessions_of(transaction), receipts_of(transaction)
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
            receipt = receipts_log.of_window(window_id) if receipts_log is not None else None
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


CORRECTNESS: Final = "pack_correctness"
CITATIONS: Final = "citation_accuracy"
BUDGET: Final = "budget_adherence"
LATENCY: Final = "assembly_p95"


# The targets of Summit §SLOs.
LEAST_CORRECT: Final = 0.90
LEAST_ACCURATE: Final = 0.95
# Shares of the budget. A pack that had to drop candidates should be this close to its budget (only
# reported); a pack that exceeds it by more than the second is a hard failure.
BUDGET_WITHIN, BUDGET_HARD = 0.05, 0.10
# The percentile of assembly times, and its maximum factor over the baseline's.
PERCENTILE: Final = 0.95
MAX_LATENCY: Final = 1.5


class LatencyBaseline(Record):
    """Latency before a change, for comparison.

    Attributes:
        p95_us: 95th percentile of assembly times up to then, in microseconds.
        last_seq: last sequence number of the journal then; later windows are compared with it.
    """

    SCHEMA = "slo-baseline/1"

    captured_at: Moment
    windows: int = Field(ge=1)
    p95_us: int = Field(gt=0)
    last_seq: int = Field(ge=0)


class ServiceLevel(Part):
    """A service level.

    Attributes:
        value: measured value; None if there was no data.
        target: minimum value, or for latency the maximum.
        met: whether the target is met; None if it was not measured.
        counted: number of windows, citations or packs measured.
        detail: explanation of the value, in words.
    """

    name: str
    value: float | None
    target: float
    met: bool | None
    counted: int = Field(ge=0)
    detail: str


class CitationLink(Part):
    """A citation and its records in the ledger.

    Attributes:
        ledger_hmac: the journal's HMAC over the pack's trace; empty if the ledger has none.
        report_hash: hash of the report in the journal.
        receipt_id: id of the signed receipt in the Merkle log; empty if there is none.
        accurate: whether no finding contradicts the claim, its fact is in the sealed pack, and the
            report is the one that was sealed.
    """

    window_id: str
    claim_id: str
    fact_id: str
    ledger_hmac: str
    report_hash: str
    receipt_id: str
    accurate: bool


class ServiceLevelTable(Record):
    """Service levels, and every citation with its records in the ledger.

    Attributes:
        hard_failure: whether a pack exceeded its budget by more than `BUDGET_HARD`.
    """

    SCHEMA = "slo-table/1"

    windows: int = Field(ge=0)
    levels: tuple[ServiceLevel, ...]
    hard_failure: bool
    tokens: int = Field(ge=0)
    cost_usd: float = Field(ge=0.0)
    citations: tuple[CitationLink, ...] = ()

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the levels that are not met."""
        return tuple(level.name for level in self.levels if level.met is False)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Names of the levels without data."""
        return tuple(level.name for level in self.levels if level.met is None)

    def level(self, name: str) -> ServiceLevel:
        """The level with this name."""
        return next(level for level in self.levels if level.name == name)


def measure_levels(
    ledger: WindowLedger,
    *,
    evaluations: Mapping[str, Evaluation] | None = None,
    baseline: LatencyBaseline | None = None,
) -> ServiceLevelTable:
    """The service levels of a ledger.

    Spec: Summit §SLOs
    """
    links = _citation_links(ledger)
    budget, hard = _budget_level(ledger.packs)
    return ServiceLevelTable(
        windows=len(ledger.packs),
        levels=(
            _correctness_level(ledger, evaluations or {}),
            _citation_level(links),
            budget,
            _latency_level(ledger.packs, baseline),
        ),
        hard_failure=hard,
        tokens=ledger.tokens,
        cost_usd=ledger.cost_microusd / 1_000_000,
        citations=tuple(links),
    )


def capture_baseline(ledger: WindowLedger, now: Moment) -> LatencyBaseline | None:
    """A baseline for comparing later windows; None if no assembly time was measured."""
    times = _assembly_times(ledger.packs)
    if not times:
        return None
    return LatencyBaseline(
        captured_at=now,
        windows=len(times),
        p95_us=percentile(times, PERCENTILE),
        last_seq=ledger.last_seq,
    )


def percentile(values: Sequence[int], share: float) -> int:
    """The nearest-rank percentile of at least one value.

    >>> percentile([5, 1, 4, 2, 3], 0.8), percentile([7], 0.95)
    (4, 7)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _correctness_level(ledger: WindowLedger, evaluations: Mapping[str, Evaluation]) -> ServiceLevel:
    right = people = 0
    for window_id, report in ledger.reports.items():
        evaluation = evaluations.get(window_id)
        opinion = evaluation.feedback.pack_correct if evaluation else None
        people += opinion is not None
        right += is_consistent(report) if opinion is None else opinion
    counted = len(ledger.reports)
    return _share_level(
        CORRECTNESS,
        right,
        counted,
        LEAST_CORRECT,
        f"{people} by people, {counted - people} by the verifier's consistency checks",
    )


def _citation_links(ledger: WindowLedger) -> list[CitationLink]:
    packs = {pack.window_id: pack for pack in ledger.packs}
    links = []
    for window_id, report in ledger.reports.items():
        pack = packs.get(window_id)
        shown = {item.id for item in pack.items} if pack else set()
        sealed = ledger.report_hashes.get(window_id, "")
        whole = bool(sealed) and report_hash(report) == sealed
        links += [
            CitationLink(
                window_id=window_id,
                claim_id=citation.claim_id,
                fact_id=citation.fact_id,
                ledger_hmac=pack.ledger_hmac if pack and citation.fact_id in shown else "",
                report_hash=sealed,
                receipt_id=ledger.receipts.get(window_id, ""),
                accurate=citation.holds and whole and citation.fact_id in shown,
            )
            for citation in find_citations(report)
        ]
    return links


def _citation_level(links: Sequence[CitationLink]) -> ServiceLevel:
    accurate = sum(link.accurate for link in links)
    linked = sum(bool(link.ledger_hmac and link.report_hash) for link in links)
    detail = f"{linked} of {len(links)} citations have their hashes in the ledger"
    return _share_level(CITATIONS, accurate, len(links), LEAST_ACCURATE, detail)


def _budget_level(packs: Sequence[PackTrace]) -> tuple[ServiceLevel, bool]:
    """The level of packs within their budgets, and whether any pack is a hard failure."""
    over = [pack for pack in packs if pack.token_count > pack.token_budget]
    hard = any(pack.token_count > pack.token_budget * (1.0 + BUDGET_HARD) for pack in over)
    full = [
        pack
        for pack in packs
        if pack.token_budget and any(drop.reason is DropReason.BUDGET for drop in pack.drops)
    ]
    close = sum(
        abs(pack.token_count - pack.token_budget) <= BUDGET_WITHIN * pack.token_budget
        for pack in full
    )
    detail = (
        f"{close} of {len(full)} packs that dropped candidates for space are within "
        f"{BUDGET_WITHIN:.0%} of their budget"
    )
    return _share_level(BUDGET, len(packs) - len(over), len(packs), 1.0, detail), hard


def _assembly_times(packs: Sequence[PackTrace]) -> list[int]:
    """Assembly times in microseconds, without 0, which a clock that did not advance gives."""
    return [pack.assembly_us for pack in packs if pack.assembly_us]


def _latency_level(packs: Sequence[PackTrace], baseline: LatencyBaseline | None) -> ServiceLevel:
    times = _assembly_times(packs)
    factor = None
    detail = "there is no baseline" if baseline is None else "no window after the baseline"
    if baseline is not None and times:
        now = percentile(times, PERCENTILE)
        factor = now / baseline.p95_us
        detail = f"{now / 1000:.1f} ms, baseline {baseline.p95_us / 1000:.1f} ms"
    return ServiceLevel(
        name=LATENCY,
        value=factor,
        target=MAX_LATENCY,
        met=None if factor is None else factor <= MAX_LATENCY,
        counted=len(times),
        detail=detail,
    )


def _share_level(name: str, part: int, whole: int, target: float, detail: str) -> ServiceLevel:
    value = part / whole if whole else None
    met = value >= target if value is not None else None
    return ServiceLevel(
        name=name, value=value, target=target, met=met, counted=whole, detail=detail
    )
