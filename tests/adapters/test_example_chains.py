"""Five chains of the kinds that tutorials teach: each works with three lines added, and without."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from tests.forking import FRAMEWORKS, run
from tests.requirements.rows import ROOT

MARK = "# added"
# What the example says with the lines, that it cannot say without them.
CHAINS = {
    "langchain_rag": ("risk: HIGH", "NUMBER_CHANGED"),
    "langchain_conversation": ("withheld",),
    "langchain_multi_query": ("risk: LOW",),
    "langchain_agent": ("risk: LOW", "withheld"),
    "llama_index_router": ("risk: LOW",),
}


def lines(name: str) -> list[str]:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()


def said_by(script: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a script prints; one that listens to the whole process has a process of its own."""
    if ".listen()" not in script.read_text(encoding="utf-8"):
        capsys.readouterr()
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = run([script], cwd=folder, env=environment, modules=FRAMEWORKS)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_works_with_three_lines_added_and_without_them(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = lines(name)
    added = [line for line in whole if line.endswith(MARK)]
    assert len(added) == 3
    mentions = [line for line in whole if "crp_integrations" in line or "CRP" in line]
    code = [line for line in mentions if not line.lstrip().startswith("#")]
    assert set(code) <= set(added), "all that is of this package is marked"
    script = tmp_path / f"{name}.py"
    script.write_text("\n".join(line for line in whole if line not in added), encoding="utf-8")
    without = said_by(script, tmp_path, capsys)
    assert without.strip()
    with_them = said_by(ROOT / "examples" / f"{name}.py", tmp_path, capsys)
    for said in CHAINS[name]:
        assert said in with_them
        assert said not in without
