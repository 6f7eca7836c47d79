"""What each directive demands of a report, one function for each; nothing here decides.

What was not measured is not met: a demand on a stage that did not run is a violation, seen as
"not checked".

Spec: related facts §6
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from crp_integrations.dpe.judge.verdict import SPECIFIC
from crp_integrations.dpe.records import Report
from crp_integrations.policy.directives import (
    Demand,
    PolicySource,
    ViolationType,
    field_of,
    write_directive,
    write_threshold,
)
from crp_integrations.policy.records import Policy, Violation
from crp_integrations.vocabulary import (
    Attribution,
    Checked,
    ClaimStatus,
    ClaimType,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
)

NOT_CHECKED: Final = "not checked"
RISKS: Final = tuple(RiskLevel)
REPEATED: Final = tuple(RepetitionLevel)
# 005 §7.4: from here on `upgrade-on-risk` asks again, where no directive names a lower level.
UPGRADED: Final = RiskLevel.HIGH
# Float dust must not carry a score below a threshold.
DIGITS: Final = 9


class UnmetDemand(NamedTuple):
    """A violation, and which demand asking again could mend; None for one that it could not."""

    violation: Violation
    demand: Demand | None


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """What a policy is held against.

    Attributes:
        tier: of the envelope, capped by the answer's quality; None where there is none.
        origins: where facts come from, by id; what it does not name came from the context.
    """

    policy: Policy
    report: Report
    tier: QualityTier | None
    origins: Mapping[str, PolicySource]

    def ran(self, stage: int) -> bool:
        """Whether a stage of the engine ran, by its number."""
        return any(run.number == stage for run in self.report.stages)

    def count(self, *attributions: Attribution) -> int:
        """Factual claims of some attributions."""
        return sum(self.report.attribution_breakdown.get(one.value, 0) for one in attributions)

    def unmet(
        self,
        kind: ViolationType,
        name: str,
        seen: str,
        wanted: str,
        demand: Demand | None,
        *,
        withholds: bool = True,
    ) -> UnmetDemand:
        """A violation of a directive that the policy has."""
        directive = write_directive(name, getattr(self.policy, field_of(name)))
        return UnmetDemand(
            Violation(
                violation_type=kind,
                directive=directive,
                seen=seen,
                wanted=wanted,
                withholds=withholds,
            ),
            demand,
        )


Rule = Callable[[PolicyCase], Iterator[UnmetDemand]]


def check_sources(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`default-src`: every factual claim rests on a source that is allowed.

    A claim that nothing supports is the model's own word, whether or not it commits itself; so
    without `parametric` an UNVERIFIABLE claim is refused as a PARAMETRIC one is. A supported claim
    needs every fact that it rests on to come from an allowed source.
    """
    allowed = frozenset(examined.policy.default_src)
    possible = {PolicySource.CONTEXT, PolicySource.PARAMETRIC, *examined.origins.values()}
    if possible <= allowed:
        return
    if not examined.ran(2):
        yield examined.unmet(
            ViolationType.SOURCE, "default-src", NOT_CHECKED, "allowed sources alone", None
        )
        return
    elsewhere: Counter[PolicySource] = Counter()
    own = examined.count(Attribution.PARAMETRIC, Attribution.UNVERIFIABLE)
    if own and PolicySource.PARAMETRIC not in allowed:
        elsewhere[PolicySource.PARAMETRIC] = own
    for claim in examined.report.claims:
        if claim.attribution in (Attribution.CONTEXT_GROUNDED, Attribution.MIXED):
            origins = {
                examined.origins.get(one.fact_id, PolicySource.CONTEXT) for one in claim.evidence
            } or {PolicySource.CONTEXT}
            elsewhere.update(origins - allowed)
    if elsewhere:
        yield examined.unmet(
            ViolationType.SOURCE,
            "default-src",
            ", ".join(f"{_claims(elsewhere[one])} from {one}" for one in sorted(elsewhere)),
            "allowed sources alone",
            Demand.GROUNDING if PolicySource.PARAMETRIC in elsewhere else None,
        )


def check_halt(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`halt-on`: the risk level is lower."""
    yield from _check_level(examined, "halt-on", examined.policy.halt_on)


def check_warning(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`warn-on`: the risk level is lower. What this yields is a warning, no violation."""
    yield from _check_level(examined, "warn-on", examined.policy.warn_on)


def upgrades(policy: Policy, level: RiskLevel) -> bool:
    """Whether `upgrade-on-risk` asks for a re-dispatch at a risk level.

    It does from HIGH on, or from a lower level that `halt-on` or `warn-on` names.

    Spec: CRP-SPEC-005 §7.4, §19.1
    """
    named = [one for one in (policy.halt_on, policy.warn_on, UPGRADED) if one is not None]
    return policy.upgrade_on_risk is not None and RISKS.index(level) >= min(map(RISKS.index, named))


def _check_level(examined: PolicyCase, name: str, named: RiskLevel | None) -> Iterator[UnmetDemand]:
    if named is None:
        return
    level = examined.report.risk_level
    if not examined.ran(5):
        yield examined.unmet(ViolationType.RISK, name, NOT_CHECKED, f"below {named}", Demand.RISK)
    elif RISKS.index(level) >= RISKS.index(named):
        yield examined.unmet(ViolationType.RISK, name, str(level), f"below {named}", Demand.RISK)


def _threshold_rule(
    name: str, kind: ViolationType, demand: Demand, stage: int, field: str, *, withholds: bool
) -> Rule:
    def rule(examined: PolicyCase) -> Iterator[UnmetDemand]:
        least: float | None = getattr(examined.policy, field_of(name))
        if least is None:
            return
        score = round(float(getattr(examined.report, field)), DIGITS)
        if examined.ran(stage) and score >= least:
            return
        seen = f"{score:.6g}" if examined.ran(stage) else NOT_CHECKED
        wanted = f"at least {write_threshold(least)}"
        yield examined.unmet(kind, name, seen, wanted, demand, withholds=withholds)

    return rule


def check_quality(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`require-quality`: the tier of envelope and answer is one of those listed, or better."""
    accepted, tier = examined.policy.require_quality, examined.tier
    if accepted and tier not in accepted:
        yield examined.unmet(
            ViolationType.QUALITY,
            "require-quality",
            NOT_CHECKED if tier is None else str(tier),
            "one of " + ", ".join(accepted),
            Demand.QUALITY,
            withholds=False,
        )


def _block_rule(name: str, kind: ViolationType, *attributions: Attribution) -> Rule:
    def rule(examined: PolicyCase) -> Iterator[UnmetDemand]:
        if not getattr(examined.policy, field_of(name)):
            return
        found = examined.count(*attributions)
        if found or not examined.ran(2):
            seen = _claims(found) if examined.ran(2) else NOT_CHECKED
            yield examined.unmet(kind, name, seen, "none", Demand.GROUNDING)

    return rule


def check_personal(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`block-pii`: no personal data in the answer; what the question brought does not count."""
    if not examined.policy.block_pii:
        return
    found = Counter(
        one.category.value for one in examined.report.personal.found if one.where == "answer"
    )
    if found or not examined.ran(11):
        places = ", ".join(f"{found[name]} {name}" for name in sorted(found))
        seen = places if examined.ran(11) else NOT_CHECKED
        yield examined.unmet(ViolationType.PERSONAL_DATA, "block-pii", seen, "none", None)


def check_fabrication(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`block-fabrication`: nothing is made up, and every factual claim was looked at for it."""
    if not examined.policy.block_fabrication:
        return
    report = examined.report
    if report.was_read:
        # What read the claims says which are made up; findings of the screen are hints.
        found = sum(
            claim.status is ClaimStatus.UNSUPPORTED and claim.error in SPECIFIC
            for claim in report.claims
        )
        unread = sum(
            claim.status is ClaimStatus.NOT_CHECKED and claim.claim_type is ClaimType.FACTUAL
            for claim in report.claims
        )
    else:
        found = report.fabrication_count
        unread = sum(
            claim.checked is Checked.NOT_CHECKED and claim.claim_type is ClaimType.FACTUAL
            for claim in report.claims
        )
    if found or unread or not examined.ran(3):
        seen = f"{found} found" if found else f"{_claims(unread)} {NOT_CHECKED}"
        if not examined.ran(3):
            seen = NOT_CHECKED
        yield examined.unmet(
            ViolationType.FABRICATION, "block-fabrication", seen, "none", Demand.FABRICATION
        )


def check_distortion(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`block-distortion`: no claim says otherwise than its source."""
    if not examined.policy.block_distortion:
        return
    report = examined.report
    found = report.distortion_count
    if report.was_read:
        found = sum(claim.status is ClaimStatus.CONTRADICTED for claim in report.claims)
    if found or not examined.ran(3):
        seen = f"{found} found" if examined.ran(3) else NOT_CHECKED
        yield examined.unmet(
            ViolationType.DISTORTION, "block-distortion", seen, "none", Demand.DISTORTION
        )


def check_repetition(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`max-repetition` and `block-repetition`: the level is not above the one that is accepted.

    The first asks for another answer, the second withholds this one. `block-repetition` alone
    accepts SIGNIFICANT, and so refuses what is SEVERE.
    """
    policy, level = examined.policy, examined.report.repetition_level
    most = policy.max_repetition or RepetitionLevel.SIGNIFICANT
    if examined.ran(7) and REPEATED.index(level) <= REPEATED.index(most):
        return
    seen = str(level) if examined.ran(7) else NOT_CHECKED
    for name in ("block-repetition", "max-repetition"):
        if getattr(policy, field_of(name)):
            yield examined.unmet(
                ViolationType.REPETITION,
                name,
                seen,
                f"at most {most}",
                Demand.REPETITION,
                withholds=name == "block-repetition",
            )


def _claims(count: int) -> str:
    return f"{count} claim" if count == 1 else f"{count} claims"


# In the order in which a policy is printed.
RULES: Final[tuple[Rule, ...]] = (
    check_sources,
    check_halt,
    _threshold_rule(
        "require-grounding",
        ViolationType.GROUNDING,
        Demand.GROUNDING,
        2,
        "grounding_pct",
        withholds=True,
    ),
    _threshold_rule(
        "require-entailment",
        ViolationType.ENTAILMENT,
        Demand.ENTAILMENT,
        4,
        "entailment_score",
        withholds=True,
    ),
    _threshold_rule(
        "require-flow", ViolationType.FLOW, Demand.FLOW, 9, "flow_score", withholds=False
    ),
    _threshold_rule(
        "require-completeness",
        ViolationType.COMPLETENESS,
        Demand.COMPLETENESS,
        8,
        "completeness_score",
        withholds=False,
    ),
    check_quality,
    _block_rule(
        "block-ungrounded",
        ViolationType.UNGROUNDED,
        Attribution.PARAMETRIC,
        Attribution.UNVERIFIABLE,
    ),
    _block_rule("block-parametric", ViolationType.PARAMETRIC, Attribution.PARAMETRIC),
    check_personal,
    check_fabrication,
    check_distortion,
    check_repetition,
)
