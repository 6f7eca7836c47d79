"""The measurement of the state hash runs and compares what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import hash as bench


def test_a_small_measurement_is_bit_equal() -> None:
    result = bench.measure(2_000, rounds=5)
    assert (result.facts, result.rounds, result.bit_equal) == (2_000, 5, True)
    assert result.formula_ms > 0
    assert result.change_max_ms >= result.change_median_ms


def test_a_difference_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.StateHash, "changed", lambda self, removed, items, epoch: self)
    assert not bench.measure(50, rounds=1).bit_equal


def test_the_result_is_written_where_asked(tmp_path: Path) -> None:
    bench.main(["--facts", "300", "--json", str(tmp_path / "out.json")])
    assert json.loads((tmp_path / "out.json").read_text())["facts"] == 300
