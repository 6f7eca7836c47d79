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
from tests.relay.judges import MEASURED

SESSIONS = tuple(f"crp_sess_{letter * 16}" for letter in "abc")
# Wrong in one figure, so each answer costs of the safety budget.
SAID = f"{FACTS[1]} {FACTS[2]} The Meridian reactor delivers 900 megawatts."


def opened(folder: Path) -> Relay:
    """A relay over a folder whose model says a wrong figure."""
    return Relay.open(
        folder,
        embedder=HashEmbedder(),
        models=ScriptedModel(*[SAID] * 10_000),
        dpe=MEASURED,
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
