"""The page about the trail is true: its commands and words exist."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from crp_integrations.cli.app import app
from crp_integrations.vocabulary import TrailState
from tests.requirements.rows import ROOT

PAGE = (ROOT / "docs" / "reference" / "trail.md").read_text(encoding="utf-8")


def test_its_commands_and_words_exist() -> None:
    for command in ("verify", "export", "show"):
        told = CliRunner().invoke(app, ["audit", command, "--help"], env={"COLUMNS": "200"})
        assert told.exit_code == 0
        asked = re.findall(rf"^crp audit {command} (.*?)(?:  #|$)", PAGE, re.MULTILINE)
        for option in re.findall(r"--[a-z]+", " ".join(asked)):
            assert option in told.output
    for state in TrailState:
        assert f"`{state}`" in PAGE
