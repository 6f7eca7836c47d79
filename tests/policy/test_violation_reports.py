"""A violation report has the document's fields and no text."""

from __future__ import annotations

import json

import pytest

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.report import finish
from crp_integrations.errors import PolicyRelaxed
from crp_integrations.headers.names import PROTOCOL_VERSION
from crp_integrations.policy.inheritance import tighten
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.policy.records import CRP_VERSION
from crp_integrations.policy.verdict import inheritance_report, judge_answer, violation_report
from tests.dpe.helpers import check_literally

FIELDS = [
    "crp_version",
    "session_id",
    "window_id",
    "timestamp",
    "violation_type",
    "directive_violated",
    "risk_level",
    "hallucination_score",
    "grounding_pct",
    "fabrication_count",
    "audit_trail_uri",
]


def test_a_report_has_exactly_the_listed_fields() -> None:
    report = finish(
        check_literally(
            "The fee is 90 EUR. It was founded in 1987 in Lisbon.",
            ["The fee is 40 EUR."],
            settings=DpeSettings(decides="composite", verifier="alignment"),
        ),
        session_id="crp_sess_0123456789abcdef",
        window_id="crp_win_0123456789abcdef",
        timestamp="2026-05-25T10:00:00Z",
    )
    found = judge_answer(parse_policy("halt-on HIGH; block-fabrication"), report)
    one, other = (
        violation_report(violation, report, audit_trail_uri="https://a.example/t")
        for violation in found.violations
    )
    sent = json.loads(one.model_dump_json())
    assert list(sent) == FIELDS
    assert sent == {
        "crp_version": "3.0.0",
        "session_id": "crp_sess_0123456789abcdef",
        "window_id": "crp_win_0123456789abcdef",
        "timestamp": "2026-05-25T10:00:00Z",
        "violation_type": "risk",
        "directive_violated": "halt-on HIGH",
        "risk_level": report.risk_level.value,
        "hallucination_score": round(report.composite_score, 3),
        "grounding_pct": round(report.grounding_pct, 3),
        "fabrication_count": report.fabrication_count,
        "audit_trail_uri": "https://a.example/t",
    }
    assert other.directive_violated == "block-fabrication"
    assert "Lisbon" not in one.model_dump_json() + other.model_dump_json()


def test_a_refused_policy_is_reported_without_numbers_of_an_answer() -> None:
    with pytest.raises(PolicyRelaxed) as caught:
        tighten(parse_policy("halt-on HIGH"), parse_policy("halt-on CRITICAL"))
    sent = inheritance_report(
        caught.value, session_id="crp_sess_0123456789abcdef", timestamp="2026-05-25T10:00:00Z"
    ).model_dump(mode="json")
    assert list(sent) == FIELDS
    assert sent["violation_type"] == "inheritance"
    assert sent["directive_violated"] == "halt-on HIGH"
    assert [sent[name] for name in FIELDS[6:10]] == [None] * 4


def test_the_version_is_the_headers() -> None:
    assert CRP_VERSION == PROTOCOL_VERSION
