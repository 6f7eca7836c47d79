"""The closed word lists of the specifications, each as an enumeration of strings."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class QualityTier(StrEnum):
    """How complete and relevant an envelope is, best first.

    Spec: CRP-SPEC-003 §8.2
    """

    S = "S"
    A = "A"
    B = "B"
    C = "C"
    D = "D"

    @property
    def place(self) -> int:
        """0 for S, the best, to 4 for D, the worst."""
        return "SABCD".index(self.value)

    def capped(self, ceiling: QualityTier) -> QualityTier:
        """The worse of this tier and a ceiling; a cap never raises."""
        return max(self, ceiling, key=lambda tier: tier.place)


class GroundingMode(StrEnum):
    """How far the model may go beyond the context.

    Spec: CRP-SPEC-003 §13.1
    """

    STRICT = "context-strict"
    PREFERRED = "context-preferred"
    OPEN = "open"


class FactStatus(StrEnum):
    """Lifecycle status of a fact.

    Spec: CRP-SPEC-009 §2.2
    """

    ACTIVE = "ACTIVE"
    STALE = "STALE"
    DELETED = "DELETED"
    QUARANTINED = "QUARANTINED"


RETRIEVABLE = frozenset({FactStatus.ACTIVE, FactStatus.STALE})


class SourceStatus(StrEnum):
    """Status of a source document.

    Spec: CRP-SPEC-009 §4.5
    """

    ACTIVE = "ACTIVE"
    UPDATED = "UPDATED"
    REMOVED = "REMOVED"


class SourceKind(StrEnum):
    """Kind of source, from which the base importance follows.

    Spec: CRP-SPEC-009 §4.4
    """

    REGULATORY = "regulatory"
    OFFICIAL = "official"
    RESEARCH = "research"
    INTERNAL = "internal"
    WEB = "web"
    USER = "user"


class DropReason(StrEnum):
    """Why a candidate is not in the envelope."""

    BUDGET = "budget"
    DUPLICATE = "duplicate"
    K = "k"


class SaturationLabel(StrEnum):
    """Band of a saturation value.

    Spec: CRP-SPEC-003 §9.2
    """

    FULL = "fully saturated"
    NEAR = "near-saturated"
    WELL_PACKED = "well-packed"
    MODERATE = "moderate"
    SPARSE = "sparse"


class CacheStatus(StrEnum):
    """What became of a conditional request, or how little the fabric knew.

    Spec: CRP-SPEC-003 §9.3, §11.2
    """

    HIT = "HIT"
    MISS = "MISS"
    PARTIAL = "PARTIAL"


class AdviceWord(StrEnum):
    """What an envelope suggests; nothing of it is done unasked.

    Spec: CRP-SPEC-003 §9.3, §10.3, §14.3
    """

    REUSE_CKF = "reuse-ckf"
    CONTINUE = "continue"
    PRESSURE = "budget-pressure"
    INCOMPLETE = "may-be-incomplete"
    LIMITED = "limited-ckf-coverage"
    HIERARCHICAL = "hierarchical"


class Changed(StrEnum):
    """What differs between two requests for an envelope, in the order in which it is told.

    Spec: CRP-SPEC-003 §11.3 (decision E12)
    """

    UNKNOWN = "unknown-etag"
    NO_CACHE = "no-cache"
    HELD = "session-facts"
    FACTS = "facts-updated"
    ACCESS = "access"
    DECOMPOSITION = "decomposition"
    EMBEDDER = "embedder"
    MODEL = "model"
    TOKENIZER = "tokenizer"
    BUDGET = "budget"
    SETTINGS = "settings"
    GROUNDING = "grounding"
    STRATEGY = "strategy"
    POLICY = "policy"
    K = "k"
    MAX_AGE = "max-age"
    PACKING = "packing"
    LAYOUT = "layout"
    PROMPT = "prompt"
    PRIOR = "prior-windows"
    EXPIRED = "expired"


class Exactness(StrEnum):
    """How far a token count can be trusted (decision E19)."""

    EXACT = "exact"
    FAMILY = "family"
    ESTIMATE = "estimate"


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


class Severity(StrEnum):
    """How grave a finding across windows or an omission is.

    Spec: CRP-SPEC-005 §8.2, §12.2
    """

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


class RepetitionLevel(StrEnum):
    """How much of an answer earlier windows have said.

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
    """What an AI system is registered for.

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
    """Hallucination risk of an answer.

    Spec: CRP-SPEC-005 §7.4
    """

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


class Strategy(StrEnum):
    """How a question is dispatched."""

    PUSH = "push"
    PULL = "pull"
    REFLEXIVE = "reflexive"
    AGENTIC = "agentic"
    HIERARCHICAL = "hierarchical"
    BATCH = "batch"
    STREAMING = "streaming"
    FAN_OUT = "fan-out"
    FAN_IN = "fan-in"


class Purpose(StrEnum):
    """What one model call is for."""

    ANSWER = "answer"
    DECOMPOSE = "decompose"
    SUMMARISE = "summarise"
    STITCH = "stitch"
    JUDGE = "judge"


class Decomposition(StrEnum):
    """Who takes a question apart."""

    RULES = "rules"
    MODEL = "model"
    NONE = "none"


class ChainIntegrity(StrEnum):
    """State of a session's HMAC chain; a first window is UNVERIFIED."""

    VALID = "VALID"
    BROKEN = "BROKEN"
    PARTIAL = "PARTIAL"
    UNVERIFIED = "UNVERIFIED"


class TrailState(StrEnum):
    """How much of a trail was there to be verified."""

    VALID = "VALID"
    PARTIAL = "PARTIAL"
    TRUNCATED = "TRUNCATED"
    UNVERIFIED = "UNVERIFIED"

    @property
    def integrity(self) -> ChainIntegrity:
        """The word of the header: a truncated chain is a partial one."""
        return ChainIntegrity("PARTIAL" if self is TrailState.TRUNCATED else self.value)


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


class Oversight(StrEnum):
    """Who decides about an answer, laxest first.

    Spec: related facts §6
    """

    LOG_ONLY = "log-only"
    AUTO = "auto"
    HUMAN_REVIEW = "human-review"
    HALT = "halt"


class HaltReason(StrEnum):
    """Why an answer was withheld; what a 451 body gives as `crp_halt_reason`.

    Spec: related facts §3
    """

    CRITICAL_RISK = "CRITICAL_HALLUCINATION_RISK"
    UNACCEPTABLE = "UNACCEPTABLE_EU_AI_ACT"
    BUDGET_DEPLETED = "SAFETY_BUDGET_DEPLETED"
    POLICY = "POLICY_VIOLATION"
    OVERSIGHT = "OVERSIGHT_REQUIRED"


class Pattern(StrEnum):
    """How a window hangs in its session's graph.

    Spec: related facts §5
    """

    LINEAR = "LINEAR"
    FAN_OUT = "FAN_OUT"
    FAN_IN = "FAN_IN"
    BRANCH = "BRANCH"


class TransferType(StrEnum):
    """What of a window its successor is given, most first.

    Spec: related facts §5
    """

    FULL_CONTEXT = "FULL_CONTEXT"
    SUMMARY = "SUMMARY"
    FACTS_ONLY = "FACTS_ONLY"
    RESULT_ONLY = "RESULT_ONLY"


class Circuit(StrEnum):
    """State of a session's circuit breaker.

    Spec: related facts §8
    """

    CLOSED = "CLOSED"
    HALF_OPEN = "HALF-OPEN"
    OPEN = "OPEN"


class SafetyMode(StrEnum):
    """Short word for a safety policy, strictest first.

    Spec: related facts §3
    """

    STRICT = "strict"
    WARN = "warn"
    PERMISSIVE = "permissive"


class Phase(StrEnum):
    """What an agent is doing, in the order of its work.

    Spec: related facts §3
    """

    ANALYZE = "ANALYZE"
    PLAN = "PLAN"
    GENERATE = "GENERATE"
    EVALUATE = "EVALUATE"
    CRITIQUE = "CRITIQUE"
    REFINE = "REFINE"
    INTEGRATE = "INTEGRATE"
    COMPLETE = "COMPLETE"


class BudgetWarning(StrEnum):
    """How near a safety budget is to its end.

    Spec: related facts §3, §8
    """

    CAUTION = "caution"
    LOW = "low"


class Retry(StrEnum):
    """What must happen before a withheld answer may be asked for again.

    Spec: related facts §3
    """

    OVERSIGHT = "oversight-required"
    NEW_SESSION = "new-session-required"


Role = Literal["system", "user", "assistant", "tool"]
