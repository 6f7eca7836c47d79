"""Which header a field is, how it is written and how it is read; both directions in one table.

Fields are in the order in which their headers are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from crp_integrations.headers import forms, names, values
from crp_integrations.headers.cache import CacheDirectives
from crp_integrations.headers.forms import lower, upper
from crp_integrations.headers.words import Phase
from crp_integrations.vocabulary import (
    AiActClass,
    Attribution,
    BudgetWarning,
    ChainIntegrity,
    GroundingMode,
    Oversight,
    QualityTier,
    RiskLevel,
    SafetyMode,
    Strategy,
)


class Field(NamedTuple):
    """One field's header.

    Attributes:
        name: as written in `names.py`.
        write: value to text; the text is checked against the header's rule afterwards.
        read: text that follows the rule to value.
    """

    name: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _fraction(name: str) -> Field:
    return Field(name, values.fraction, float)


def _count(name: str) -> Field:
    return Field(name, str, int)


def _pair(name: str) -> Field:
    return Field(name, forms.write_pair, forms.read_pair)


def _text(name: str) -> Field:
    return Field(name, str, str)


def _id(name: str) -> Field:
    return Field(name, str, forms.read_id)


# What means the same in both directions.
_SESSION_ID = _id(names.SESSION_ID)
_DISPATCH = Field(names.DISPATCH_STRATEGY, str, lower(Strategy))
_SEED = _count(names.SEED)
_RESIDENCY = Field(names.RESIDENCY, str.upper, lower(str))
_OVERSIGHT = Field(names.OVERSIGHT_MODE, str, lower(Oversight))
_NONCE = Field(names.NONCE, str, forms.read_nonce)
_BUDGET = Field(names.SAFETY_BUDGET, forms.write_budget, forms.read_budget)
_DEPTH = _count(names.LOOP_DEPTH)
_PARENT = _id(names.SESSION_PARENT)
_PHASE = Field(names.PHASE, str, upper(Phase))

REQUEST: Final[MappingProxyType[str, Field]] = MappingProxyType(
    {
        "session_id": _SESSION_ID,
        "grounding": Field(names.GROUNDING_MODE, str, lower(GroundingMode)),
        "strategies": Field(names.ACCEPT_STRATEGY, forms.write_list, forms.each(lower(Strategy))),
        "dispatch_strategy": _DISPATCH,
        "seed": _SEED,
        "cache": Field(names.CACHE, lambda said: said.text, CacheDirectives.parse),
        "if_match": Field(names.IF_MATCH, str, lower(str)),
        "residency": _RESIDENCY,
        "continuation_ids": Field(names.CONTINUATION_ID, forms.write_list, forms.read_ids),
        "accept_quality": Field(
            names.ACCEPT_QUALITY, forms.write_list, forms.each(upper(QualityTier))
        ),
        "accept_risk": Field(names.ACCEPT_RISK, str, upper(RiskLevel)),
        "oversight_mode": _OVERSIGHT,
        "safety_mode": Field(names.SAFETY_MODE, str, lower(SafetyMode)),
        "safety_policy": _text(names.POLICY),
        "safety_policy_report_only": _text(names.POLICY_REPORT_ONLY),
        "report_uri": _text(names.SAFETY_REPORT_URI),
        "nonce": _NONCE,
        "safety_budget": _BUDGET,
        "loop_depth": _DEPTH,
        "session_parent": _PARENT,
        "phase": _PHASE,
        "session_token": _text(names.SESSION_TOKEN),
        "oversight_token": Field(names.OVERSIGHT_TOKEN, str, lower(str)),
    }
)

RESPONSE: Final[MappingProxyType[str, Field]] = MappingProxyType(
    {
        "protocol_version": _text(names.PROTOCOL),
        "session_id": _SESSION_ID,
        "window": _pair(names.WINDOW),
        "strategy": Field(names.STRATEGY, str, lower(Strategy)),
        "quality_tier": Field(names.QUALITY_TIER, str, upper(QualityTier)),
        "saturation": _fraction(names.SATURATION),
        "facts_used": _pair(names.FACTS_USED),
        "tokens_used": _count(names.TOKENS_USED),
        "etag": Field(names.ETAG, str, lower(str)),
        "cache_status": Field(
            names.CACHE_STATUS, forms.write_cache_status, forms.read_cache_status
        ),
        "continuation_id": _text(names.CONTINUATION_ID),
        "tier_hit": _count(names.TIER_HIT),
        "ckf_hits": _count(names.CKF_HITS),
        "ckf_community": Field(names.CKF_COMMUNITY, str, lower(str)),
        "knowledge_age": Field(names.KNOWLEDGE_AGE, values.duration, forms.read_duration),
        "claim_count": _count(names.CLAIM_COUNT),
        "attribution": Field(names.ATTRIBUTION, str, upper(Attribution)),
        "grounding_pct": _fraction(names.GROUNDING_PCT),
        "attribution_score": _fraction(names.ATTRIBUTION_SCORE),
        "fabrications": _count(names.FABRICATIONS),
        "distortions": Field(names.DISTORTIONS, forms.write_distortions, forms.read_distortions),
        "contradictions": Field(
            names.CONTRADICTIONS, forms.write_contradictions, forms.read_contradictions
        ),
        "entailment_score": _fraction(names.ENTAILMENT),
        "fidelity_score": _fraction(names.FIDELITY),
        "hallucination_risk": Field(names.RISK, str, upper(RiskLevel)),
        "hallucination_score": _fraction(names.RISK_SCORE),
        "repetition": Field(names.REPETITION, forms.write_repetition, forms.read_repetition),
        "completeness": Field(
            names.COMPLETENESS, forms.write_completeness, forms.read_completeness
        ),
        "flow": Field(names.FLOW, forms.write_flow, forms.read_flow),
        "quality_score": _fraction(names.QUALITY_SCORE),
        "omissions": Field(names.OMISSIONS, forms.write_omissions, forms.read_omissions),
        "personal_data": Field(names.PERSONAL, forms.write_bool, forms.read_bool),
        "ai_act_class": Field(names.AI_ACT, str, upper(AiActClass)),
        "nist_tier": Field(names.NIST_TIER, str, upper(str)),
        "iso_42001": Field(names.ISO_CONTROLS, forms.write_list, forms.each(upper(str))),
        "controls_met": _pair(names.CONTROLS_MET),
        "chained_hmac": Field(names.CHAINED_HMAC, str, lower(str)),
        "window_hmac": Field(names.WINDOW_HMAC, str, lower(str)),
        "chain_integrity": Field(names.CHAIN_INTEGRITY, str, upper(ChainIntegrity)),
        "dag_root": Field(names.DAG_ROOT, forms.write_root, forms.read_root),
        "lineage": Field(names.LINEAGE, forms.write_lineage, forms.read_lineage),
        "report_uri": _text(names.REPORT_URI),
        "trail_id": _id(names.TRAIL_ID),
        "trail_uri": _text(names.TRAIL_URI),
        "residency": _RESIDENCY,
        "policy_applied": _text(names.POLICY_APPLIED),
        "violation": Field(names.VIOLATION, forms.write_list, forms.each(lower(str))),
        "oversight_mode": _OVERSIGHT,
        "retry_after": Field(names.RETRY_AFTER, forms.write_retry, forms.read_retry),
        "nonce": _NONCE,
        "seed": _SEED,
        "dispatch_strategy": _DISPATCH,
        "phase": _PHASE,
        "loop_depth": _DEPTH,
        "safety_budget": _BUDGET,
        "budget_warning": Field(names.BUDGET_WARNING, str, lower(BudgetWarning)),
        "tool_calls": _count(names.TOOL_CALLS),
        "session_parent": _PARENT,
        "revision_round": _pair(names.REVISION_ROUND),
        "set_session": Field(names.SET_SESSION, forms.write_session, forms.read_session),
    }
)
