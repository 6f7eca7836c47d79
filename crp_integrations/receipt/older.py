"""Receipts from before claims had statuses: what they tell, and what their seals hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.s13_report import UNHASHED
from crp_integrations.seals import digest

_SCHEMA: Final = "dpe-report/2"
# What `dpe-report/3` added to a report and to its claims.
_OF_REPORT: Final = ("risk_score", "verification", "checked_by", "flagged", "reasons", "judge")
_OF_CLAIM: Final = ("status", "error", "wrong", "quotations", "reason")


def without_statuses(told: Mapping[str, Any]) -> bool:
    """Whether a receipt tells of a report of the version before."""
    return "verification" not in told


def before_statuses(told: Mapping[str, Any]) -> dict[str, Any]:
    """A report as it was told of before claims had statuses."""
    kept = {name: value for name, value in told.items() if name not in _OF_REPORT}
    claims = [
        {name: value for name, value in claim.items() if name not in _OF_CLAIM}
        for claim in kept["claims"]
    ]
    return {**kept, "claims": claims}


def hash_before_statuses(report: Report) -> str:
    """The hash that a report of the version before would have."""
    told = before_statuses(report.model_dump(mode="json", exclude=set(UNHASHED)))
    return digest({**told, "schema": _SCHEMA})
