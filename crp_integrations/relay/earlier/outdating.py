"""Which earlier windows rest on facts whose source has changed since; stage 6 is told of them.

Spec: CRP-SPEC-009 §4.5
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from crp_integrations.envelope.records import PriorWindow
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact
from crp_integrations.session.records import WindowNode
from crp_integrations.vocabulary import FactStatus


def outdated(
    namespace: Namespace, prior: Sequence[PriorWindow], nodes: Sequence[WindowNode]
) -> tuple[str, ...]:
    """Names of the windows that showed a fact which says something else by now, or is stale since.

    What was said with a fact that is gone altogether is gone with it.

    Args:
        nodes: of the session, for the moments of its windows.

    Returns:
        As `named` names them, in their order.

    Raises:
        StoreError: the store cannot be read.
    """
    ids = sorted({seen.fact_id for window in prior for seen in window.facts_seen})
    if not ids:
        return ()
    now = {fact.fact_id: fact for fact in namespace.facts(ids)}
    sealed = {node.window_id: node.timestamp for node in nodes}
    return tuple(
        named(window)
        for window in prior
        if any(
            seen.fact_id in now
            and _changed(now[seen.fact_id], seen.content_hash, sealed.get(window.window_id, ""))
            for seen in window.facts_seen
        )
    )


def named(window: PriorWindow) -> str:
    """A window's id, or its number where that is all that is known."""
    return window.window_id or f"window-{window.window_number}"


def _changed(fact: Fact, shown: str, sealed: str) -> bool:
    if fact.content_hash != shown:
        return True
    if fact.status is not FactStatus.STALE or not sealed or fact.modified_at is None:
        return False
    # One that was stale already when it was shown is no news.
    return fact.modified_at > datetime.fromisoformat(sealed)
