"""Agents that ask other agents: which ones may, what they pass on, and what they get back.

`Downward` has the safety budget, policy, parent session, depth, residency and safety mode for a
sub-agent; `Upward` has its budget, risk and seal, and where to verify the seal. Session tokens,
ETags, quality tiers and `CRP-Set-Session` are passed in neither direction.

Spec: related facts §8
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.errors import AccessDenied, SafetyHalt
from crp_integrations.records import Record
from crp_integrations.session import budget
from crp_integrations.session.records import SESSION_ID, Session
from crp_integrations.session.settings import AgentSettings, RegisteredAgent, SessionSettings
from crp_integrations.vocabulary import ChainIntegrity, HaltReason, RiskLevel, SafetyMode, Strategy

SessionId = Annotated[str, StringConstraints(pattern=f"^({SESSION_ID.pattern})?$")]
Seal = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]


class Downward(Record):
    """The values that an agent passes with a question to another agent.

    Spec: related facts §8

    Attributes:
        safety_budget: the parent's whole remaining budget, with which the child's begins.
        policy: policy in canonical form; the child's own may only be stricter.
        loop_depth: depth of the child, one more than the parent's.
        safety_mode: name of a predefined policy that tightens `policy`; None for none.
    """

    SCHEMA = "downward/1"

    safety_budget: float = Field(ge=0.0, le=1.0)
    policy: str = ""
    session_parent: SessionId
    loop_depth: int = Field(ge=1)
    residency: str = ""
    safety_mode: SafetyMode | None = None


class Upward(Record):
    """The values that an agent returns to the agent that asked it.

    Spec: related facts §8

    Attributes:
        safety_budget: the child's remaining budget; None if it is not stated.
        audit_uri: address at which its trail can be verified.
        quality_score: quality score of its answer, [0, 1].
        flagged: claims of its answer that its report flags.
    """

    SCHEMA = "upward/1"

    session_id: SessionId = ""
    safety_budget: float | None = Field(default=None, ge=0.0, le=1.0)
    risk_level: RiskLevel | None = None
    hmac: Seal = ""
    chain_integrity: ChainIntegrity = ChainIntegrity.UNVERIFIED
    audit_uri: str = ""
    quality_score: float | None = Field(default=None, ge=0.0, le=1.0)
    halted: bool = False
    flagged: tuple[RejectedClaim, ...] = ()


def find_agent(agent_id: str, settings: AgentSettings) -> RegisteredAgent | None:
    """The registration of an agent; None for an empty id."""
    if not agent_id:
        return None
    for agent in settings.registered:
        if agent.agent_id == agent_id:
            return agent
    raise AccessDenied(
        f"agent {agent_id!r:.60} is not registered; add it to sessions.agents.registered"
    )


def max_depth(agent: RegisteredAgent | None, settings: AgentSettings) -> int:
    """The maximum depth of an agent; its registration can only lower the general maximum."""
    own = agent.max_loop_depth if agent else None
    return settings.max_loop_depth if own is None else min(own, settings.max_loop_depth)


def admit_agent(
    agent: RegisteredAgent | None, *, strategy: Strategy, loop_depth: int, settings: AgentSettings
) -> None:
    """Refuse a call that its agent may not make.

    Spec: related facts §3, §8
    """
    limit = max_depth(agent, settings)
    if loop_depth > limit:
        raise AccessDenied(f"loop depth {loop_depth} is above {limit}; such an agent may not ask")
    allowed = agent.allowed_strategies if agent else None
    if allowed is not None and strategy not in allowed:
        raise AccessDenied(
            f"agent {agent.agent_id if agent else ''!r:.60} may not use {strategy.value!r}, only "
            f"{', '.join(permitted.value for permitted in allowed) or 'none'}"
        )


def delegate(
    parent: Session,
    *,
    agent: RegisteredAgent | None,
    settings: SessionSettings,
    residency: str = "",
    safety_mode: SafetyMode | None = None,
) -> Downward:
    """The values to pass with a question to another agent.

    Count the delegation with `count_delegation`.
    """
    left = budget.round_budget(parent.safety_budget)
    if budget.halts(left, settings.budget):
        raise SafetyHalt(
            f"{HaltReason.BUDGET_DEPLETED.value}: begin another session",
            reason=HaltReason.BUDGET_DEPLETED,
            session_id=parent.session_id,
            directive="sessions.budget.enforce",
            value=f"a safety budget of {left:.4g}",
        )
    if not budget.may_delegate(left, settings.budget):
        raise AccessDenied(
            f"the safety budget is {left}; above {settings.budget.healthy} an agent may delegate"
        )
    depth = parent.loop_depth + 1
    most = max_depth(agent, settings.agents)
    if depth > most:
        raise AccessDenied(f"a delegation would have loop depth {depth}, at most {most} is allowed")
    allowed = agent.max_delegations if agent else None
    if allowed is not None and parent.delegations >= allowed:
        raise AccessDenied(
            f"the session has delegated {parent.delegations} times, at most {allowed} are allowed"
        )
    return Downward(
        safety_budget=left,
        policy=parent.policy,
        session_parent=parent.session_id,
        loop_depth=depth,
        residency=residency,
        safety_mode=safety_mode,
    )


def count_delegation(parent: Session) -> Session:
    """A parent's session with one more delegation."""
    return parent.changed(delegations=parent.delegations + 1)


def charge_return(parent: Session, up: Upward, settings: SessionSettings) -> Session:
    """A parent's session after a sub-agent has returned: its budget can only fall."""
    left = budget.charge_child(
        parent.safety_budget, up.safety_budget, halted=up.halted, settings=settings.budget
    )
    return parent.changed(safety_budget=left)
