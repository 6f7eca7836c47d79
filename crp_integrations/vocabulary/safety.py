"""Words of safety, dispatch and agents."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


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
    CRITIQUE = "critique"
    JUDGE = "judge"


class Oversight(StrEnum):
    """Who decides whether an answer is released, laxest first.

    Spec: related facts §6
    """

    LOG_ONLY = "log-only"
    AUTO = "auto"
    HUMAN_REVIEW = "human-review"
    HALT = "halt"


class FlagAction(StrEnum):
    """What is done with a flagged answer; of several, in this order."""

    REPORT = "report"
    ASK_AGAIN = "ask-again"
    REPAIR = "repair"
    WITHHOLD = "withhold"


class HaltReason(StrEnum):
    """Why an answer was withheld; `crp_halt_reason` in a 451 body.

    Spec: related facts §3
    """

    CRITICAL_RISK = "CRITICAL_HALLUCINATION_RISK"
    UNACCEPTABLE = "UNACCEPTABLE_EU_AI_ACT"
    BUDGET_DEPLETED = "SAFETY_BUDGET_DEPLETED"
    POLICY = "POLICY_VIOLATION"
    OVERSIGHT = "OVERSIGHT_REQUIRED"
    JUDGE_FAILED = "JUDGE_FAILED"
    ACTION = "UNGROUNDED_ACTION"


class Pattern(StrEnum):
    """How a window is connected in its session's graph.

    Spec: related facts §5
    """

    LINEAR = "LINEAR"
    FAN_OUT = "FAN_OUT"
    FAN_IN = "FAN_IN"
    BRANCH = "BRANCH"


class TransferType(StrEnum):
    """What a window passes on to its successor, most first.

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


class BudgetWarning(StrEnum):
    """How close a safety budget is to being used up.

    Spec: related facts §3, §8
    """

    CAUTION = "caution"
    LOW = "low"


Role = Literal["system", "user", "assistant", "tool"]


class AgentRole(StrEnum):
    """Roles in an agent run; the compactor is a step, the caller is the one that asked.

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
