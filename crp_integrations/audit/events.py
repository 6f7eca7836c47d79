"""Events that a relay writes, made from typed arguments: none of them takes a text.

Strings that come in are ids, hashes or names; `journal.append` writes a name that does not look
like one as its hash, and refuses a hash that is none. `agent_events.py` goes on with agents.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crp_integrations.audit.drafts import EventDraft, filled
from crp_integrations.vocabulary import (
    Circuit,
    CompletenessLevel,
    EventType,
    HaltReason,
    Oversight,
    Pattern,
    RiskLevel,
    Strategy,
    TransferType,
)


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


def session_continued(
    session_id: str,
    window_id: str,
    *,
    parent_hmac: str,
    parents: Sequence[str] = (),
    pattern: Pattern | None = None,
    transfer: TransferType | None = None,
    tokens: int | None = None,
    summary_hash: str = "",
) -> EventDraft:
    """A window follows others of its session.

    Args:
        parent_hmac: as the window's seal has it; of several, joined with `|`.
        parents: ids of the windows that it follows.
        transfer, tokens, summary_hash: what it was given of them.
    """
    data = filled(
        parent_hmac=parent_hmac,
        parents=list(parents),
        pattern=pattern,
        transfer=transfer,
        tokens=tokens,
        summary_hash=summary_hash,
    )
    return EventDraft(EventType.SESSION_CONTINUED, data, session_id, window_id)


def session_terminated(
    session_id: str, *, reason: HaltReason | str, windows: int, safety_budget: float
) -> EventDraft:
    """A session ends; no window follows.

    Args:
        reason: a halt's, or one of `ended`, `budget`, `limit`, `complete`, `cancelled`,
            `policy`, `erasure`.
        windows: how many it had.
        safety_budget: what is left, [0, 1].
    """
    data = filled(reason=reason, windows=windows, safety_budget=safety_budget)
    return EventDraft(EventType.SESSION_TERMINATED, data, session_id)


def redispatched(
    session_id: str,
    window_id: str,
    *,
    attempt: int,
    triggers: Collection[str],
    strategy: Strategy | None = None,
) -> EventDraft:
    """The model is asked again within a window.

    Spec: CRP-SPEC-005 §19.2

    Args:
        attempt: 1 for the first re-dispatch.
        triggers: what asked for it, such as `risk`, `contradiction`, `repetition`, `flow`, or a
            directive's name.
    """
    data = filled(attempt=attempt, triggers=list(triggers), strategy=strategy)
    return EventDraft(EventType.RE_DISPATCH, data, session_id, window_id)


def strategy_upgraded(
    session_id: str,
    window_id: str,
    *,
    to: Strategy,
    why: str,
    before: Strategy | None = None,
) -> EventDraft:
    """A question is dispatched in another way than asked.

    Spec: CRP-SPEC-005 §7.4

    Args:
        why: one of `circuit`, `risk`, `quality`, `policy`, `budget`, `accept`, `intent`.
    """
    data = filled(before=before, to=to, why=why)
    return EventDraft(EventType.STRATEGY_UPGRADE, data, session_id, window_id)


def policy_violated(
    session_id: str,
    window_id: str,
    *,
    directives: Collection[str],
    risk_level: RiskLevel,
    policy_hash: str = "",
    report_only: bool = False,
) -> EventDraft:
    """An answer does not meet the safety policy.

    Spec: related facts §6

    Args:
        directives: names of those that are not met.
        report_only: whether the policy was only reported.
    """
    data = filled(
        directives=list(directives),
        risk_level=risk_level,
        policy_hash=policy_hash,
        report_only=report_only,
    )
    return EventDraft(EventType.POLICY_VIOLATION, data, session_id, window_id)


def safety_halted(
    session_id: str, window_id: str, *, reason: HaltReason, risk_level: RiskLevel | None = None
) -> EventDraft:
    """An answer is withheld, or no model was asked.

    Spec: CRP-SPEC-005 §7.4
    """
    data = filled(reason=reason, risk_level=risk_level)
    return EventDraft(EventType.SAFETY_HALT, data, session_id, window_id)


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


def oversight_triggered(
    session_id: str,
    window_id: str,
    *,
    mode: Oversight,
    reason: HaltReason | str = "",
    response_hash: str = "",
    approved: bool | None = None,
) -> EventDraft:
    """A person must look at an answer, or has.

    Args:
        reason: a halt's, or one of `risk`, `quality`, `policy`, `budget`, `review`.
        response_hash: of the answer that is waiting.
        approved: what the person said; None while nobody has.
    """
    data = filled(mode=mode, reason=reason, response_hash=response_hash, approved=approved)
    return EventDraft(EventType.OVERSIGHT_TRIGGERED, data, session_id, window_id)


def completeness_continued(
    session_id: str,
    window_id: str,
    *,
    of: str,
    uncovered: int,
    completeness: float,
    level: CompletenessLevel,
    continuation: int = 1,
) -> EventDraft:
    """An answer goes on in another window, since something asked for was missing.

    Spec: CRP-SPEC-005 §10.3

    Args:
        of: id of the window that is continued.
        uncovered: sub-queries without an answer.
        completeness: [0, 1].
        continuation: 1 for the first one.
    """
    data = filled(
        of=of,
        uncovered=uncovered,
        completeness=completeness,
        level=level,
        continuation=continuation,
    )
    return EventDraft(EventType.COMPLETENESS_CONTINUATION, data, session_id, window_id)


def flow_stitched(
    session_id: str, window_id: str, *, of: str, stitch_hash: str, flow: float
) -> EventDraft:
    """A passage was written between two windows' answers.

    Spec: CRP-SPEC-005 §11.5

    Args:
        of: id of the window before the passage.
        stitch_hash: `sha256:…` of the passage.
        flow: before it was there, [0, 1].
    """
    data = filled(of=of, stitch_hash=stitch_hash, flow=flow)
    return EventDraft(EventType.FLOW_STITCH, data, session_id, window_id)


def flow_remedied(
    session_id: str, window_id: str, *, remedy: str, flow: float | None = None
) -> EventDraft:
    """A remedy for an answer that does not read on.

    Spec: CRP-SPEC-005 §11.5

    Args:
        remedy: `prompt-augmented`, `stitched` or `redispatch`.
        flow: that was found, [0, 1].
    """
    return EventDraft(
        EventType.FLOW_REMEDIATION, filled(remedy=remedy, flow=flow), session_id, window_id
    )
