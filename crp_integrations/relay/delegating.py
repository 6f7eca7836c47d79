"""Agents that ask other agents: what a session hands down, and what it takes back.

The values travel as they are within a process and as CRP headers between processes
(`headers/propagate.py`).
"""

from __future__ import annotations

from crp_integrations.audit.events import sub_agent_returned
from crp_integrations.audit.journal import append
from crp_integrations.audit.keys import journal_key
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.relay.asking import Asking
from crp_integrations.relay.records import Answer
from crp_integrations.relay.world import World
from crp_integrations.seals import iso
from crp_integrations.session import agents
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import BUDGET_DIGITS
from crp_integrations.vocabulary import SafetyMode


def delegate(
    namespace: Namespace,
    world: World,
    session_id: str,
    *,
    safety_mode: SafetyMode | None = None,
) -> Downward:
    """Count a delegation of a session and say what goes down with it.

    Spec: related facts §8

    Raises:
        RequestError: the session is not known.
        SafetyHalt: its safety budget withholds every answer.
        AccessDenied: its circuit is half open, it is too deep, or has delegated too often.
    """
    settings = world.settings.session
    with namespace.begin(write=True) as transaction:
        sessions = sessions_of(transaction)
        session = sessions.session(session_id)
        if session is None:
            raise RequestError(
                f"session {session_id!r:.60} is not known; ask something in it before it delegates"
            )
        agent = agents.registered(session.agent_id, settings.agents)
        down = agents.delegated(
            session,
            agent=agent,
            settings=settings,
            residency=namespace.residency,
            safety_mode=safety_mode,
        )
        sessions.keep(agents.after_delegating(session).changed(modified_at=iso(world.clock.now())))
    return down


def asked_by(down: Downward) -> Asking:
    """The fields of a question that another agent has delegated."""
    return Asking(
        parent_session=down.session_parent,
        loop_depth=down.loop_depth,
        safety_budget=down.safety_budget,
        inherited_policy=down.policy,
        residency=down.residency or None,
    )


def result_of(answer: Answer, safety_budget: float) -> Upward:
    """What an answer hands back to the agent that asked for it.

    Spec: related facts §8
    """
    return Upward(
        session_id=answer.session_id,
        safety_budget=safety_budget,
        risk_level=answer.report.risk_level,
        hmac=answer.report.hmac,
        chain_integrity=answer.report.chain_integrity,
        quality_score=round(answer.report.rqa_score, 3),
    )


def take(namespace: Namespace, world: World, session_id: str, up: Upward) -> float:
    """Take what a sub-agent has handed back: its budget bounds the session's, its seal is noted.

    Spec: related facts §8

    Returns:
        The session's safety budget.

    Raises:
        RequestError: the session is not known.
    """
    with namespace.begin(write=True) as transaction:
        sessions = sessions_of(transaction)
        session = sessions.session(session_id)
        if session is None:
            raise RequestError(f"session {session_id!r:.60} is not known")
        now = iso(world.clock.now())
        before = session.safety_budget
        session = agents.returned(session, up, world.settings.session).changed(modified_at=now)
        sessions.keep(session)
        last = transaction.journal.last_seal(session_id)
        append(
            transaction.journal,
            journal_key(world.keyring, namespace.subject.tenant),
            [
                sub_agent_returned(
                    session_id,
                    last.window_id if last else "",
                    session=up.session_id,
                    chain_tip=up.hmac,
                    budget=session.safety_budget if up.safety_budget is None else up.safety_budget,
                    risk_level=up.risk_level,
                    integrity=up.chain_integrity,
                    quality_score=up.quality_score,
                    cost=round(before - session.safety_budget, BUDGET_DIGITS),
                )
            ],
            now,
        )
    return session.safety_budget
