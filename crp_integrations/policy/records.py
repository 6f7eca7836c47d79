"""Records of a policy, its judgement on an answer and violation reports, and their receiver."""

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
    # Refused rather than rounded, since rounding could make a demand laxer.
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
    # JSON gives lists, and Python callers may pass sets.
    return tuple(value) if isinstance(value, (list, set, frozenset)) else value


Threshold = Annotated[float, Field(ge=0.0, le=1.0), AfterValidator(_decimals)]
Level = Literal[RiskLevel.CRITICAL, RiskLevel.HIGH, RiskLevel.MEDIUM]
Tier = Literal[QualityTier.S, QualityTier.A, QualityTier.B]
Repeated = Literal[RepetitionLevel.NONE, RepetitionLevel.MINOR, RepetitionLevel.SIGNIFICANT]
Upgrade = Literal[Strategy.REFLEXIVE, Strategy.HIERARCHICAL, Strategy.BATCH]


class Policy(Record):
    """A safety policy: each field is the directive of that name.

    Spec: related facts §6

    Attributes:
        default_src: allowed sources of an answer; empty for `'none'`.
        halt_on, warn_on: lowest risk level at which an answer is withheld, or warned about.
        ask_again_on, repair_on: lowest level at which the model is asked again, or the answer is
            repaired, before the other directives are judged.
        require_grounding, require_entailment, require_flow, require_completeness: minimum scores,
            in [0, 1] with at most four decimals.
        require_quality: accepted tiers, best first; empty for any.
        require_oversight, oversight: oversight modes; the stricter applies, see `overseen`.
        max_repetition: highest accepted level of repetition; None for SIGNIFICANT with
            `block_repetition` and for any without it.
        upgrade_on_risk: strategy of a re-dispatch; setting it permits re-dispatches.
        unchecked: `allow` lets an answer pass that no one read, unless an error was found in it;
            None, the strictest, counts unread claims as unmet.
        report_uri: addresses to which violation reports are posted.
        report_to: names of addresses that the operator has configured.
    """

    SCHEMA = "policy/1"

    default_src: Annotated[
        tuple[PolicySource, ...], BeforeValidator(_as_tuple), AfterValidator(ordered_sources)
    ] = (PolicySource.CONTEXT, PolicySource.PARAMETRIC)
    halt_on: Level | None = None
    warn_on: Level | None = None
    ask_again_on: Level | None = None
    repair_on: Level | None = None
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
        """Whether an answer may rest on a source; facts of other sources stay out of envelopes."""
        return source in self.default_src

    @property
    def allows_unread(self) -> bool:
        """Whether an answer may be shown although no one read it, or a part of it."""
        return self.unchecked is not None

    def overseen(self, *asked: Oversight | None) -> Oversight | None:
        """The oversight mode that applies: the strictest of the policy's and the requested ones."""
        modes = [mode for mode in (self.require_oversight, self.oversight, *asked) if mode]
        return max(modes, key=OVERSIGHTS.index, default=None)


def require_policy(policy: object, name: str = "policy") -> Policy:
    """Return the argument; raise `RequestError` unless it is a Policy."""
    return of_kind(policy, Policy, name, "a Policy, such as parse('halt-on HIGH')")


class Violation(Part):
    """A directive that an answer does not meet.

    Attributes:
        directive: the directive in canonical form.
        seen, wanted: the value found and the value demanded; never a text of the answer.
        withholds: True if the answer must not be shown; False for a demand on quality, which makes
            the answer unreachable when no remedy is left.
    """

    violation_type: ViolationType
    directive: str
    seen: str
    wanted: str
    withholds: bool = True


class PolicyJudgement(Part):
    """The result of applying a policy to an answer.

    Attributes:
        halt: why the answer must not be shown; None if it may be.
        unreachable: True if a demand on quality is unmet; when no remedy is left, the caller gets
            `QualityUnreachable`.
        warnings: result of `warn-on` in the form of violations; the answer is shown.
        unmet: demands that asking again could meet.
        needs_review: whether a person must approve the answer before it is shown.
        oversight: the oversight mode that applies; None for none.
        enforced: False for a report-only policy.
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
    """A violation report as it is posted, with exactly the specified fields.

    Spec: related facts §6

    Attributes:
        timestamp: time of the report, ISO 8601 in UTC.
        directive_violated: the directive in canonical form.
        risk_level, hallucination_score, grounding_pct, fabrication_count: values of the report;
            None if no answer was examined.
        audit_trail_uri: address of the session's trail; empty if there is none.
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
    """Delivers violation reports to the addresses of a policy. Thread-safe."""

    def take(self, report: ViolationReport, policy: Policy) -> None:
        """Queue a report for `report-uri` and `report-to` of a policy.

        Never waits and never raises, since an answer must not depend on the delivery of reports.
        """
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until all queued reports are delivered or given up.

        Returns:
            False if the timeout passed first.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Flush, then stop; reports taken afterwards are dropped."""
        ...
