"""The verifier's bench over a made-up file: the shape that it writes, and what its figures mean."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.bench.verifier import main, markdown
from tests.bench.verifier_systems import auroc, figures

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


def test_the_file_holds_systems_datasets_tasks_and_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "made.jsonl.gz", tmp_path / "out.json"
    data.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in ROWS).encode()))
    main(["--data", str(data), "--json", str(out)])
    report = json.loads(out.read_text())
    results = report["results"]
    assert set(results) == {"crp", "literal", "always_positive"}
    assert set(results["crp"]["made"]) == {"all", "macro", "made", "qa"}
    assert results["crp"]["made"]["all"]["cases"] == 3
    # Without a judge the invented sentence is no finding: it was not read.
    assert results["crp"]["made"]["qa"]["unread"] == 1.0
    assert results["literal"]["made"]["all"]["auroc"] == 1.0
    assert {"precision", "recall", "cpu_ms"} <= set(results["literal"]["made"]["all"])
    assert results["always_positive"]["made"]["all"]["balanced_accuracy"] == 0.5
    assert json.loads(capsys.readouterr().out)["results"] == results
    assert "| made | all | literal |" in markdown(report)


def test_figures_of_known_scores() -> None:
    found = figures([0.9, 0.1, 0.8, 0.3], [True, True, False, False], cut=0.5)
    assert (found["balanced_accuracy"], found["f1"], found["flagged"]) == (0.5, 0.5, 0.5)
    assert (found["precision"], found["recall"]) == (0.5, 0.5)
    assert auroc([0.9, 0.1, 0.5, 0.5], [True, False, True, False]) == 0.875
