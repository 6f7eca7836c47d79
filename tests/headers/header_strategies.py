"""Strategies for every field of a request and of a response."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from crp_integrations.headers.grammar import FLOW_REMEDIES, SCOPES
from crp_integrations.headers.names import AgentPhase, RetryCondition
from crp_integrations.headers.records import (
    CacheDirectives,
    CacheOutcome,
    CompletenessValue,
    ContradictionsValue,
    DistortionsValue,
    FlowValue,
    OmissionsValue,
    RepetitionValue,
    RequestHeaders,
    ResponseHeaders,
    SetSessionValue,
)
from crp_integrations.vocabulary import (
    AiActClass,
    Attribution,
    BudgetWarning,
    CacheStatus,
    ChainIntegrity,
    Changed,
    CompletenessLevel,
    DistortionType,
    GroundingMode,
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    SafetyMode,
    Strategy,
)

COUNT = st.integers(0, 10**15 - 1)
FRACTION = st.integers(0, 1_000).map(lambda thousandths: thousandths / 1_000)
BUDGET = st.integers(0, 10_000).map(lambda parts: parts / 10_000)
HASH = st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda digits: "sha256:" + digits)
PAIR = st.tuples(COUNT, COUNT)
SESSION_ID = st.from_regex(r"crp_sess_[A-Za-z0-9]{16,32}", fullmatch=True)
CONTINUATION = st.from_regex(r"crp_cont_[A-Za-z0-9]{16,32}", fullmatch=True)
NONCE = st.from_regex(r"base64:[A-Za-z0-9+/]{1,40}={0,2}", fullmatch=True)
TOKEN = st.from_regex(r"[A-Za-z0-9_-]{1,60}\.[A-Za-z0-9_-]{43}", fullmatch=True)
REGION = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=2)
POLICY = st.from_regex(r"[!-~]([ -~]{0,60}[!-~])?", fullmatch=True)
URI = st.from_regex(r"(https?://[a-z0-9.]{1,20}|/)[A-Za-z0-9/_.-]{1,30}(\?a=%2F)?", fullmatch=True)
WEB = st.from_regex(
    r"https?://[a-z0-9]{1,20}(:[0-9]{2,5})?(/[A-Za-z0-9_.-]{1,30})?", fullmatch=True
)
TIERS = st.lists(st.sampled_from(QualityTier), min_size=1, max_size=9).map(tuple)
MOMENT = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001

SAID = {
    "session_id": SESSION_ID,
    "window": PAIR,
    "strategy": st.sampled_from(Strategy),
    "quality_tier": st.sampled_from(QualityTier),
    "saturation": FRACTION,
    "facts_used": PAIR,
    "tokens_used": COUNT,
    "etag": HASH,
    "cache_status": st.builds(
        CacheOutcome,
        status=st.sampled_from(CacheStatus),
        reason=st.just("") | st.sampled_from(Changed).map(str),
    ),
    "continuation_id": CONTINUATION,
    "tier_hit": st.integers(0, 3),
    "ckf_hits": COUNT,
    "ckf_community": st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True),
    "knowledge_age": st.integers(0, 10**9).map(lambda n: timedelta(seconds=n)),
    "claim_count": COUNT,
    "attribution": st.sampled_from(Attribution),
    "grounding_pct": FRACTION,
    "attribution_score": FRACTION,
    "fabrications": COUNT,
    "distortions": st.one_of(
        st.just(DistortionsValue(count=0)),
        st.builds(
            DistortionsValue,
            count=st.integers(1, 99),
            types=st.lists(st.sampled_from(DistortionType), min_size=1, unique=True).map(tuple),
        ),
    ),
    "contradictions": st.one_of(
        st.just(ContradictionsValue(count=0)),
        st.builds(ContradictionsValue, count=st.integers(1, 9), scope=st.sampled_from(SCOPES)),
    ),
    "entailment_score": FRACTION,
    "fidelity_score": FRACTION,
    "hallucination_risk": st.sampled_from(RiskLevel),
    "hallucination_score": FRACTION,
    "repetition": st.builds(
        RepetitionValue, level=st.sampled_from(RepetitionLevel), overlap=st.none() | FRACTION
    ),
    "completeness": st.builds(
        CompletenessValue,
        level=st.sampled_from(CompletenessLevel),
        covered=COUNT,
        total=COUNT,
        uncovered=st.lists(st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True), max_size=3).map(
            tuple
        ),
    ),
    "flow": st.builds(FlowValue, score=FRACTION, remediation=st.sampled_from(("", *FLOW_REMEDIES))),
    "quality_score": FRACTION,
    "chained_hmac": HASH,
    "window_hmac": HASH,
    "chain_integrity": st.sampled_from(ChainIntegrity),
    "omissions": st.builds(OmissionsValue, critical=COUNT, high=COUNT, medium=COUNT),
    "personal_data": st.booleans(),
    "ai_act_class": st.sampled_from(AiActClass),
    "nist_tier": st.integers(1, 4).map(lambda n: f"TIER-{n}"),
    "iso_42001": st.lists(
        st.from_regex(r"A(\.[1-9][0-9]?){2,3}", fullmatch=True), min_size=1, max_size=4
    ).map(tuple),
    "controls_met": PAIR,
    "dag_root": st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True),
    "lineage": st.lists(
        st.from_regex(r"crp_win_[A-Za-z0-9]{16}", fullmatch=True), min_size=1, max_size=6
    ).map(tuple),
    "report_uri": URI,
    "trail_id": st.from_regex(r"crp_trail_[A-Za-z0-9]{16,32}", fullmatch=True),
    "trail_uri": URI,
    "residency": REGION,
    "policy_applied": POLICY,
    "violation": st.lists(
        st.from_regex(r"[a-z][a-z-]{0,20}", fullmatch=True), min_size=1, max_size=3
    ).map(tuple),
    "oversight_mode": st.sampled_from(Oversight),
    "retry_after": st.integers(0, 10**9 - 1) | MOMENT | st.sampled_from(RetryCondition),
    "nonce": NONCE,
    "seed": COUNT,
    "dispatch_strategy": st.sampled_from(Strategy),
    "phase": st.sampled_from(AgentPhase),
    "loop_depth": COUNT,
    "safety_budget": BUDGET,
    "budget_warning": st.sampled_from(BudgetWarning),
    "tool_calls": COUNT,
    "session_parent": SESSION_ID,
    "revision_round": PAIR,
    "set_session": st.builds(
        SetSessionValue,
        token=TOKEN,
        window=st.integers(1, 50),
        quality_history=st.just(()) | TIERS,
        max_age_seconds=st.integers(0, 10**6),
        path=st.sampled_from(("/", "/crp/v3")),
    ),
}
ASKED = {
    "session_id": SESSION_ID,
    "grounding": st.sampled_from(GroundingMode),
    "strategies": st.lists(st.sampled_from(Strategy), min_size=1, max_size=9).map(tuple),
    "dispatch_strategy": st.sampled_from(Strategy),
    "seed": COUNT,
    "cache": st.builds(
        CacheDirectives,
        no_store=st.booleans(),
        no_cache=st.booleans(),
        reuse_ckf=st.booleans(),
        only_if_ckf=st.booleans(),
        max_age_seconds=st.none() | COUNT,
    ).filter(lambda directives: bool(directives.text)),
    "if_match": HASH | st.just("*"),
    "residency": REGION,
    "continuation_ids": st.lists(CONTINUATION, min_size=1, max_size=4, unique=True).map(tuple),
    "accept_quality": TIERS,
    "accept_risk": st.sampled_from(RiskLevel),
    "oversight_mode": st.sampled_from(Oversight),
    "safety_mode": st.sampled_from(SafetyMode),
    "safety_policy": POLICY,
    "safety_policy_report_only": POLICY,
    "report_uri": WEB,
    "nonce": NONCE,
    "safety_budget": BUDGET,
    "loop_depth": COUNT,
    "session_parent": SESSION_ID,
    "phase": st.sampled_from(AgentPhase),
    "session_token": TOKEN,
    "oversight_token": HASH.map(lambda digest: "approved:" + digest),
}
RESPONSES = st.fixed_dictionaries({}, optional=SAID).map(lambda said: ResponseHeaders(**said))
REQUESTS = st.fixed_dictionaries({}, optional=ASKED).map(lambda asked: RequestHeaders(**asked))


def any_case(text: str, flips: list[bool]) -> str:
    """A text with the case of some of its characters turned."""
    turned = [c.swapcase() if flip else c for c, flip in zip(text, flips, strict=False)]
    return "".join(turned) + text[len(flips) :]
