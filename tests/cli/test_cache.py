"""`--cache` of `crp ask` and `crp preview`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Here

TEXT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.\n"


def test_directives_are_acted_on_or_refused_by_name(here: Here, tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text(TEXT)
    asking = ("When was the reactor commissioned?", "--store", "kb")
    then, later = ({"CRP_CLOCK": f"2026-05-25T{hour}:00:00Z"} for hour in (12, 13))
    assert here("ingest", "page.txt", "--store", "kb", cwd=tmp_path, **then).returncode == 0
    said = here("ask", *asking, "--cache", "max-age=60", "--json", cwd=tmp_path, **later)
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert "cache=max-age=60" in answer["report"]["flags"]
    assert [fact["freshness_score"] for fact in answer["envelope"]["facts"]] == [0.0]
    assert here("preview", *asking, "--cache", "no-store", cwd=tmp_path).returncode == 0
    for command in ("ask", "preview"):
        assert here(command, *asking, "--cache", "no-cache", cwd=tmp_path).returncode == 0
        said = here(command, *asking, "--cache", "keep-it", cwd=tmp_path)
        assert said.returncode != 0
        assert "keep-it" in said.stderr
        assert "Traceback" not in said.stderr
