"""An option that is given as an empty text is refused: it is not one that is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.cli.app import COMMANDS
from crp_integrations.cli.command_groups import load_command
from crp_integrations.receipt.records import write
from tests.cli.conftest import Here
from tests.cli.test_cli import KEY, SESSION

FACT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."
QUESTION = "When was the Meridian reactor commissioned?"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    with Relay.open(folder / "kb", key=KEY) as relay:
        relay.add([FACT])
        answer = relay.ask(QUESTION, model="extractive", session_id=SESSION)
        receipt = relay.receipt(answer.receipt_id)
        assert receipt is not None
        (folder / "answer.json").write_bytes(write(receipt))
    return folder


@pytest.mark.parametrize(
    ("words", "name"),
    [
        # Each of these went on, and was another command than the one that was meant.
        (["receipt", "verify", "answer.json", "--key", ""], "--key"),
        (["receipt", "verify", "answer.json", "--proof", "", "--head", ""], "--proof"),
        (["ask", QUESTION, "--store", "kb", "--model", "extractive", "--policy", ""], "--policy"),
        (["fabric", "stats", "--store", "kb", "--tenant", ""], "--tenant"),
        (["fabric", "stats", "--store", "kb", "--shared="], "--shared"),
        (["audit", "verify", "--store", "kb", "--file", ""], "--file"),
        (["audit", "export", "--store", "kb", "--since", ""], "--since"),
        (["audit", "show", "", "--store", "kb"], "session"),
        (["receipt", "list", "--store", "kb", "--session", ""], "--session"),
        (["guard", "test", "--bundle", ""], "--bundle"),
        (["receipt", "replay", "answer.json", "--without", ""], "--without"),
        (["memory", "lint", ""], "FILE"),
    ],
)
def test_an_empty_text_is_refused_by_the_options_name(
    here: Here, world: Path, words: list[str], name: str
) -> None:
    done = here(*words, cwd=world, CRP_KEY=KEY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"crp: {name} is empty; give ")


def test_what_is_left_out_and_an_empty_variable_are_as_before(here: Here, world: Path) -> None:
    done = here("receipt", "verify", "answer.json", "--json", cwd=world)
    assert (done.returncode, json.loads(done.stdout)["pinned"]) == (0, False)
    done = here("fabric", "stats", "--store", "kb", cwd=world, CRP_KEY=KEY, CRP_SESSION="")
    assert done.returncode == 0


def test_every_command_has_it() -> None:
    for name, (place, _) in COMMANDS.items():
        left = [load_command(place, name)]
        while left:
            command = left.pop()
            left += list(getattr(command, "commands", {}).values())
            options = [one for one in command.params if one.param_type_name == "option"]
            assert all("process_value" in vars(one) for one in options), name
