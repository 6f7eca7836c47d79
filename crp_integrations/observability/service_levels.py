"""The table of service levels, computed from what a store has sealed.

Every number comes from the journal and the reports; a level that nothing was there for is
reported as not measured, never as met.
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
# A pack with more material than room is to come this close to its budget, which is reported and
# not demanded; from so far above it on a pack is a hard failure. Both as shares of the budget.
BUDGET_WITHIN, BUDGET_HARD = 0.05, 0.10
# The percentile of the assemblies' times, and its highest factor over the baseline's.
PERCENTILE: Final = 0.95
MOST_LATENCY: Final = 1.5


class LatencyBaseline(Record):
    """Latency before a change, to compare with.

    Attributes:
        p95_us: of the assemblies up to then, in microseconds.
        last_seq: of the journal when it was captured; later windows are compared with it.
    """

    SCHEMA = "slo-baseline/1"

    captured_at: Moment
    windows: int = Field(ge=1)
    p95_us: int = Field(gt=0)
    last_seq: int = Field(ge=0)


class ServiceLevel(Part):
    """A service level.

    Attributes:
        value: as measured; None where there was nothing to measure.
        target: what it is to be at least, or for latency at most.
        met: None where it was not measured.
        counted: windows, citations or packs that it was measured on.
        detail: what it rests on, in words.
    """

    name: str
    value: float | None
    target: float
    met: bool | None
    counted: int = Field(ge=0)
    detail: str


class CitationLink(Part):
    """A citation and where the ledger has what it rests on.

    Attributes:
        ledger_hmac: the journal's HMAC over the pack's trace; empty where the ledger has none.
        report_hash: as the journal has it.
        receipt_id: of the signed receipt in the Merkle log; empty where none is kept.
        accurate: no finding speaks against the claim, its fact stands in the sealed pack, and the
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
    """Service levels, and every citation with its place in the ledger.

    Attributes:
        hard_failure: a pack was above its budget by more than the targets allow at all.
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
        """Names of the levels that nothing was there for."""
        return tuple(level.name for level in self.levels if level.met is None)

    def level(self, name: str) -> ServiceLevel:
        """The level of a name."""
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
    """The baseline that later windows are compared with; None where no time was measured."""
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
    """The nearest-rank percentile of values; there is at least one.

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
    """The level of packs within their budgets, and whether a pack is far above its own."""
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
        f"{close} of {len(full)} packs with more material than room are within "
        f"{BUDGET_WITHIN:.0%} of their budget"
    )
    return _share_level(BUDGET, len(packs) - len(over), len(packs), 1.0, detail), hard


def _assembly_times(packs: Sequence[PackTrace]) -> list[int]:
    """Microseconds; a clock that stood still measured nothing."""
    return [pack.assembly_us for pack in packs if pack.assembly_us]


def _latency_level(packs: Sequence[PackTrace], baseline: LatencyBaseline | None) -> ServiceLevel:
    times = _assembly_times(packs)
    factor = None
    detail = "no baseline was given" if baseline is None else "no window after the baseline"
    if baseline is not None and times:
        now = percentile(times, PERCENTILE)
        factor = now / baseline.p95_us
        detail = f"{now / 1000:.1f} ms, baseline {baseline.p95_us / 1000:.1f} ms"
    return ServiceLevel(
        name=LATENCY,
        value=factor,
        target=MOST_LATENCY,
        met=None if factor is None else factor <= MOST_LATENCY,
        counted=len(times),
        detail=detail,
    )


def _share_level(name: str, part: int, whole: int, target: float, detail: str) -> ServiceLevel:
    value = part / whole if whole else None
    met = value >= target if value is not None else None
    return ServiceLevel(
        name=name, value=value, target=target, met=met, counted=whole, detail=detail
    )
