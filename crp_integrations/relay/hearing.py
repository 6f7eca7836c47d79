"""Which earlier windows a subject may hear of: none that was shown what the guard keeps from it.

A session belongs to a tenant, and its users need not have the same rights; neither does one user
have them for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from crp_integrations.dpe.records import Report
from crp_integrations.envelope.prior import PriorWindow
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.session.history import before
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import WindowNode


def unheard(
    namespace: Namespace, windows: Sequence[WindowNode], said: Mapping[str, PriorWindow]
) -> set[str]:
    """Ids of the windows that showed a fact which the subject may not read, or go on from one.

    Spec: CRP-SPEC-003 §14.2, §16.1

    Args:
        windows: of a session, by number.
        said: what is kept of them, by id.

    Raises:
        StoreError: the store cannot be read.
    """
    shown = {id_: [seen.fact_id for seen in window.facts_seen] for id_, window in said.items()}
    hidden = denied(namespace, {id_ for ids in shown.values() for id_ in ids})
    found: set[str] = set()
    for window in windows if hidden else ():
        own = shown.get(window.window_id, ())
        if not hidden.isdisjoint(own) or not found.isdisjoint(window.parents):
            found.add(window.window_id)
    return found


def report_on(namespace: Namespace, window_id: str) -> Report | None:
    """The report that is kept on a window; None where none is, or the subject may not hear of it.

    Spec: CRP-SPEC-005 §15.4

    Raises:
        StoreError: the store cannot be read.
    """
    with namespace.begin(write=False) as transaction:
        sessions = sessions_of(transaction)
        kept = sessions.report(window_id)
        if kept is None:
            return None
        report = Report.model_validate_json(kept)
        windows = sessions.windows(report.session_id)
        said = sessions.priors(before(windows, [window_id]))
    # Of a window that was not released nothing but its report tells what it was shown.
    shown = {evidence.fact_id for claim in report.claims for evidence in claim.evidence}
    if denied(namespace, shown) or window_id in unheard(namespace, windows, said):
        return None
    return report


def denied(namespace: Namespace, fact_ids: Collection[str]) -> set[str]:
    """Those of the facts that are there for others, and not for the subject.

    A fact that is there for nobody any more is not denied: what was said with one that was
    withdrawn is gone with it.
    """
    ids = sorted(fact_ids)
    missing = {*ids} - {fact.fact_id for fact in namespace.facts(ids)} if ids else set()
    if not missing:
        return set()
    with namespace.begin(write=False) as transaction:
        own = {fact.fact_id: fact for fact in transaction.facts.get(sorted(missing))}
    elsewhere = sorted(missing - own.keys())
    shared = namespace.stored(elsewhere) if elsewhere else set()
    return {id_ for id_, fact in own.items() if fact.retrievable} | shared
