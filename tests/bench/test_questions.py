"""The measurement of sub-queries counts what it says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from crp_integrations.errors import RequestError
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


def test_references_are_put_in_words_and_operations_are_no_needs() -> None:
    assert questions.needs(STEPS) == ["director of film X", "mother of director of film X"]
    steps = [
        "return stories in  Williams Tower",
        "return stories in Skanska building",
        "return the number of #1",
        "return the number of #2",
        "return which is highest of #3 , #4",
    ]
    assert questions.needs(steps) == ["stories in Williams Tower", "stories in Skanska building"]
    assert questions.needs(["return the sum of #7"]) == ["the sum of"]


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


def test_the_pairing_is_the_best_there_is() -> None:
    # Taking the best pair first (a b c with a b c d) would leave the other one nothing.
    found = ["alpha beta gamma", "alpha beta gamma delta"]
    wanted = ["alpha beta gamma delta", "delta epsilon"]
    best = questions.overlap(found[0], wanted[0]) + questions.overlap(found[1], wanted[1])
    assert questions.score(found, wanted)["aligned_f1"] == pytest.approx(2 * best / 4)


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


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no rows"),
        ([PLAIN], "has 1 rows, wanted at least 32"),
        ([{**PLAIN, "steps": []}] * 40, "row 1 of"),
        ([1], "line 1 is no JSON object"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, rows: list[object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        questions.run(written(tmp_path / "data.jsonl.gz", rows))


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere"):
        questions.run(tmp_path / "nowhere.jsonl.gz")
    plain = tmp_path / "plain.jsonl.gz"
    plain.write_text("nothing", encoding="utf-8")
    with pytest.raises(RequestError, match="no JSON object"):
        questions.run(plain)


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(tmp_path / "data.jsonl.gz", [PLAIN] * 34)
    out = tmp_path / "out.json"
    questions.main(["--data", str(data), "--json", str(out)])
    assert json.loads(out.read_text()) == json.loads(capsys.readouterr().out)
