"""Every script in `examples/` runs as it stands, without a key and without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements.rows import ROOT

SCRIPTS = sorted((ROOT / "examples").glob("**/*.py"))
KEYS = ("KEY", "TOKEN", "SECRET")


def test_there_is_an_example_for_each_framework() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    for adapter in ("langchain", "llama_index", "litellm"):
        assert f"crp_integrations.{adapter}" in text


@pytest.mark.requirement("CARD-16")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs_without_a_key(script: Path, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.endswith(KEYS)}
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.strip(), "an example shows something"
