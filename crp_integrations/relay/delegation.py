"""Agents that ask other agents: what a session passes to a sub-agent, and gets back.

Within a process the values are passed as objects, between processes as CRP headers
(`headers/codec.py`).

Spec: related facts §8
"""

from __future__ import annotations

from crp_integrations.audit.drafts import (
    draft_budget_depleted,
    draft_budget_reset,
    draft_sub_agent_returned,
)
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.rejections import rejected_claims
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.response_headers import known_quality
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.records import Answer
from crp_integrations.relay.world import World
from crp_integrations.seals import iso
from crp_integrations.session import agents
from crp_integrations.session import budget as safety
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import BUDGET_DIGITS, Session
from crp_integrations.vocabulary import ChainIntegrity, SafetyMode


def delegate(
    namespace: Namespace, world: World, session_id: str, *, safety_mode: SafetyMode | None = None
) -> Downward:
    """Count a delegation of a session and return the values for the sub-agent."""
    settings = world.settings.sessions
    with world.memory.sessions.one_by_one(), namespace.begin(write=True) as transaction:
        session = _session(transaction, world, session_id)
        agent = agents.find_agent(session.agent_id, settings.agents)
        down = agents.delegate(
            session,
            agent=agent,
            settings=settings,
            residency=namespace.residency,
            safety_mode=safety_mode,
        )
        now = iso(world.clock.now())
        _keep(transaction, world, agents.count_delegation(session).changed(modified_at=now))
    return down


def asked_by(down: Downward) -> QuestionFields:
    """The fields of a question that another agent has delegated."""
    return QuestionFields(
        parent_session=down.session_parent,
        loop_depth=down.loop_depth,
        safety_budget=down.safety_budget,
        inherited_policy=down.policy,
        residency=down.residency or None,
        safety_mode=down.safety_mode,
    )


def result_of(answered: Answer | SafetyHalt, safety_budget: float | None = None) -> Upward:
    """The values that an answer, or a withheld one, returns to the agent that asked for it."""
    if isinstance(answered, SafetyHalt):
        report = answered.report if isinstance(answered.report, Report) else None
        quality = known_quality(report) if report else None
        return Upward(
            session_id=answered.session_id,
            safety_budget=safety_budget,
            risk_level=report.risk_level if report else None,
            hmac=report.hmac if report else "",
            chain_integrity=report.chain_integrity if report else ChainIntegrity.UNVERIFIED,
            quality_score=None if quality is None else round(quality, 3),
            halted=True,
            flagged=rejected_claims(report) if report else (),
        )
    headers = parse_response(answered.headers)
    return Upward(
        session_id=answered.session_id,
        safety_budget=headers.safety_budget if safety_budget is None else safety_budget,
        risk_level=headers.hallucination_risk or answered.report.risk_level,
        hmac=answered.report.hmac,
        chain_integrity=answered.report.chain_integrity,
        audit_uri=headers.trail_uri or "",
        quality_score=headers.quality_score,
        flagged=rejected_claims(answered.report),
    )


def take_result(namespace: Namespace, world: World, session_id: str, up: Upward) -> float:
    """Apply a sub-agent's result: its budget bounds the session's, its seal is recorded.

    Returns the session's safety budget. The claims that the sub-agent's report flags are kept in
    memory; an answer of the session that repeats one is flagged.
    """
    budget = world.settings.sessions.budget
    with world.memory.sessions.one_by_one(), namespace.begin(write=True) as transaction:
        session = _session(transaction, world, session_id)
        world.memory.sessions.reject(session_id, up.flagged)
        now = iso(world.clock.now())
        before = session.safety_budget
        if up.hmac and up.hmac in session.taken:
            # A result that arrives twice, as after a lost reply, is charged once.
            return before
        session = agents.charge_return(session, up, world.settings.sessions)
        if up.hmac:
            session = session.changed(taken=(*session.taken, up.hmac))
        left = session.safety_budget
        spent = not safety.halts(before, budget) and safety.halts(left, budget)
        # An ended session is not changed; the agent's return is journalled all the same.
        if not session.ended:
            over = safety.is_spent(left, budget)
            _keep(transaction, world, session.changed(modified_at=now, ended=over))
        last = transaction.journal.last_seal(session_id)
        window_id = last.window_id if last else ""
        returned = draft_sub_agent_returned(
            session_id,
            window_id,
            session=up.session_id,
            chain_tip=up.hmac,
            budget=left if up.safety_budget is None else up.safety_budget,
            risk_level=up.risk_level,
            integrity=up.chain_integrity,
            quality_score=up.quality_score,
            cost=round(before - left, BUDGET_DIGITS),
        )
        depleted = [draft_budget_depleted(session_id, window_id, budget=left)] if spent else []
        key = journal_key(world.keyring, namespace.subject.tenant)
        append_events(transaction.journal, key, [returned, *depleted], now)
    return left


def reset_budget(namespace: Namespace, world: World, session_id: str) -> float:
    """Reset a session's safety budget, after a person has reviewed its answers."""
    namespace.must_write()
    start = world.settings.sessions.budget.start
    with world.memory.sessions.one_by_one(), namespace.begin(write=True) as transaction:
        session = _session(transaction, world, session_id)
        now = iso(world.clock.now())
        begun = session.changed(
            modified_at=now, safety_budget=start, ended=False, reviews=session.reviews + 1
        )
        _keep(transaction, world, begun)
        last = transaction.journal.last_seal(session_id)
        draft = draft_budget_reset(session_id, last.window_id if last else "", budget=start)
        key = journal_key(world.keyring, namespace.subject.tenant)
        append_events(transaction.journal, key, [draft], now)
    return start


def _session(transaction: Transaction, world: World, session_id: str) -> Session:
    """A session from the store or, under `no-store`, from memory."""
    stored = sessions_of(transaction).session(session_id)
    session = stored or world.memory.sessions.of(session_id).session
    if session is None:
        raise RequestError(
            f"session {session_id!r:.60} is not known here; ask something in it before it delegates"
        )
    return session


def _keep(transaction: Transaction, world: World, session: Session) -> None:
    """Save a session wherever it already exists: in the store, in memory, or both."""
    sessions = sessions_of(transaction)
    if sessions.session(session.session_id) is not None:
        sessions.keep(session)
    if world.memory.sessions.of(session.session_id).session is not None:
        world.memory.sessions.keep(session)
