"""Which earlier windows a subject may hear of: none that was shown what the guard keeps from it.

A session belongs to a tenant, and its users need not have the same rights; neither does one user
have them for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import PriorWindow
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import WindowNode
from crp_integrations.session.window_graph import seen_windows


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
    ids = {id_ for own in shown.values() for id_ in own}
    seen_now = namespace.facts(sorted(ids)) if ids else []
    hidden = denied(namespace, ids, seen_now)
    cut = redacted(namespace, seen_now)
    whole = {
        id_
        for id_, window in said.items()
        if any(
            cut.get(seen.fact_id, seen.content_hash) != seen.content_hash
            for seen in window.facts_seen
        )
    }
    found: set[str] = set()
    for window in windows if hidden or whole else ():
        own = shown.get(window.window_id, ())
        if (
            window.window_id in whole
            or not hidden.isdisjoint(own)
            or not found.isdisjoint(window.parents)
        ):
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
        said = sessions.priors(seen_windows(windows, [window_id]))
    # Of a window that was not released nothing but its report tells what it was shown.
    shown = {evidence.fact_id for claim in report.claims for evidence in claim.evidence}
    if denied(namespace, shown) or window_id in unheard(namespace, windows, said):
        return None
    if window_id not in said and redacted(namespace, namespace.facts(sorted(shown))):
        # Nothing tells whether it was shown more than the subject may see.
        return None
    return report


def denied(
    namespace: Namespace, fact_ids: Collection[str], seen: Sequence[Fact] | None = None
) -> set[str]:
    """Those of the facts that are there for others, and not for the subject.

    A fact that is there for nobody any more is not denied: what was said with one that was
    withdrawn is gone with it.

    Args:
        seen: those that the subject may read, where they are at hand.
    """
    if seen is None:
        seen = namespace.facts(sorted(fact_ids)) if fact_ids else []
    missing = {*fact_ids} - {fact.fact_id for fact in seen}
    if not missing:
        return set()
    with namespace.begin(write=False) as transaction:
        own = {fact.fact_id: fact for fact in transaction.facts.get(sorted(missing))}
    elsewhere = sorted(missing - own.keys())
    shared = namespace.stored(elsewhere) if elsewhere else set()
    return {id_ for id_, fact in own.items() if fact.retrievable} | shared


def redacted(namespace: Namespace, seen: Sequence[Fact]) -> dict[str, str]:
    """Of facts whose personal data the guard takes out: the hash of what the subject is shown.

    A window that showed another text of such a fact may have shown more.

    Args:
        seen: facts as the subject may read them.
    """
    return {
        fact.fact_id: fact.content_hash for fact in seen if namespace.decision(fact.labels).redact
    }
