"""The bench of many tenants runs on a server of its own."""

from __future__ import annotations

import json

import pytest

from tests.bench import tenants


def test_every_measure_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    tenants.measure([2, 3], 256)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["tenants"] for line in lines] == [2, 3]
    timed = ("make_ms", "open_and_read_ms", "planning_ms", "vacuum_analyze_s", "pg_dump_s")
    assert all(line[name] > 0 for line in lines for name in timed)
