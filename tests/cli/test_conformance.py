"""`crp conformance`: what is in force, on the page as in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crp_integrations.cli.app import app
from crp_integrations.dpe.settings import AmplifierSettings, DpeSettings
from tests.requirements.rows import ROOT


def _said(*words: str) -> str:
    result = CliRunner().invoke(app, ["conformance", *words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.requirement("005-16.3-1", "005-17-3", "005-7.3-2")
def test_weights_and_factors_in_force_are_printed() -> None:
    report = json.loads(_said("--json"))
    assert report["weights"] == DpeSettings().weights
    assert list(report["amplifiers"].values()) == list(AmplifierSettings().factors.values())
    assert report["levels"] == {"CRITICAL": 0.70, "HIGH": 0.45, "MEDIUM": 0.20}
    assert report["loop_depth"] == {"amplified above": 2, "stopped above": 5}
    printed = _said()
    for name, value in {**report["weights"], **report["amplifiers"]}.items():
        assert f"| {name} | {value:g} |" in printed


@pytest.mark.requirement("005-16.3-1", "005-17-3", "005-7.3-2")
def test_the_page_holds_the_weights_and_factors_of_the_package() -> None:
    page = (ROOT / "docs" / "evidence" / "conformance.md").read_text(encoding="utf-8")
    report = json.loads(_said("--json"))
    for name, value in {**report["weights"], **report["amplifiers"]}.items():
        assert f"| {name} | {value:g} |" in page
    assert f"| omission, cosine | {report['omission_cosine']:g} |" in page


@pytest.mark.requirement("005-16.3-1", "005-7.3-2")
def test_tuned_numbers_are_printed_for_the_operator(tmp_path: Path) -> None:
    (tmp_path / "crp.toml").write_text(
        "[dpe]\nattribution_weight = 0.4\nspecificity_weight = 0.1\n"
        "[dpe.amplifiers]\npersonal = 1.75\n"
    )
    report = json.loads(_said("--store", str(tmp_path), "--json"))
    assert report["weights"]["attribution"] == 0.4
    assert report["amplifiers"]["gdpr-pii"] == 1.75
    assert report["settings_digest"] != json.loads(_said("--json"))["settings_digest"]
