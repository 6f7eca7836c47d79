"""Receipts of windows with the shipped embedder and verifier, replayed in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL, Replayed, ReplayTools
from crp_integrations.receipt.verify import verify
from crp_integrations.relay.defaults import default_embedder, default_verifier
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, ScriptedModel
from tests.relay.conftest import KEY

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "adr").glob("00[0-2]*.md"))[:12]
QUESTION = "Which hash names a fact, and what does the ETag of an envelope cover?"
ANSWER = (
    "The ETag is a hash of the set of fact ids. Fact ids are random numbers of 512 bits. "
    "An envelope that is empty has tier D."
)
MORE = "An envelope's text never exceeds its budget of tokens. The ETag is a hash of fact ids."


@pytest.fixture(scope="module")
def relay() -> Relay:
    made = Relay.open(
        MemoryStore(), key=KEY, clock=NOON, models=ScriptedModel(ANSWER, MORE), receipts=True
    )
    made.ingest([str(page) for page in PAGES])
    return made


@pytest.fixture(scope="module")
def receipts(relay: Relay) -> list[Receipt]:
    first = relay.ask(QUESTION, model="gpt-4o")
    second = relay.ask(
        "How long may an envelope's text be?",
        model="gpt-4o",
        session_id=first.session_id,
        prior=[first.as_prior()],
        budget_tokens=300,
    )
    found = [relay.receipt(one.receipt_id) for one in (first, second)]
    return [read(write(one)) for one in found if one is not None]


def elsewhere(receipt: Receipt, folder: Path, seed: str) -> Replayed:
    """What a process with nothing but the file makes of it."""
    path = folder / "receipt.json"
    path.write_bytes(write(receipt))
    done = subprocess.run(
        [sys.executable, "-m", "tests.receipt.again", str(path)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return Replayed.model_validate_json(done.stdout)


@pytest.mark.requirement("005-15.4-3")
@pytest.mark.parametrize("seed", ["0", "77"])
def test_windows_of_real_engines_replay_elsewhere(
    receipts: list[Receipt], tmp_path: Path, seed: str
) -> None:
    assert len(receipts) == 2
    for receipt in receipts:
        assert verify(write(receipt)).ok
        found = elsewhere(receipt, tmp_path, seed)
        assert (found.same, found.whole) == (True, True), found.parts


def test_the_engines_say_it_again(relay: Relay, receipts: list[Receipt]) -> None:
    tools = ReplayTools(
        counter=relay._world.engines.counter_for("gpt-4o"),
        embedder=default_embedder(),
        verifier=default_verifier("alignment"),
        policy=RegoEngine(),
    )
    for receipt in receipts:
        states = {one.name: one.state for one in replay(receipt, tools).parts}
        assert set(states.values()) == {EQUAL}, states
