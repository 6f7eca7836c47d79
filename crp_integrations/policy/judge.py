"""What a policy says about an examined answer. Pure; the relay acts on it.

Two consequences are kept apart. What makes an answer unsafe withholds it (451): sources, risk,
grounding, entailment, and everything that is blocked. What makes it less useful is a demand on
quality (503 where nothing is left to try): tier, flow, completeness, repetition.

Spec: related facts §6, CRP-SPEC-005 §7.4, §19
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from crp_integrations.dpe.records import Report
from crp_integrations.given import of_kind
from crp_integrations.policy.demands import RULES, Examined, Unmet, upgrading, warning
from crp_integrations.policy.records import Judgement as Judgement
from crp_integrations.policy.records import Policy, given
from crp_integrations.policy.words import Demand, PolicySource, ViolationType
from crp_integrations.vocabulary import AiActClass, HaltReason, Oversight, QualityTier, RiskLevel

_NONE: Final[Mapping[str, PolicySource]] = {}


def judge(
    policy: Policy,
    report: Report,
    *,
    tier: QualityTier | None = None,
    oversight: Oversight | None = None,
    origins: Mapping[str, PolicySource] = _NONE,
    enforced: bool = True,
) -> Judgement:
    """Hold a policy against the report on an answer.

    A use that is unacceptable under the EU AI Act, and an oversight of `halt`, withhold the answer
    whatever else is said, also under a policy that is only reported on.

    Spec: related facts §2, §6, CRP-SPEC-005 §7.4, §14.2

    Args:
        tier: of the envelope, capped by the answer's quality; None where there is none.
        oversight: the mode that the request asks for, None for none.
        origins: where facts come from, by fact id; those it does not name came from the context.
        enforced: False for a policy whose violations are only reported.

    Returns:
        The judgement; remedies go first, so its `halt` and `unreachable` speak of the case that
        nothing is left to try.

    Raises:
        RequestError: policy or report is something else.
    """
    given(policy)
    of_kind(report, Report, "report", "a Report, such as examine(…)")
    examined = Examined(policy, report, tier, origins)
    unmet = [one for rule in RULES for one in rule(examined)]
    mode = policy.overseen(oversight)
    return Judgement(
        violations=tuple(one.violation for one in unmet),
        halt=_halt(report, unmet, mode, enforced=enforced),
        unreachable=enforced and any(not one.violation.withholds for one in unmet),
        warnings=tuple(one.violation for one in warning(examined)),
        unmet=_demands(policy, report, unmet),
        needs_review=enforced and mode is Oversight.HUMAN_REVIEW,
        oversight=mode,
        enforced=enforced,
    )


def withholds(policy: Policy, oversight: Oversight | None = None) -> bool:
    """Whether there are answers that a policy does not let through, or lets a person look at."""
    demands = (
        policy.halt_on,
        policy.require_grounding,
        policy.require_entailment,
        policy.require_flow,
        policy.require_completeness,
        policy.require_quality or None,
        policy.max_repetition,
    )
    blocks = (
        policy.block_ungrounded,
        policy.block_parametric,
        policy.block_pii,
        policy.block_fabrication,
        policy.block_repetition,
        not policy.allows(PolicySource.PARAMETRIC),
        not policy.allows(PolicySource.CONTEXT),
    )
    watched = policy.overseen(oversight) in (Oversight.HALT, Oversight.HUMAN_REVIEW)
    return watched or any(blocks) or any(one is not None for one in demands)


def _halt(
    report: Report, unmet: Sequence[Unmet], mode: Oversight | None, *, enforced: bool
) -> HaltReason | None:
    """The gravest reason: first those that no other answer could remove."""
    # The rules may forbid more than the Act does.
    unacceptable = report.eu_ai_act_class is AiActClass.UNACCEPTABLE
    if unacceptable or report.classification.halts:
        return HaltReason.UNACCEPTABLE
    if mode is Oversight.HALT:
        return HaltReason.OVERSIGHT
    withheld = [one.violation for one in unmet if one.violation.withholds]
    if not enforced or not withheld:
        return None
    risky = any(one.violation_type is ViolationType.RISK for one in withheld)
    if risky and report.risk_level is RiskLevel.CRITICAL:
        return HaltReason.CRITICAL_RISK
    return HaltReason.POLICY


def _demands(policy: Policy, report: Report, unmet: Sequence[Unmet]) -> tuple[Demand, ...]:
    found = {one.demand for one in unmet}
    if upgrading(policy, report.risk_level):
        found.add(Demand.RISK)
    return tuple(demand for demand in Demand if demand in found)
