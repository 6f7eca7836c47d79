"""Envelopes, reports and seals made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

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


# The headers of the provenance engine's stages 1–5, all eleven (CRP-SPEC-005 §20).
OF_STAGES_1_TO_5: Final = (
    names.CLAIM_COUNT,
    names.ATTRIBUTION,
    names.GROUNDING_PCT,
    names.ATTRIBUTION_SCORE,
    names.FABRICATIONS,
    names.DISTORTIONS,
    names.CONTRADICTIONS,
    names.ENTAILMENT,
    names.FIDELITY,
    names.RISK,
    names.RISK_SCORE,
)

# Those of stages 7–12 and of the quality score, all ten, and those of stage 13.
OF_STAGES_7_TO_12: Final = (
    names.REPETITION,
    names.COMPLETENESS,
    names.FLOW,
    names.QUALITY_SCORE,
    names.OMISSIONS,
    names.PERSONAL,
    names.AI_ACT,
    names.NIST_TIER,
    names.ISO_CONTROLS,
    names.CONTROLS_MET,
)
OF_STAGE_13: Final = (names.CHAINED_HMAC, names.CHAIN_INTEGRITY, names.REPORT_URI)
