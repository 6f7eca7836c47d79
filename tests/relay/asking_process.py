"""Asks in a few sessions until it is killed; prints each window once it was answered.

`python -m tests.relay.asking_process FOLDER`
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from crp_integrations import Relay
from tests.doubles import HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS

SESSIONS = tuple(f"crp_sess_{letter * 16}" for letter in "abc")
# Made up, so each answer costs of the safety budget.
SAID = "The reactor was built by Otto Brenner in 1871 for $9 million and closed in 1902."


def opened(folder: Path) -> Relay:
    """A relay over a folder whose model makes things up."""
    return Relay.open(
        folder,
        embedder=HashEmbedder(),
        models=ScriptedModel(*[SAID] * 10_000),
        # So cheap that the budget lasts.
        sessions={"budget": {"costs": {"medium": 0.02, "high": 0.10, "critical": 0.25}}},
        dispatch={"continue_incomplete": False},
    )


def main() -> None:
    """Ask on."""
    relay = opened(Path(sys.argv[1]))
    relay.add(list(FACTS))
    for session_id in itertools.cycle(SESSIONS):
        with relay.fabric.begin(write=False) as transaction:
            session = transaction.sessions.session(session_id)
        if session is not None and session.safety_budget < 0.5:
            continue
        print(relay.ask("Who operates the reactor?", session_id=session_id).window_id, flush=True)


if __name__ == "__main__":
    main()
