"""The measurement of compaction on a small set of the same shape."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import compaction


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


def _data(folder: Path) -> Path:
    rest = "The quay is painted green and gulls nest there. Nobody minds them in spring. "
    passage = rest + "Crane 7 lifts 18 tons. " + rest
    _lines(
        folder / "rot" / "nq.jsonl.gz",
        [{"query": "How many tons does crane 7 lift?", "answers": ["18 tons"], "passage": passage}],
    )
    documents = [
        {
            "doc_id": f"d{n}",
            "title": "",
            "collection": "c",
            "text": f"Crane {n} lifts {n + 11} tons. {rest * 3}",
        }
        for n in range(9)
    ]
    query = {"query_id": "q", "query": "How many tons does crane 7 lift?", "collection": "c"}
    _lines(folder / "retrieval" / "books" / "documents.jsonl.gz", documents)
    _lines(
        folder / "retrieval" / "books" / "queries.jsonl.gz",
        [{**query, "evidence": [{"doc_id": "d7", "start": 0, "end": 22}]}],
    )
    return folder


def test_each_way_is_measured_on_answers_and_on_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = _data(tmp_path / "data"), tmp_path / "out.json"
    compaction.main(["--data", str(data), "--questions", "5", "--json", str(out)])
    found = json.loads(out.read_text(encoding="utf-8"))["results"]
    assert set(found) == {"nq", "books"}
    assert found["nq"]["ours, pack"]["kept"] == found["books"]["ours, pack"]["kept"] == 1.0
    assert found["books"]["ours, history"]["kept"] == 1.0
    assert found["books"]["old results cleared"]["kept"] in (0.0, 1.0)
    for row in found.values():
        for way, told in row.items():
            if way.startswith("ours"):
                assert told["reported"] == 1.0 and told["tokens"] <= 0.65
            elif way != "cases":
                # Where every sentence stands somewhere, nothing is gone.
                assert told["reported"] in (0.0, 1.0) and told["tokens"] <= 1.0
    assert found["books"]["LangChain trim_messages"]["reported"] == 0.0
    assert "LangChain Summarization" in found["books"]
    assert "centrality" in found["nq"]
    assert "centrality" not in found["books"]
    assert "LangChain trim_messages" in capsys.readouterr().out


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="neither"):
        compaction.main(["--data", str(tmp_path)])
