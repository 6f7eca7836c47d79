"""The bench of calls: one small run of every door."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.bench import calls as bench
from tests.bench.call_doors import DOORS
from tests.bench.measure import ONE_THREAD

STORED = ("Middleware", "Router", "gateway", "Engine", "ask")


def test_every_door_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    report = bench.run(at_a_time=(1,), rounds=1, calls=1, small=True)
    assert list(report["doors"]) == list(DOORS)
    for name, door in report["doors"].items():
        assert door["warm"]["1"]["cpu_ms"] > 0, name
        assert ("disk_bytes" in door) is any(part in name for part in STORED), name
        # A store with facts adds them to the prompt.
        assert (door["tokens"] > 20) is ("disk_bytes" in door and "empty" not in name), name
    # A wrapped retriever reads its passages and the question, an examination nothing.
    texts = {name: door["cold"]["texts"] for name, door in report["doors"].items()}
    assert texts["`CRPRetriever.wrap`, 4 passages"] == 3
    assert texts["`examine`, 4 passages"] == 0
    rows = bench.table(report).splitlines()
    assert len(rows) == 2 + len(DOORS)
    assert len({row.count("|") for row in rows}) == 1
    assert len(bench.table(report, *bench.PAGES["README.md"]).splitlines()) > 6


def test_a_call_that_holds_the_loop_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: passed[0], process_time=lambda: 0.0)
    monkeypatch.setattr(bench, "time", clock)

    async def holding(question: str) -> None:
        passed[0] += 0.05

    async def waiting(question: str) -> None:
        # Every tick sees a part of it.
        for _ in range(50):
            passed[0] += 0.001
            await asyncio.sleep(0.002)

    assert asyncio.run(bench.gap_ms(holding, ["a"] * 8, 8)) > 8 * 40
    assert asyncio.run(bench.gap_ms(waiting, ["a"], 1)) < 50
