"""The bench of the relay: times of steps, the quoting server, and one small run."""

from __future__ import annotations

import threading
import time

import pytest

from tests.bench import relay as bench
from tests.bench.measure import ONE_THREAD
from tests.bench.relay import ROWS, Steps, main, table


def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_step_is_what_it_takes_without_the_steps_inside_it() -> None:
    steps = Steps()
    with steps.step("outer"):
        busy(0.02)
        with steps.step("inner"):
            busy(0.03)
    # Another thread's steps are its own, and no part of a step that is open here.
    with steps.step("waiting"):
        other = threading.Thread(target=lambda: _in(steps, "beside", 0.02))
        other.start()
        other.join()
    taken = steps.taken()
    assert taken["outer"] == pytest.approx(20, abs=8)
    assert taken["inner"] == pytest.approx(30, abs=8)
    assert taken["beside"] == pytest.approx(20, abs=8)
    assert taken["waiting"] < 8
    assert steps.taken() == {}


def _in(steps: Steps, name: str, seconds: float) -> None:
    with steps.step(name):
        busy(seconds)


def test_a_small_run_tells_what_the_relay_costs_and_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    report = bench.run((1, 2), facts=120, calls=8, rounds=1, budget_tokens=300, embedder="hash")
    assert report["mean"]["model_calls"] == 1.0
    assert 0 < report["mean"]["tokens"] <= 300
    # Warming up, and a round a level: every relayed call is a window of its own.
    assert report["windows_verified"] == 8 + 2 * 8
    for level in report["levels"].values():
        apart = level["overhead_cpu_ms"] - level["embedding_cpu_ms"]
        assert level["apart_from_both_cpu_ms"] == pytest.approx(
            apart - level["verification_cpu_ms"]
        )
        assert sum(level["steps"].values()) == pytest.approx(level["overhead_cpu_ms"])
        assert level["relay"]["cpu_ms"] > level["bare"]["cpu_ms"] > 0
        assert {"gather", "envelope", "close", "dpe.2.comparison"} <= level["steps"].keys()
        stages = {name: ms for name, ms in level["steps"].items() if name.startswith("dpe.")}
        # All stages of the default engine and nothing of anything else: one comparison is in the
        # place of stages 2, 3 and 5.
        numbers = {int(name.split(".")[1]) for name in stages}
        assert numbers == set(range(1, 14)) - {3, 5}
        assert level["verification_cpu_ms"] == pytest.approx(sum(stages.values()))
    assert [bar["met"] for bar in report["bars"]] == [
        level["apart_from_both_cpu_ms"] <= bench.WANTED_MS for level in report["levels"].values()
    ]
    # Nothing stays wrapped after the run.
    from crp_integrations.litellm import deployments

    assert deployments.WatchedTurn.begin.__name__ == "begin"
    rows = list(table(report))
    assert len(rows) == len(ROWS) + len(report["levels"]["1"]["steps"])
    assert {len(row) for row in rows} == {3}
    with pytest.raises(SystemExit):
        main(["--embedder", "none"])
    assert "invalid choice" in capsys.readouterr().err
