"""The verifier's bench over made-up files: the shape that it writes, and what its figures mean."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.bench.verifier import main, markdown
from tests.bench.verifier_systems import (
    Case,
    auroc,
    by_folds,
    calibration_error,
    figures,
    seen,
)
from tests.dpe.test_features_verifier import content

ROWS = [
    {"evidence": "The fee is 50 euros.", "claim": "The fee is 50 euros.", "label": "supported"},
    {"evidence": "The fee is 50 euros.", "claim": "The fee is 80 euros.", "label": "refuted"},
    {"evidence": "The fee is 50 euros.", "claim": "Nobody knows.", "label": None},
    {
        "task": "qa",
        "question": "How long?",
        "context": "The notice period is 30 days.",
        "answer": "It was signed by Nils Berg on 3 May 2019.",
        "hallucinated": True,
    },
]


def written(place: Path, rows: list[dict[str, object]]) -> Path:
    place.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    return place


def test_the_file_holds_systems_datasets_tasks_and_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = written(tmp_path / "made.jsonl.gz", ROWS), tmp_path / "out.json"
    main(["--data", str(data), "--json", str(out), "--systems", "crp,features,alignment"])
    report = json.loads(out.read_text())
    results = report["results"]
    assert set(results) == {"crp", "features", "alignment", "always_positive"}
    assert set(results["crp"]["made"]) == {"all", "macro", "made", "qa"}
    whole = results["crp"]["made"]["all"]
    assert whole["cases"] == 3
    assert whole["balanced_accuracy"] == whole["auroc"] == whole["f1"] == 1.0
    assert {"precision", "recall", "ece", "cpu_ms"} <= set(whole)
    assert results["features"] == results["crp"]
    assert results["always_positive"]["made"]["all"]["balanced_accuracy"] == 0.5
    assert all(isinstance(value, (int, float)) for value in results["crp"]["made"]["qa"].values())
    assert report["fitted"] == {"made": "unseen"}
    assert json.loads(capsys.readouterr().out)["results"] == results
    assert "| made | all | crp | 1.000 |" in markdown(report)


def test_figures_of_known_scores() -> None:
    found = figures([0.9, 0.1, 0.8, 0.3], [True, True, False, False], cut=0.5)
    assert (found["balanced_accuracy"], found["f1"], found["flagged"]) == (0.5, 0.5, 0.5)
    assert (found["precision"], found["recall"]) == (0.5, 0.5)
    assert auroc([0.9, 0.1, 0.5, 0.5], [True, False, True, False]) == 0.875
    assert calibration_error([0.1, 0.1, 0.9, 0.9], [False, False, True, True]) == pytest.approx(0.1)
    assert calibration_error([0.75] * 4, [True, True, True, False]) == 0.0


def test_folds_read_each_answer_by_a_file_that_did_not_see_it(tmp_path: Path) -> None:
    cases = [Case("t", "", "The fee is 50 euros.", "The fee is 50 euros.", False)]
    cases.append(Case("t", "", "The notice period is 30 days.", "Nils Berg left in 1954.", True))
    (tmp_path / "fold-0.json").write_bytes(content())
    given = json.loads(content())
    # A file that finds everything right.
    given["answer"]["value"] = [0.0] * len(given["answer"]["value"])
    given["answer"]["value"][0] = 0.0
    (tmp_path / "fold-1.json").write_text(json.dumps(given))
    (tmp_path / "folds.json").write_text(json.dumps({cases[0].source: 0, cases[1].source: 1}))
    say = by_folds(tmp_path)
    even = say(cases[1]).probability
    (tmp_path / "folds.json").write_text(json.dumps({cases[0].source: 1, cases[1].source: 0}))
    assert by_folds(tmp_path)(cases[1]).probability > even
    assert seen(cases, tmp_path, (), "x") == "by folds"
    assert seen(cases[:0], tmp_path, (), "x") == "unseen"
    assert seen(cases, None, ("x",), "x") == "seen"
