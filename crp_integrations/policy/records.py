"""A policy, what it says about an answer, what is reported of a violation, and to whom."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import AfterValidator, BeforeValidator, Field

from crp_integrations.policy.directives import (
    FRACTION_DIGITS,
    MOST_ADDRESSES,
    OVERSIGHTS,
    REPORT_NAMES,
    REPORT_URIS,
    Demand,
    PolicySource,
    ReportReceivers,
    ViolationType,
    accepted_tiers,
    ordered_sources,
)
from crp_integrations.records import Part, Record
from crp_integrations.validation import of_kind
from crp_integrations.vocabulary import (
    HaltReason,
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    Strategy,
)

CRP_VERSION: Final = "3.0.0"


def _decimals(value: float) -> float:
    # Rounding could make a demand laxer than it was written.
    if round(value, FRACTION_DIGITS) != value:
        raise ValueError(f"a threshold has at most {FRACTION_DIGITS} decimals")
    return value


def _receivers(value: tuple[str, ...], kind: ReportReceivers) -> tuple[str, ...]:
    receivers = kind.unique(value)
    if len(receivers) > MOST_ADDRESSES:
        raise ValueError(
            f"{len(receivers)} receivers of reports, at most {MOST_ADDRESSES} are allowed"
        )
    if not all(map(kind.takes, receivers)):
        raise ValueError(f"wanted {kind.wanted}")
    return receivers


def _as_tuple(value: Any) -> Any:
    # JSON has lists; a set is a natural way to write sources in Python.
    return tuple(value) if isinstance(value, (list, set, frozenset)) else value


Uris = Annotated[tuple[str, ...], AfterValidator(partial(_receivers, kind=REPORT_URIS))]
Names = Annotated[tuple[str, ...], AfterValidator(partial(_receivers, kind=REPORT_NAMES))]
Threshold = Annotated[float, Field(ge=0.0, le=1.0), AfterValidator(_decimals)]
Level = Literal[RiskLevel.CRITICAL, RiskLevel.HIGH, RiskLevel.MEDIUM]
Tier = Literal[QualityTier.S, QualityTier.A, QualityTier.B]
Repeated = Literal[RepetitionLevel.NONE, RepetitionLevel.MINOR, RepetitionLevel.SIGNIFICANT]
Upgrade = Literal[Strategy.REFLEXIVE, Strategy.HIERARCHICAL, Strategy.BATCH]


class Policy(Record):
    """A safety policy: each field is the directive of that name.

    Spec: related facts §6

    Attributes:
        default_src: what an answer may rest on; empty for `'none'`.
        halt_on, warn_on: lowest risk level that is withheld, and that is warned of.
        require_grounding, require_entailment, require_flow, require_completeness: least scores,
            in [0, 1] with at most four decimals.
        require_quality: tiers that are accepted, best first; empty for any.
        require_oversight, oversight: the stricter of the two holds, see `overseen`.
        max_repetition: highest level of repetition that is accepted; None for SIGNIFICANT under
            `block_repetition` and for any without it.
        upgrade_on_risk: strategy of a re-dispatch; that there is one permits re-dispatches.
        unchecked: `allow` lets an answer pass that nobody read, as far as nothing wrong was found
            in it; None, the strictest, counts what was not read as unmet.
        report_uri: addresses that violation reports are posted to.
        report_to: names of addresses that the operator has configured.
    """

    SCHEMA = "policy/1"

    default_src: Annotated[
        tuple[PolicySource, ...], BeforeValidator(_as_tuple), AfterValidator(ordered_sources)
    ] = (PolicySource.CONTEXT, PolicySource.PARAMETRIC)
    halt_on: Level | None = None
    warn_on: Level | None = None
    require_grounding: Threshold | None = None
    require_entailment: Threshold | None = None
    require_flow: Threshold | None = None
    require_completeness: Threshold | None = None
    require_quality: Annotated[tuple[Tier, ...], AfterValidator(accepted_tiers)] = ()
    require_oversight: Oversight | None = None
    oversight: Oversight | None = None
    block_ungrounded: bool = False
    block_parametric: bool = False
    block_pii: bool = False
    block_fabrication: bool = False
    block_distortion: bool = False
    block_repetition: bool = False
    max_repetition: Repeated | None = None
    upgrade_on_risk: Upgrade | None = None
    unchecked: Literal["allow"] | None = None
    report_uri: Annotated[
        tuple[str, ...], AfterValidator(partial(_receivers, kind=REPORT_URIS))
    ] = ()
    report_to: Annotated[
        tuple[str, ...], AfterValidator(partial(_receivers, kind=REPORT_NAMES))
    ] = ()

    def allows(self, source: PolicySource) -> bool:
        """Whether an answer may rest on a source; what may not is kept out of the envelope."""
        return source in self.default_src

    @property
    def allows_unread(self) -> bool:
        """Whether an answer may be shown although nobody read it, or a part of it."""
        return self.unchecked is not None

    def overseen(self, *asked: Oversight | None) -> Oversight | None:
        """Who decides about an answer: the strictest of the policy's modes and those asked for."""
        modes = [mode for mode in (self.require_oversight, self.oversight, *asked) if mode]
        return max(modes, key=OVERSIGHTS.index, default=None)


def require_policy(policy: object, name: str = "policy") -> Policy:
    """A policy that a caller gave."""
    return of_kind(policy, Policy, name, "a Policy, such as parse('halt-on HIGH')")


class Violation(Part):
    """A directive that an answer does not meet.

    Attributes:
        directive: as it stands in the policy's canonical form.
        seen, wanted: the value found and the value demanded; never a text of the answer.
        withholds: the answer must not be shown for it; False for a demand on quality, which is
            unreachable when nothing is left to try.
    """

    violation_type: ViolationType
    directive: str
    seen: str
    wanted: str
    withholds: bool = True


class PolicyJudgement(Part):
    """What a policy says about an answer.

    Attributes:
        halt: why the answer must not be shown; None when nothing forbids it.
        unreachable: a demand on quality is unmet; where nothing is left to try, the answer is
            `QualityUnreachable`.
        warnings: `warn-on` in the form of a violation; the answer is shown.
        unmet: what asking again could mend.
        needs_review: a person must approve the answer before it is shown.
        oversight: the mode that holds, None for none.
        enforced: False for a policy that is only reported on.
    """

    violations: tuple[Violation, ...] = ()
    halt: HaltReason | None = None
    unreachable: bool = False
    warnings: tuple[Violation, ...] = ()
    unmet: tuple[Demand, ...] = ()
    needs_review: bool = False
    oversight: Oversight | None = None
    enforced: bool = True


class ViolationReport(Part):
    """What is posted of one violation: the fields that the document lists, and no others.

    Spec: related facts §6

    Attributes:
        timestamp: ISO 8601 in UTC.
        directive_violated: in the policy's canonical form.
        risk_level, hallucination_score, grounding_pct, fabrication_count: None where no answer
            was examined.
        audit_trail_uri: empty where there is none.
    """

    crp_version: str = CRP_VERSION
    session_id: str
    window_id: str
    timestamp: str
    violation_type: ViolationType
    directive_violated: str
    risk_level: RiskLevel | None = None
    hallucination_score: float | None = Field(default=None, ge=0.0, le=1.0)
    grounding_pct: float | None = Field(default=None, ge=0.0, le=1.0)
    fabrication_count: int | None = Field(default=None, ge=0)
    audit_trail_uri: str = ""


class ViolationSink(Protocol):
    """Carries violation reports to the addresses of a policy. Safe under threads."""

    def take(self, report: ViolationReport, policy: Policy) -> None:
        """Take a report for `report-uri` and `report-to` of a policy.

        Never waits and never raises: an answer does not depend on its report's way.
        """
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was taken is delivered or given up.

        Returns:
            False when the time ran out before.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Flush, then stop; what is taken afterwards is dropped."""
        ...
