"""A policy's judgement on an examined answer, the decision on the answer, and violation reports.

These are pure functions; the relay acts on their results. Violations have two consequences. Those
that make an answer unsafe withhold it (451): sources, risk, grounding, entailment, and everything
blocked. Those that make it less useful are demands on quality (503 when no remedy is left): tier,
flow, completeness, repetition.

Spec: related facts §3, §6, §8; CRP-SPEC-003 §8.4; CRP-SPEC-005 §7.4, §19
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.records import Report
from crp_integrations.errors import PolicyRelaxed, QualityUnreachable
from crp_integrations.policy.demands import (
    NOT_CHECKED,
    NOT_READ,
    RISKS,
    RULES,
    PolicyCase,
    UnmetDemand,
    acts,
    check_warning,
    halting_demands,
    uncounted_reason,
    unfitted_facts,
    unread_reason,
    unread_value,
    upgrades,
)
from crp_integrations.policy.directives import DIRECTIVES, Demand, PolicySource, ViolationType
from crp_integrations.policy.policy_text import has_directive
from crp_integrations.policy.records import (
    Policy,
    PolicyJudgement,
    Violation,
    ViolationReport,
    require_policy,
)
from crp_integrations.validation import of_kind
from crp_integrations.vocabulary import AiActClass, HaltReason, Oversight, QualityTier, RiskLevel

# Prefixes of the directives that may withhold an answer.
_DEMANDS: Final = ("halt-", "require-", "block-", "max-")
_NONE: Final[Mapping[str, PolicySource]] = {}
# The option that withholds an answer whose judge failed.
JUDGE_HALTS: Final = "judge_failure halt"


def judge_answer(
    policy: Policy,
    report: Report,
    *,
    tier: QualityTier | None = None,
    oversight: Oversight | None = None,
    origins: Mapping[str, PolicySource] = _NONE,
    enforced: bool = True,
) -> PolicyJudgement:
    """Apply a policy to the report on an answer.

    A use that is unacceptable under the EU AI Act and the oversight mode `halt` always withhold the
    answer, even under a report-only policy.

    Spec: related facts §2, §6, CRP-SPEC-005 §7.4, §14.2

    Args:
        tier: quality tier of the envelope, capped by the answer's quality; None without envelope.
        oversight: the oversight mode that the request asks for; None for none.
        origins: source of each fact by id; facts that are not listed come from the context.
        enforced: False for a report-only policy.

    Returns:
        The judgement. Remedies come first: `halt` and `unreachable` apply when none is left.

    Raises:
        RequestError: policy or report has the wrong type.
    """
    require_policy(policy)
    of_kind(report, Report, "report", "a Report, such as examine(…)")
    examined = PolicyCase(policy, report, tier, origins)
    # Where nothing is enforced, what would have been done about the answer is noted too.
    rules = RULES if enforced else (*RULES, _check_remedies)
    unmet = [demand for rule in rules for demand in rule(examined)]
    mode = policy.overseen(oversight)
    return PolicyJudgement(
        violations=tuple(demand.violation for demand in unmet),
        halt=_halt(report, unmet, mode, enforced=enforced),
        unreachable=enforced and any(not demand.violation.withholds for demand in unmet),
        warnings=tuple(demand.violation for demand in check_warning(examined)),
        unmet=_demands(policy, report, unmet),
        needs_review=enforced and mode is Oversight.HUMAN_REVIEW,
        oversight=mode,
        enforced=enforced,
    )


def may_withhold(policy: Policy, oversight: Oversight | None = None) -> bool:
    """Whether a policy may withhold an answer, or have a person review it."""
    watched = policy.overseen(oversight) in (Oversight.HALT, Oversight.HUMAN_REVIEW)
    narrow = not {PolicySource.PARAMETRIC, PolicySource.CONTEXT} <= {*policy.default_src}
    # `require-oversight` is handled above, since only some of its modes withhold.
    demands = [name for name in DIRECTIVES if name.startswith(_DEMANDS) and "oversight" not in name]
    return watched or narrow or any(has_directive(policy, name) for name in demands)


def _check_remedies(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """What `ask-again-on`, `repair-on` and `upgrade-on-risk` would act on."""
    policy, report = examined.policy, examined.report
    acting = {
        "ask-again-on": acts(policy.ask_again_on, report),
        "repair-on": acts(policy.repair_on, report),
        "upgrade-on-risk": upgrades(policy, report.risk_level),
    }
    for name in (name for name, acted in acting.items() if acted):
        seen, wanted = str(report.risk_level), "a lower level"
        yield examined.unmet(ViolationType.RISK, name, seen, wanted, None, withholds=False)


def _halt(
    report: Report, unmet: Sequence[UnmetDemand], mode: Oversight | None, *, enforced: bool
) -> HaltReason | None:
    """The most severe reason; reasons that another answer could not remove come first."""
    # Reports of crp-controls@1 contain only the class; later ones have `halts`.
    unacceptable = report.eu_ai_act_class is AiActClass.UNACCEPTABLE
    if unacceptable or report.classification.halts:
        return HaltReason.UNACCEPTABLE
    if mode is Oversight.HALT:
        return HaltReason.OVERSIGHT
    withheld = [demand.violation for demand in unmet if demand.violation.withholds]
    if not enforced or not withheld:
        return None
    risky = any(violation.violation_type is ViolationType.RISK for violation in withheld)
    if risky and report.risk_level is RiskLevel.CRITICAL:
        return HaltReason.CRITICAL_RISK
    return HaltReason.POLICY


def withholding(
    judgement: PolicyJudgement, reason: HaltReason, report: Report, terms: AnswerTerms
) -> tuple[str, str]:
    """The demand that withholds an answer, and the value found.

    The demand is a directive, `accept-risk LEVEL`, or the setting or law behind another reason.
    """
    if reason is HaltReason.UNACCEPTABLE:
        return "eu-ai-act", str(report.eu_ai_act_class)
    if reason is HaltReason.JUDGE_FAILED:
        return JUDGE_HALTS, report.judge.failed if report.judge else NOT_CHECKED
    if reason is HaltReason.OVERSIGHT:
        if judgement.oversight in (Oversight.HALT, Oversight.HUMAN_REVIEW):
            return f"require-oversight {judgement.oversight}", "no approval"
        return f"sessions.budget.review {terms.review_below:g}", "no approval"
    causes = [violation for violation in judgement.violations if violation.withholds]
    if reason is HaltReason.CRITICAL_RISK:
        causes.sort(key=lambda violation: violation.violation_type is not ViolationType.RISK)
    if causes:
        return causes[0].directive, causes[0].seen
    return f"accept-risk {terms.accept_risk}", unread_value(report) or str(report.risk_level)


def is_approved(decision: object) -> bool:
    """Whether a reviewer's return value approves: only True and 1 do."""
    # A string such as "rejected" is truthy in Python but not an approval.
    return isinstance(decision, int) and decision == 1


def unread_note(
    policy: Policy, report: Report, reason: HaltReason, accept_risk: RiskLevel | None = None
) -> str:
    """How much of a withheld answer was not read, and why; empty if that was not the reason."""
    if reason is not HaltReason.POLICY or not halting_demands(policy, accept_risk):
        return ""
    seen = unread_value(report)
    return f"{seen}: {unread_reason(report)}" if seen else ""


def unreachable(
    judgement: PolicyJudgement,
    report: Report,
    tier: QualityTier | None,
    wanted: Sequence[QualityTier] = (),
    listed: Sequence[QualityTier] = (),
) -> QualityUnreachable:
    """The error for demands on quality that an answer does not meet.

    Spec: CRP-SPEC-003 §8.4

    Args:
        wanted: tiers that the caller accepts; empty for any.
        listed: tiers that the policy accepts; empty for any.
    """
    if tier is not None and not accepts_tier(tier, wanted):
        tiers = tuple(wanted)
        return QualityUnreachable(
            f"tier {tier} is the best that can be reached, and the caller accepts "
            + ", ".join(tiers),
            tier=tier,
            wanted=tiers,
            directive=f"accept-quality {' '.join(tiers)}",
            value=str(tier),
        )
    unmet = [violation for violation in judgement.violations if not violation.withholds]
    message = "; ".join(
        f"{violation.directive} is not met, it is {violation.seen}"
        + (f": {uncounted_reason(report)}" if violation.seen == NOT_READ else "")
        for violation in unmet
    )
    return QualityUnreachable(
        message,
        tier=tier or "",
        wanted=() if tier and accepts_tier(tier, listed) else tuple(listed),
        directive=unmet[0].directive,
        value=unmet[0].seen,
    )


def _demands(policy: Policy, report: Report, unmet: Sequence[UnmetDemand]) -> tuple[Demand, ...]:
    demands = {unmet_demand.demand for unmet_demand in unmet}
    if upgrades(policy, report.risk_level):
        demands.add(Demand.RISK)
    return tuple(demand for demand in Demand if demand in demands)


DELIVER: Final = "deliver"
WITHHOLD: Final = "withhold"
UNREACHABLE: Final = "unreachable"


@dataclass(frozen=True, slots=True)
class AnswerTerms:
    """Conditions on an answer besides the policies.

    Attributes:
        accept_risk: the highest risk that the caller accepts; None for any.
        accept_quality: tiers that the caller accepts; empty for any.
        part: True if later windows may continue the answer; its completeness is then not checked.
        unanswered: True if the reply only requests tool calls; it is then always delivered.
        review_below: safety budget below which a person must review the answer.
    """

    accept_risk: RiskLevel | None = None
    accept_quality: tuple[QualityTier, ...] = ()
    part: bool = False
    unanswered: bool = False
    review_below: float = 0.0


@dataclass(frozen=True, slots=True)
class AnswerDecision:
    """The decision on an answer.

    Attributes:
        word: `deliver`, `withhold` or `unreachable`.
        reason: why the answer is withheld.
    """

    word: str
    reason: HaltReason | None = None


def decide_answer(
    report: Report,
    tier: QualityTier | None,
    judgement: PolicyJudgement,
    terms: AnswerTerms,
    *,
    unread: bool = False,
) -> AnswerDecision:
    """Decide on an answer when no remedy is left.

    Args:
        unread: whether the policy allows answers that no one read.
    """
    if terms.unanswered:
        return AnswerDecision(DELIVER)
    if report.classification.halts:
        return AnswerDecision(WITHHOLD, HaltReason.UNACCEPTABLE)
    if judgement.halt is not None:
        return AnswerDecision(WITHHOLD, judgement.halt)
    if exceeds_risk(report, terms.accept_risk, unread=unread):
        critical = report.risk_level is RiskLevel.CRITICAL
        return AnswerDecision(WITHHOLD, HaltReason.CRITICAL_RISK if critical else HaltReason.POLICY)
    poor = any(
        not violation.withholds
        and not (terms.part and violation.violation_type is ViolationType.COMPLETENESS)
        for violation in judgement.violations
    )
    if (tier is not None and not accepts_tier(tier, terms.accept_quality)) or (
        judgement.unreachable and poor
    ):
        return AnswerDecision(UNREACHABLE)
    return AnswerDecision(DELIVER)


def needs_review(judgement: PolicyJudgement, safety_budget: float, terms: AnswerTerms) -> bool:
    """Whether a person must review the answer."""
    return judgement.needs_review or safety_budget < terms.review_below


def exceeds_risk(report: Report, most: RiskLevel | None, *, unread: bool = False) -> bool:
    """Whether the risk of an answer is higher than the caller accepts.

    Args:
        unread: whether the policy allows answers that no one read.
    """
    unfitted = bool(unfitted_facts(report)) and report.risk_level is RiskLevel.LOW
    return exceeds_level(RiskLevel.UNKNOWN if unfitted else report.risk_level, most, unread=unread)


def exceeds_level(level: RiskLevel, most: RiskLevel | None, *, unread: bool = False) -> bool:
    """Whether a level is higher than the accepted one.

    An unread answer may have any risk, so UNKNOWN exceeds every level except itself and CRITICAL.
    """
    if most is None:
        return False
    if level is RiskLevel.UNKNOWN:
        return not unread and most not in (RiskLevel.UNKNOWN, RiskLevel.CRITICAL)
    return RISKS.index(level) > RISKS.index(most)


def accepts_tier(tier: QualityTier, wanted: Sequence[QualityTier]) -> bool:
    """Whether a tier is at least as good as the worst one listed.

    Spec: CRP-SPEC-003 §8.4 (decision E14)
    """
    return not wanted or tier.place <= max(accepted.place for accepted in wanted)


REPORT_DIGITS: Final = 3


def violation_report(
    violation: Violation, report: Report, *, timestamp: str = "", audit_trail_uri: str = ""
) -> ViolationReport:
    """The report on one violation: ids, numbers and the directive, but no text of the answer.

    Spec: related facts §6
    """
    return ViolationReport(
        session_id=report.session_id,
        window_id=report.window_id,
        timestamp=timestamp or report.timestamp,
        violation_type=violation.violation_type,
        directive_violated=violation.directive,
        risk_level=report.risk_level,
        hallucination_score=None
        if report.risk_score is None
        else round(report.risk_score, REPORT_DIGITS),
        grounding_pct=round(report.grounding_pct, REPORT_DIGITS),
        fabrication_count=report.fabrication_count,
        audit_trail_uri=audit_trail_uri,
    )


def inheritance_report(
    error: PolicyRelaxed,
    *,
    session_id: str,
    timestamp: str,
    window_id: str = "",
    audit_trail_uri: str = "",
) -> ViolationReport:
    """The report on a refused child policy; there is no answer, so its numbers are None.

    Spec: related facts §6
    """
    return ViolationReport(
        session_id=session_id,
        window_id=window_id,
        timestamp=timestamp,
        violation_type=ViolationType.INHERITANCE,
        directive_violated=f"{error.directive} {error.parent}",
        audit_trail_uri=audit_trail_uri,
    )
