"""Names of the CRP headers of protocol 3.0.0, and enums that only headers use.

Spec: related facts §3
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

PREFIX: Final = "crp-"
PROTOCOL_VERSION: Final = "3.0.0"


QUALITY_TIER: Final = "CRP-Context-Quality-Tier"
WINDOW: Final = "CRP-Context-Window"
SATURATION: Final = "CRP-Context-Saturation"
FACTS_USED: Final = "CRP-Context-Facts-Used"
TOKENS_USED: Final = "CRP-Context-Tokens-Used"
STRATEGY: Final = "CRP-Context-Strategy"
SESSION_ID: Final = "CRP-Context-Session-Id"
ETAG: Final = "CRP-Context-ETag"
PROTOCOL: Final = "CRP-Context-Protocol-Version"
ACCEPT_STRATEGY: Final = "CRP-Accept-Strategy"
DISPATCH_STRATEGY: Final = "CRP-Agent-Dispatch-Strategy"
GROUNDING_MODE: Final = "CRP-LLM-Grounding-Mode"
SEED: Final = "CRP-LLM-Reproducibility-Seed"
CACHE: Final = "CRP-Context-Cache"
CACHE_STATUS: Final = "CRP-Context-Cache-Status"
IF_MATCH: Final = "CRP-Context-If-Match"
CONTINUATION_ID: Final = "CRP-Context-Continuation-Id"
ACCEPT_QUALITY: Final = "CRP-Accept-Quality"
ACCEPT_RISK: Final = "CRP-Accept-Risk"
RESIDENCY: Final = "CRP-Compliance-Data-Residency"
RISK: Final = "CRP-Safety-Hallucination-Risk"
RISK_SCORE: Final = "CRP-Safety-Hallucination-Score"
ATTRIBUTION: Final = "CRP-Safety-Attribution"
GROUNDING_PCT: Final = "CRP-Safety-Grounding-Pct"
ENTAILMENT: Final = "CRP-Safety-Entailment-Score"
FABRICATIONS: Final = "CRP-Safety-Fabrications"
DISTORTIONS: Final = "CRP-Safety-Distortions"
CONTRADICTIONS: Final = "CRP-Safety-Contradictions"
OVERSIGHT_MODE: Final = "CRP-Safety-Oversight-Mode"
SAFETY_MODE: Final = "CRP-Safety-Mode"
POLICY: Final = "CRP-Safety-Policy"
POLICY_REPORT_ONLY: Final = "CRP-Safety-Policy-Report-Only"
POLICY_APPLIED: Final = "CRP-Safety-Policy-Applied"
VIOLATION: Final = "CRP-Safety-Violation"
SAFETY_REPORT_URI: Final = "CRP-Safety-Report-URI"
RETRY_AFTER: Final = "CRP-Safety-Retry-After"
BUDGET_WARNING: Final = "CRP-Safety-Budget-Warning"
NONCE: Final = "CRP-Safety-Nonce"
OVERSIGHT_TOKEN: Final = "CRP-Oversight-Token"
REPETITION: Final = "CRP-Quality-Repetition"
COMPLETENESS: Final = "CRP-Quality-Completeness"
FLOW: Final = "CRP-Quality-Flow"
QUALITY_SCORE: Final = "CRP-Quality-Score"
OMISSIONS: Final = "CRP-Safety-Omissions"
PERSONAL: Final = "CRP-Compliance-GDPR-PII"
AI_ACT: Final = "CRP-Compliance-EU-AI-Act"
NIST_TIER: Final = "CRP-Compliance-NIST-Tier"
ISO_CONTROLS: Final = "CRP-Compliance-ISO-42001"
CONTROLS_MET: Final = "CRP-Compliance-Controls-Met"
TRAIL_ID: Final = "CRP-Compliance-Audit-Trail-Id"
TRAIL_URI: Final = "CRP-Compliance-Audit-Trail-URI"
CLAIM_COUNT: Final = "CRP-Provenance-Claim-Count"
ATTRIBUTION_SCORE: Final = "CRP-Provenance-Attribution-Score"
FIDELITY: Final = "CRP-Provenance-Fidelity-Score"
CHAINED_HMAC: Final = "CRP-Provenance-HMAC"
WINDOW_HMAC: Final = "CRP-Provenance-Window-HMAC"
CHAIN_INTEGRITY: Final = "CRP-Provenance-Chain-Integrity"
DAG_ROOT: Final = "CRP-Provenance-DAG-Root"
LINEAGE: Final = "CRP-Provenance-Window-Lineage"
REPORT_URI: Final = "CRP-Provenance-Report-URI"
PHASE: Final = "CRP-Agent-Phase"
LOOP_DEPTH: Final = "CRP-Agent-Loop-Depth"
SAFETY_BUDGET: Final = "CRP-Agent-Safety-Budget"
TOOL_CALLS: Final = "CRP-Agent-Tool-Calls"
SESSION_PARENT: Final = "CRP-Agent-Session-Parent"
REVISION_ROUND: Final = "CRP-Agent-Revision-Round"
SET_SESSION: Final = "CRP-Set-Session"
SESSION_TOKEN: Final = "CRP-Session-Token"
TIER_HIT: Final = "CRP-Memory-Tier-Hit"
CKF_HITS: Final = "CRP-Memory-CKF-Hits"
CKF_COMMUNITY: Final = "CRP-Memory-CKF-Community"
KNOWLEDGE_AGE: Final = "CRP-Memory-Knowledge-Age"

# Not in the protocol, sent only to a parent agent: claims of the answer that the report flags.
# `parse_response` ignores it, like headers of later versions.
FLAGGED_CLAIMS: Final = "CRP-Safety-Flagged-Claims"
# Not in the protocol, sent by the gateway: the assumed context limit of the model in tokens, and
# the source of that number.
CONTEXT_LIMIT: Final = "CRP-Context-Limit"
# Not in the protocol: the number of edits that repaired an answer, and of flagged claims left.
REPAIRED: Final = "CRP-Safety-Repaired"
# Headers that agents never pass on, in either direction.
NEVER_PASSED: Final = frozenset({SESSION_TOKEN, SET_SESSION, ETAG, IF_MATCH, QUALITY_TIER})


class AgentPhase(StrEnum):
    """Phases of an agent's work, in order.

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


class RetryCondition(StrEnum):
    """What must happen before a caller may ask again after a withheld answer.

    Spec: related facts §3
    """

    OVERSIGHT = "oversight-required"
    NEW_SESSION = "new-session-required"
