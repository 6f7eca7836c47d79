"""`crp assemble`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crp_integrations.envelope.cfs.records import AssembledContext
from tests.cli.conftest import Here
from tests.cli.test_cli import PAGE

QUERY = "How much power does the Meridian reactor deliver?"
FIXED = {"CRP_CLOCK": "2026-05-25T12:00:00Z", "CRP_KEY": "cd" * 32}


@pytest.fixture
def kb(here: Here, tmp_path: Path) -> Path:
    (tmp_path / "meridian.md").write_text(PAGE)
    assert here("ingest", "meridian.md", "--store", "kb", cwd=tmp_path, **FIXED).returncode == 0
    return tmp_path


def test_assemble_prints_the_context_and_what_was_counted(here: Here, kb: Path) -> None:
    shown = here("assemble", QUERY, "--store", "kb", cwd=kb, **FIXED)
    assert shown.returncode == 0, shown.stderr
    assert f"[DOC: {(kb / 'meridian.md').as_posix()}]" in shown.stdout
    for part in ("412 megawatts", "Context: greedy", "of 1200", "blake3:", "tiktoken:"):
        assert part in shown.stdout


def test_assemble_json_is_the_record(here: Here, kb: Path) -> None:
    options = ["--store", "kb", "--budget", "840", "--packing", "interleaved",
               "--model", "gpt-4o", "--json"]  # fmt: skip
    shown = [here("assemble", QUERY, *options, cwd=kb, **FIXED).stdout for _ in range(2)]
    assert shown[0] == shown[1]
    context = AssembledContext.model_validate(json.loads(shown[0]))
    assert (context.packing, context.budget.available) == ("interleaved", 40)
    assert context.rendered_tokens <= 40


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--packing", "random"], "packing 'random' is not usable"),
        (["--budget", "-5"], "budget is -5"),
        (["--store", "nowhere"], "there is no store"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    here: Here, kb: Path, words: list[str], sentence: str
) -> None:
    place = [] if "--store" in words else ["--store", "kb"]
    said = here("assemble", QUERY, *words, *place, cwd=kb, **FIXED)
    assert said.returncode == 1
    assert sentence in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert said.stdout == ""
