"""Headers of stages 10 to 12: the documents' own examples, and silence where nothing ran."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.dpe.records import Classification, StageRun
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.response_headers import render_headers
from tests.headers.header_samples import SESSION, envelope, report, seal

OWN = (
    names.OMISSIONS, names.PERSONAL, names.AI_ACT, names.NIST_TIER, names.ISO_CONTROLS,
    names.CONTROLS_MET,
)  # fmt: skip


def said(ran: tuple[int, ...] = (10, 11, 12), **fields: Any) -> dict[str, str]:
    stages = tuple(StageRun(number=n, name="x", engine="x@1") for n in ran)
    return render_headers(
        envelope(), report(stages=stages, **fields), session_id=SESSION, window_number=2,
        window_total=5, seal=seal(),
    )  # fmt: skip


@pytest.mark.requirement("005-12.3-1")
def test_omissions_are_counted_by_severity() -> None:
    headers = said(omission_summary={"CRITICAL": 0, "HIGH": 1, "MEDIUM": 2})
    assert headers["CRP-Safety-Omissions"] == "CRITICAL:0, HIGH:1, MEDIUM:2"
    assert parse_response(headers).omissions is not None


@pytest.mark.requirement("005-13.3-1")
@pytest.mark.parametrize("found", [True, False])
def test_personal_data_is_true_or_false(found: bool) -> None:
    assert said(gdpr_pii_detected=found)["CRP-Compliance-GDPR-PII"] == str(found).lower()


def test_an_unregistered_system_is_unknown_and_has_no_tier() -> None:
    headers = said(classification=Classification(controls_met=1, controls_total=35))
    assert headers["CRP-Compliance-EU-AI-Act"] == "UNKNOWN"
    assert names.NIST_TIER not in headers
    assert names.ISO_CONTROLS not in headers


@pytest.mark.parametrize("missing", [10, 11, 12])
def test_a_stage_that_did_not_run_has_no_header(missing: int) -> None:
    ran = tuple(n for n in (10, 11, 12) if n != missing)
    of = {10: {names.OMISSIONS}, 11: {names.PERSONAL}, 12: set(OWN[2:])}
    assert not of[missing] & set(said(ran))
    assert set(OWN) & set(said(())) == set()
