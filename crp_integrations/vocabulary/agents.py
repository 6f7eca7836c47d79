"""Word lists of an agent's parts, and of what its sentinel notices."""

from __future__ import annotations

from enum import StrEnum


class AgentRole(StrEnum):
    """Who gives or takes in a run; the compactor is a step, the caller whoever asked.

    Spec: Summit §Isolation Strategy
    """

    CALLER = "caller"
    PLANNER = "planner"
    RETRIEVER = "retriever"
    COMPACTOR = "compactor"
    SYNTHESIZER = "synthesizer"
    VERIFIER = "verifier"
    SENTINEL = "sentinel"


class RotSignal(StrEnum):
    """Anomalies and signs of context rot.

    Spec: Summit §Failure Modes & Mitigations
    """

    BUDGET_EXCEEDED = "budget-exceeded"
    CONTEXT_OVERLOAD = "context-overload"
    DUPLICATE_CONTEXT = "duplicate-context"
    STALE_CONTEXT = "stale-context"
    LOW_CONFIDENCE = "low-confidence"
    RETRIEVAL_DRIFT = "retrieval-drift"
    INJECTION = "injection"
    UNREPORTED_DROP = "unreported-drop"
    CITATION_BROKEN = "citation-broken"
    POLICY_DENIED = "policy-denied"
