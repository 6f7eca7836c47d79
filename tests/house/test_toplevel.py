"""The top level of the repository, and no path of one machine in any file."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.requirements.rows import ROOT

TOP = {"pyproject.toml", "README.md", "LICENSE", "crp_integrations", "tests", "examples", "docs"}
MACHINE = re.compile(r"(?<![\w.])/(?:work|opt|root|home/\w+|tmp)/")
TEXT = {".py", ".md", ".toml", ".csv", ".json", ".jsonl", ".txt", ".html", ""}


def _files() -> list[str]:
    """Files that git keeps, or would keep; without git, whatever lies there."""
    if not (ROOT / ".git").exists():
        return [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file()]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return sorted({name for name in listed.decode().split("\0") if name and (ROOT / name).exists()})


@pytest.mark.requirement("CARD-15")
def test_the_top_level_holds_what_it_should_and_nothing_else() -> None:
    tops = {name.split("/")[0] for name in _files()}
    assert {name for name in tops if not name.startswith(".")} == TOP


def test_no_file_names_a_path_of_one_machine() -> None:
    wrong = []
    for name in _files():
        path = ROOT / name
        if path.suffix not in TEXT or name == "tests/house/test_toplevel.py":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if MACHINE.search(line):
                wrong.append(f"{name}:{number}")
    assert wrong == []


def test_no_unfinished_work_is_left_in_the_package() -> None:
    words = re.compile(r"\b(?:TODO|FIXME|XXX|placeholder)\b")
    wrong = [
        f"{name}:{number}"
        for name in _files()
        if name.startswith("crp_integrations/") and name.endswith(".py")
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert wrong == []
