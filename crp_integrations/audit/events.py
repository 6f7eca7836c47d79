"""Events of a session's state, made from typed arguments: none of them takes a text.

Strings that come in are ids, hashes or names; `journal.append` writes a name that does not look
like one as its hash, and refuses a hash that is none. What happens within a window the relay
notes as it goes (`relay/close_records.py`).
"""

from __future__ import annotations

from crp_integrations.audit.drafts import EventDraft, filled
from crp_integrations.vocabulary import ChainIntegrity, Circuit, EventType, RiskLevel


def session_created(
    session_id: str,
    window_id: str,
    *,
    policy_hash: str = "",
    parent_session: str = "",
    loop_depth: int = 0,
    agent: str = "",
    safety_budget: float | None = None,
) -> EventDraft:
    """A session begins with its first window.

    Args:
        policy_hash: `sha256:…` of the safety policy in force; empty for none.
        parent_session, loop_depth: of the agent that delegated; 0 for a root.
        agent: registered id; empty for none.
        safety_budget: that it begins with, [0, 1].
    """
    data = filled(
        policy_hash=policy_hash,
        parent_session=parent_session,
        loop_depth=loop_depth or None,
        agent=agent,
        safety_budget=safety_budget,
    )
    return EventDraft(EventType.SESSION_CREATED, data, session_id, window_id)


def safety_budget_depleted(
    session_id: str, window_id: str, *, budget: float, circuit: Circuit | None = None
) -> EventDraft:
    """A session's safety budget has come to where it halts.

    Spec: related facts §8

    Args:
        budget: what is left, [0, 1].
    """
    data = filled(budget=budget, circuit=circuit)
    return EventDraft(EventType.SAFETY_BUDGET_DEPLETED, data, session_id, window_id)


def sub_agent_returned(
    session_id: str,
    window_id: str,
    *,
    session: str,
    chain_tip: str,
    budget: float,
    risk_level: RiskLevel | None = None,
    integrity: ChainIntegrity | None = None,
    quality_score: float | None = None,
    agent: str = "",
    loop_depth: int | None = None,
    cost: float | None = None,
) -> EventDraft:
    """An agent that was delegated to has answered.

    Spec: related facts §8

    Args:
        session, chain_tip, budget: of the child.
        cost: what its answer took from the parent's budget, [0, 1].
    """
    data = filled(
        session=session,
        chain_tip=chain_tip,
        budget=budget,
        risk_level=risk_level,
        integrity=integrity,
        quality_score=quality_score,
        agent=agent,
        loop_depth=loop_depth,
        cost=cost,
    )
    return EventDraft(EventType.SUB_AGENT_RESULT, data, session_id, window_id)
