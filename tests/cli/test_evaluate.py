"""`crp eval selection` and `crp eval rot` measure a user's own questions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.cli.conftest import Here
from tests.evaluation.test_selection import made_up


def test_the_evidence_in_the_context_is_measured(here: Here, tmp_path: Path) -> None:
    made_up(tmp_path, "towns")
    done = here(
        "eval", "selection", "--data", "towns", "--json", "--cache", "kept",
        "--systems", "crp", "--budgets", "256", "--queries", "2", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["results"]["crp"]["towns"]["compliance@256"] == 1.0
    assert report["settings"]["sets"]["towns"]["questions"] == 2
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_the_answer_in_a_growing_store_is_measured(here: Here, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "asked.jsonl.gz", "wt", encoding="utf-8") as file:
        for number, thing in enumerate(("harbour", "quarry", "mill")):
            passage = f"The {thing} was built by Ada Quill the {number}th after the flood."
            row = {"query": f"who built the {thing}", "answers": [f"Ada Quill the {number}th"]}
            file.write(json.dumps({**row, "title": thing, "passage": passage}) + "\n")
    done = here(
        "eval", "rot", "--data", "asked.jsonl.gz", "--sizes", "2,3", "--budgets", "128",
        "--json", "--cache", "kept", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["results"]["distractors"]
    assert [(one["passages"], one["answer"]) for one in points] == [(2, 1.0), (3, 1.0)]


def test_numbers_and_systems_that_there_are_not_are_refused(here: Here, tmp_path: Path) -> None:
    made_up(tmp_path, "towns")
    for option, value, said in (
        ("--budgets", "x", "--budgets is 'x', wanted comma-separated numbers >= 1"),
        ("--systems", "dense", "system 'dense' is not one of crp, literal"),
        ("--data", "nowhere", "wanted a folder with documents.jsonl.gz"),
    ):
        given = {"--data": "towns", option: value}
        words = [word for pair in given.items() for word in pair]
        refused = here("eval", "selection", *words, cwd=tmp_path)
        assert refused.returncode == 1
        assert said in refused.stderr
