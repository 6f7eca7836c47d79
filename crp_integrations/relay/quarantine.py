"""Facts that answers keep going wrong with are counted, and taken out of retrieval.

Spec: CRP-SPEC-009 §8.4
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from crp_integrations.dpe.records import Claim, Finding, Report
from crp_integrations.errors import (
    AccessDenied,
    IllegalTransition,
    RequestError,
    StoreBusy,
    StoreError,
)
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.ports.faulted import Counted, faulted_in
from crp_integrations.fabric.settings import LifecycleSettings
from crp_integrations.relay.window_end import WindowEnd
from crp_integrations.vocabulary import DistortionType

# Windows whose model was shown the facts and whose answer was examined.
EXAMINED: Final = frozenset({"released", "halted"})
KINDS: Final = frozenset({"fabrication", *DistortionType})
REASON: Final = "answers with it were repeatedly found to make things up or to distort it"

_LOG = logging.getLogger("crp_integrations.relay")


def faulty_facts(report: Report) -> tuple[str, ...]:
    """Facts that an answer's fabrications and distortions are of, ascending, each once.

    Where the finding itself names no place, as nothing in the context says otherwise, it is the
    fact that the claim comes nearest to. Where a judge, or a verifier of the user's own, read the
    claims, findings are hints, and count only on claims that it flags.
    """
    found = {
        _faulty_fact(claim, finding)
        for claim in report.claims
        for finding in claim.findings
        if finding.kind in KINDS and (claim.flagged or not report.was_read)
    }
    return tuple(sorted(found - {""}))


def count_findings(
    transaction: Transaction, ending: WindowEnd, report: Report, settings: LifecycleSettings
) -> list[str]:
    """Count the findings of a window that is being sealed, after its uses were counted.

    Spec: CRP-SPEC-009 §8.4 (decision Fabric)
    """
    if ending.outcome not in EXAMINED or not ending.keep:
        return []
    found = faulty_facts(report)
    facet = faulted_in(transaction) if found else None
    return [] if facet is None else _over_bounds(facet.count(found), settings)


def count_shared(
    namespace: Namespace, ending: WindowEnd, report: Report, settings: LifecycleSettings
) -> None:
    """Count the findings of a sealed window against facts of shared namespaces, after their uses.

    Who asked only reads them, and one tenant's answers take nothing away from the others: the
    operator is told, and his own relay takes them out (`quarantine_due`).

    Spec: CRP-SPEC-009 §8.4
    """
    if ending.outcome in EXAMINED and ending.keep:
        for id_ in _over_bounds(namespace.note_shared_findings(faulty_facts(report)), settings):
            _LOG.warning("shared fact %s is due for quarantine by its operator", id_)


def quarantine_due(namespace: Namespace, settings: LifecycleSettings) -> None:
    """Take out what the counts say is due, and who asked could not take out.

    Spec: CRP-SPEC-009 §8.4
    """
    try:
        with namespace.begin(write=False) as transaction:
            facet = faulted_in(transaction)
            bounds = settings.quarantine_findings, settings.quarantine_share
            bad = facet.due(*bounds) if facet is not None else []
    except StoreBusy:
        return
    quarantine(namespace, bad)


def quarantine(namespace: Namespace, fact_ids: Sequence[str]) -> None:
    """Take facts out of retrieval and tell the operator; their answer is not held up by it.

    A fact whose subject may not write stays, with its count: the next finding tries again.
    """
    for id_ in fact_ids:
        try:
            namespace.quarantine([id_], reason=REASON)
            with namespace.begin(write=True) as transaction:
                facet = faulted_in(transaction)
                if facet is not None:
                    facet.reset([id_])
        except (AccessDenied, IllegalTransition, RequestError, StoreError) as error:
            why = type(error).__name__
            _LOG.warning("fact %s is due for quarantine, which was refused: %s", id_, why)


def _over_bounds(counts: Mapping[str, Counted], settings: LifecycleSettings) -> list[str]:
    return [
        id_
        for id_, counted in counts.items()
        if counted.findings >= settings.quarantine_findings
        and counted.findings >= settings.quarantine_share * counted.uses
    ]


def _faulty_fact(claim: Claim, finding: Finding) -> str:
    if finding.evidence is not None:
        return finding.evidence.fact_id
    best = max(claim.evidence, key=lambda one: (one.score, one.fact_id), default=None)
    return best.fact_id if best else ""
