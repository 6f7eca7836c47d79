"""What becomes of an examined answer: deliver it, ask again, or withhold it. Pure.

Remedies come before verdicts: as long as a window may be dispatched again and something found can
be mended by that, it is. What is left after the last attempt is judged by the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from crp_integrations.dpe import remedies
from crp_integrations.dpe.records import Claim, Report
from crp_integrations.dpe.remedies import Redispatch
from crp_integrations.errors import QualityUnreachable
from crp_integrations.policy.directives import Demand
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import (
    UNREACHABLE,
    AnswerTerms,
    accepts_tier,
    decide_answer,
    exceeds_risk,
)
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings_dispatch import DispatchSettings
from crp_integrations.vocabulary import (
    Checked,
    HaltReason,
    QualityTier,
    RepetitionLevel,
    Severity,
    Strategy,
)

# Demands that an answer closer to its context may meet; the others have remedies of their own.
MENDED = (
    Demand.RISK,
    Demand.GROUNDING,
    Demand.ENTAILMENT,
    Demand.FABRICATION,
    Demand.QUALITY,
)
# Claims quoted in the words of a re-dispatch.
MOST_QUOTED = 10


@dataclass(frozen=True, slots=True)
class Again:
    """Ask the model again within the same window.

    Attributes:
        triggers: what asked for it: `contradiction`, `repetition`, `flow`, and unmet demands.
        upgraded: whether the strategy is another one than before.
    """

    redispatch: Redispatch
    triggers: tuple[str, ...]
    upgraded: bool


@dataclass(frozen=True, slots=True)
class Withhold:
    """The answer must not be shown."""

    reason: HaltReason


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The caller's tiers cannot be reached.

    Spec: CRP-SPEC-003 §8.4
    """

    error: QualityUnreachable


@dataclass(frozen=True, slots=True)
class Deliver:
    """The answer may be shown."""


Decision: TypeAlias = Again | Withhold | Unreachable | Deliver


def decide(
    report: Report,
    tier: QualityTier,
    judgement: PolicyJudgement,
    *,
    request: Request,
    policy: Policy,
    text: str,
    attempts: int,
    settings: DispatchSettings,
    terms: AnswerTerms,
) -> Decision:
    """What becomes of an answer.

    Spec: CRP-SPEC-005 §7.4, §8.3, §9.3, §11.5, §19; CRP-SPEC-003 §8.4

    Args:
        tier: of the envelope, capped by the answer's quality.
        judgement: of the policy in force on this report.
        attempts: re-dispatches of this window so far.
        terms: of the request and the window.
    """
    if report.classification.halts:
        return Withhold(HaltReason.UNACCEPTABLE)
    if attempts < settings.redispatches:
        again = _again(report, tier, judgement, request, policy, text, attempts, settings)
        if again is not None:
            return again
    found = decide_answer(report, tier, judgement, terms)
    if found.reason is not None:
        return Withhold(found.reason)
    if found.word == UNREACHABLE:
        wanted = terms.accept_quality
        return Unreachable(unreachable(tier, wanted, judgement, policy.require_quality))
    return Deliver()


def unreachable(
    tier: QualityTier,
    wanted: Sequence[QualityTier],
    judgement: PolicyJudgement,
    listed: Sequence[QualityTier] = (),
) -> QualityUnreachable:
    """The refusal of a caller whose demands on quality cannot be met.

    Spec: CRP-SPEC-003 §8.4

    Args:
        listed: tiers that the policy accepts; empty for any.
    """
    if not accepts_tier(tier, wanted):
        said = f"tier {tier} is the best that can be reached, and the caller accepts "
        return QualityUnreachable(said + ", ".join(wanted), tier=tier, wanted=tuple(wanted))
    unmet = [one for one in judgement.violations if not one.withholds]
    said = "; ".join(f"{one.directive} is not met, it is {one.seen}" for one in unmet)
    return QualityUnreachable(
        said, tier=tier, wanted=() if accepts_tier(tier, listed) else tuple(listed)
    )


def _again(
    report: Report,
    tier: QualityTier,
    judgement: PolicyJudgement,
    request: Request,
    policy: Policy,
    text: str,
    attempts: int,
    settings: DispatchSettings,
) -> Again | None:
    upgrade = policy.upgrade_on_risk
    words: list[str] = []
    triggers: list[str] = []
    contradicted = [
        one
        for one in report.cross_window_contradictions
        if one.severity in (Severity.CRITICAL, Severity.HIGH)
    ]
    if any(one.severity is Severity.CRITICAL for one in contradicted):
        triggers.append("contradiction")
        words.append(remedies.against_contradiction(contradicted))
    if report.repetition_level is RepetitionLevel.SEVERE and (
        upgrade is not None or settings.redispatch_on_repetition
    ):
        triggers.append("repetition")
        words.append(remedies.against_repetition(remedies.marked(text, report.quality.repetition)))
    before = _before(request)
    if (
        report.flow_remediation == "redispatch"
        and settings.flow == "augment"
        and before
        and (upgrade is not None or settings.redispatch_on_flow)
    ):
        triggers.append("flow")
        words.append(remedies.towards_flow(before))
    if upgrade is not None:
        unmet = set(judgement.unmet)
        if not accepts_tier(tier, request.accept_quality):
            unmet.add(Demand.QUALITY)
        if exceeds_risk(report, request.accept_risk):
            unmet.add(Demand.RISK)
        mended = [demand for demand in MENDED if demand in unmet]
        if mended:
            triggers += [demand.value for demand in mended]
            words.append(remedies.against_unsupported(_unsupported(report)))
    if not triggers:
        return None
    strategy: Strategy = upgrade or Strategy.REFLEXIVE
    if request.accept_strategies and strategy not in request.accept_strategies:
        # What the caller accepts comes before an upgrade (related facts §7).
        strategy = request.strategy
    return Again(
        remedies.redispatch(words, seed=request.seed, strategy=strategy, attempt=attempts + 1),
        tuple(triggers),
        upgraded=strategy is not request.strategy,
    )


def _unsupported(report: Report) -> list[str]:
    """The claims that are quoted back: those with findings, and those that nothing supports.

    Where somebody read the claims, those that he flagged.
    """
    worst = sorted(
        (
            claim
            for claim in report.claims
            if (claim.flagged if report.was_read else _doubted(claim))
        ),
        key=lambda claim: (-(claim.unsupported or 0.0), claim.start),
    )
    quoted = sorted(worst[:MOST_QUOTED], key=lambda claim: claim.start)
    return [claim.text for claim in quoted]


def _doubted(claim: Claim) -> bool:
    """Whether the stages without a model call found something, or nothing that supports it."""
    unlikely = claim.checked is Checked.CHECKED and (claim.unsupported or 0.0) >= 0.5
    return bool(claim.findings) or unlikely


def _before(request: Request) -> str:
    """The answer right before this one; empty where there is none or its text is not known."""
    return max(request.prior, key=lambda one: one.window_number).answer if request.prior else ""
