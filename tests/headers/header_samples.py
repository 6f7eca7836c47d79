"""Envelopes, reports and seals made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.records import Report, StageRun
from crp_integrations.envelope.records import Drop, Envelope, PackedFact, Section
from crp_integrations.headers import names
from crp_integrations.vocabulary import (
    Attribution,
    ChainIntegrity,
    DropReason,
    Exactness,
    GroundingMode,
    QualityTier,
    RiskLevel,
    SaturationLabel,
    Strategy,
)

NOW = datetime(2026, 5, 25, 10, tzinfo=UTC)
SESSION = "crp_sess_7f3a9bc2d4e1f083"
ETAG = "sha256:" + "ab" * 32
OF_STAGES_1_TO_5 = frozenset(
    {
        "CRP-Provenance-Claim-Count",
        "CRP-Safety-Attribution",
        "CRP-Safety-Grounding-Pct",
        "CRP-Provenance-Attribution-Score",
        "CRP-Safety-Fabrications",
        "CRP-Safety-Distortions",
        "CRP-Safety-Contradictions",
        "CRP-Safety-Entailment-Score",
        "CRP-Provenance-Fidelity-Score",
        "CRP-Safety-Hallucination-Risk",
        "CRP-Safety-Hallucination-Score",
    }
)
CONTENT = "Ceres holds the secret recipe of 17 herbs."


def fact(number: int, **fields: Any) -> PackedFact:
    return PackedFact(
        **{
            "fact_id": f"fact-{number}",
            "content": CONTENT,
            "source_id": "secret-source.md",
            "relevance_score": 0.9,
            "importance_weight": 0.6,
            "freshness_score": 1.0,
            "diversity_bonus": 1.0,
            "composite_score": 0.8,
            "token_count": 20,
            "position": number,
            "ingested_at": NOW - timedelta(days=2 + number, hours=1),
            **fields,
        }
    )


def envelope(**fields: Any) -> Envelope:
    facts = fields.pop("facts", tuple(fact(number) for number in (1, 2)))
    return Envelope(
        **{
            "session_id": SESSION,
            "query": "What is in the secret recipe?",
            "sub_queries": ("What is in the secret recipe?",),
            "text": "\n\n".join(f"[{one.position}] {one.content}" for one in facts),
            "facts": facts,
            "sections": (
                Section(
                    name="knowledge", first=1, last=len(facts), token_budget=100, token_count=40
                ),
            ),
            "dropped": tuple(
                Drop(fact_id=f"d{n}", reason=reason, tokens=9)
                for n, reason in enumerate(DropReason)
            ),
            "total_facts_available": 4,
            "total_facts_included": len(facts),
            "token_count": 105_816,
            "token_budget": 106_496,
            "saturation": 105_816 / 106_496,
            "saturation_label": SaturationLabel.FULL,
            "quality_tier": QualityTier.A,
            "envelope_score": 0.8,
            "coverage_score": 0.5,
            "relevance_mean": 0.9,
            "caps": (),
            "etag": ETAG,
            "state_hash": ETAG,
            "strategy": Strategy.PUSH,
            "grounding_mode": GroundingMode.PREFERRED,
            "created_at": NOW,
            "ckf_communities": ("EU AI Act: compliance", "other"),
            "memory_tier_hit": 2,
            "tokenizer": "words",
            "token_exactness": Exactness.EXACT,
            "algorithms": ("greedy@1",),
            **fields,
        }
    )


def report(**fields: Any) -> Report:
    return Report(
        **{
            "grounding_mode": GroundingMode.PREFERRED,
            "claims_total": 47,
            "claims_by_type": {"FACTUAL": 47},
            "attribution_dominant": Attribution.CONTEXT_GROUNDED,
            "attribution_breakdown": {"CONTEXT_GROUNDED": 47},
            "grounding_pct": 0.912,
            "unverifiable_pct": 0.0,
            "fabrication_count": 0,
            "distortion_count": 0,
            "distortion_types": (),
            "contradiction_count": 0,
            "contradiction_scope": "intra",
            "fidelity_score": 0.978,
            "entailment_score": 0.9123,
            "contradiction_probability": 0.02,
            "neutral_probability": 0.0677,
            "signals": {},
            "base_score": 0.0,
            "composite_score": 0.0,
            "risk_score": 0.0,
            "flagged": False,
            "risk_level": RiskLevel.LOW,
            "claims": (),
            "checked_share": 1.0,
            "stages": (StageRun(number=1, name="claims", engine="rules@1"),),
            "verifier": "alignment@1",
            "embedder": "mini",
            "thresholds": {},
            "response_content_hash": ETAG,
            "chain_integrity": ChainIntegrity.VALID,
            **fields,
        }
    )


def seal(**fields: Any) -> WindowSeal:
    return WindowSeal(
        **{
            "session_id": SESSION,
            "window_id": "crp_win_0123456789abcdef",
            "window_number": 2,
            "timestamp": "2026-05-25T10:00:00Z",
            "response_hash": ETAG,
            "report_hash": ETAG,
            "parent_hmac": "sha256:" + "cd" * 32,
            "hmac": "sha256:" + "ef" * 32,
            **fields,
        }
    )


# Where each header of the documents' table may stand.
REQUEST_ONLY = (
    names.ACCEPT_STRATEGY,
    names.GROUNDING_MODE,
    names.IF_MATCH,
    names.CACHE,
    names.ACCEPT_QUALITY,
    names.ACCEPT_RISK,
    names.SAFETY_MODE,
    names.POLICY,
    names.POLICY_REPORT_ONLY,
    names.SAFETY_REPORT_URI,
    names.SESSION_TOKEN,
    names.OVERSIGHT_TOKEN,
)
# Besides those that the table marks as both: what a parent agent hands down to a child, and the
# seed, which a re-dispatch changes.
BOTH_WAYS = (
    names.SESSION_ID,
    names.SEED,
    names.DISPATCH_STRATEGY,
    names.CONTINUATION_ID,
    names.OVERSIGHT_MODE,
    names.NONCE,
    names.SAFETY_BUDGET,
    names.LOOP_DEPTH,
    names.SESSION_PARENT,
    names.PHASE,
    names.RESIDENCY,
)
RESPONSE_ONLY = (
    names.QUALITY_TIER,
    names.WINDOW,
    names.SATURATION,
    names.FACTS_USED,
    names.TOKENS_USED,
    names.STRATEGY,
    names.ETAG,
    names.PROTOCOL,
    names.RISK,
    names.RISK_SCORE,
    names.ATTRIBUTION,
    names.GROUNDING_PCT,
    names.ENTAILMENT,
    names.FABRICATIONS,
    names.DISTORTIONS,
    names.CONTRADICTIONS,
    names.CLAIM_COUNT,
    names.ATTRIBUTION_SCORE,
    names.FIDELITY,
    names.CHAINED_HMAC,
    names.WINDOW_HMAC,
    names.CHAIN_INTEGRITY,
    names.TIER_HIT,
    names.CKF_HITS,
    names.CKF_COMMUNITY,
    names.KNOWLEDGE_AGE,
    names.CACHE_STATUS,
    names.OMISSIONS,
    names.POLICY_APPLIED,
    names.VIOLATION,
    names.RETRY_AFTER,
    names.BUDGET_WARNING,
    names.DAG_ROOT,
    names.LINEAGE,
    names.REPORT_URI,
    names.AI_ACT,
    names.NIST_TIER,
    names.PERSONAL,
    names.ISO_CONTROLS,
    names.TRAIL_ID,
    names.TRAIL_URI,
    names.CONTROLS_MET,
    names.TOOL_CALLS,
    names.REVISION_ROUND,
    names.SET_SESSION,
    names.REPETITION,
    names.COMPLETENESS,
    names.FLOW,
    names.QUALITY_SCORE,
)
EVERY = (*REQUEST_ONLY, *BOTH_WAYS, *RESPONSE_ONLY)
