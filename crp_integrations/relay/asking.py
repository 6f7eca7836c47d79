"""The optional fields of a question, as keyword arguments of the front door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.envelope.prior import PriorWindow
from crp_integrations.envelope.records import Envelope
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.headers.names import AgentPhase
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.messages import Message
from crp_integrations.relay.judge import JudgeOptions, JudgeSource
from crp_integrations.vocabulary import (
    Decomposition,
    GroundingMode,
    Oversight,
    QualityTier,
    RiskLevel,
    SafetyMode,
    Strategy,
)


class Asking(JudgeOptions, total=False):
    """Fields of a `Request` that a caller may give, and its judge; None means not given."""

    judge: JudgeSource

    model: str | None
    budget_tokens: int | None
    grounding: GroundingMode | str | None
    session_id: str | None
    sub_queries: Sequence[str] | None
    decompose: Decomposition | str | None
    k: int | None
    system_prompt: str | None
    history: Sequence[Message | Mapping[str, Any]] | None
    results: int | None
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    tools: Sequence[dict[str, Any]] | None
    cache: CacheDirectives | str | None
    residency: str | None
    if_match: str | None
    prior: Sequence[PriorWindow] | None
    pinned: Sequence[str] | None
    previous: Envelope | None
    loop_depth: int | None
    strategy: Strategy | str | None
    accept_strategies: Sequence[Strategy | str] | None
    accept_quality: Sequence[QualityTier | str] | None
    accept_risk: RiskLevel | str | None
    policy: str | None
    report_only: str | None
    oversight: Oversight | str | None
    oversight_token: str | None
    continuation_ids: Sequence[str] | None
    session_token: str | None
    safety_budget: float | None
    parent_session: str | None
    agent_id: str | None
    inherited_policy: str | None
    safety_mode: SafetyMode | str | None
    report_uri: str | None
    nonce: str | None
    phase: AgentPhase | str | None
    compact: bool | None
    compaction: CompactionAccount | None
