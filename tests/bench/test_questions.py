"""The measurement of sub-queries counts what it says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.bench import questions

QUESTION = "Who is the mother of the director of film X?"
STEPS = ["return director of film X", "return mother of #1"]
PLAIN = {
    "id": "HOTPOT_1",
    "question": "What is the capital of France?",
    "steps": ["return capital"],
}


def written(path: Path, rows: list[object]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_too_many_and_too_few_both_cost() -> None:
    wanted = ["red house", "green door"]
    right = questions.score(["green door", "red house"], wanted)
    assert right == {
        "best_match_f1": 1.0,
        "aligned_f1": 1.0,
        "count_agreement": 1.0,
        "count_error": 0.0,
    }
    few = questions.score(["red house"], wanted)
    assert few["best_match_f1"] == pytest.approx(2 / 3)
    assert few["aligned_f1"] == pytest.approx(2 / 3)
    many = questions.score(["red house", "green door", "red house"], wanted)
    assert (many["best_match_f1"], many["count_error"]) == (1.0, 1.0)
    assert many["aligned_f1"] == pytest.approx(4 / 5)
    assert questions.score(["blue"], wanted)["best_match_f1"] == 0.0


def test_the_report_has_both_halves_and_the_share_that_is_split(tmp_path: Path) -> None:
    bridge = {"id": "CWQ_1", "question": QUESTION, "steps": STEPS}
    data = written(tmp_path / "data.jsonl.gz", [PLAIN] * 30 + [bridge, PLAIN] * 2)
    folder = tmp_path / "sets" / "small"
    folder.mkdir(parents=True)
    written(folder / "queries.jsonl.gz", [{"query": QUESTION}, {"query": PLAIN["question"]}])
    report = questions.run(data, tmp_path / "sets")
    assert (report["develop"]["questions"], report["report"]["questions"]) == (32, 2)
    assert report["develop"]["rules"]["split"] == pytest.approx(2 / 32, abs=1e-4)
    assert report["develop"]["rules"]["by_source"]["CWQ"]["count_agreement"] == 1.0
    assert report["develop"]["whole"]["by_source"]["CWQ"]["count_agreement"] == 0.0
    assert report["single"] == {"small": {"queries": 2, "split": 0.5, "sub_queries": 1.5}}


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(tmp_path / "data.jsonl.gz", [PLAIN] * 34)
    out = tmp_path / "out.json"
    questions.main(["--data", str(data), "--json", str(out)])
    assert json.loads(out.read_text()) == json.loads(capsys.readouterr().out)
