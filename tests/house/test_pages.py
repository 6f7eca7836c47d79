"""Code, commands and outputs on the pages of the documentation are true.

The Python blocks of a page, in order, are one script. What a reader has already stands above them
in a comment that begins with `setup`; a `text` block below the comment `output` is printed by the
script; a block below the comment `not run: REASON` is only compiled.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from crp_integrations.cli.app import app
from crp_integrations.dpe.judge.verdict import EXACT_ERRORS
from crp_integrations.dpe.records import DOUBTS, REJECTED, Claim, Report
from crp_integrations.dpe.stages.fidelity import FABRICATION_KIND
from crp_integrations.vocabulary import ClaimStatus, DistortionType, ErrorKind, RiskLevel
from tests.cli.test_fabric import _leaves
from tests.commands import script
from tests.house.pages import blocks, page_script
from tests.requirements.rows import ROOT

DOCS = ROOT / "docs"
FOLDERS = ("start", "how-to", "reference", "explanation", "evidence")
PAGES = [
    DOCS / "index.md",
    *(page for name in FOLDERS for page in sorted((DOCS / name).rglob("*.md"))),
]
NAMES = [page.relative_to(DOCS).as_posix() for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.endswith("_KEY")]:
        monkeypatch.delenv(name)
    code = page_script(page)
    if not code:
        pytest.skip("the page has no Python")
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    done = script(tmp_path / "page.py", cwd=tmp_path, PYTHONUTF8="1", COLUMNS="100")
    assert done.returncode == 0, done.stderr[-3000:]
    rest = done.stdout
    for block in blocks(page):
        if block.language == "text" and block.mark == "output":
            assert block.body in rest
            rest = rest.partition(block.body)[2]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    known = {
        name.removeprefix("crp "): {option for one in command.params for option in one.opts}
        for name, command in _leaves(group).items()
    }
    for block in blocks(page):
        if block.language != "bash":
            continue
        done = subprocess.run(["bash", "-n"], input=block.body, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        for line in re.sub(r"\\\n\s*", "", block.body).splitlines():
            found = re.match(r"(?:\w+=\S+ )*crp ([a-z].*)", line)
            if not found:
                continue
            words = re.split(r"\s+", re.split(r"\s(?:[#|>]|&&)", found[1])[0])
            name = max(
                (one for one in known if " ".join(words).startswith(one)), key=len, default=None
            )
            assert name is not None, line
            for option in re.findall(r"(?<=\s)--[a-z-]+", " ".join(words)):
                assert option in known[name] | {"--help", "--version"}, line


def test_the_page_on_the_report_names_every_field() -> None:
    text = (DOCS / "reference" / "report.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    fields = {name for record in (Report, Claim) for name in record.model_fields}
    assert fields - named == set()
    assert set(ClaimStatus) | set(RiskLevel) <= set(re.findall(r"[A-Z_]+", text))


def test_the_page_on_findings_shows_every_kind_and_error() -> None:
    page = DOCS / "reference" / "findings.md"
    text = page.read_text(encoding="utf-8")
    shown = {
        line.split()[1]
        for block in blocks(page)
        if block.mark == "output"
        for line in block.body.splitlines()
        if " | " in line
    }
    assert {*EXACT_ERRORS, *DOUBTS, REJECTED} - shown == set()
    assert set(ErrorKind) <= set(re.findall(r"[A-Z_]+", text))
    # What the arithmetic of the document alone finds is named.
    literal = {FABRICATION_KIND, *DistortionType}
    assert literal <= set(re.findall(r"`(\w+)`", text))
