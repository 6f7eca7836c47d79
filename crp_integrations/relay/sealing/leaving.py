"""What a window leaves to its session: budget, node, and what the next window may know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from crp_integrations.audit.records import WindowSeal
from crp_integrations.envelope.records import PriorWindow
from crp_integrations.fabric.ports import Transaction
from crp_integrations.policy.inheritance import combine_strictest
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.relay.entering import Entered
from crp_integrations.relay.sealing.ending import Ending
from crp_integrations.relay.world import World
from crp_integrations.seals import iso
from crp_integrations.session import budget as safety
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import REFUSED, Session, WindowNode, new_continuation
from crp_integrations.vocabulary import Pattern, RiskLevel


@dataclass(frozen=True, slots=True)
class Left:
    """What was committed for the session.

    Attributes:
        charged: what the window took from the safety budget.
        prior: what a continuation may know of the window; None when it was not delivered.
        kept: whether its report was handed to the store.
        stored: whether the store keeps the session and the window; else memory does.
        placed: whether the window is one of the session's graph. A question that was refused
            before it had come in is sealed behind the session that it named, and is none, unless
            the session begins with it.
    """

    session: Session
    node: WindowNode
    charged: float
    prior: PriorWindow | None
    kept: bool = False
    stored: bool = False
    placed: bool = True


def leave(
    transaction: Transaction,
    world: World,
    entered: Entered | None,
    ending: Ending,
    seal: WindowSeal,
    risk_level: RiskLevel,
    now: datetime,
    earlier: Sequence[WindowSeal],
    follows: Sequence[WindowSeal],
    *,
    said: str | None,
) -> Left:
    """Charge the safety budget and keep the window, within the transaction that seals it.

    Spec: CRP-SPEC-005 §7.4, §19.3; related facts §5, §8

    The session is read again here, so that two windows that end at the same time are both
    charged. Under `no-store` nothing is written, and the caller holds it in memory. Only an
    answer that is delivered is charged, and a re-dispatch is none.

    Args:
        earlier: the session's windows so far.
        follows: those that this one follows.
        said: the report as JSON; None where what the window said may not be written, as where it
            shows a fact that a session holds in memory alone.
    """
    sessions = sessions_of(transaction)
    at = iso(now)
    stored = sessions.session(seal.session_id)
    kept = stored or world.remembered.of(seal.session_id).session
    session = kept or Session(
        session_id=seal.session_id,
        created_at=at,
        modified_at=at,
        safety_budget=entered.safety_budget if entered else world.settings.sessions.budget.start,
    )
    before = session.safety_budget
    if entered is not None:
        before = safety.apply_ceiling(before, entered.safety_budget)
        if ending.sibling:
            # Each window of a fan-out has the whole budget of the one that it hangs from, and
            # the smallest that is left goes on.
            before = entered.safety_budget
    left = before
    if ending.outcome == "released":
        left = safety.charge(before, risk_level, world.settings.sessions.budget.costs)
    session = session.changed(
        modified_at=at,
        safety_budget=min(session.safety_budget, left),
        policy=_policy(session.policy, entered),
        ended=session.ended or safety.is_spent(min(session.safety_budget, left)),
        tool_calls=session.tool_calls + ending.tool_calls,
        **(ending.born if _begins(kept, entered, ending, earlier) else {}),
    )
    placed = entered is not None or seal.outcome != REFUSED or not earlier
    node = WindowNode(
        window_id=seal.window_id,
        session_id=seal.session_id,
        window_number=seal.window_number,
        parents=tuple(one.window_id for one in follows),
        pattern=entered.pattern if entered else Pattern.LINEAR,
        strategy=ending.strategy,
        continuation_id=new_continuation(world.ids, seal.window_number, world.settings.max_windows)
        if seal.outcome == "released"
        else "",
        etag=seal.etag,
        quality_tier=ending.envelope.quality_tier if ending.envelope else None,
        risk_level=risk_level,
        safety_budget=left,
        hmac=seal.hmac,
        timestamp=seal.timestamp,
        tokens=ending.tokens,
        response_hash=seal.response_hash,
        outcome=seal.outcome,
        transfer=ending.transfer.type if ending.transfer else None,
        tokens_transferred=ending.transfer.tokens if ending.transfer else 0,
        summary_hash=ending.transfer.summary_hash if ending.transfer else "",
    )
    prior = _prior(ending, seal)
    # What a window without a store spends or tightens binds a session that has one: numbers, ids
    # and hashes are kept of it, and nothing that was said.
    if placed and (ending.keep or stored is not None):
        # One that has ended stays as it is; the window that was refused for it is sealed.
        if stored is None or not stored.ended:
            sessions.keep(session)
        sessions.add_window(
            node,
            prior=None if said is None else prior,
            report=said or "",
            facts=[fact.fact_id for fact in ending.envelope.facts] if ending.envelope else [],
            given=[window.window_id for window in entered.told] if entered else [],
        )
    return Left(
        session,
        node,
        round(before - left, 4),
        prior,
        kept=placed and ending.keep and said is not None,
        stored=ending.keep or stored is not None,
        placed=placed,
    )


def _begins(
    kept: Session | None, entered: Entered | None, ending: Ending, earlier: Sequence[WindowSeal]
) -> bool:
    """Whether a window says whose its session is: the first that came in, and none refused."""
    if entered is None and ending.outcome == REFUSED:
        return False
    return kept is None or all(one.outcome == REFUSED for one in earlier)


def _policy(kept: str, entered: Entered | None) -> str:
    """The session's policy: no window that began before a stricter one was stated relaxes it."""
    if entered is None or not entered.stated:
        return kept
    return render_policy(
        combine_strictest(entered.policy, parse_policy(kept)) if kept else entered.policy
    )


def _prior(ending: Ending, seal: WindowSeal) -> PriorWindow | None:
    if ending.envelope is None or seal.outcome != "released":
        return None
    envelope = ending.envelope.model_copy(update={"window_number": seal.window_number})
    prior = envelope.as_prior(hashes=ending.hashes)
    # Values of our own: dozens of facts are not validated twice.
    return prior.model_copy(update={"answer": ending.text, "window_id": seal.window_id})
