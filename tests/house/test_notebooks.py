"""The notebooks in `examples/` run without Jupyter, key or network, and show what they give."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.commands import script
from tests.house.notebooks import cells
from tests.requirements.rows import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MOST_CELLS = 12
PLACES = re.compile(
    r"(?<![\w<.])/(?:home|root|tmp|usr|work|Users|var|opt)/|[A-Z]:\\\\|site-packages"
)
# The last digits of a score may differ between machines.
SCORES = re.compile(r"\d\.\d{3}")


def _stored(path: Path) -> list[object]:
    return [cell["outputs"] for cell in cells(path) if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_it_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.endswith("_KEY")]:
        monkeypatch.delenv(name)
    done = script("-m", "tests.house.notebooks", path, cwd=tmp_path, PYTHONUTF8="1")
    assert done.returncode == 0, done.stderr[-3000:]
    given, shown = (
        SCORES.sub("0.000", json.dumps(one)) for one in (json.loads(done.stdout), _stored(path))
    )
    assert given == shown, f"python -m tests.house.notebooks --write {path.name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_holds_nothing_of_the_machine(path: Path) -> None:
    found = cells(path)
    assert len(found) <= MOST_CELLS
    assert PLACES.search(json.dumps(_stored(path))) is None
    assert all(cell["execution_count"] is None for cell in found if cell["cell_type"] == "code")
    assert "_repr_html_" not in path.read_text(encoding="utf-8")
    assert any("crp-view" in json.dumps(outputs) for outputs in _stored(path))
    assert found[0]["source"].startswith("# ")


def test_there_are_three() -> None:
    assert [path.stem.removeprefix("notebook_") for path in NOTEBOOKS] == [
        "agent",
        "evaluation",
        "langchain_rag",
    ]
