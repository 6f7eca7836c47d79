"""What becomes of a judged answer once nothing is left to try. Pure: relay and replay both ask it.

Spec: CRP-SPEC-005 §7.4, §19; CRP-SPEC-003 §8.4; related facts §3, §6, §8
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.records import Report
from crp_integrations.policy.records import Judgement
from crp_integrations.policy.words import ViolationType
from crp_integrations.vocabulary import HaltReason, QualityTier, RiskLevel

DELIVER: Final = "deliver"
WITHHOLD: Final = "withhold"
UNREACHABLE: Final = "unreachable"
# From the lowest to the highest.
RISKS: Final = tuple(RiskLevel)


@dataclass(frozen=True, slots=True)
class Terms:
    """What an answer is held against besides the policies.

    Attributes:
        accept_risk: the highest risk that the caller accepts; None for any.
        accept_quality: tiers that the caller accepts; empty for any.
        part: other windows may go on with the answer; then whether it is complete enough is for
            the last of them to say.
        unanswered: the reply asks for tools and says nothing yet, so that it is passed on.
        review_below: the safety budget below which a person must look at the answer.
    """

    accept_risk: RiskLevel | None = None
    accept_quality: tuple[QualityTier, ...] = ()
    part: bool = False
    unanswered: bool = False
    review_below: float = 0.0


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of an answer.

    Attributes:
        word: `deliver`, `withhold` or `unreachable`.
        reason: why it is withheld.
    """

    word: str
    reason: HaltReason | None = None


def settled(
    report: Report, tier: QualityTier | None, judgement: Judgement, terms: Terms
) -> Settled:
    """What becomes of an answer that is not asked for again.

    Args:
        tier: of the envelope, capped by the answer's quality; None where there is none.
        judgement: of the policy in force on this report.
    """
    if terms.unanswered:
        return Settled(DELIVER)
    if report.classification.halts:
        return Settled(WITHHOLD, HaltReason.UNACCEPTABLE)
    if judgement.halt is not None:
        return Settled(WITHHOLD, judgement.halt)
    if too_risky(report, terms.accept_risk):
        critical = report.risk_level is RiskLevel.CRITICAL
        return Settled(WITHHOLD, HaltReason.CRITICAL_RISK if critical else HaltReason.POLICY)
    poor = any(
        not one.withholds and not (terms.part and one.violation_type is ViolationType.COMPLETENESS)
        for one in judgement.violations
    )
    if (tier is not None and not accepted(tier, terms.accept_quality)) or (
        judgement.unreachable and poor
    ):
        return Settled(UNREACHABLE)
    return Settled(DELIVER)


def reviewed(judgement: Judgement, safety_budget: float, terms: Terms) -> bool:
    """Whether a person must look at the answer."""
    return judgement.needs_review or safety_budget < terms.review_below


def overseen(found: Settled, *, wanted: bool, approved: bool, terms: Terms) -> Settled:
    """The same once a person was asked, where that is wanted."""
    if found.word == DELIVER and wanted and not approved and not terms.unanswered:
        return Settled(WITHHOLD, HaltReason.OVERSIGHT)
    return found


def too_risky(report: Report, most: RiskLevel | None) -> bool:
    """Whether the risk is higher than the caller accepts."""
    return most is not None and RISKS.index(report.risk_level) > RISKS.index(most)


def accepted(tier: QualityTier, wanted: Sequence[QualityTier]) -> bool:
    """Whether a tier is at least as good as the worst one listed.

    Spec: CRP-SPEC-003 §8.4 (decision E14)
    """
    return not wanted or tier.place <= max(one.place for one in wanted)
