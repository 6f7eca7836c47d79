"""Bodies of refusals, as records that gateways and adapters send as JSON.

Messages come from the package itself: they contain values, ids and columns, but no content.

Spec: related facts §3
"""

from __future__ import annotations

import re
from typing import ClassVar, Final, TypeAlias

from crp_integrations.envelope.records import Cap, Envelope
from crp_integrations.errors import (
    CRPError,
    NoRelevantFacts,
    PolicyRelaxed,
    PolicySyntaxError,
    QualityUnreachable,
    SafetyHalt,
)
from crp_integrations.headers import names, values
from crp_integrations.headers.names import RetryCondition
from crp_integrations.headers.response_headers import retry_for
from crp_integrations.records import Record
from crp_integrations.vocabulary import CacheStatus, HaltReason, QualityTier

UNKNOWN_DIRECTIVE: Final = "unknown directive"
INTERNAL: Final = 500


class HaltBody(Record):
    """Body of a 451: an answer was withheld.

    Spec: related facts §3

    Attributes:
        audit_trail_uri: address of the window's trail; empty if none is served.
        oversight_required: whether a person must decide before the caller may go on.
        retry_condition: value of the header `CRP-Safety-Retry-After`, sent with this body.
    """

    SCHEMA = "halt-body/1"
    STATUS: ClassVar[int] = 451

    crp_halt_reason: HaltReason
    directive: str = ""
    value: str = ""
    session_id: str
    audit_trail_uri: str = ""
    oversight_required: bool
    retry_condition: str

    @property
    def headers(self) -> dict[str, str]:
        """The header that must accompany the status."""
        return {names.RETRY_AFTER: self.retry_condition}


class QualityGapBody(Record):
    """Body of a 503: no envelope of an accepted tier can be built.

    Spec: CRP-SPEC-003 §8.4

    Attributes:
        best_achievable: best possible tier; also the value of `CRP-Context-Quality-Tier`.
        caps: limits on the tier with their reasons; empty if no envelope was built.
        envelope_score, coverage_score, relevance_mean, saturation: that envelope's, in [0, 1].
        directive, value: the demand that is not met, and the value found.
    """

    SCHEMA = "quality-gap-body/1"
    STATUS: ClassVar[int] = 503

    error: str = "quality_unreachable"
    message: str
    directive: str = ""
    value: str = ""
    session_id: str = ""
    accepted: tuple[QualityTier, ...] = ()
    best_achievable: QualityTier | None = None
    caps: tuple[Cap, ...] = ()
    envelope_score: float | None = None
    coverage_score: float | None = None
    relevance_mean: float | None = None
    saturation: float | None = None
    facts_included: int | None = None
    facts_available: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The header that names the best achievable tier."""
        best = self.best_achievable
        return {} if best is None else {names.QUALITY_TIER: best.value}


class InheritanceBody(Record):
    """Body of a 403: a policy is less strict than its parent policy.

    Spec: related facts §6
    """

    SCHEMA = "policy-inheritance-body/1"
    STATUS: ClassVar[int] = 403

    error: str = "safety_policy_inheritance_violation"
    message: str
    directive: str
    parent: str
    child: str

    @property
    def headers(self) -> dict[str, str]:
        """The header with the kind of violation."""
        return {names.VIOLATION: "inheritance"}


class PolicySyntaxBody(Record):
    """Body of a 400: a safety policy does not follow its grammar.

    Spec: related facts §6

    Attributes:
        error: `unknown directive`, or `policy_syntax`.
        column: column of the error in the policy's text, from 1.
    """

    SCHEMA = "policy-syntax-body/1"
    STATUS: ClassVar[int] = 400

    error: str
    message: str
    column: int

    @property
    def headers(self) -> dict[str, str]:
        """No headers."""
        return {}


class RefusalBody(Record):
    """Body of every other refusal.

    Attributes:
        message: the error's message; empty for a status of 500 or above, which only the log has.
        directive, value: the demand that is not met, and the value found; None without one.
    """

    SCHEMA = "refusal-body/1"

    error: str
    message: str = ""
    status: int
    directive: str | None = None
    value: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The header that must accompany a 424."""
        missed = self.status == NoRelevantFacts.status_hint
        return {names.CACHE_STATUS: CacheStatus.MISS.value} if missed else {}


Body: TypeAlias = HaltBody | QualityGapBody | InheritanceBody | PolicySyntaxBody | RefusalBody


def halt_body(
    reason: HaltReason,
    *,
    session_id: str,
    audit_trail_uri: str = "",
    directive: str = "",
    value: str = "",
) -> HaltBody:
    """The body of a withheld answer."""
    after = retry_for(reason)
    return HaltBody(
        crp_halt_reason=reason,
        directive=directive,
        value=value,
        session_id=session_id,
        audit_trail_uri=audit_trail_uri,
        oversight_required=after is RetryCondition.OVERSIGHT or reason is HaltReason.OVERSIGHT,
        retry_condition=values.write_retry(after),
    )


def quality_gap_body(
    error: QualityUnreachable, envelope: Envelope | None = None, *, session_id: str = ""
) -> QualityGapBody:
    """The body for a demand on quality that cannot be met.

    Spec: CRP-SPEC-003 §8.4
    """
    best = error.tier or (envelope.quality_tier if envelope else None)
    body = QualityGapBody(
        message=str(error),
        directive=error.directive,
        value=error.value,
        session_id=session_id,
        accepted=tuple(QualityTier(tier) for tier in error.wanted),
        best_achievable=QualityTier(best) if best else None,
    )
    if envelope is None:
        return body
    return body.changed(
        caps=envelope.caps,
        envelope_score=envelope.envelope_score,
        coverage_score=envelope.coverage_score,
        relevance_mean=envelope.relevance_mean,
        saturation=envelope.saturation,
        facts_included=envelope.total_facts_included,
        facts_available=envelope.total_facts_available,
    )


def refusal_body(
    error: CRPError,
    envelope: Envelope | None = None,
    *,
    session_id: str = "",
    audit_trail_uri: str = "",
) -> Body:
    """The body of a refusal by its error; a halt with an unknown reason asks for a person."""
    match error:
        case SafetyHalt(reason=reason):
            return halt_body(
                HaltReason(reason) if reason in tuple(HaltReason) else HaltReason.OVERSIGHT,
                directive=error.directive,
                value=error.value,
                session_id=session_id or error.session_id,
                audit_trail_uri=audit_trail_uri,
            )
        case QualityUnreachable():
            return quality_gap_body(error, envelope, session_id=session_id)
        case PolicyRelaxed(directive=directive, parent=parent, child=child):
            return InheritanceBody(
                message=str(error), directive=directive, parent=parent, child=child
            )
        case PolicySyntaxError(column=column):
            unknown = UNKNOWN_DIRECTIVE in str(error).lower()
            return PolicySyntaxBody(
                error=UNKNOWN_DIRECTIVE if unknown else "policy_syntax",
                message=str(error),
                column=column,
            )
        case _:
            status = error.status_hint
            return RefusalBody(
                error=_words(type(error).__name__),
                # A message of a server error may contain file and host names.
                message=str(error) if status < INTERNAL else "",
                status=status,
                directive=error.directive or None,
                value=error.value or None,
            )


def _words(name: str) -> str:
    """`TokenRefused` as `token_refused`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
