"""The thirteen stages: their order, one run's whole yield, and every field of the report."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.dossier import Dossier, PriorWindow, System
from crp_integrations.dpe.pipeline import ARITHMETIC, FURTHER, examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.report import finish
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.vocabulary import AiActClass, ClaimType, Domain, RiskLevel, Sector, Severity
from tests.doubles import HashEmbedder
from tests.dpe.helpers import LITERAL

FERRY = "The Brannock ferry carried 640 cars in 2024 and did not sail in January."
TOWER = "The water tower was repainted green in 2019 after the long drought."
ANSWER = (
    "The Brannock ferry carried 460 cars in 2024. The Brannock ferry carried 700 cars in 2024. "
    "It was designed by Ylva Grunwald in 1911. I think that is impressive. "
    "Write to jo.moon@example.org."
)
EARLIER = "The Brannock ferry carried 640 cars in 2024."


def _report(answer: str = ANSWER, **about: object) -> Report:
    fields = {
        "importances": (0.95, 0.75),
        "sub_queries": (
            "cars that the Brannock ferry carried in 2024",
            "when was the water tower repainted",
        ),
        "prior": (PriorWindow("crp_win_1", 1, EARLIER),),
        "windows_left": 1,
        "system": System(Domain.GENERAL_INFORMATION, Sector.FINANCIAL, True),
        "loop_depth": 3,
        **about,
    }
    return examine(
        Dossier("", answer, (("f1", FERRY), ("f2", TOWER)), **fields),  # type: ignore[arg-type]
        embedder=HashEmbedder(),
        verifier=AlignmentVerifier(),
        settings=LITERAL,
        policy=RegoEngine(),
    )


@pytest.mark.requirement("005-2-1")
def test_thirteen_stages_run_in_the_documents_order() -> None:
    report = _report()
    assert [run.number for run in report.stages] == list(range(1, 14))
    assert [run.name for run in report.stages] == [
        "claim segmentation", "attribution", "fidelity verification",
        "entailment scoring", "risk classification", "cross-window coherence",
        "repetition detection", "completeness verification", "flow and continuity analysis",
        "omission detection", "personal data detection", "regulatory classification",
        "report generation",
    ]  # fmt: skip
    assert [name.split(".")[1] for name, _ in (*ARITHMETIC, *FURTHER)] == [
        str(n) for n in range(1, 13)
    ]
    # Stage 3 splits: each finding of it is of one of its three parts.
    kinds = {finding.kind for finding in report.findings if finding.stage == 3}
    assert {"fabrication", "NUMBER_CHANGED", "contradiction"} <= kinds


@pytest.mark.requirement("005-1.2-2")
def test_one_run_yields_everything() -> None:
    report = _report()
    checked = [claim for claim in report.claims if claim.claim_type is ClaimType.FACTUAL]
    assert checked
    assert all(claim.attribution is not None for claim in checked)
    assert any(claim.evidence for claim in checked)
    assert 0.0 < report.base_score < report.composite_score
    assert report.risk_level in {RiskLevel.HIGH, RiskLevel.CRITICAL}
    assert report.quality.completeness.covered
    assert 0.0 <= report.rqa_score <= 1.0
    assert report.eu_ai_act_class is AiActClass.HIGH
    assert report.gdpr_pii_detected
    assert report.nist_tier == "TIER-1"
    sealed = finish(report, session_id="crp_sess_0123456789abcdef", window_id="w")
    # What the window's HMAC record is made over; the relay seals it.
    assert sealed.report_hash.startswith("sha256:")


@pytest.mark.requirement("005-2-2", "005-7.3-1", "005-17-2")
def test_amplifiers_of_a_whole_run() -> None:
    report = _report()
    assert report.cross_window_contradictions
    assert report.amplifiers_applied == (
        "gdpr-pii", "eu-ai-act-high-risk", "regulated-sector", "agent-loop-depth",
        "cross-window-contradiction",
    )  # fmt: skip
    calm = _report(
        "The Brannock ferry carried 640 cars in 2024.", prior=(), loop_depth=2, system=System()
    )
    assert calm.amplifiers_applied == ()
    assert calm.composite_score == calm.base_score


@pytest.mark.requirement("005-15.2-2")
def test_provenance_fields() -> None:
    report = _report()
    assert report.claims_total == len(report.claims) == sum(report.claims_by_type.values())
    assert report.attribution_dominant is not None
    assert 0.0 <= report.grounding_pct <= 1.0
    kinds = [finding.kind for finding in report.findings]
    assert report.fabrication_count == kinds.count("fabrication") > 0
    assert report.distortion_count == sum(kind.isupper() for kind in kinds) > 0
    assert "NUMBER_CHANGED" in report.distortion_types
    within = sum(f.kind == "contradiction" for f in report.findings)
    across = len(report.cross_window_contradictions)
    assert within and across
    assert report.contradiction_count == within + across
    assert report.contradiction_scope == "both"
    assert report.omission_summary == {"CRITICAL": 0, "HIGH": 0, "MEDIUM": 1}
    assert 0.0 <= report.fidelity_score < 1.0
    assert 0.0 <= report.entailment_score <= 1.0


@pytest.mark.requirement("005-15.2-3")
def test_quality_fields() -> None:
    fields = _report().model_dump(mode="json")
    assert fields["repetition_level"] in {"NONE", "MINOR", "SIGNIFICANT", "SEVERE"}
    assert 0.0 <= fields["repetition_overlap"] <= 1.0
    assert fields["completeness_score"] == 0.5
    assert fields["uncovered_sub_queries"] == ["when was the water tower repainted"]
    assert 0.0 <= fields["flow_score"] <= 1.0
    assert "flow_remediation" in fields
    first = fields["cross_window_contradictions"][0]
    assert first["prior_window_id"] == "crp_win_1"
    assert first["severity"] in {name.value for name in Severity}
    alone = _report(prior=()).model_dump(mode="json")
    assert alone["flow_score"] == 1.0
    assert alone["flow_remediation"] is None
    assert alone["cross_window_contradictions"] == []


@pytest.mark.requirement("005-15.2-4")
def test_compliance_fields() -> None:
    fields = _report().model_dump(mode="json")
    assert fields["amplifiers_applied"][0] == "gdpr-pii"
    assert fields["eu_ai_act_class"] == "HIGH"
    assert fields["nist_tier"] == "TIER-1"
    assert fields["gdpr_pii_detected"] is True
    assert isinstance(fields["iso_42001_controls"], list)
    assert Report.model_validate(fields) == _report()
