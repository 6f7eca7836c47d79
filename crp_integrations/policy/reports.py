"""Violation reports: what of a violation goes to the addresses of a policy.

Spec: related facts §6
"""

from __future__ import annotations

from typing import Final

from crp_integrations.dpe.records import Report
from crp_integrations.errors import PolicyRelaxed
from crp_integrations.policy.records import Violation, ViolationReport
from crp_integrations.policy.words import ViolationType

FRACTION_DIGITS: Final = 3


def violation_report(
    violation: Violation, report: Report, *, timestamp: str = "", audit_trail_uri: str = ""
) -> ViolationReport:
    """The report on one violation: ids, numbers and the directive, no text of the answer.

    Spec: related facts §6

    Args:
        report: with the identity of its window.
        timestamp: ISO 8601; empty for the report's own.
        audit_trail_uri: where the session's trail can be read; empty for nowhere.
    """
    return ViolationReport(
        session_id=report.session_id,
        window_id=report.window_id,
        timestamp=timestamp or report.timestamp,
        violation_type=violation.violation_type,
        directive_violated=violation.directive,
        risk_level=report.risk_level,
        hallucination_score=round(report.risk_score, FRACTION_DIGITS),
        grounding_pct=round(report.grounding_pct, FRACTION_DIGITS),
        fabrication_count=report.fabrication_count,
        audit_trail_uri=audit_trail_uri,
    )


def inheritance_report(
    error: PolicyRelaxed,
    *,
    session_id: str,
    timestamp: str,
    window_id: str = "",
    audit_trail_uri: str = "",
) -> ViolationReport:
    """The report on a child policy that was refused; there is no answer, so no numbers of one.

    Spec: related facts §6
    """
    return ViolationReport(
        session_id=session_id,
        window_id=window_id,
        timestamp=timestamp,
        violation_type=ViolationType.INHERITANCE,
        directive_violated=f"{error.directive} {error.parent}",
        audit_trail_uri=audit_trail_uri,
    )
