"""The measurement of receipts runs and checks what it measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import receipts


def test_a_small_measurement_replays_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "has_one_thread", lambda: True)
    arguments = ["--facts", "50", "--joined", "2", "--questions", "3", "--rounds", "2"]
    receipts.main([*arguments, "--json", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["facts"], found["questions"], found["candidates"]) == (50, 3, 50)
    # How much text that is: two passages, of the fewest words that one has, and what is between.
    assert found["joined"] == 2 and found["characters"] > 2 * 12
    assert found["replayed"] is True
    assert found["rounds"] == 2
    # What another hour's times are compared by.
    assert found["loop_ms"] > 0
    # Of the demands those that no load on the machine can change.
    assert found["bare_bytes"] < 40_000
    assert 0 < found["shown"] <= 50
    assert found["bare_bytes"] < found["packed_bytes"] < found["file_bytes"]


def test_a_replay_that_differs_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = type("Found", (), {"place": "here"})()
    monkeypatch.setattr(receipts.replay_context, "context", lambda made: (wrong, ""))
    with pytest.raises(AssertionError, match="differs at here"):
        receipts.measure(50, questions=1, rounds=1)
