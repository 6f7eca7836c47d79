"""Words of claims, findings, compliance, and of the audit trail."""

from __future__ import annotations

from enum import StrEnum


class ClaimType(StrEnum):
    """Kind of claim.

    Spec: CRP-SPEC-005 §3.3
    """

    FACTUAL = "FACTUAL"
    OPINION = "OPINION"
    PROCEDURAL = "PROCEDURAL"
    META = "META"


class Attribution(StrEnum):
    """Where a factual claim comes from.

    Spec: CRP-SPEC-005 §4.2
    """

    CONTEXT_GROUNDED = "CONTEXT_GROUNDED"
    PARAMETRIC = "PARAMETRIC"
    MIXED = "MIXED"
    UNVERIFIABLE = "UNVERIFIABLE"


class DistortionType(StrEnum):
    """How a claim misrepresents its source fact.

    Spec: CRP-SPEC-005 §5.3
    """

    NUMBER_CHANGED = "NUMBER_CHANGED"
    NEGATION_FLIP = "NEGATION_FLIP"
    DATE_SHIFTED = "DATE_SHIFTED"
    ENTITY_SUBSTITUTED = "ENTITY_SUBSTITUTED"
    MAGNITUDE_ALTERED = "MAGNITUDE_ALTERED"
    CONTEXT_STRIPPED = "CONTEXT_STRIPPED"


class Checked(StrEnum):
    """Whether a claim was checked; what was not checked is never reported as clean (D6)."""

    CHECKED = "CHECKED"
    NOT_CHECKABLE = "NOT_CHECKABLE"
    NOT_CHECKED = "NOT_CHECKED"


class ClaimStatus(StrEnum):
    """Result of checking a claim against the evidence (decision D13)."""

    SUPPORTED = "SUPPORTED"
    CONTRADICTED = "CONTRADICTED"
    UNSUPPORTED = "UNSUPPORTED"
    NOT_CHECKABLE = "NOT_CHECKABLE"
    NOT_CHECKED = "NOT_CHECKED"


class ErrorKind(StrEnum):
    """What is wrong with a claim that is CONTRADICTED or UNSUPPORTED."""

    NUMBER = "NUMBER"
    DATE = "DATE"
    NAME = "NAME"
    UNIT = "UNIT"
    NEGATION = "NEGATION"
    CONDITION = "CONDITION"
    RELATION = "RELATION"
    SCOPE = "SCOPE"
    OPPOSITE = "OPPOSITE"
    INVENTION = "INVENTION"
    OVERREACH = "OVERREACH"


class Verification(StrEnum):
    """How much of an answer was checked.

    `VERIFIED`: every claim was checked against the evidence. `PARTIAL`: some were. `UNREAD`: none.
    """

    VERIFIED = "VERIFIED"
    PARTIAL = "PARTIAL"
    UNREAD = "UNREAD"


class Severity(StrEnum):
    """How serious a finding across windows or an omission is.

    Spec: CRP-SPEC-005 §8.2, §12.2
    """

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


class RepetitionLevel(StrEnum):
    """How much of an answer repeats earlier windows.

    Spec: CRP-SPEC-005 §9.2
    """

    NONE = "NONE"
    MINOR = "MINOR"
    SIGNIFICANT = "SIGNIFICANT"
    SEVERE = "SEVERE"


class CompletenessLevel(StrEnum):
    """How much of the question was answered.

    Spec: CRP-SPEC-005 §10.2
    """

    COMPLETE = "COMPLETE"
    MOSTLY_COMPLETE = "MOSTLY_COMPLETE"
    PARTIAL = "PARTIAL"
    INCOMPLETE = "INCOMPLETE"


class AiActClass(StrEnum):
    """Class of a call under the EU AI Act; an unregistered system is UNKNOWN (decision D20).

    Spec: CRP-SPEC-005 §14.2
    """

    UNACCEPTABLE = "UNACCEPTABLE"
    HIGH = "HIGH"
    LIMITED = "LIMITED"
    MINIMAL = "MINIMAL"
    UNKNOWN = "UNKNOWN"


class Domain(StrEnum):
    """Domain for which an AI system is registered.

    Spec: CRP-SPEC-005 §14.2
    """

    BIOMETRIC_IDENTIFICATION = "biometric-identification"
    EMPLOYMENT = "employment"
    EDUCATION_ACCESS = "education-access"
    CRITICAL_INFRASTRUCTURE = "critical-infrastructure"
    GENERAL_INFORMATION = "general-information"
    CREATIVE = "creative"


class Sector(StrEnum):
    """Sectors whose regulators set their own accuracy thresholds.

    Spec: CRP-SPEC-005 §7.3
    """

    FINANCIAL = "financial"
    MEDICAL = "medical"


class PersonalCategory(StrEnum):
    """Categories of personal data.

    Spec: CRP-SPEC-005 §13.2
    """

    DIRECT = "direct"
    QUASI = "quasi"
    SENSITIVE = "sensitive"
    FINANCIAL = "financial"


class RiskLevel(StrEnum):
    """Hallucination risk of an answer, best first; the worse of two is the later one.

    `LOW`: every claim was checked and is supported. `UNKNOWN`: nothing wrong was found, but at
    least one claim was not checked; there is no score.

    Spec: CRP-SPEC-005 §7.4 (decision D13)
    """

    LOW = "LOW"
    UNKNOWN = "UNKNOWN"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


class ChainIntegrity(StrEnum):
    """State of a session's HMAC chain; a first window is UNVERIFIED."""

    VALID = "VALID"
    BROKEN = "BROKEN"
    PARTIAL = "PARTIAL"
    UNVERIFIED = "UNVERIFIED"


class EventType(StrEnum):
    """Types of journal events."""

    SESSION_CREATED = "SESSION_CREATED"
    SESSION_CONTINUED = "SESSION_CONTINUED"
    SESSION_TERMINATED = "SESSION_TERMINATED"
    DISPATCH_STARTED = "DISPATCH_STARTED"
    DISPATCH_COMPLETED = "DISPATCH_COMPLETED"
    DISPATCH_FAILED = "DISPATCH_FAILED"
    RE_DISPATCH = "RE_DISPATCH"
    STRATEGY_UPGRADE = "STRATEGY_UPGRADE"
    DPE_COMPLETED = "DPE_COMPLETED"
    FABRICATION_DETECTED = "FABRICATION_DETECTED"
    DISTORTION_DETECTED = "DISTORTION_DETECTED"
    CONTRADICTION_DETECTED = "CONTRADICTION_DETECTED"
    REPETITION_DETECTED = "REPETITION_DETECTED"
    COMPLETENESS_GAP = "COMPLETENESS_GAP"
    FLOW_REMEDIATION = "FLOW_REMEDIATION"
    STOP_INJECT = "STOP_INJECT"
    SAFETY_HALT = "SAFETY_HALT"
    SAFETY_BUDGET_DEPLETED = "SAFETY_BUDGET_DEPLETED"
    OVERSIGHT_TRIGGERED = "OVERSIGHT_TRIGGERED"
    POLICY_VIOLATION = "POLICY_VIOLATION"
    PII_DETECTED = "PII_DETECTED"
    EU_AI_ACT_CLASSIFIED = "EU_AI_ACT_CLASSIFIED"
    FACT_RETRIEVED = "FACT_RETRIEVED"
    FACT_INGESTED = "FACT_INGESTED"
    FACT_DELETED = "FACT_DELETED"
    FACT_QUARANTINED = "FACT_QUARANTINED"
    CKF_ETAG_CHANGED = "CKF_ETAG_CHANGED"
    TOOL_CALL = "TOOL_CALL"
    AGENT_LOOP_ITERATION = "AGENT_LOOP_ITERATION"
    FAN_OUT_CREATED = "FAN_OUT_CREATED"
    FAN_IN_MERGED = "FAN_IN_MERGED"
    COMPLETENESS_CONTINUATION = "COMPLETENESS_CONTINUATION"
    FLOW_STITCH = "FLOW_STITCH"
    SUB_AGENT_RESULT = "SUB_AGENT_RESULT"
    EXCEPTION_USED = "EXCEPTION_USED"
    # An answer was repaired before its release; the data has the original's hashes.
    ANSWER_REPAIRED = "ANSWER_REPAIRED"
    # A tool call was checked before its tool ran; the data has the report's hash.
    ACTION_CHECKED = "ACTION_CHECKED"
    # Events of the context engineering pack.
    CONTEXT_COMPACTED = "CONTEXT_COMPACTED"
    CONTEXT_DROPPED = "CONTEXT_DROPPED"
    SUMMARY_WRITTEN = "SUMMARY_WRITTEN"
    CONTEXT_PACKED = "CONTEXT_PACKED"
    ARTIFACT_ACCESS = "ARTIFACT_ACCESS"
    ROLE_HANDOVER = "ROLE_HANDOVER"


class TrailState(StrEnum):
    """How much of an audit trail was available for verification."""

    VALID = "VALID"
    PARTIAL = "PARTIAL"
    TRUNCATED = "TRUNCATED"
    UNVERIFIED = "UNVERIFIED"

    @property
    def integrity(self) -> ChainIntegrity:
        """The value for the header, which reports a truncated chain as PARTIAL."""
        return ChainIntegrity("PARTIAL" if self is TrailState.TRUNCATED else self.value)
