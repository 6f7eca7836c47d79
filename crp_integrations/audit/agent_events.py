"""Events of agents, tools, and windows side by side, made as those of `events.py` are."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.audit.drafts import EventDraft, filled
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import ChainIntegrity, EventType, HaltReason, RiskLevel


def stop_injected(
    session_id: str, window_id: str, *, reason: HaltReason | str, iteration: int | None = None
) -> EventDraft:
    """A loop or a stream was made to stop before it ended by itself.

    Args:
        reason: a halt's, or one of `budget`, `limit`, `complete`, `cancelled`, `policy`.
        iteration: of the loop, from 1.
    """
    data = filled(reason=reason, iteration=iteration)
    return EventDraft(EventType.STOP_INJECT, data, session_id, window_id)


def tool_called(
    session_id: str,
    window_id: str,
    *,
    tool: str,
    number: int,
    arguments: str = "",
    result: str | None = None,
    failed: bool = False,
) -> EventDraft:
    """A tool was called. Name, arguments and result are a model's words: only hashes stay.

    Args:
        tool: its name; who knows the names can tell which it was.
        number: of the call within the session, from 1.
        arguments: as JSON.
        result: what came back; None for nothing yet.
    """
    data = filled(
        tool=_hashed(tool),
        number=number,
        arguments_hash=_hashed(arguments),
        result_hash=None if result is None else _hashed(result),
        failed=failed or None,
    )
    return EventDraft(EventType.TOOL_CALL, data, session_id, window_id)


def agent_iterated(
    session_id: str,
    window_id: str,
    *,
    iteration: int,
    tool_calls: int,
    completeness: float | None = None,
    budget: float | None = None,
    loop_depth: int = 0,
) -> EventDraft:
    """An agent's loop went round once.

    Spec: related facts §7

    Args:
        iteration: from 1.
        completeness, budget: then, [0, 1].
    """
    data = filled(
        iteration=iteration,
        tool_calls=tool_calls,
        completeness=completeness,
        budget=budget,
        loop_depth=loop_depth,
    )
    return EventDraft(EventType.AGENT_LOOP_ITERATION, data, session_id, window_id)


def fan_out_created(
    session_id: str,
    window_id: str,
    *,
    children: int | Sequence[str],
    parents: Sequence[str] = (),
    budget: float | None = None,
) -> EventDraft:
    """Several windows begin at once.

    Args:
        children: how many, or their ids.
        budget: that each of them inherits, [0, 1].
    """
    counted = children if isinstance(children, int) else list(children)
    data = filled(children=counted, parents=list(parents), budget=budget)
    return EventDraft(EventType.FAN_OUT_CREATED, data, session_id, window_id)


def fan_in_merged(
    session_id: str, window_id: str, *, parents: Sequence[str], budget: float | None = None
) -> EventDraft:
    """A window follows several.

    Args:
        parents: their ids.
        budget: the smallest of theirs, [0, 1].
    """
    data = filled(parents=list(parents), budget=budget)
    return EventDraft(EventType.FAN_IN_MERGED, data, session_id, window_id)


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


def _hashed(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")) if text else ""
