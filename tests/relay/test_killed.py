"""Killed in the middle of windows: sessions go on, chains verify, nothing is charged twice."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from crp_integrations.session.budget import charge
from crp_integrations.vocabulary import RiskLevel
from tests.relay.asking_on import SESSIONS, opened

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("answered", [1, 4, 9])
def test_a_killed_relay_goes_on_where_it_was(tmp_path: Path, answered: int) -> None:
    asking = subprocess.Popen(
        [sys.executable, "-m", "tests.relay.asking_on", str(tmp_path / "kb")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert asking.stdout is not None
    told = [asking.stdout.readline().strip() for _ in range(answered)]
    # Within the next window, at another point of it each time.
    time.sleep(0.003 * answered)
    asking.kill()
    told += asking.stdout.read().split()
    asking.wait()

    with opened(tmp_path / "kb") as relay:
        trail = relay.verify()
        costs = relay.settings.sessions.budget.costs
        with relay.fabric.begin(write=False) as transaction:
            windows, charged = set(), 0
            for session_id in SESSIONS:
                seals = transaction.journal.seals(session_id)
                nodes = transaction.sessions.windows(session_id)
                assert [node.window_id for node in nodes] == [seal.window_id for seal in seals]
                left = 1.0
                for seal in seals:
                    left = charge(left, RiskLevel(seal.risk_level), costs)
                session = transaction.sessions.session(session_id)
                assert left == (session.safety_budget if session else 1.0)
                charged += left < 1.0
                windows |= {seal.window_id for seal in seals}
        assert charged
        # What was told to the caller is there; one more may be that was not told any more.
        assert set(told) <= windows
        assert len(windows) - len(told) in (0, 1)
        assert trail.windows == len(windows)
        again = relay.ask("Who operates the reactor?", session_id=SESSIONS[0])
        assert again.window_number >= 1
        assert relay.verify().windows == len(windows) + 1
