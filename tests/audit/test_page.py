"""The page about the trail is true: its Python runs, its commands and words exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crp_integrations.cli.app import app
from crp_integrations.stores.keys import FileKeyRing
from crp_integrations.vocabulary import TrailState
from tests.requirements.rows import ROOT

PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")


def test_its_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRP_KEY", raising=False)
    (tmp_path / "crp-store").mkdir()
    service, rotation = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(service, "docs/audit.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "1\n"
    exec(compile(rotation, "docs/audit.md", "exec"), {"__name__": "page"})
    assert len(FileKeyRing(tmp_path / "crp-store" / "keys").retired()) == 1


def test_its_commands_and_words_exist() -> None:
    for command in ("verify", "export", "show"):
        told = CliRunner().invoke(app, ["audit", command, "--help"], env={"COLUMNS": "200"})
        assert told.exit_code == 0
        asked = re.findall(rf"^crp audit {command} (.*?)(?:  #|$)", PAGE, re.MULTILINE)
        for option in re.findall(r"--[a-z]+", " ".join(asked)):
            assert option in told.output
    for state in TrailState:
        assert f"`{state}`" in PAGE
