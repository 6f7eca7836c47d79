"""The command `crp` within this process, for tests that a process of its own adds nothing to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crp_integrations.cli.app import main

Here = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The command within this process, where everything heavy is loaded already."""
    for name in os.environ:
        if name.startswith("CRP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        words = ["crp", *map(str, arguments)]
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", words)
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                main()
                code = 0
            except SystemExit as leaving:
                code = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    return run
