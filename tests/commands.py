"""The command `crp`, within this process or, where an interpreter's start matters, in a new one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from crp_integrations.cli.app import main
from tests.requirements.rows import ROOT

Here = Callable[..., "subprocess.CompletedProcess[str]"]
MODULE = "crp_integrations.cli.app"


def command(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `crp` in this process, where everything heavy is loaded already."""
    words = ["crp", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CRP_")]:
            patch.delenv(name)
        for name, value in {"COLUMNS": "120", **environment}.items():
            patch.setenv(name, value)
        patch.chdir(cwd)
        patch.setattr(sys, "argv", words)
        # A test may have closed the output.
        with redirect_stdout(out if sys.stdout else None), redirect_stderr(err):
            try:
                main()
            except SystemExit as leaving:
                code = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
    return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def process(
    *arguments: object, cwd: Path, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `crp` in a process of its own.

    Args:
        stdout: an open file; else what is written is kept.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CRP_")}
    return subprocess.run(
        [sys.executable, "-m", MODULE, *map(str, arguments)],
        cwd=cwd,
        env={**inherited, "COLUMNS": "120", "PYTHONUTF8": "1", **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=240,
    )


def script(
    *words: object, cwd: Path = ROOT, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run what the interpreter does with these words after its name."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **environment},
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )


@pytest.fixture
def here() -> Here:
    """The command within this process."""
    return command


def _text(stream: io.TextIOWrapper) -> str:
    # A command may close its output when nobody reads it.
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode("utf-8", "surrogateescape")
