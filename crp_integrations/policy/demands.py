"""The rule of each directive on a report, and the demands that need a reader; `verdict` decides.

A demand that was not measured is unmet: if its stage did not run, it is a violation with the value
"not checked"; if no one read the claims, it is a violation unless the policy has `unchecked allow`,
which counts only the claims that were read. Demands on the truth of an answer need a reader of its
claims: a judge, a reading verifier, or the printed arithmetic of `literal`. Without a reader such a
demand would be met or unmet by chance, so the policy is refused.

Spec: related facts §6
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from crp_integrations.dpe.records import Claim, Report
from crp_integrations.dpe.stages.completeness import NOTHING
from crp_integrations.policy.directives import (
    Demand,
    PolicySource,
    ViolationType,
    field_of,
    write_directive,
    write_threshold,
)
from crp_integrations.policy.policy_text import has_directive
from crp_integrations.policy.records import Policy, Violation
from crp_integrations.vocabulary import (
    Attribution,
    ClaimStatus,
    GroundingMode,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
)

NOT_CHECKED: Final = "not checked"
NOT_READ: Final = "not read"
# Flag of a report, with a number: facts were found, but none fitted into the model's context limit.
UNFITTED: Final = "facts-did-not-fit="
RISKS: Final = tuple(RiskLevel)
REPEATED: Final = tuple(RepetitionLevel)
# Lowest level at which `upgrade-on-risk` asks again (005 §7.4), unless a directive names a lower.
UPGRADED: Final = RiskLevel.HIGH
# Scores are rounded to this, so that float errors do not push one below a threshold.
DIGITS: Final = 9


class UnmetDemand(NamedTuple):
    """A violation, and the demand that asking again could meet; None if it could not."""

    violation: Violation
    demand: Demand | None


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """A policy and the data that it is checked against.

    Attributes:
        tier: quality tier of the envelope, capped by the answer's quality; None without envelope.
        origins: source of each fact by id; facts that are not listed come from the context.
    """

    policy: Policy
    report: Report
    tier: QualityTier | None
    origins: Mapping[str, PolicySource]

    def ran(self, stage: int) -> bool:
        """Whether the stage with this number ran."""
        return any(run.number == stage for run in self.report.stages)

    @property
    def unread(self) -> int:
        """Number of claims that no one read; 0 if the policy allows them."""
        return 0 if self.policy.allows_unread else len(unread_claims(self.report))

    def count(self, *attributions: Attribution) -> int:
        """Count factual claims with these attributions, without unread ones that are allowed."""
        total = sum(
            self.report.attribution_breakdown.get(attribution.value, 0)
            for attribution in attributions
        )
        if self.policy.allows_unread:
            unread = unread_claims(self.report)
            total -= sum(claim.attribution in attributions for claim in unread)
        return max(0, total)

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
        """Build the violation of a directive of the policy."""
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


def unread_claims(report: Report) -> list[Claim]:
    """The claims of a report that assert something and that no one read."""
    return [claim for claim in report.claims if claim.status is ClaimStatus.NOT_CHECKED]


def unfitted_facts(report: Report) -> int:
    """Number of facts found if none of them fitted into the context; else 0."""
    unfitted = next((flag for flag in report.flags if flag.startswith(UNFITTED)), "")
    return int(unfitted.removeprefix(UNFITTED) or 0)


def unread_value(report: Report) -> str:
    """How much of an answer was not read, as the value of a violation; empty if all was read."""
    unfitted = unfitted_facts(report)
    if unfitted:
        return f"{report.risk_level}, none of {unfitted} facts fitted"
    if report.risk_level is not RiskLevel.UNKNOWN:
        return ""
    unread = report.claim_counts.unread or len(unread_claims(report))
    total = max(unread, report.claim_counts.total)
    if not total:
        return f"{report.risk_level}, nothing was read"
    verb = "was" if unread == 1 else "were"
    return f"{report.risk_level}, {unread} of {_claims(total)} {verb} {NOT_READ}"


def unread_reason(report: Report) -> str:
    """Why an answer, or a part of it, was not read; contains no text of the answer."""
    run = report.judge
    if unfitted_facts(report):
        return "the facts that were found do not fit into the model's context limit"
    if run is None:
        return "no judge was asked"
    if run.skipped:
        return f"the judge was not asked: {run.skipped}"
    if run.failed:
        return f"the judge failed: {run.failed}"
    return "the judge gave no verdict that its quotations bear out"


def uncounted_reason(report: Report) -> str:
    """Why it is unknown which parts of a question an answer covers."""
    run = report.judge
    if run is None or run.skipped or run.failed or unfitted_facts(report):
        return unread_reason(report)
    return "the judge did not tell which parts of the question the answer covers"


def check_sources(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`default-src`: every factual claim rests on an allowed source.

    A claim without support comes from the model itself, hedged or not; so without `parametric` an
    UNVERIFIABLE claim is a violation like a PARAMETRIC one. For a supported claim, every supporting
    fact must come from an allowed source.
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
                examined.origins.get(evidence.fact_id, PolicySource.CONTEXT)
                for evidence in claim.evidence
            } or {PolicySource.CONTEXT}
            elsewhere.update(origins - allowed)
    if elsewhere:
        yield examined.unmet(
            ViolationType.SOURCE,
            "default-src",
            ", ".join(
                f"{_claims(elsewhere[source])} from {source}" for source in sorted(elsewhere)
            ),
            "allowed sources alone",
            Demand.GROUNDING if PolicySource.PARAMETRIC in elsewhere else None,
        )


def check_warning(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`warn-on`: the risk level is lower. The result is a warning, not a violation."""
    return _check_level(examined, "warn-on", examined.policy.warn_on)


def upgrades(policy: Policy, level: RiskLevel) -> bool:
    """Whether `upgrade-on-risk` asks for a re-dispatch at a risk level.

    The minimum level is HIGH, or a lower one that `halt-on` or `warn-on` names.

    Spec: CRP-SPEC-005 §7.4, §19.1
    """
    named = [risk for risk in (policy.halt_on, policy.warn_on, UPGRADED) if risk is not None]
    return policy.upgrade_on_risk is not None and RISKS.index(level) >= min(map(RISKS.index, named))


def acts(level: RiskLevel | None, report: Report) -> bool:
    """Whether `ask-again-on` or `repair-on` with a level acts on an answer."""
    return level is not None and RISKS.index(report.risk_level) >= RISKS.index(level)


def _check_level(examined: PolicyCase, name: str, named: RiskLevel | None) -> Iterator[UnmetDemand]:
    if named is None:
        return
    level, wanted = examined.report.risk_level, f"below {named}"
    seen = "" if examined.policy.allows_unread else unread_value(examined.report)
    if not examined.ran(5):
        yield examined.unmet(ViolationType.RISK, name, NOT_CHECKED, wanted, Demand.RISK)
    elif RISKS.index(level) >= RISKS.index(named):
        yield examined.unmet(ViolationType.RISK, name, str(level), wanted, Demand.RISK)
    elif seen:
        # No demand for asking again: no one would read the new answer either.
        yield examined.unmet(ViolationType.RISK, name, seen, wanted, None)


def grounding_of(examined: PolicyCase) -> float | None:
    """The share of claims that rest on the context; None if no claim was read."""
    report, read = examined.report, _read_claims(examined)
    if read is None:
        return report.grounding_pct
    grounded = sum(claim.attribution is Attribution.CONTEXT_GROUNDED for claim in read)
    return grounded / len(read) if read else None


def entailment_of(examined: PolicyCase) -> float | None:
    """The lowest entailment of a claim; None if no claim was read.

    Under `open` grounding an unsupported claim is allowed and does not count.
    """
    report, read = examined.report, _read_claims(examined)
    if read is None:
        return report.entailment_score
    is_open = report.grounding_mode is GroundingMode.OPEN
    measured = [
        claim.entailment
        for claim in read
        if claim.entailment is not None
        and not (is_open and claim.status is ClaimStatus.UNSUPPORTED)
    ]
    return min(measured, default=None)


def _read_claims(examined: PolicyCase) -> list[Claim] | None:
    """The read claims if there are allowed unread ones; None if the report's own score applies."""
    report = examined.report
    unread = unread_claims(report) if examined.policy.allows_unread else []
    if not unread:
        return None
    left_out = {claim.claim_id for claim in unread}
    return [
        claim
        for claim in report.claims
        if claim.attribution is not None and claim.claim_id not in left_out
    ]


def completeness_of(examined: PolicyCase) -> float | None:
    """The share of the question's needs that are answered; None if no one read that."""
    return read_completeness(examined.report)


def read_completeness(report: Report) -> float | None:
    """The share of a question's needs that are answered; None if no one read that.

    A question without separate needs counts as answered in full.
    """
    return 1.0 if NOTHING in report.stages else report.completeness_score


def _threshold_rule(name: str, stage: int, measured: Callable[[PolicyCase], float | None]) -> Rule:
    word = name.removeprefix("require-")
    kind, demand = ViolationType(word), Demand(word)
    # Poor flow or completeness makes an answer less useful, but not unsafe.
    withholds = demand in (Demand.GROUNDING, Demand.ENTAILMENT)

    def rule(examined: PolicyCase) -> Iterator[UnmetDemand]:
        least: float | None = getattr(examined.policy, field_of(name))
        if least is None:
            return
        wanted = f"at least {write_threshold(least)}"
        if not examined.ran(stage):
            yield examined.unmet(kind, name, NOT_CHECKED, wanted, demand, withholds=withholds)
            return
        value = measured(examined)
        if value is None:
            if not examined.policy.allows_unread:
                yield examined.unmet(kind, name, NOT_READ, wanted, None, withholds=withholds)
            return
        score = round(float(value), DIGITS)
        if score < least:
            yield examined.unmet(kind, name, f"{score:.6g}", wanted, demand, withholds=withholds)

    return rule


def check_quality(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`require-quality`: the tier of envelope and answer is one of those listed."""
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


def _block_rule(name: str, demand: Demand, counted: Callable[[PolicyCase], int]) -> Rule:
    """The rule of a blocking directive: nothing that it blocks was found, and all claims read."""
    kind = ViolationType(name.removeprefix("block-"))
    # Claims are counted by their attribution (stage 2), findings are from stage 3.
    by_claims = demand is Demand.GROUNDING
    stage = 2 if by_claims else 3

    def rule(examined: PolicyCase) -> Iterator[UnmetDemand]:
        if not getattr(examined.policy, field_of(name)):
            return
        count = counted(examined)
        if not examined.ran(stage):
            yield examined.unmet(kind, name, NOT_CHECKED, "none", demand)
        elif count:
            seen = _claims(count) if by_claims else f"{count} found"
            yield examined.unmet(kind, name, seen, "none", demand)
        elif examined.unread:
            yield examined.unmet(kind, name, f"{_claims(examined.unread)} {NOT_READ}", "none", None)

    return rule


def check_personal(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`block-pii`: no personal data in the answer but what it repeats from question or history."""
    if not examined.policy.block_pii:
        return
    counts = Counter(
        datum.category.value
        for datum in examined.report.personal.found
        if datum.where == "answer" and not datum.in_question
    )
    if counts or not examined.ran(11):
        places = ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
        seen = places if examined.ran(11) else NOT_CHECKED
        yield examined.unmet(ViolationType.PERSONAL_DATA, "block-pii", seen, "none", None)


def check_repetition(examined: PolicyCase) -> Iterator[UnmetDemand]:
    """`max-repetition` and `block-repetition`: repetition is at most at the accepted level.

    The first asks for another answer, the second withholds this one. `block-repetition` without
    `max-repetition` accepts SIGNIFICANT, so only SEVERE is a violation.
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


# In the order of the directives in a policy's canonical text.
RULES: Final[tuple[Rule, ...]] = (
    check_sources,
    lambda case: _check_level(case, "halt-on", case.policy.halt_on),
    _threshold_rule("require-grounding", 2, grounding_of),
    _threshold_rule("require-entailment", 4, entailment_of),
    _threshold_rule("require-flow", 9, lambda case: case.report.flow_score),
    _threshold_rule("require-completeness", 8, completeness_of),
    check_quality,
    _block_rule(
        "block-ungrounded",
        Demand.GROUNDING,
        lambda case: case.count(Attribution.PARAMETRIC, Attribution.UNVERIFIABLE),
    ),
    _block_rule(
        "block-parametric", Demand.GROUNDING, lambda case: case.count(Attribution.PARAMETRIC)
    ),
    check_personal,
    _block_rule(
        "block-fabrication", Demand.FABRICATION, lambda case: case.report.fabrication_count
    ),
    _block_rule("block-distortion", Demand.DISTORTION, lambda case: case.report.distortion_count),
    check_repetition,
)

# Directives that need a reader. Not `warn-on`, which only warns; personal data, repetition, flow,
# tiers and oversight are measured by rules or by a person.
READ: Final = (
    "halt-on",
    "require-grounding",
    "require-entailment",
    "require-completeness",
    "block-ungrounded",
    "block-parametric",
    "block-fabrication",
    "block-distortion",
)
ACTING: Final = ("ask-again-on", "repair-on", "upgrade-on-risk")
GIVE: Final = "give judge=…, such as judge='openai/gpt-4o-mini'"
WAYS_OUT: Final = (
    f"{GIVE}, or write the directive 'unchecked allow' into the policy, which lets answers pass "
    "that no one read"
)
# Accepted levels that need no reader: CRITICAL accepts everything, UNKNOWN accepts unread answers.
_UNREAD_ACCEPTED: Final = (RiskLevel.CRITICAL, RiskLevel.UNKNOWN)


def halting_demands(policy: Policy, accept_risk: RiskLevel | None = None) -> tuple[str, ...]:
    """The demands of a policy that withhold an answer that no one read.

    Args:
        accept_risk: the highest level that the caller accepts; None for any.

    Returns:
        Directives in their canonical form, and `accept-risk LEVEL`; empty if there are none or
        the policy has `unchecked allow`.
    """
    if policy.allows_unread:
        return ()
    named = ["default-src"] if not policy.allows(PolicySource.PARAMETRIC) else []
    named += [name for name in READ if has_directive(policy, name)]
    demands = [write_directive(name, getattr(policy, field_of(name))) for name in named]
    if accept_risk is not None and accept_risk not in _UNREAD_ACCEPTED:
        demands.append(f"accept-risk {accept_risk}")
    return tuple(demands)


def reader_demands(policy: Policy, accept_risk: RiskLevel | None = None) -> tuple[str, ...]:
    """The demands that need a reader: those that withhold, and those that act before it.

    Spec: related facts §6

    Args:
        accept_risk: the highest level that the caller accepts; None for any.

    >>> from crp_integrations.policy.policy_text import parse_policy
    >>> reader_demands(parse_policy("halt-on HIGH; warn-on MEDIUM; block-pii"))
    ('halt-on HIGH',)
    >>> reader_demands(parse_policy("halt-on HIGH; unchecked allow"))
    ()
    """
    demands = halting_demands(policy, accept_risk)
    acting = () if policy.allows_unread else ACTING
    named = [name for name in acting if has_directive(policy, name)]
    return (*demands, *(write_directive(n, getattr(policy, field_of(n))) for n in named))


def refusal_words(demands: tuple[str, ...], why: str) -> str:
    """The error message for demands that cannot be measured.

    Args:
        why: why answers are not read before they are shown.
    """
    verb = "needs" if len(demands) == 1 else "need"
    named = ", ".join(demands)
    return f"{named} {verb} every answer to be read before it is shown, and {why}; {WAYS_OUT}"
