"""The measurement of sentence ends counts what it says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.bench.peers.splitters import ends, installed
from tests.bench.sentences import main, score


def test_score_counts_inner_boundaries() -> None:
    right = score([["It works.", "It lasts."], ["One."]])
    assert (right["f1"], right["boundaries"]) == (1.0, 1.0)
    wrong = score([["It works", "it lasts."]])
    assert (wrong["recall"], wrong["f1"]) == (0.0, 0.0)


def test_pieces_are_found_again_in_the_text() -> None:
    text = "It works.  It lasts. It works."
    assert ends(text, ["It works. ", " It lasts. ", "It works."]) == [9, 20, 30]
    assert ends(text, ["It works.", "", "changed by the splitter", "It lasts."]) == [9, 20]


def test_peers_split_the_same_documents() -> None:
    peers = installed()
    if not peers:
        pytest.skip("no peer is installed")
    for _, splitter in peers:
        found = score([["It works well.", "It lasts long."]], splitter)
        assert (found["f1"], found["boundaries"]) == (1.0, 1.0)


def test_the_command_tells_of_ours_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "made.jsonl.gz", tmp_path / "out.json"
    rows = [{"document": "a", "sentence": text} for text in ("It works.", "Dr. Lowe agrees.")]
    data.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    main(["--data", str(data), "--json", str(out)])
    results = json.loads(out.read_text())["results"]
    assert next(iter(results)) == "crp"
    assert results["crp"]["f1"] == 1.0
    assert "crp" in capsys.readouterr().out
