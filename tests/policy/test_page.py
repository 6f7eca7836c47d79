"""The page on policies is true: its code runs, its table has every directive."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from crp_integrations.policy.directives import DIRECTIVES
from tests.house.pages import blocks
from tests.requirements.rows import ROOT

PAGE = ROOT / "docs" / "policy.md"


def test_the_code_of_the_page_prints_what_it_says(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    code = [block.body for block in blocks(PAGE) if block.language == "python"]
    script.write_text("\n".join(code), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    verdict, syntax, relaxed = run.stdout.splitlines()
    assert verdict.startswith("POLICY_VIOLATION [('halt-on HIGH', 'HIGH', 'below HIGH'), ")
    assert "('require-entailment 0.85', '0.05', 'at least 0.85')" in verdict
    assert "('block-fabrication', '2 found', 'none')" in verdict
    assert syntax == "unknown directive 'blok-pii' in column 15 15"
    assert relaxed == "halt-on HIGH CRITICAL"


def test_the_table_of_the_page_has_every_directive() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"[a-z-]+", row)}
    assert [name for name in DIRECTIVES if name not in named] == []
