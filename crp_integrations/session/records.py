"""What is kept of a session: its state, and a node for each of its windows."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from crp_integrations.records import Record
from crp_integrations.vocabulary import Pattern, QualityTier, RiskLevel, Strategy, TransferType

# Safety budgets are compared after rounding to so many digits (related facts §8).
BUDGET_DIGITS = 4
# Outcomes of windows whose headers reach the caller, and with them the next token.
DELIVERED: Final = frozenset({"released", "halted"})
REFUSED: Final = "refused"


class Session(Record):
    """The state of a session after its last window.

    Spec: related facts §5, §8

    Attributes:
        created_at, modified_at: ISO 8601 in UTC.
        policy: safety policy that holds, in its canonical form; empty for none.
        safety_budget: what is left, in [0, 1], to four digits; it never rises.
        parent_session: session of the agent that delegated to this one; empty for a root.
        loop_depth: agents within agents around it, 0 for a root.
        agent_id: registered agent that it belongs to; empty for none.
        delegations, tool_calls: counted over the session.
        taken: chain tips of what sub-agents handed back, each taken once.
        ended: no further window may begin.
    """

    SCHEMA = "session/1"

    session_id: str
    created_at: str
    modified_at: str
    policy: str = ""
    safety_budget: float = Field(default=1.0, ge=0.0, le=1.0)
    parent_session: str = ""
    loop_depth: int = Field(default=0, ge=0)
    agent_id: str = ""
    delegations: int = Field(default=0, ge=0)
    tool_calls: int = Field(default=0, ge=0)
    taken: tuple[str, ...] = ()
    ended: bool = False


class WindowNode(Record):
    """One window in its session's graph.

    Spec: related facts §5

    Attributes:
        window_number: from 1; windows of one fan-out share a number.
        parents: ids of the windows that it follows; empty for the root.
        continuation_id: under which it may be continued; empty when it may not.
        safety_budget: of the session once the window was delivered.
        hmac: of its seal, chained.
        timestamp: ISO 8601 in UTC.
        tokens: of its model calls together, prompt and completion.
        transfer: what it was given of its parents; None for the root.
        tokens_transferred: of what it was given.
        summary_hash: `sha256:…` of the summary that it was given; empty for none.
        outcome: `released`, `failed`, `cancelled`, `refused` or `halted`.
    """

    SCHEMA = "window-node/1"

    window_id: str
    session_id: str
    window_number: int = Field(ge=1)
    parents: tuple[str, ...] = ()
    pattern: Pattern = Pattern.LINEAR
    strategy: Strategy = Strategy.PUSH
    continuation_id: str = ""
    etag: str = ""
    quality_tier: QualityTier | None = None
    risk_level: RiskLevel | None = None
    safety_budget: float = Field(default=1.0, ge=0.0, le=1.0)
    hmac: str
    timestamp: str
    tokens: int = Field(default=0, ge=0)
    response_hash: str = ""
    transfer: TransferType | None = None
    tokens_transferred: int = Field(default=0, ge=0)
    summary_hash: str = ""
    outcome: str = "released"
