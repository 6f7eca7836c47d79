"""Words of the envelope and of the fabric that it is read from."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

# A number; `auto` for what the question needs; `window` for all that the context limit leaves.
BudgetTokens = int | Literal["auto", "window"]


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
    """Kind of source; it determines the base importance.

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
    INJECTION = "injection"
    OFF_TOPIC = "off-topic"
    LABEL = "label"
    CONFIDENCE = "confidence"
    MINIMAL = "minimal"


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
    """Result of a conditional request, or how little the fabric contained.

    Spec: CRP-SPEC-003 §9.3, §11.2
    """

    HIT = "HIT"
    MISS = "MISS"
    PARTIAL = "PARTIAL"


class AdviceWord(StrEnum):
    """What an envelope suggests; no suggestion is carried out automatically.

    Spec: CRP-SPEC-003 §9.3, §10.3, §14.3
    """

    REUSE_CKF = "reuse-ckf"
    CONTINUE = "continue"
    PRESSURE = "budget-pressure"
    INCOMPLETE = "may-be-incomplete"
    LIMITED = "limited-ckf-coverage"
    HIERARCHICAL = "hierarchical"


class Changed(StrEnum):
    """What differs between two requests for an envelope, in the order of reporting.

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
    JUDGE = "judge"
    EXPIRED = "expired"


class Exactness(StrEnum):
    """How far a token count can be trusted (decision E19)."""

    EXACT = "exact"
    FAMILY = "family"
    ESTIMATE = "estimate"


class Decomposition(StrEnum):
    """What splits a question into sub-queries."""

    RULES = "rules"
    MODEL = "model"
    NONE = "none"
