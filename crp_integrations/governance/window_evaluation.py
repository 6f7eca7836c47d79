"""A window's evaluation in numbers, and the four measured steps of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import Field

from crp_integrations.dpe.records import Claim, Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import StepStopped
from crp_integrations.governance.settings import StepMeasurement, StepSettings
from crp_integrations.messages import Usage
from crp_integrations.records import Part
from crp_integrations.vocabulary import Attribution, QualityTier, RiskLevel

# What a claim that rests on the context is called (CRP-SPEC-005 §4.2).
CITES = frozenset({Attribution.CONTEXT_GROUNDED, Attribution.MIXED})


class ClaimCitation(NamedTuple):
    """A claim and a fact that the verifier rests it on.

    Attributes:
        holds: no finding of the verifier speaks against the claim.
    """

    claim_id: str
    fact_id: str
    holds: bool


class WindowEvaluation(Part):
    """A window's evaluation; shares are in [0, 1], None where there was nothing to count.

    Spec: Summit §Evaluation & Observability

    Attributes:
        consistent: what the verifier's own checks say of the pack and the answer together.
        precision_proxy: share of the pack's items that a claim of the answer rests on.
        recall_proxy: share of the relevant candidates that are in the pack (CRP-SPEC-003 §8.1).
        cost_usd: None where a call's price is not known.
    """

    grounding: float = Field(ge=0.0, le=1.0)
    fidelity: float = Field(ge=0.0, le=1.0)
    entailment: float = Field(ge=0.0, le=1.0)
    completeness: float = Field(ge=0.0, le=1.0)
    checked_share: float = Field(ge=0.0, le=1.0)
    risk_score: float = Field(ge=0.0, le=1.0)
    risk_level: RiskLevel
    quality_tier: QualityTier
    envelope_score: float
    consistent: bool
    citations: int = Field(ge=0)
    citations_held: int = Field(ge=0)
    precision_proxy: float | None = Field(default=None, ge=0.0, le=1.0)
    recall_proxy: float = Field(ge=0.0, le=1.0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = Field(default=None, ge=0.0)

    @property
    def citation_accuracy(self) -> float | None:
        """Share of the citations that hold; None without any."""
        return self.citations_held / self.citations if self.citations else None


def find_citations(report: Report) -> Iterator[ClaimCitation]:
    """The report's citations: each fact that a claim is attributed to, once a claim."""
    for claim in report.claims:
        if claim.attribution in CITES:
            for fact_id in dict.fromkeys(one.fact_id for one in claim.evidence):
                yield ClaimCitation(claim.claim_id, fact_id, _holds(claim))


def is_consistent(report: Report) -> bool:
    """Whether the verifier found nothing that the context speaks against.

    Spec: Summit §SLOs
    """
    found = report.fabrication_count + report.distortion_count + report.contradiction_count
    if report.was_read:
        # What the embedded stages found are hints beside a reader's word.
        found = sum(claim.flagged for claim in report.claims)
    return not found and report.risk_level not in (RiskLevel.HIGH, RiskLevel.CRITICAL)


def evaluate_window(report: Report, envelope: Envelope, usage: Usage) -> WindowEvaluation:
    """The numbers of a window whose answer was examined."""
    cited = list(find_citations(report))
    shown = {fact.fact_id for fact in envelope.facts}
    used = {one.fact_id for one in cited} & shown
    return WindowEvaluation(
        grounding=report.grounding_pct,
        fidelity=report.fidelity_score,
        entailment=report.entailment_score,
        completeness=report.completeness_score,
        checked_share=report.checked_share,
        risk_score=report.risk_score,
        risk_level=report.risk_level,
        quality_tier=envelope.quality_tier,
        envelope_score=envelope.envelope_score,
        consistent=is_consistent(report),
        citations=len(cited),
        citations_held=sum(one.holds and one.fact_id in shown for one in cited),
        precision_proxy=len(used) / len(shown) if shown else None,
        recall_proxy=min(1.0, max(0.0, envelope.coverage_score)),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=usage.cost_usd,
    )


def _holds(claim: Claim) -> bool:
    return not claim.findings


def check_guardrails(measured: Sequence[StepMeasurement], settings: StepSettings) -> None:
    """Stop a run at the first step whose guardrail is not kept."""
    for one in measured:
        fault = settings.of(one.step).fault(one)
        if fault:
            raise StepStopped(one.step.value, fault)
