"""`crp bench selection` measures in a process of its own and fails when that does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crp_integrations.cli import bench
from crp_integrations.relay.settings import load
from tests.bench.test_selection import made_up
from tests.cli.conftest import Here


def test_the_command_measures_and_writes_the_report(here: Here, tmp_path: Path) -> None:
    made_up(tmp_path, "towns")
    done = here(
        "bench", "selection", "--data", "towns", "--json", "out.json", "--cache", "kept",
        "--systems", "crp,dense", "--budgets", "256", "--queries", "2", "--markdown", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert set(report["results"]) == {"crp", "dense"}
    assert report["results"]["crp"]["towns"]["compliance@256"] == 1.0
    assert report["settings"]["ours"]["crp"]["digest"] == load(preset="default").digest
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_measurement_that_failed_is_a_failed_command(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("bench", "selection", "--data", "nowhere", cwd=tmp_path).returncode == 1
    asked: list[list[str]] = []

    def measured(module: str, arguments: list[str]) -> int:
        asked.append(arguments)
        return 3

    monkeypatch.setattr(bench, "in_one_thread", measured)
    done = here("bench", "selection", "--data", "x", "--ablate", "--sets", "a,b", cwd=tmp_path)
    assert done.returncode == 3
    assert asked[0][:6] == ["--data", "x", "--systems", "", "--sets", "a,b"]
    assert asked[0][-1] == "--ablate"
