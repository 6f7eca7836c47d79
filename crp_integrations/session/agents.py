"""Agents that ask other agents: who may, what goes down with the question, what comes back up.

Down go the safety budget, the policy, the parent's session, the depth, residency and safety mode;
up come the budget, the risk, the seal and where to verify it. A session token, an ETag, a quality
tier and `CRP-Set-Session` pass in neither direction: the two records have no field for them.

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
    """What an agent hands down with a question to another agent.

    Spec: related facts §8

    Attributes:
        safety_budget: what the parent has left, whole; the child's own begins with it.
        policy: in its canonical form; the child's may only be stricter.
        loop_depth: of the child, one more than the parent's.
        safety_mode: None for what the policy says.
    """

    SCHEMA = "downward/1"

    safety_budget: float = Field(ge=0.0, le=1.0)
    policy: str = ""
    session_parent: SessionId
    loop_depth: int = Field(ge=1)
    residency: str = ""
    safety_mode: SafetyMode | None = None


class Upward(Record):
    """What an agent hands back to the one that asked it.

    Spec: related facts §8

    Attributes:
        safety_budget: what the child has left; None when it does not say.
        audit_uri: where its trail can be verified.
        quality_score: of its answer, [0, 1].
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
    """What is registered about an agent; None for a caller that names none."""
    if not agent_id:
        return None
    for agent in settings.registered:
        if agent.agent_id == agent_id:
            return agent
    raise AccessDenied(
        f"agent {agent_id!r:.60} is not registered; add it to sessions.agents.registered"
    )


def max_depth(agent: RegisteredAgent | None, settings: AgentSettings) -> int:
    """Agents within agents around one, at most; a registration only lowers the general bound."""
    own = agent.max_loop_depth if agent else None
    return settings.max_loop_depth if own is None else min(own, settings.max_loop_depth)


def admit_agent(
    agent: RegisteredAgent | None, *, strategy: Strategy, loop_depth: int, settings: AgentSettings
) -> None:
    """Refuse a call that its agent may not make.

    Spec: related facts §3, §8
    """
    most = max_depth(agent, settings)
    if loop_depth > most:
        raise AccessDenied(f"loop depth {loop_depth} is above {most}; an agent so deep may not ask")
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
    """What goes down with a question to another agent.

    Count the delegation by `after_delegating`.
    """
    left = budget.round_budget(parent.safety_budget)
    if budget.halts(left, settings.budget):
        raise SafetyHalt(
            f"{HaltReason.BUDGET_DEPLETED.value}: the safety budget is {left}; "
            "begin another session",
            reason=HaltReason.BUDGET_DEPLETED,
            session_id=parent.session_id,
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
    """A parent's session with one more delegation counted."""
    return parent.changed(delegations=parent.delegations + 1)


def charge_return(parent: Session, up: Upward, settings: SessionSettings) -> Session:
    """A parent's session once a sub-agent has returned: its budget only falls."""
    left = budget.charge_child(
        parent.safety_budget, up.safety_budget, halted=up.halted, settings=settings.budget
    )
    return parent.changed(safety_budget=left)
