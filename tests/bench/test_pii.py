"""The bench of personal data: how spans are matched, and what the command writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from crp_integrations.dpe.pii.spans import KINDS
from tests.bench.pii import main, ours, score


def test_spans_match_exactly_or_by_overlap_and_once() -> None:
    text = "Write to ann@example.org or call 01234 567890."
    gold = [("EMAIL_ADDRESS", 9, 24), ("PHONE_NUMBER", 33, 45)]
    found = score([(text, gold)], lambda _: [("EMAIL_ADDRESS", 9, 24), ("PHONE_NUMBER", 39, 45)])
    assert found["EMAIL_ADDRESS"]["f1"] == 1.0
    assert (found["PHONE_NUMBER"]["f1"], found["PHONE_NUMBER"]["overlap_f1"]) == (0.0, 1.0)
    twice = score(
        [(text, gold[:1])], lambda _: [("EMAIL_ADDRESS", 9, 12), ("EMAIL_ADDRESS", 13, 24)]
    )
    assert twice["EMAIL_ADDRESS"]["overlap_precision"] == 0.5
    nothing = score([(text, gold)], lambda _: [])
    assert nothing["PHONE_NUMBER"]["f1"] == 0.0


def test_our_kinds_bear_the_names_of_the_data_set() -> None:
    from tests.bench.pii import SAME

    assert set(SAME) <= set(KINDS)
    text = "Write to ann@example.org."
    assert ours(text) == [("EMAIL_ADDRESS", 9, 24)]


def test_presidio_runs_without_fetching_anything() -> None:
    pytest.importorskip("presidio_analyzer")
    pytest.importorskip("spacy")
    from tests.bench.peers.presidio import patterns

    # The suite lets no call out of this machine through.
    _, find = patterns()
    assert ("EMAIL_ADDRESS", 9, 24) in find("Write to ann@example.org.")


def test_the_command_writes_f1_by_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "made.jsonl.gz", tmp_path / "out.json"
    row = {
        "text": "Write to ann@example.org.",
        "spans": [{"start": 9, "end": 24, "type": "EMAIL_ADDRESS"}],
    }
    data.write_bytes(gzip.compress(json.dumps(row).encode()))
    main(["--data", str(data), "--json", str(out)])
    results = json.loads(out.read_text())["results"]
    assert results["crp"]["types"]["EMAIL_ADDRESS"]["f1"] == 1.0
    assert "EMAIL_ADDRESS" in capsys.readouterr().out
