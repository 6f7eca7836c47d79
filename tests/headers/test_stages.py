"""Headers of real reports: what each stage emits, to the letter of the documents' examples."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.dpe.dossier import Dossier, PriorWindow, System
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.report import finish
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.response_headers import WindowContext, render_headers
from crp_integrations.vocabulary import ChainIntegrity, Domain, Sector
from tests.doubles import HashEmbedder
from tests.dpe.windows import after
from tests.headers.header_samples import OF_STAGES_1_TO_5, SESSION, envelope, seal

# The document's own arithmetic, which measures completeness and contradictions without a judge.
LITERAL = DpeSettings(decides="composite", verifier="alignment")
OF_STAGE_13 = frozenset({names.CHAINED_HMAC, names.CHAIN_INTEGRITY, names.REPORT_URI})
REPORT_URI = "https://a.example/crp/v3/reports/1"
FERRY = "The Brannock ferry carried 640 cars in 2024 and did not sail in January."
TOWER = "The water tower was repainted green in 2019 after the long drought."
ANSWER = "The Brannock ferry carried 460 cars in 2024. Write to jo.moon@example.org."


def whole(answer: str = ANSWER) -> Report:
    """The report of all thirteen stages on one answer of a registered system."""
    dossier = Dossier(
        "",
        answer,
        (("f1", FERRY), ("f2", TOWER)),
        importances=(0.95, 0.75),
        sub_queries=("how many cars did the ferry carry", "when was the water tower repainted"),
        prior=(PriorWindow("crp_win_1", 1, "The Brannock ferry carried 640 cars in 2024."),),
        windows_left=1,
        system=System(Domain.GENERAL_INFORMATION, Sector.FINANCIAL, True),
    )
    report = examine(
        dossier,
        embedder=HashEmbedder(),
        verifier=AlignmentVerifier(),
        settings=LITERAL,
        policy=RegoEngine(),
    )
    return finish(report, session_id=SESSION, window_id="crp_win_0123456789abcdef")


def said(
    report: Report, passed: WindowContext | None = None, sealed: dict[str, Any] | None = None
) -> dict[str, str]:
    return render_headers(
        envelope(),
        report,
        session_id=SESSION,
        window_number=2,
        window_total=5,
        seal=seal(**(sealed or {})),
        passed=passed,
    )


@pytest.mark.requirement("005-20-2")
def test_stages_7_to_12_and_the_quality_score_emit_exactly_ten() -> None:
    headers = said(whole(), WindowContext(report_uri=REPORT_URI))
    named = {"CRP-Safety-", "CRP-Quality-", "CRP-Compliance-", "CRP-Provenance-"}
    emitted = {name for name in headers if name.startswith(tuple(named))}
    assert emitted - OF_STAGES_1_TO_5 - OF_STAGE_13 - {names.WINDOW_HMAC} == {
        "CRP-Quality-Repetition",
        "CRP-Quality-Completeness",
        "CRP-Quality-Flow",
        "CRP-Quality-Score",
        "CRP-Safety-Omissions",
        "CRP-Compliance-GDPR-PII",
        "CRP-Compliance-EU-AI-Act",
        "CRP-Compliance-NIST-Tier",
        "CRP-Compliance-ISO-42001",
        "CRP-Compliance-Controls-Met",
    }


@pytest.mark.requirement("005-20-3")
def test_stage_13_emits_seal_integrity_and_report() -> None:
    passed = WindowContext(report_uri=REPORT_URI)
    headers = said(whole().changed(chain_integrity=ChainIntegrity.VALID), passed)
    assert {name: headers[name] for name in OF_STAGE_13} == {
        "CRP-Provenance-HMAC": seal().hmac,
        "CRP-Provenance-Chain-Integrity": "VALID",
        "CRP-Provenance-Report-URI": REPORT_URI,
    }
    # A first window follows none, so nothing of its chain can have been verified.
    report = whole()
    assert report.chain_integrity is ChainIntegrity.UNVERIFIED
    first = said(report, passed, {"window_number": 1, "parent_hmac": ""})
    assert first["CRP-Provenance-Chain-Integrity"] == "UNVERIFIED"


@pytest.mark.requirement("005-5.4-2")
def test_contradictions_of_an_answer_with_itself() -> None:
    inner = "The tower has 40 floors. The tower has 60 floors."
    assert said(after(inner, settings=LITERAL))["CRP-Safety-Contradictions"] == "1; scope=intra"
    both = said(after(inner, "The tower has 80 floors.", settings=LITERAL))
    assert both["CRP-Safety-Contradictions"] == "3; scope=both"
    assert said(after("The tower is high."))["CRP-Safety-Contradictions"] == "0"


@pytest.mark.requirement("005-8.4-2")
def test_contradictions_of_an_answer_with_an_earlier_window() -> None:
    headers = said(after("Revenue increased 20%.", "Revenue decreased 5%.", settings=LITERAL))
    assert headers["CRP-Safety-Contradictions"] == "1; scope=cross-window"
    found = parse_response(headers).contradictions
    assert found is not None
    assert (found.count, found.scope) == (1, "cross-window")


@pytest.mark.requirement("005-9.4-1")
def test_repetition_has_its_overlap_unless_there_is_none() -> None:
    fresh = said(after("Tulips bloom in April.", "The tower has 40 floors."))
    assert fresh["CRP-Quality-Repetition"] == "NONE"
    before = "The water tower was repainted green in 2019 after the long drought of that year."
    report = after(before, before)
    again = said(report)["CRP-Quality-Repetition"]
    assert again == f"SEVERE; overlap={report.repetition_overlap:.1f}" == "SEVERE; overlap=1.0"
    some = report.changed(repetition_level="SIGNIFICANT", repetition_overlap=0.2801)
    assert said(some)["CRP-Quality-Repetition"] == "SIGNIFICANT; overlap=0.28"


@pytest.mark.requirement("005-10.4-1")
def test_completeness_has_its_class_and_its_counts() -> None:
    needs = ("how many cars did the ferry carry", "when was the tower repainted")
    answer = "The ferry did carry 640 cars."
    half = said(after(answer, sub_queries=needs, embedder=HashEmbedder(), settings=LITERAL))[
        "CRP-Quality-Completeness"
    ]
    assert half == "PARTIAL; sub-queries=1/2; uncovered=when-was-the-tower-repainted"
    all_of_it = f"{answer} The tower was repainted in 2019."
    done = said(after(all_of_it, sub_queries=needs, embedder=HashEmbedder(), settings=LITERAL))[
        "CRP-Quality-Completeness"
    ]
    assert done == "COMPLETE; sub-queries=2/2"


@pytest.mark.requirement("005-11.6-1")
@pytest.mark.parametrize("remedy", ["prompt-augmented", "stitched", "re-dispatched"])
def test_flow_has_the_remedy_that_was_used(remedy: str) -> None:
    report = whole().changed(flow_score=0.82)
    assert said(report)["CRP-Quality-Flow"] == "0.82"
    broken = said(report.changed(flow_score=0.34), WindowContext(flow_remedy=remedy))
    assert broken["CRP-Quality-Flow"] == f"0.34; remediation={remedy}"
    flow = parse_response(broken).flow
    assert flow is not None
    assert (flow.score, flow.remediation) == (0.34, remedy)


@pytest.mark.requirement("005-18.3-1")
def test_the_quality_score_does_not_depend_on_the_risk() -> None:
    assert said(whole().changed(rqa_score=0.91))["CRP-Quality-Score"] == "0.91"
    answer = "The Brannock ferry carried 640 cars in 2024."
    needs = ("how many cars did the ferry carry",)
    safe = said(after(answer, context=[FERRY], sub_queries=needs, settings=LITERAL))
    risky = said(
        after(answer, context=[FERRY.replace("640", "460")], sub_queries=needs, settings=LITERAL)
    )
    assert safe["CRP-Safety-Hallucination-Risk"] == "LOW"
    assert risky["CRP-Safety-Hallucination-Risk"] != "LOW"
    assert safe["CRP-Quality-Score"] == risky["CRP-Quality-Score"]


@pytest.mark.requirement("005-14.3-1")
def test_class_tier_and_controls_of_a_registered_system() -> None:
    report = whole()
    headers = said(report)
    assert headers["CRP-Compliance-EU-AI-Act"] == "HIGH"
    assert headers["CRP-Compliance-NIST-Tier"] == "TIER-1"
    assert headers["CRP-Compliance-ISO-42001"] == ", ".join(report.iso_42001_controls)
    counted = report.classification
    met = f"{counted.controls_met}/{counted.controls_total}"
    assert headers["CRP-Compliance-Controls-Met"] == met
    assert headers["CRP-Compliance-GDPR-PII"] == "true"
    assert headers["CRP-Safety-Omissions"] == "CRITICAL:0, HIGH:0, MEDIUM:1"
